"""DuckDB statements that materialize a private table.

Each set of columns has two tables. `pairs` has one row for each unit and each combination of values in its rows, with
two more columns: RANK, the rank of the row within its unit in the order of `contribution_bounding.py`, and GROUPS, the
number of rows of the unit. `counts` has one row for each combination of values with UNITS, the number of its units.
Rows without a unit are dropped. The salts of the ranks are drawn when the tables are first built and are stored with
them. A unit whose rows did not change therefore has the same ranks after an update.

Equal values of the column types are equal in every byte. No expression can distinguish rows that were merged into one.
An ENUM is stored as its text, as queries read it, because its labels, codes and order may come from rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.sql.render.duckdb import Writer, identifier
from dpsql.sql.rewrite.contribution_bounding import GROUPS, RANK

__all__ = ["UNITS", "AppendCheck", "MaterializationStatements"]

UNITS = "dpsql_units"
_FRESH = "temp.main.dpsql_fresh"
_TOUCHED = "temp.main.dpsql_touched"


@dataclass(frozen=True, slots=True, repr=False)
class MaterializationStatements:
    """Statements for one set of columns of the table at `source`: SQL, each with the values of its parameters.

    `pairs` and `counts` are the paths of the two tables, `salts` the salts of the ranks, and `enums` the columns of the
    source whose type is an ENUM.
    """

    source: tuple[str, ...]
    unit: str
    columns: tuple[str, ...]
    pairs: tuple[str, ...]
    counts: tuple[str, ...]
    salts: tuple[int, int]
    enums: frozenset[str] = frozenset()

    def made(self) -> list[tuple[str, list[object]]]:
        """Return the statements that build both tables from all rows."""
        ranked, parameters = self._rank(f"({self._select_distinct(self.source)})")
        return [
            (f"CREATE TABLE {_path(self.pairs)} AS {ranked} ORDER BY {_join_columns(self.columns)}", parameters),
            *self._build_counts(),
        ]

    def appended(self, source: tuple[str, ...], first: int | None) -> list[tuple[str, list[object]]]:
        """Return the statements that add the rows of `source`, or only its rows from number `first` on."""
        own = _join_columns((self.unit, *self.columns))
        fresh = f"{self._select_distinct(source, first)} EXCEPT SELECT {own} FROM {_path(self.pairs)}"  # noqa: S608 - quoted
        touched = f"SELECT DISTINCT {identifier(self.unit)} FROM {_FRESH}"  # noqa: S608 - quoted
        known = f"SELECT {own} FROM {_path(self.pairs)} SEMI JOIN {_TOUCHED} USING ({identifier(self.unit)})"  # noqa: S608 - quoted
        again = f"CREATE OR REPLACE TEMP TABLE dpsql_again AS {known} UNION ALL SELECT {own} FROM {_FRESH}"  # noqa: S608 - quoted
        ranked, parameters = self._rank("temp.main.dpsql_again")
        touched_unit = f"{identifier(self.unit)} IN (SELECT {identifier(self.unit)} FROM {_TOUCHED})"  # noqa: S608 - quoted
        return [
            (f"CREATE OR REPLACE TEMP TABLE dpsql_fresh AS {fresh}", []),
            (f"CREATE OR REPLACE TEMP TABLE dpsql_touched AS {touched}", []),
            (again, []),
            (f"DELETE FROM {_path(self.pairs)} WHERE {touched_unit}", []),  # noqa: S608 - quoted
            (f"INSERT INTO {_path(self.pairs)} {ranked} ORDER BY {_join_columns(self.columns)}", parameters),
            *self._build_counts(),
        ]

    def _select_distinct(self, source: tuple[str, ...], first: int | None = None) -> str:
        new = "" if first is None else f" AND rowid >= {first:d}"
        own = ", ".join(f"{_read(column, self.enums)} AS {identifier(column)}" for column in (self.unit, *self.columns))
        return f"SELECT DISTINCT {own} FROM {_path(source)} WHERE {identifier(self.unit)} IS NOT NULL{new}"  # noqa: S608 - quoted

    def _rank(self, rows: str) -> tuple[str, list[object]]:
        writer = Writer()
        unit, columns = identifier(self.unit), list(map(identifier, self.columns))
        draw = writer.draw(columns, unit, salts=self.salts)
        order = ", ".join((draw, *(f"{column} ASC NULLS LAST" for column in columns)))
        rank = f"system.main.row_number() OVER (PARTITION BY {unit} ORDER BY {order}) AS {RANK}"
        groups = f"system.main.count() OVER (PARTITION BY {unit}) AS {GROUPS}"
        return f"SELECT {', '.join((unit, *columns))}, {rank}, {groups} FROM {rows}", writer.parameters  # noqa: S608 - quoted

    def _build_counts(self) -> list[tuple[str, list[object]]]:
        columns = _join_columns(self.columns)
        counted = f"SELECT {columns}, system.main.count() AS {UNITS} FROM {_path(self.pairs)} GROUP BY {columns}"  # noqa: S608 - quoted
        return [(f"CREATE OR REPLACE TABLE {_path(self.counts)} AS {counted} ORDER BY {UNITS} DESC", [])]


@dataclass(frozen=True, slots=True)
class AppendCheck:
    """Check that the rows of the table at `source` that were read before are still there and unchanged.

    `place` is the path of a table with their number and checksum. The checksum covers `columns`, which include the
    unit; `enums` are the columns whose type is an ENUM. DuckDB numbers the rows of a stored table in insertion order.
    """

    source: tuple[str, ...]
    columns: tuple[str, ...]
    place: tuple[str, ...]
    enums: frozenset[str] = frozenset()

    @property
    def written(self) -> tuple[str, list[object]]:
        """Statement that records number and checksum of all current rows."""
        last = "coalesce(system.main.max(number) + 1, 0) AS next_number"
        return f"CREATE OR REPLACE TABLE {_path(self.place)} AS SELECT {last}, {_SUMS} FROM ({self._rows})", []  # noqa: S608 - quoted

    @property
    def next_number(self) -> str:
        """SELECT of the number of the first new row; it returns no row if earlier rows changed."""
        known = f"SELECT next_number FROM {_path(self.place)}"  # noqa: S608 - quoted
        sums = f"SELECT {_SUMS} FROM ({self._rows}) WHERE number < ({known})"  # noqa: S608 - quoted
        return f"SELECT next_number FROM {_path(self.place)} JOIN ({sums}) USING (number_of_rows, total, mixed)"  # noqa: S608 - quoted

    @property
    def _rows(self) -> str:
        columns = ", ".join(_read(column, self.enums) for column in self.columns)
        mixed = f"system.main.hash(system.main.hash({columns})) AS mixed_row"
        return f"SELECT rowid AS number, {mixed} FROM {_path(self.source)}"  # noqa: S608 - quoted


_SUMS = (
    "system.main.count() AS number_of_rows, coalesce(system.main.sum(mixed_row), 0) AS total, "
    "coalesce(system.main.bit_xor(mixed_row), 0) AS mixed"
)


def _join_columns(columns: Sequence[str]) -> str:
    """Return the quoted columns, separated by commas."""
    return ", ".join(map(identifier, columns))


def _read(column: str, enums: frozenset[str]) -> str:
    """Return the expression that reads a column of the source, an ENUM as its text."""
    return f"CAST({identifier(column)} AS VARCHAR)" if column in enums else identifier(column)


def _path(parts: tuple[str, ...]) -> str:
    return ".".join(map(identifier, parts))
