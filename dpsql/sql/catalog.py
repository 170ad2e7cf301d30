"""What exists for the analyst: the tables of the policy, their columns and types, and whose units they hold."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.sql.text import ascii_lower
from dpsql.sql.types import Type

__all__ = ["Catalog", "Table"]


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its name, where the engine keeps it, its exposed columns, its privacy unit (None: public)."""

    name: str
    path: tuple[str, ...]
    columns: tuple[tuple[str, Type], ...]
    privacy_unit: str | None


@dataclass(frozen=True, slots=True)
class Catalog:
    """All tables; a table that is not here does not exist."""

    tables: tuple[Table, ...]

    def find(self, name: str, schema: str = "") -> Table | None:
        """Return the table of that name, compared by ASCII case; the schema main may be left out or written."""
        wanted = ascii_lower(f"{schema}.{name}" if schema else name)
        for table in self.tables:
            known = ascii_lower(table.name)
            if wanted in {known, f"main.{known}"} or f"main.{wanted}" == known:
                return table
        return None
