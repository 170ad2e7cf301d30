"""What the magic shows that is no answer: the history, the help, and an error as a box. Each as text too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.display import Column, Facts, Message, Sheet, box_html, facts_html, printable, sheet_html
from dpsql.errors import Error

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Help", "Listing", "Problem"]

_LATEST = 20


@dataclass(frozen=True, slots=True)
class Listing:
    """A table of the ledger, under its caption; the latest rows are shown. `table` has all of them."""

    caption: str
    table: pa.Table

    def _repr_html_(self) -> str:
        latest = self.table.slice(max(0, self.table.num_rows - _LATEST))
        columns = [
            Column(field.name, is_number=field.name.endswith(("charged", "reserved"))) for field in latest.schema
        ]
        rows = [[_spelled(cell) for cell in row.values()] for row in latest.to_pylist()]
        left_out = self.table.num_rows - len(rows)
        notes = [f"{left_out} earlier ones are not shown."] if left_out else []
        return sheet_html(Sheet(self.caption, columns, rows, len(rows), longest=400, notes=notes))

    def __repr__(self) -> str:
        latest = self.table.slice(max(0, self.table.num_rows - _LATEST)).to_pylist()
        lines = (" | ".join(printable(" ".join(_spelled(cell).split())) for cell in row.values()) for row in latest)
        return "\n".join([self.caption, " | ".join(self.table.column_names), *lines])


@dataclass(frozen=True, slots=True)
class Help:
    """What can be said."""

    facts: Facts

    def _repr_html_(self) -> str:
        return facts_html(self.facts)

    def __repr__(self) -> str:
        return "\n".join([self.facts.caption, *(f"  {name:34} {value}" for name, value in self.facts.pairs)])


class Problem:
    """An error, and the statement that it speaks of."""

    __slots__ = ("_message", "_text")

    def __init__(self, error: Error, statement: str) -> None:
        self._message = Message(error, statement)
        self._text = "\n".join(error._render_traceback_())

    def _repr_html_(self) -> str:
        return box_html(self._message)

    def __repr__(self) -> str:
        return self._text


def _spelled(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    spelled = getattr(cell, "strftime", None)
    return str(spelled("%Y-%m-%d %H:%M:%S")) if callable(spelled) else " ".join(str(cell).split())
