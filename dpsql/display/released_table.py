"""Released table and its cost as a sheet: text cells, bars, and a meter for each currency."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.accounting import ZCDP, BudgetVector, Loss, Steps
from dpsql.display.html import Bar, Meter, Part, Sheet, SheetColumn, sheet_html
from dpsql.display.text import Ends, format_number, format_released, replace_unprintable

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_PRIVATE, _PUBLIC = 200, 2000  # characters of a cell


@dataclass(frozen=True, slots=True)
class ReleasedTable:
    """First rows of an answer of `total` rows, column by column.

    `measured` are the positions of the columns that are no keys. Those of released values have the ends of the 95 %
    intervals of their rows in `ends`, unless they have none. A bar is drawn for each value of column number `barred`,
    if there is one.
    """

    columns: Sequence[SheetColumn]
    values: Sequence[Sequence[object]]
    total: int
    measured: Sequence[int] = ()
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
        grouped = grouped and at in self.measured
        return [(format_number(each, grouped=grouped), "") for each in values]

    def list_bars(self) -> list[Bar | None]:
        """Return the bar of each row, in whole numbers, None where there is no value; empty where none are drawn."""
        if self.barred is None:
            return []
        values = self.values[self.barred]
        return list(map(_make_bar, values, self.ends.get(self.barred, [None] * len(values))))


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
    """Return the answer as HTML."""
    return sheet_html(
        Sheet(
            caption="Answer" if cost.loss is None else "Private answer",
            columns=released.columns,
            rows=released.format_rows(),
            total=released.total,
            longest=_PUBLIC if cost.loss is None else _PRIVATE,
            bars=released.list_bars(),
            meters=_make_meters(cost),
            notes=[*released.legend, *cost.notes],
            details=cost.details,
        )
    )


def _make_bar(count: object, ends: Ends) -> Bar | None:
    """Return the bar of a released count, in whole numbers; None for a row that an outer SELECT added."""
    if not isinstance(count, int | float | Decimal):
        return None
    low, high = (None, None) if ends is None else (max(0, math.floor(ends[0])), max(0, math.ceil(ends[1])))
    return Bar(round(count), low, high)


def _make_meters(cost: Cost) -> list[Meter]:
    """Return a meter for each currency of the account: already used, used by this answer, and left."""
    if cost.granted is None or cost.loss is None:
        return []
    currencies = cost.granted.certificate.currencies
    granted, left = ((amount.refundable, amount.permanent) for amount in (cost.granted, cost.remaining))
    took = _split_loss(cost.loss, currencies)
    return [
        Meter(
            name,
            granted[at],
            [
                Part("already used", max(Fraction(0), granted[at] - left[at] - took[at])),
                Part("this answer", took[at], now=True),
            ],
            left[at],
        )
        for at, name in enumerate(currencies)
    ]


def _split_loss(loss: Loss, currencies: tuple[str, str]) -> tuple[Fraction, Fraction]:
    """Return the amounts of both currencies that a loss uses."""
    delta = loss.delta.value
    if isinstance(loss, Steps):
        return Fraction(loss.items), Fraction(delta > 0) if "queries" in currencies else delta
    return (loss.rho.value if isinstance(loss, ZCDP) else loss.epsilon), delta


_BAR = 36  # cells


def terminal_table(released: ReleasedTable) -> Table:
    """Return all rows of `released`."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right", style="dim")
    columns: list[list[str]] = []
    level = "± at 95%"  # once, for all
    for at, column in enumerate(released.columns):
        cells = released.format_column(at)
        table.add_column(_escape(column.name), overflow="fold", justify="right" if column.is_number else "left")
        columns.append([cell for cell, _ in cells])
        if at in released.ends and cells:
            table.add_column(level, justify="right")
            columns.append([behind for _, behind in cells])
            level = "±"
    bars = released.list_bars()
    if bars:
        table.add_column("", no_wrap=True)
    longest = max((_find_ends(bar)[1] for bar in bars if bar is not None), default=1)
    for rank, row in enumerate(zip(*columns, strict=True), start=1):
        bar = bars[rank - 1] if bars else None
        table.add_row(str(rank), *map(_escape, row), *([] if bar is None else [_draw_bar(bar, longest=longest)]))
    return table


def _find_ends(bar: Bar) -> tuple[int, int]:
    """Return the ends of the interval of a bar: twice its value without one."""
    return (max(0, bar.count), max(0, bar.count)) if bar.low is None or bar.high is None else (bar.low, bar.high)


def _draw_bar(bar: Bar, *, longest: int) -> str:
    """Return a bar up to the low end of the interval, and a lighter one, at least one cell, over the interval."""
    low, high = _find_ends(bar)
    ending = max(round(_BAR * high / max(1, longest)), 1 if high else 0)
    solid = max(0, min(round(_BAR * low / max(1, longest)), ending - (1 if bar.low is not None else 0)))
    return "\N{FULL BLOCK}" * solid + "\N{LIGHT SHADE}" * (ending - solid)


def _escape(text: str) -> Text:
    """Return a cell that the terminal shows as it is: no markup, no control characters."""
    from rich.text import Text

    return Text(replace_unprintable(text))
