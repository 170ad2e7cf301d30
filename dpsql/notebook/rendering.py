"""Displays of the magic other than answers: the history, the help, and an error as a box; each as HTML and text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.display import Column, Facts, Message, Sheet, box_html, facts_html, replace_unprintable, sheet_html
from dpsql.errors import Error

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Help", "Listing", "Problem"]

_LATEST = 20


@dataclass(frozen=True, slots=True)
class Listing:
    """Table of the ledger under a caption. The latest 20 rows are shown; `table` holds all."""

    caption: str
    table: pa.Table

    def _repr_html_(self) -> str:
        latest = self.table.slice(max(0, self.table.num_rows - _LATEST))
        columns = [
            Column(field.name, is_number=field.name.endswith(("charged", "reserved"))) for field in latest.schema
        ]
        rows = [[_format_cell(cell) for cell in row.values()] for row in latest.to_pylist()]
        left_out = self.table.num_rows - len(rows)
        notes = [f"{left_out} earlier rows are not shown."] if left_out else []
        return sheet_html(Sheet(self.caption, columns, rows, len(rows), longest=400, notes=notes))

    def __repr__(self) -> str:
        latest = self.table.slice(max(0, self.table.num_rows - _LATEST)).to_pylist()
        lines = (
            " | ".join(replace_unprintable(" ".join(_format_cell(cell).split())) for cell in row.values())
            for row in latest
        )
        return "\n".join([self.caption, " | ".join(self.table.column_names), *lines])


@dataclass(frozen=True, slots=True)
class Help:
    """List of the commands of the magic."""

    facts: Facts

    def _repr_html_(self) -> str:
        return facts_html(self.facts)

    def __repr__(self) -> str:
        return "\n".join([self.facts.caption, *(f"  {name:34} {value}" for name, value in self.facts.pairs)])


class Problem:
    """Error with the statement that caused it."""

    __slots__ = ("_message", "_text")

    def __init__(self, error: Error, statement: str) -> None:
        self._message = Message(error, statement)
        self._text = "\n".join(error._render_traceback_())

    def _repr_html_(self) -> str:
        return box_html(self._message)

    def __repr__(self) -> str:
        return self._text


def _format_cell(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    strftime = getattr(cell, "strftime", None)
    return str(strftime("%Y-%m-%d %H:%M:%S")) if callable(strftime) else " ".join(str(cell).split())
