"""Released table for the terminal: released counts have a bar, and a lighter one over their interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.display.element import replace_unprintable
from dpsql.display.released_table import Released
from dpsql.display.sheet import Bar

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["terminal_table"]

_BAR = 36  # cells


def terminal_table(released: Released) -> Table:
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
