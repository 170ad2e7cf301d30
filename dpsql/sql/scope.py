"""Names and lineage: which column a name means in one query block, and which of them is the privacy unit.

The unit is followed by identity, never by name: a column is the unit when it *is* the declared column of a private
table, passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.errors import Place, Refusal
from dpsql.sql.text import ascii_lower
from dpsql.sql.tree import Column

__all__ = ["Scope", "ScopeColumn", "ScopeTable", "listed"]

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A column that a name may mean; `merged` when a JOIN USING has given its name to the other side."""

    name: str
    column: Column
    is_unit: bool
    merged: bool = False


@dataclass(frozen=True, slots=True)
class ScopeTable:
    """A table, subquery or CTE under its alias; `table` is the private table whose unit it carries, or None."""

    alias: str
    columns: tuple[ScopeColumn, ...]
    table: str | None = None
    unit_name: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """All that the names of one query block can mean."""

    tables: tuple[ScopeTable, ...]

    @property
    def private(self) -> ScopeTable | None:
        """Return the one private table in scope."""
        return next((table for table in self.tables if table.table is not None), None)

    @property
    def unit(self) -> Column | None:
        """Return the privacy unit's column, where the block is private."""
        columns = (column for table in self.tables for column in table.columns if column.is_unit)
        return next((column.column for column in columns), None)

    def find(self, name: str, qualifier: str, *, place: Place | None) -> ScopeColumn | None:
        """Return the column a name means, or None; refuse a name that could mean two."""
        wanted, table_name = ascii_lower(name), ascii_lower(qualifier)
        found = [
            column
            for table in self.tables
            for column in table.columns
            if ascii_lower(column.name) == wanted
            and (ascii_lower(table.alias) == table_name if qualifier else not column.merged)
        ]
        if len(found) > 1:
            hint = "Write it with its table: alias.column."
            raise Refusal("ambiguous-column", "This name could mean two columns.", hint=hint, place=place)
        return found[0] if found else None

    def star(self, qualifier: str = "") -> list[ScopeColumn]:
        """Return what * or alias.* stands for."""
        return [
            column
            for table in self.tables
            if not qualifier or ascii_lower(table.alias) == ascii_lower(qualifier)
            for column in table.columns
            if qualifier or not column.merged
        ]


def listed(lead: str, names: Sequence[str]) -> str:
    """Return a hint that lists public names: those of the policy, or of the statement itself."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{lead} {', '.join(names[:_SHOWN])}{more}."
