"""Catalog for the analyst: the tables of the policy, their columns and types, and their privacy units."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from dpsql.dialects import DUCKDB, Dialect
from dpsql.sql.ir.measures import ContributionRange
from dpsql.sql.ir.types import Type
from dpsql.sql.lexer import ascii_lower

__all__ = ["Catalog", "Link", "MaterializedSet", "StoredMeasures", "Table"]


@dataclass(frozen=True, slots=True)
class Link:
    """Link from rows to their unit: `column` names a row, by its `key`, of the table at `path`.

    That row has the privacy unit in its own column `unit`, or finds it by its own link, `beyond`. `type` is that of
    column and key.
    """

    column: str
    key: str
    type: Type
    path: tuple[str, ...]
    unit: str
    unit_type: Type
    beyond: Link | None = None


@dataclass(frozen=True, slots=True)
class StoredMeasures:
    """Measures that a materialized set has beside the number of units.

    `rows` is the bound of rows of one unit that the counts have, None without counts of rows. `sums` are the columns
    whose values are added up, each with the bounds of one unit in one group.
    """

    rows: int | None
    sums: tuple[tuple[str, ContributionRange], ...] = ()


@dataclass(frozen=True, slots=True)
class MaterializedSet:
    """Distinct values of some `columns` of a private table, stored beside the data at one data version.

    `pairs` is where the engine has the distinct values that these columns have together in the rows of each unit, whose
    column is `unit`; `counts` where it has how many units each of these values has. Both have the rows and sums of
    `measures`, if there are any. See `rewrite/materialization.py`.
    """

    columns: tuple[str, ...]
    unit: str
    data_version: int
    pairs: tuple[str, ...]
    counts: tuple[str, ...]
    measures: StoredMeasures | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its name, its path in the engine, its exposed columns, its privacy unit (None: public).

    With a `link` the unit is the last of the columns, and stored where the link leads. Queries may
    read the `materialized` sets in place of the rows. `calendar` lists columns of times with the first and the last day
    that the policy says for them. Each value of the column `budget_by` has a budget.
    """

    name: str
    path: tuple[str, ...]
    columns: tuple[tuple[str, Type], ...]
    privacy_unit: str | None
    link: Link | None = None
    materialized: tuple[MaterializedSet, ...] = ()
    calendar: tuple[tuple[str, date, date], ...] = ()
    budget_by: str | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """All tables, and the SQL of the engine that has them; a table that is not here does not exist."""

    tables: tuple[Table, ...]
    dialect: Dialect = DUCKDB

    def find(self, name: str, schema: str = "") -> Table | None:
        """Return the table of that name, compared by ASCII case; the schema main may be left out or written."""
        wanted = ascii_lower(f"{schema}.{name}" if schema else name)
        for table in self.tables:
            known = ascii_lower(table.name)
            if wanted in {known, f"main.{known}"} or f"main.{wanted}" == known:
                return table
        return None

    @property
    def materialized(self) -> tuple[tuple[tuple[str, ...], MaterializedSet], ...]:
        """All that is materialized, each with the path of its table."""
        return tuple((table.path, each) for table in self.tables for each in table.materialized)
