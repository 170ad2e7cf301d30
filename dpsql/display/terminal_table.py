"""Released table for the terminal: released counts have a bar, and a lighter one over their interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from dpsql.display.element import replace_unprintable
from dpsql.display.released_table import Released

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["terminal_table"]

_BAR = 36  # cells
_NUMBERS = (int, float, Decimal)


def terminal_table(released: Released, level: float = 0.95) -> Table:
    """Return all rows of `released`, whose intervals hold the exact count with probability `level`."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right", style="dim")
    for column in released.columns:
        table.add_column(_escape(column.name), overflow="fold", justify="right" if column.is_number else "left")
    counts: Sequence[object] = released.values[released.counts[0]] if released.counts else ()
    if counts and released.reach is not None:
        table.add_column(f"± at {level:.0%}", justify="right")
    if counts:
        table.add_column("", no_wrap=True)
    reach = math.ceil(released.reach or 0)
    longest = max((round(count) + reach for count in counts if isinstance(count, _NUMBERS)), default=1)
    for rank, row in enumerate(zip(*released.values, strict=True), start=1):
        cells: list[str | Text] = [str(rank), *(_format(value, at, released=released) for at, value in enumerate(row))]
        if counts:
            count = counts[rank - 1]
            is_count = isinstance(count, _NUMBERS)
            cells += [] if released.reach is None else [f"± {_format_reach(released.reach)}" if is_count else ""]
            cells.append(_draw_bar(round(count), reach, longest=longest) if isinstance(count, _NUMBERS) else "")
        table.add_row(*cells)
    return table


def _format(value: object, position: int, *, released: Released) -> Text:
    """Return a cell; digits of a key have no separators, because it may be a year or a code."""
    if position in released.counts and isinstance(value, _NUMBERS):
        return _escape(f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
    return _escape("NULL" if value is None else str(value))


def _format_reach(reach: float) -> str:
    """Return half of the width of an interval, rounded up to as many digits as values have."""
    return f"{math.ceil(reach * 100) / 100:,.2f}" if isinstance(reach, float) else f"{reach:,}"


def _draw_bar(count: int, reach: int, *, longest: int) -> str:
    """Return a bar up to the low end of the interval, and a lighter one, at least one cell, over the interval."""
    low, high = max(0, count - reach), max(0, count + reach)
    ending = max(round(_BAR * high / max(1, longest)), 1 if high else 0)
    solid = max(0, min(round(_BAR * low / max(1, longest)), ending - (1 if reach else 0)))
    return "\N{FULL BLOCK}" * solid + "\N{LIGHT SHADE}" * (ending - solid)


def _escape(text: str) -> Text:
    """Return a cell that the terminal shows as it is: no markup, no control characters."""
    from rich.text import Text

    return Text(replace_unprintable(text))
