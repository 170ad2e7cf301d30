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

from dataclasses import dataclass

from dpsql.sql.render.clauses import (
    alias,
    at_least,
    both,
    combine,
    count,
    create_table,
    delete,
    descending,
    hash_values,
    in_query,
    insert,
    join,
    less_than,
    list_parts,
    not_null,
    number_rows,
    path,
    select,
    sort_nulls_last,
    subquery,
    text,
)
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
        ranked, parameters = self._rank(subquery(self._select_distinct(self.source)))
        return [(create_table(path(self.pairs), ranked), parameters), *self._build_counts()]

    def appended(self, source: tuple[str, ...], first: int | None) -> list[tuple[str, list[object]]]:
        """Return the statements that add the rows of `source`, or only its rows from number `first` on."""
        unit, pairs = identifier(self.unit), path(self.pairs)
        own = [unit, *map(identifier, self.columns)]
        fresh = combine("EXCEPT", self._select_distinct(source, first), select(own, pairs))
        touched = select([unit], _FRESH, distinct=True)
        known = select(own, join(pairs, _TOUCHED, kind="SEMI", using=[unit]))
        again = combine("UNION ALL", known, select(own, _FRESH))
        ranked, parameters = self._rank("temp.main.dpsql_again")
        return [
            (create_table("dpsql_fresh", fresh, replace=True, temporary=True), []),
            (create_table("dpsql_touched", touched, replace=True, temporary=True), []),
            (create_table("dpsql_again", again, replace=True, temporary=True), []),
            (delete(pairs, where=in_query(unit, select([unit], _TOUCHED))), []),
            (insert(pairs, ranked), parameters),
            *self._build_counts(),
        ]

    def _select_distinct(self, source: tuple[str, ...], first: int | None = None) -> str:
        own = (alias(_read(column, self.enums), identifier(column)) for column in (self.unit, *self.columns))
        new = [] if first is None else [at_least("rowid", first)]
        return select(own, path(source), distinct=True, where=both(not_null(identifier(self.unit)), *new))

    def _rank(self, rows: str) -> tuple[str, list[object]]:
        writer = Writer()
        unit, columns = identifier(self.unit), list(map(identifier, self.columns))
        draw = writer.draw(columns, unit, salts=self.salts)
        rank = alias(number_rows(unit, list_parts([draw, sort_nulls_last(columns)])), RANK)
        groups = alias(count(partition_by=unit), GROUPS)
        sql = select((unit, *columns, rank, groups), rows, order_by=list_parts(columns))
        return sql, writer.parameters

    def _build_counts(self) -> list[tuple[str, list[object]]]:
        columns = list_parts(map(identifier, self.columns))
        units = alias(count(), UNITS)
        counted = select([columns, units], path(self.pairs), group_by=columns, order_by=descending(UNITS))
        return [(create_table(path(self.counts), counted, replace=True), [])]


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
        return create_table(path(self.place), select([last, _SUMS], subquery(self._rows)), replace=True), []

    @property
    def next_number(self) -> str:
        """SELECT of the number of the first new row; it returns no row if earlier rows changed."""
        known = subquery(select(["next_number"], path(self.place)))
        sums = subquery(select([_SUMS], subquery(self._rows), where=less_than("number", known)))
        same = join(path(self.place), sums, using=["number_of_rows", "total", "mixed"])
        return select(["next_number"], same)

    @property
    def _rows(self) -> str:
        mixed = hash_values([hash_values(_read(column, self.enums) for column in self.columns)])
        return select(["rowid AS number", alias(mixed, "mixed_row")], path(self.source))


_SUMS = (
    "system.main.count() AS number_of_rows, coalesce(system.main.sum(mixed_row), 0) AS total, "
    "coalesce(system.main.bit_xor(mixed_row), 0) AS mixed"
)


def _read(column: str, enums: frozenset[str]) -> str:
    """Return the expression that reads a column of the source, an ENUM as its text."""
    return text(identifier(column)) if column in enums else identifier(column)
