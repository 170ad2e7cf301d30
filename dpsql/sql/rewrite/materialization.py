"""What is materialized of a private table: the statements that make it, for DuckDB.

Of some columns two tables are kept. `pairs` has one row for each unit and each of the values that the columns have
together in its rows, with RANK, the place of the row among those of its unit in the order by which bounding takes them
(`sql/bounding.py`), and GROUPS, how many rows the unit has. `counts` has one row for each of the values, and how many
units they have, UNITS. Rows without a unit are nobody's and not kept. The salts of the ranks are drawn when the tables
are first made, and kept beside them: a unit whose rows did not change keeps its ranks.

The columns are of types whose equal values are the same in every byte, so that no expression can tell one of the rows
that became one from another. An ENUM is stored as its text, as queries read it: its labels, and their codes and order,
may come from rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.sql.render.duckdb import Writer, identifier
from dpsql.sql.rewrite.contribution_bounding import GROUPS, RANK

__all__ = ["UNITS", "Check", "Materialization"]

UNITS = "dpsql_units"
_FRESH = "temp.main.dpsql_fresh"
_TOUCHED = "temp.main.dpsql_touched"


@dataclass(frozen=True, slots=True, repr=False)
class Materialization:
    """The statements for one set of columns of the table at `source`: SQL, each with the values of its parameters.

    `pairs` and `counts` are the paths of what is made, and `salts` those of the ranks. `enums` are the columns of the
    source that are of an ENUM.
    """

    source: tuple[str, ...]
    unit: str
    columns: tuple[str, ...]
    pairs: tuple[str, ...]
    counts: tuple[str, ...]
    salts: tuple[int, int]
    enums: frozenset[str] = frozenset()

    def made(self) -> list[tuple[str, list[object]]]:
        """Return the statements that make both tables from all rows."""
        ranked, parameters = self._ranked(f"({self._distinct(self.source)})")
        return [
            (f"CREATE TABLE {_path(self.pairs)} AS {ranked} ORDER BY {self._listed(self.columns)}", parameters),
            *self._counted(),
        ]

    def appended(self, source: tuple[str, ...], first: int | None) -> list[tuple[str, list[object]]]:
        """Return the statements that add the rows of `source`, only those numbered from `first` on if it is given."""
        own = self._listed((self.unit, *self.columns))
        fresh = f"{self._distinct(source, first)} EXCEPT SELECT {own} FROM {_path(self.pairs)}"  # noqa: S608 - quoted
        touched = f"SELECT DISTINCT {identifier(self.unit)} FROM {_FRESH}"  # noqa: S608 - quoted
        kept = f"SELECT {own} FROM {_path(self.pairs)} SEMI JOIN {_TOUCHED} USING ({identifier(self.unit)})"  # noqa: S608 - quoted
        again = f"CREATE OR REPLACE TEMP TABLE dpsql_again AS {kept} UNION ALL SELECT {own} FROM {_FRESH}"  # noqa: S608 - quoted
        ranked, parameters = self._ranked("temp.main.dpsql_again")
        gone = f"{identifier(self.unit)} IN (SELECT {identifier(self.unit)} FROM {_TOUCHED})"  # noqa: S608 - quoted
        return [
            (f"CREATE OR REPLACE TEMP TABLE dpsql_fresh AS {fresh}", []),
            (f"CREATE OR REPLACE TEMP TABLE dpsql_touched AS {touched}", []),
            (again, []),
            (f"DELETE FROM {_path(self.pairs)} WHERE {gone}", []),  # noqa: S608 - quoted
            (f"INSERT INTO {_path(self.pairs)} {ranked} ORDER BY {self._listed(self.columns)}", parameters),
            *self._counted(),
        ]

    def _distinct(self, source: tuple[str, ...], first: int | None = None) -> str:
        new = "" if first is None else f" AND rowid >= {first:d}"
        own = ", ".join(f"{_read(column, self.enums)} AS {identifier(column)}" for column in (self.unit, *self.columns))
        return f"SELECT DISTINCT {own} FROM {_path(source)} WHERE {identifier(self.unit)} IS NOT NULL{new}"  # noqa: S608 - quoted

    def _ranked(self, rows: str) -> tuple[str, list[object]]:
        writer = Writer()
        unit, columns = identifier(self.unit), list(map(identifier, self.columns))
        draw = writer.draw(columns, unit, salts=self.salts)
        order = ", ".join((draw, *(f"{column} ASC NULLS LAST" for column in columns)))
        rank = f"system.main.row_number() OVER (PARTITION BY {unit} ORDER BY {order}) AS {RANK}"
        groups = f"system.main.count() OVER (PARTITION BY {unit}) AS {GROUPS}"
        return f"SELECT {', '.join((unit, *columns))}, {rank}, {groups} FROM {rows}", writer.parameters  # noqa: S608 - quoted

    def _counted(self) -> list[tuple[str, list[object]]]:
        columns = self._listed(self.columns)
        counted = f"SELECT {columns}, system.main.count() AS {UNITS} FROM {_path(self.pairs)} GROUP BY {columns}"  # noqa: S608 - quoted
        return [(f"CREATE OR REPLACE TABLE {_path(self.counts)} AS {counted} ORDER BY {UNITS} DESC", [])]

    def _listed(self, columns: Sequence[str]) -> str:
        return ", ".join(map(identifier, columns))


@dataclass(frozen=True, slots=True)
class Check:
    """How it is seen that the rows of the table at `source` which were read once are still there, as they were.

    `place` is the path of a table that holds their number and checksum; only `columns` matter, the unit among them.
    `enums` are those of an ENUM.
    DuckDB numbers the rows of a table that it stores in the order in which they came.
    """

    source: tuple[str, ...]
    columns: tuple[str, ...]
    place: tuple[str, ...]
    enums: frozenset[str] = frozenset()

    @property
    def written(self) -> tuple[str, list[object]]:
        """The statement that writes down all rows of now."""
        last = "coalesce(system.main.max(number) + 1, 0) AS next_number"
        return f"CREATE OR REPLACE TABLE {_path(self.place)} AS SELECT {last}, {_SUMS} FROM ({self._rows})", []  # noqa: S608 - quoted

    @property
    def next_number(self) -> str:
        """The SELECT of the number that the first row has which was not there then; no row if others changed."""
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


def _read(column: str, enums: frozenset[str]) -> str:
    """Return the expression that reads a column of the data."""
    return f"CAST({identifier(column)} AS VARCHAR)" if column in enums else identifier(column)


def _path(parts: tuple[str, ...]) -> str:
    return ".".join(map(identifier, parts))
