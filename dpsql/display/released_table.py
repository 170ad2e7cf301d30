"""A released table as HTML with its cost, as a table of a terminal, and as a chart: text cells, bars and intervals."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.accounting import ZCDP, BudgetVector, Loss, Steps
from dpsql.display.text import (
    BAR,
    Bar,
    Ends,
    Meter,
    Part,
    Sheet,
    SheetColumn,
    cut,
    format_date,
    format_number,
    format_released,
    replace_unprintable,
    sheet_html,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

_PRIVATE, _PUBLIC = 200, 2000  # characters of a cell


@dataclass(frozen=True, slots=True)
class ReleasedTable:
    """First rows of an answer of `total` rows, column by column.

    `measured` are the positions of the columns that are no keys, and `dated` those of keys of dates. Those of released
    values have the ends of the 95 % intervals of their rows in `ends`, unless they have none. A bar is drawn for each
    value of column number `barred`, if there is one.
    """

    columns: Sequence[SheetColumn]
    values: Sequence[Sequence[object]]
    total: int
    measured: Sequence[int] = ()
    dated: Sequence[int] = ()
    ends: Mapping[int, Sequence[Ends]] = field(default_factory=dict)
    barred: int | None = None

    @property
    def legend(self) -> list[str]:
        """The line that says what ± is, if it is behind any value."""
        return ["± is half the width of the 95 % interval"] if self.ends and self.total else []

    def format_rows(self, *, grouped: bool = True) -> list[list[str]]:
        """Return all cells as text, with what is behind released values, and numbers as in `format_column`."""
        columns = [self.format_column(at, grouped=grouped) for at in range(len(self.columns))]
        return [[" ".join(filter(None, cell)) for cell in row] for row in zip(*columns, strict=True)]

    def format_column(self, at: int, *, grouped: bool = True) -> list[tuple[str, str]]:
        """Return the cells of a column as text, each with what is behind a released value: its interval.

        Where they are `grouped`, numbers that are no keys have separators of thousands. The digits of a key have none,
        because it may be a year or a code.
        """
        values, ends = self.values[at], self.ends.get(at)
        if ends is not None:
            return [format_released(each, its, grouped=grouped) for each, its in zip(values, ends, strict=True)]
        if at in self.dated:
            return [(format_date(each), "") for each in values]
        grouped = grouped and at in self.measured
        return [(format_number(each, grouped=grouped), "") for each in values]

    @property
    def bar_head(self) -> str:
        """Name of the column that the bars are of; "" where they are right of it."""
        return "" if self.barred in {None, len(self.columns) - 1} else self.columns[self.barred or 0].name

    def list_bars(self) -> list[Bar | None]:
        """Return the bar of each row, in whole numbers, None where there is no value; empty where none are drawn."""
        if self.barred is None:
            return []
        values, bars = self.values[self.barred], list[Bar | None]()
        for count, ends in zip(values, self.ends.get(self.barred, [None] * len(values)), strict=False):
            low, high = (None, None) if ends is None else (max(0, math.floor(ends[0])), max(0, math.ceil(ends[1])))
            # None is a row that an outer SELECT added
            bars.append(Bar(round(count), low, high) if isinstance(count, int | float | Decimal) else None)
        return bars


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of an answer, as text and in the currencies of its certificate; without a loss it read no private row.

    `details` are pairs of name and value, shown on demand.

    `granted` is the grant of the account if it is known; without it there are no meters.
    """

    notes: Sequence[str]
    details: Sequence[tuple[str, str]]
    loss: Loss | None
    remaining: BudgetVector
    granted: BudgetVector | None


def released_html(released: ReleasedTable, cost: Cost) -> str:
    """Return the answer as HTML, with a meter for each currency of the account: used before, used now, and left."""
    meters, loss = [], cost.loss
    if cost.granted is not None and loss is not None:
        granted, left = ((amount.refundable, amount.permanent) for amount in (cost.granted, cost.remaining))
        currencies = cost.granted.certificate.currencies
        took = _split_loss(loss, currencies)
        for at, name in enumerate(currencies):
            before = Part("already used", max(Fraction(0), granted[at] - left[at] - took[at]))
            meters.append(Meter(name, granted[at], [before, Part("this answer", took[at], now=True)], left[at]))
    return sheet_html(
        Sheet(
            caption="Answer" if loss is None else "Private answer",
            columns=released.columns,
            rows=released.format_rows(),
            total=released.total,
            longest=_PUBLIC if loss is None else _PRIVATE,
            bars=released.list_bars(),
            bar_head=released.bar_head,
            meters=meters,
            notes=[*released.legend, *cost.notes],
            details=cost.details,
        )
    )


def _split_loss(loss: Loss, currencies: tuple[str, str]) -> tuple[Fraction, Fraction]:
    """Return the amounts of both currencies that a loss uses."""
    delta = loss.delta.value
    if isinstance(loss, Steps):
        return Fraction(loss.items), Fraction(delta > 0) if "queries" in currencies else delta
    return (loss.rho.value if isinstance(loss, ZCDP) else loss.epsilon), delta


_CELLS = 36  # of a bar on a terminal


def terminal_table(released: ReleasedTable) -> Table:
    """Return all rows of `released`."""
    from rich.table import Table
    from rich.text import Text

    def escape(text: str) -> Text:  # no markup, no control characters
        return Text(replace_unprintable(text))

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right", style="dim")
    columns: list[list[str]] = []
    level = "± at 95%"  # once, for all
    for at, column in enumerate(released.columns):
        cells = released.format_column(at)
        table.add_column(escape(column.name), overflow="fold", justify="right" if column.is_number else "left")
        columns.append([cell for cell, _ in cells])
        if at in released.ends and cells:
            table.add_column(level, justify="right")
            columns.append([behind for _, behind in cells])
            level = "±"
    bars = released.list_bars()
    if bars:
        table.add_column(escape(released.bar_head), no_wrap=True)
    longest = max((_find_ends(bar)[1] for bar in bars if bar is not None), default=1)
    for rank, row in enumerate(zip(*columns, strict=True), start=1):
        bar = bars[rank - 1] if bars else None
        table.add_row(str(rank), *map(escape, row), *([] if bar is None else [_draw_bar(bar, longest=longest)]))
    return table


def _find_ends(bar: Bar) -> tuple[int, int]:
    """Return the ends of the interval of a bar: twice its value without one."""
    return (max(0, bar.count), max(0, bar.count)) if bar.low is None or bar.high is None else (bar.low, bar.high)


def _draw_bar(bar: Bar, *, longest: int) -> str:
    """Return a bar up to the low end of the interval, and a lighter one, at least one cell, over the interval."""
    low, high = _find_ends(bar)
    ending = max(round(_CELLS * high / max(1, longest)), 1 if high else 0)
    solid = max(0, min(round(_CELLS * low / max(1, longest)), ending - (1 if bar.low is not None else 0)))
    return "\N{FULL BLOCK}" * solid + "\N{LIGHT SHADE}" * (ending - solid)


_MAX_BARS = 50
_MAX_LABEL = 40  # characters of a label
_QUIET = "#808080"  # legible on white and on black, as BAR is
_PER_INCH = 12  # characters of a line below the axes


@dataclass(frozen=True, slots=True)
class Chart:
    """Content of a chart, all of it released: a label, a count and an interval for each row, in their order.

    `key` is the name of the labels, "" for a total. `times` are the keys of the rows if they are dates or time stamps,
    else empty. `level` is the probability of the intervals, `threshold` a public count that every noisy count had to
    reach, and `notes` are the lines below.
    """

    labels: Sequence[str]
    counts: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    key: str
    measure: str
    level: float
    threshold: int | None
    notes: Sequence[str]
    times: Sequence[object] = ()


def draw_chart(chart: Chart, axes: Axes | None) -> Axes:
    """Draw on `axes`, or on those of a new figure as tall as its bars need: at most 50 bars, or a line over time.

    Colours of text and lines are those of the style in use, so that a chart is legible on light and on dark ground.
    """
    shown = min(len(chart.labels), _MAX_BARS)
    if axes is None:
        from matplotlib import pyplot as plt

        height = 4.0 if chart.times else 1.9 + 0.28 * max(shown, 3)
        _, axes = plt.subplots(figsize=(7.0, height), layout="constrained")
    (_draw_line if chart.times else _draw_bars)(chart, axes)
    notes = list(chart.notes)
    if not chart.times and len(chart.labels) > shown:
        notes.append(f"{len(chart.labels) - shown} more rows are not shown")
    width = max(20, int(axes.get_window_extent().width / axes.figure.dpi / 0.8 * _PER_INCH))
    measured = f"{cut(chart.measure, _MAX_LABEL)} ({100 * chart.level:g} % intervals)"
    below = "\n".join(line for note in notes for line in textwrap.wrap(note, width))
    across = cut(chart.key, _MAX_LABEL) if chart.times else measured
    axes.set_xlabel(f"{across}\n{below}".rstrip(), fontsize="small", parse_math=False)
    if chart.times:
        axes.set_ylabel(measured, parse_math=False)
    title = cut(chart.measure, _MAX_LABEL) + (f" by {cut(chart.key, _MAX_LABEL)}" if chart.key else "")
    axes.set_title(title, loc="left", parse_math=False, pad=14)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _draw_bars(chart: Chart, axes: Axes) -> None:
    """Draw a bar for each row, the first on top, its interval, and the value to the right of both."""
    shown = min(len(chart.labels), _MAX_BARS)
    low, high = chart.low[:shown], chart.high[:shown]
    # A noisy count below 0 is outside of its interval: its bar ends where that does.
    bounded = zip(chart.counts[:shown], low, high, strict=True)
    places, counts = range(shown), [min(max(count, start), end) for count, start, end in bounded]
    axes.barh(places, counts, color=BAR, height=0.7, zorder=2)
    ends = [[count - end for count, end in zip(counts, low, strict=True)]]
    ends.append([end - count for count, end in zip(counts, high, strict=True)])
    line = axes.xaxis.label.get_color()
    axes.errorbar(counts, places, xerr=ends, fmt="none", ecolor=line, elinewidth=1, capsize=2, zorder=3)
    for place, count, end in zip(places, chart.counts, high, strict=False):
        axes.annotate(
            f"{count:,.2f}" if isinstance(count, float) else f"{count:,}",
            (max(0, end), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
    axes.set_yticks(places, [cut(label, _MAX_LABEL) for label in chart.labels[:shown]], parse_math=False)
    axes.set_ylim(shown - 0.4 if shown else 0.6, -0.6)
    left, right = min([*low, 0]), max([*high, chart.threshold or 0, 0])
    right = right if right > left else 1
    axes.set_xlim(left * 1.04, right + (right - left) * 0.12)  # room for the values
    if chart.threshold is not None:
        axes.axvline(chart.threshold, color=_QUIET, linestyle="--", linewidth=1, zorder=1)
        _name_threshold(chart.threshold, axes, place=(chart.threshold, 1.0), align=("center", "bottom"))


def _draw_line(chart: Chart, axes: Axes) -> None:
    """Draw the counts over time, in the order of time, with the band of their intervals."""
    rows = sorted(zip(chart.times, chart.counts, chart.low, chart.high, strict=True), key=lambda row: str(row[0]))
    times, counts, low, high = (list(column) for column in zip(*rows, strict=True))
    axes.fill_between(times, low, high, color=BAR, alpha=0.3, linewidth=0, zorder=1)
    axes.plot(times, counts, color=BAR, marker="o", markersize=4, zorder=2)
    left, right = min([*low, 0]), max([*high, chart.threshold or 0, 0])
    axes.set_ylim(left * 1.08, (right if right > left else 1) * 1.08)
    axes.tick_params(axis="x", rotation=30)
    if chart.threshold is not None:
        axes.axhline(chart.threshold, color=_QUIET, linestyle="--", linewidth=1, zorder=0)
        _name_threshold(chart.threshold, axes, place=(1.0, chart.threshold), align=("left", "center"))


def _name_threshold(threshold: int, axes: Axes, *, place: tuple[float, float], align: tuple[str, str]) -> None:
    """Write what the dashed line is, outside of the bars: above the axes, or to their right."""
    across = axes.get_xaxis_transform() if align[0] == "center" else axes.get_yaxis_transform()
    axes.text(
        *place,
        f" threshold {threshold:,}",
        transform=across,
        ha=align[0],
        va=align[1],
        color=_QUIET,
        fontsize="small",
    )
