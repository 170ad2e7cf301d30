"""`dpsql compare-budgets`: the items that each certificate buys, as tables, JSON and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.accounting import ApproximateDP
from dpsql.accounting.certificates.comparison import ComparedTotals, PurchasedItems, bought, figure_one, totals
from dpsql.cli.show import write_json
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["run"]

_FIGURE_ITEMS = 400
_COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8d5a97", "#c98a1b", "#4a4a4a")
_CERTIFICATES = {"pure": "pure", "theorem2": "theorem2 (2019)", "zcdp": "zcdp (default)", "optimal": "optimal"}


def run(
    total: ApproximateDP, *, epsilons: Sequence[Epsilon], items: Sequence[int], as_json: bool, plot: Path | None
) -> None:
    """Write the tables for a total budget, and save the plot if `plot` is a path."""
    counts = [bought(each, total=total) for each in epsilons]
    costs = [totals(k, each, delta=total.delta) for each in epsilons for k in items]
    if plot is not None:
        _save_plot(counts, epsilons, delta=total.delta, path=plot)
    if as_json:
        promise = {"epsilon": float(total.epsilon), "delta": float(total.delta)}
        write_json({"total": promise, "items": list(map(asdict, counts)), "totals": list(map(asdict, costs))})
        return
    _write_counts(counts, total)
    _write_costs(costs, total.delta)


def _write_counts(counts: Sequence[PurchasedItems], total: ApproximateDP) -> None:
    click.echo(f"Items that {total} buys, all of delta spent on composition:\n")
    click.echo("item epsilon" + "".join(f"{name:>10}" for name in _CERTIFICATES))
    for row in counts:
        click.echo(f"{row.epsilon:12g}" + "".join(f"{getattr(row, name):10,}" for name in _CERTIFICATES))


def _write_costs(costs: Sequence[ComparedTotals], delta: Delta) -> None:
    names = ("pure", "theorem2", "zcdp", "optimal", "fixed", "general")
    click.echo(f"\nTotal epsilon of a number of items at delta {delta}:\n")
    click.echo("item epsilon  items" + "".join(f"{name:>11}" for name in names))
    for row in costs:
        click.echo(f"{row.epsilon:12g} {row.items:6,}" + "".join(f"{getattr(row, name):11.5f}" for name in names))
    click.echo(
        "\npure, theorem2, zcdp and optimal are certificates. No certificate can be below fixed, which holds only for "
        "\nitems fixed beforehand; general is the best for items of plain epsilon-differential privacy."
    )


def _save_plot(counts: Sequence[PurchasedItems], epsilons: Sequence[Epsilon], *, delta: Delta, path: Path) -> None:
    """Save both panels: Figure 1 of Durfee and Rogers, and the items that each certificate buys."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        hint = "Install it with: pip install 'dpsql[plot]'."
        raise UsageError("not-installed", "A plot needs matplotlib, which is not installed.", hint=hint) from None
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _draw_ratios(left, epsilons, delta=delta)
    _draw_bars(right, counts)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError):
        hint = "Give a writable path that ends in .png, .svg or .pdf."
        raise UsageError("output-unwritable", "The plot cannot be written to this path.", hint=hint) from None


def _draw_ratios(axes: Axes, epsilons: Sequence[Epsilon], *, delta: Delta) -> None:
    for place, epsilon in enumerate(epsilons):
        colour = _COLOURS[place % len(_COLOURS)]
        points = [figure_one(k, epsilon, delta=delta) for k in range(2, _FIGURE_ITEMS + 1, 2)]
        ks = [point.k for point in points]
        axes.plot(ks, [point.theorem2 for point in points], color=colour, lw=1.4, label=f"epsilon {float(epsilon):g}")
        concentrated = [float("nan") if point.zcdp is None else point.zcdp for point in points]
        axes.plot(ks, concentrated, color=colour, lw=1.0, ls=":")
    axes.axhline(1.0, color="#999999", lw=0.8)
    axes.set_xlabel("items k")
    axes.set_ylabel("total epsilon of plain items / of bounded-range items")
    axes.set_title("Optimal composition of pure privacy (2015) over\nLemma 4.4 (solid) and zcdp (dotted)", fontsize=10)
    axes.legend(frameon=False, fontsize=9)


def _draw_bars(axes: Axes, counts: Sequence[PurchasedItems]) -> None:
    width = 0.8 / len(_CERTIFICATES)
    for place, (name, label) in enumerate(_CERTIFICATES.items()):
        ends = [row + (place - 1.5) * width for row in range(len(counts))]
        shares = [getattr(row, name) / max(1, row.theorem2) for row in counts]
        bars = axes.bar(ends, shares, width * 0.92, color=_COLOURS[place], label=label)
        axes.bar_label(bars, [f"{getattr(row, name):,}" for row in counts], fontsize=8, padding=2)
    axes.set_xticks(range(len(counts)), [f"{row.epsilon:g}" for row in counts])
    axes.set_xlabel("epsilon of an item")
    axes.set_ylabel("items bought, relative to theorem2")
    axes.set_title("What the total buys under each certificate", fontsize=10)
    axes.margins(y=0.25)
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="upper left")
