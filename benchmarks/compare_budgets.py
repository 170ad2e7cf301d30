"""What a total budget buys under each certificate: tables, JSON and a plot. It reads no data, and is no suite.

    python benchmarks/compare_budgets.py [--epsilon 1] [--delta 1e-6] [--item-epsilon 0.1] [--items 10] [--plot FILE]

All of delta is spent on composition. The tables are those of `maths.md` 6.2 and 6.3, the left panel of the plot is
Figure 1 of Durfee and Rogers 2019.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

from fixed_compositions import fixed_epsilon, pure_delta, pure_epsilon
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from older_bounds import bs16_epsilon

from dpsql.accounting import ApproximateDP, BoundedRange, Certificate, adaptive_epsilon, epsilon_of_zcdp, items_bought
from dpsql.accounting.certificates import durfee_rogers
from dpsql.errors import Error
from dpsql.quantities import Delta, Epsilon

FIGURE_ITEMS = 400
COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8d5a97", "#c98a1b", "#4a4a4a")
CERTIFICATES = {"pure": "pure", "theorem2": "theorem2 (2019)", "zcdp": "zcdp (default)", "optimal": "optimal"}


def main() -> None:
    """Write the tables, or one JSON object, and save the plot if one is wanted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epsilon", default="1", help="total epsilon")
    parser.add_argument("--delta", default="1e-6", help="total delta, all of it used for composition")
    parser.add_argument("--item-epsilon", action="append", help="epsilon of one item; repeat for more")
    parser.add_argument("--items", type=int, action="append", help="number of items to price; repeat for more")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--plot", type=Path, help="also save a plot (.png, .svg or .pdf)")
    given = parser.parse_args()
    try:
        total = ApproximateDP(Epsilon(given.epsilon), Delta(given.delta))
        epsilons = [Epsilon(each) for each in given.item_epsilon or ("0.02", "0.05", "0.1", "0.5")]
        counts = [bought(each, total=total) for each in epsilons]
        costs = [totals(k, each, delta=total.delta) for each in epsilons for k in given.items or (10, 100)]
    except Error as error:
        parser.error(str(error))
    if given.plot is not None:
        save_plot(counts, epsilons, delta=total.delta, path=given.plot)
    if given.format == "json":
        promise = {"epsilon": float(total.epsilon), "delta": float(total.delta)}
        items, priced = list(map(asdict, counts)), list(map(asdict, costs))
        print(json.dumps({"total": promise, "items": items, "totals": priced}))
        return
    write_counts(counts, total)
    write_costs(costs, total.delta)


@dataclass(frozen=True, slots=True)
class Totals:
    """The total epsilon of `items` items of one epsilon, under each bound.

    `pure`, `theorem2`, `zcdp` and `optimal` are certificates. `advanced` is the pure term of Theorem 1, `older_zcdp`
    the conversion of 2016, `fixed` what items fixed beforehand would cost at best and `general` what items of plain
    epsilon-differential privacy would.
    """

    epsilon: float
    items: int
    pure: float
    advanced: float
    bounded_range: float
    theorem2: float
    older_zcdp: float
    zcdp: float
    optimal: float
    fixed: float
    general: float


def totals(items: int, epsilon: Epsilon, *, delta: Delta) -> Totals:
    """Return the row of `maths.md` 6.2 for these items; `delta` pays for the composition alone."""
    terms, rho = durfee_rogers(items, epsilon, delta=delta), BoundedRange(epsilon).rho * items
    return Totals(
        epsilon=float(epsilon),
        items=items,
        pure=terms.basic,
        advanced=terms.pure,
        bounded_range=terms.bounded_range,
        theorem2=terms.best,
        older_zcdp=bs16_epsilon(rho, delta),
        zcdp=epsilon_of_zcdp(rho, delta),
        optimal=adaptive_epsilon(items, epsilon, delta=delta),
        fixed=fixed_epsilon(items, epsilon, delta=delta),
        general=pure_epsilon(items, epsilon, delta=delta),
    )


@dataclass(frozen=True, slots=True)
class PurchasedItems:
    """Number of items of one epsilon that a total buys under each certificate."""

    epsilon: float
    pure: int
    theorem2: int
    zcdp: int
    optimal: int


def bought(epsilon: Epsilon, *, total: ApproximateDP) -> PurchasedItems:
    """Return the row of `maths.md` 6.3 for this epsilon of an item."""
    counts = {each.value: items_bought(each, epsilon, total=total) for each in Certificate}
    return PurchasedItems(float(epsilon), **counts)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ratios of the optimal total of plain differential privacy to those of bounded range, for k items."""

    k: int
    theorem2: float
    zcdp: float | None


def figure_one(k: int, epsilon: Epsilon, *, delta: Delta) -> Ratio:
    """Return one point of the figure; a ratio above 1 says that bounded range is the better.

    Source: Durfee and Rogers 2019, arXiv:1905.04273, Figure 1: the smallest (k - 2i) epsilon of Lemma 4.5 whose delta_i
    is at most `delta`, over Lemma 4.4 at that same delta_i. `zcdp` is ours: zero-concentration in the place of Lemma
    4.4, and None where delta_i is 0.
    """
    step, low, high = float(epsilon), 0, k // 2 + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = pure_delta(k, epsilon, total=(k - 2 * middle) * step) <= float(delta)
        low, high = (middle, high) if fits else (low, middle)
    total = (k - 2 * low) * step
    reached = Delta(Fraction(pure_delta(k, epsilon, total=total))) if low else Delta(0)
    if not reached.value:
        return Ratio(k, 1.0, None)
    rho = BoundedRange(epsilon).rho * k
    return Ratio(k, total / durfee_rogers(k, epsilon, delta=reached).best, total / epsilon_of_zcdp(rho, reached))


def write_counts(counts: Sequence[PurchasedItems], total: ApproximateDP) -> None:
    """Write how many items the total buys."""
    print(f"Items that {total} buys, all of delta spent on composition:\n")
    print("item epsilon" + "".join(f"{name:>10}" for name in CERTIFICATES))
    for row in counts:
        print(f"{row.epsilon:12g}" + "".join(f"{getattr(row, name):10,}" for name in CERTIFICATES))


def write_costs(costs: Sequence[Totals], delta: Delta) -> None:
    """Write the total epsilon of the numbers of items."""
    names = ("pure", "theorem2", "zcdp", "optimal", "fixed", "general")
    print(f"\nTotal epsilon of a number of items at delta {delta}:\n")
    print("item epsilon  items" + "".join(f"{name:>11}" for name in names))
    for row in costs:
        print(f"{row.epsilon:12g} {row.items:6,}" + "".join(f"{getattr(row, name):11.5f}" for name in names))
    print(
        "\npure, theorem2, zcdp and optimal are certificates. No certificate can be below fixed, which holds only for "
        "\nitems fixed beforehand; general is the best for items of plain epsilon-differential privacy."
    )


def save_plot(counts: Sequence[PurchasedItems], epsilons: Sequence[Epsilon], *, delta: Delta, path: Path) -> None:
    """Save both panels: Figure 1 of Durfee and Rogers, and the items that each certificate buys."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    draw_ratios(left, epsilons, delta=delta)
    draw_bars(right, counts)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def draw_ratios(axes: Axes, epsilons: Sequence[Epsilon], *, delta: Delta) -> None:
    """Draw Figure 1 of Durfee and Rogers."""
    for place, epsilon in enumerate(epsilons):
        colour = COLOURS[place % len(COLOURS)]
        points = [figure_one(k, epsilon, delta=delta) for k in range(2, FIGURE_ITEMS + 1, 2)]
        ks = [point.k for point in points]
        axes.plot(ks, [point.theorem2 for point in points], color=colour, lw=1.4, label=f"epsilon {float(epsilon):g}")
        concentrated = [float("nan") if point.zcdp is None else point.zcdp for point in points]
        axes.plot(ks, concentrated, color=colour, lw=1.0, ls=":")
    axes.axhline(1.0, color="#999999", lw=0.8)
    axes.set_xlabel("items k")
    axes.set_ylabel("total epsilon of plain items / of bounded-range items")
    axes.set_title("Optimal composition of pure privacy (2015) over\nLemma 4.4 (solid) and zcdp (dotted)", fontsize=10)
    axes.legend(frameon=False, fontsize=9)


def draw_bars(axes: Axes, counts: Sequence[PurchasedItems]) -> None:
    """Draw the items that each certificate buys."""
    width = 0.8 / len(CERTIFICATES)
    for place, (name, label) in enumerate(CERTIFICATES.items()):
        ends = [row + (place - 1.5) * width for row in range(len(counts))]
        shares = [getattr(row, name) / max(1, row.theorem2) for row in counts]
        bars = axes.bar(ends, shares, width * 0.92, color=COLOURS[place], label=label)
        axes.bar_label(bars, [f"{getattr(row, name):,}" for row in counts], fontsize=8, padding=2)
    axes.set_xticks(range(len(counts)), [f"{row.epsilon:g}" for row in counts])
    axes.set_xlabel("epsilon of an item")
    axes.set_ylabel("items bought, relative to theorem2")
    axes.set_title("What the total buys under each certificate", fontsize=10)
    axes.margins(y=0.25)
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="upper left")


if __name__ == "__main__":
    main()
