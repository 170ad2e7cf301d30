"""Rows as Markdown: medians with the range of their samples, and ratios to the row that they are told against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from program.laws import laws_of
from program.row import Row, Value, middle

__all__ = ["markdown", "ratio"]

_THOUSAND = 1_000


def markdown(table: Sequence[Row]) -> str:
    """Return one table, its title above and its notes and laws below."""
    columns = list(dict.fromkeys(column for row in table for column in row.values))
    shown = list(dict.fromkeys(head for row in table for head, _ in _cells(row, table, columns)))
    lines = [["", *shown]]
    for row in table:
        cells = dict(_cells(row, table, columns))
        lines.append([row.name.replace("|", r"\|"), *(cells.get(head, "") for head in shown)])
    notes = dict.fromkeys(row.note for row in table if row.note)
    laws = [f"* {law}" for law in laws_of(table)]
    below = [*notes, "\n".join(laws)] if laws else [*notes]
    return "\n\n".join([f"### {table[0].table}", _aligned(lines), *below])


def ratio(row: Row, column: str, *, table: Sequence[Row]) -> float | None:
    """Return the median of a column over that of the row that this one is told against; of samples alone."""
    own = middle(row.values.get(column))
    whole = next((middle(base.values.get(column)) for base in table if base.name == row.against), None)
    return own / whole if own is not None and whole else None


def _cells(row: Row, table: Sequence[Row], columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield heads and cells; after a column of samples the ratio, where any row is told as one."""
    for column in columns:
        if column in row.values:
            yield column, _cell(row.values[column])
        told = ratio(row, column, table=table)
        if told is not None:
            yield f"{column.split()[0]} x {row.against}", f"{told:.2f}"


def _cell(value: Value) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, tuple | list):
        return _number(value)
    told = _number(median(value))
    return told if len(value) == 1 else f"{told} ({_number(min(value))}..{_number(max(value))})"


def _number(value: float) -> str:
    if isinstance(value, int) or abs(value) >= _THOUSAND:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".") if value else "0"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return a table in which the columns stand below each other, numbers to the right."""
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    padded = (
        [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in [lines[0], rule, *lines[1:]]
    )
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)
