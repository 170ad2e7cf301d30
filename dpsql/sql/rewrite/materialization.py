"""DuckDB statements that materialize a private table.

Each set of columns has two tables. `pairs` has one row for each unit and each combination of values in its rows, with
two more columns: RANK, the rank of the row within its unit in the order of `contribution_bounding.py`, and GROUPS, the
number of rows of the unit. `counts` has one row for each combination of values with UNITS, the number of its units.
Both have the measures that the policy bounds, as `stored_measures.py` says. Rows without a unit are dropped. The salts
of the ranks are drawn when the tables are first built and are stored with them. A unit whose rows did not change
therefore has the same ranks after an update.

Equal values of the column types are equal in every byte. No expression can distinguish rows that were merged into one.
An ENUM is stored as its text, as queries read it, because its labels, codes and order may come from rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dpsql.sql.ir.catalog import StoredMeasures
from dpsql.sql.ir.measures import Aggregate, Measure
from dpsql.sql.ir.tree import Column, Expression
from dpsql.sql.ir.types import Type
from dpsql.sql.render.clauses import (
    alias,
    at_least,
    bigint,
    both,
    clamp,
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
    more_than,
    not_null,
    number_rows,
    or_zero,
    path,
    select,
    sort_nulls_last,
    subquery,
    sum_column,
    text,
)
from dpsql.sql.render.duckdb import Writer, identifier
from dpsql.sql.rewrite.contribution_bounding import GROUPS, RANK
from dpsql.sql.rewrite.contributions import build_row_steps
from dpsql.sql.rewrite.stored_measures import ROWS, UNITS, name_sum, name_values, read_number
from dpsql.sql.rewrite.total import make_total

__all__ = ["AppendCheck", "MaterializationStatements"]

_FRESH = "temp.main.dpsql_fresh"
_TOUCHED = "temp.main.dpsql_touched"


@dataclass(frozen=True, slots=True, repr=False)
class MaterializationStatements:
    """Statements for one set of columns of the table at `source`: SQL, each with the values of its parameters.

    `pairs` and `counts` are the paths of the two tables, `salts` the salts of the ranks, and `enums` the columns of the
    source whose type is an ENUM. `measures` are stored too, if there are any; `types` are those of their columns.
    """

    source: tuple[str, ...]
    unit: str
    columns: tuple[str, ...]
    pairs: tuple[str, ...]
    counts: tuple[str, ...]
    salts: tuple[int, int]
    enums: frozenset[str] = frozenset()
    measures: StoredMeasures | None = None
    types: tuple[Type, ...] = ()

    def made(self) -> list[tuple[str, list[object]]]:
        """Return the statements that build both tables from all rows."""
        writer = Writer()
        ranked = self._rank(writer, subquery(self._select_pairs(writer, self.source)))
        return [(create_table(path(self.pairs), ranked), writer.parameters), *self._build_counts()]

    def appended(self, source: tuple[str, ...], first: int | None) -> list[tuple[str, list[object]]]:
        """Return the statements that add the rows of `source`, or only its rows from number `first` on."""
        fresh, ranks = Writer(), Writer()
        unit, pairs, own = identifier(self.unit), path(self.pairs), [*self._own, *self._measure_names]
        rows = self._select_pairs(fresh, source, first=first)
        if self.measures is None:  # what is there already changes nothing
            rows = combine("EXCEPT", rows, select(own, pairs))
        touched = select([unit], _FRESH, distinct=True)
        known = select(own, join(pairs, _TOUCHED, kind="SEMI", using=[unit]))
        again = combine("UNION ALL", known, select(own, _FRESH))
        if self.measures is not None:
            sums = (alias(bigint(sum_column(name)), name) for name in self._measure_names)
            again = select([*self._own, *sums], subquery(again), group_by=list_parts(self._own))
        ranked = self._rank(ranks, "temp.main.dpsql_again")
        return [
            (create_table("dpsql_fresh", rows, replace=True, temporary=True), fresh.parameters),
            (create_table("dpsql_touched", touched, replace=True, temporary=True), []),
            (create_table("dpsql_again", again, replace=True, temporary=True), []),
            (delete(pairs, where=in_query(unit, select([unit], _TOUCHED))), []),
            (insert(pairs, ranked), ranks.parameters),
            *self._build_counts(),
        ]

    @property
    def _own(self) -> list[str]:
        return [identifier(self.unit), *map(identifier, self.columns)]

    @property
    def _measure_names(self) -> list[str]:
        """Names of the columns of measures."""
        if self.measures is None:
            return []
        positions = range(len(self.measures.sums))
        return [ROWS, *map(name_values, positions), *map(name_sum, positions)]

    def _select_pairs(self, writer: Writer, source: tuple[str, ...], *, first: int | None = None) -> str:
        """Return the SELECT of the pairs of some rows, with their measures."""
        own = [alias(_read(column, self.enums), identifier(column)) for column in (self.unit, *self.columns)]
        new = [] if first is None else [at_least("rowid", first)]
        rows, where = alias(path(source), "t1"), both(not_null(identifier(self.unit)), *new)
        if self.measures is None:
            return select(own, rows, distinct=True, where=where)
        values = [alias(count(identifier(name)), name_values(at)) for at, (name, _) in enumerate(self.measures.sums)]
        sums = [
            alias(bigint(sum_column(writer.expression(steps))), name_sum(at))
            for at, steps in enumerate(self._list_steps(self.measures))
        ]
        places = list_parts(map(str, range(1, len(own) + 1)))
        return select([*own, alias(count(), ROWS), *values, *sums], rows, where=where, group_by=places)

    def _list_steps(self, measures: StoredMeasures) -> Iterator[Expression]:
        """Yield the steps of one row in each sum."""
        for (name, bounds), type_ in zip(measures.sums, self.types, strict=True):
            steps = build_row_steps(Measure(Aggregate.SUM, read_number(Column(1, name, type_)), bounds=bounds))
            if steps is not None:
                yield make_total(steps)

    def _rank(self, writer: Writer, rows: str) -> str:
        unit, columns = identifier(self.unit), list(map(identifier, self.columns))
        rank = groups = bigint("1")
        if columns:  # else each unit has one row
            draw = writer.draw(columns, unit, salts=self.salts)
            rank = number_rows(unit, list_parts([draw, sort_nulls_last(columns)]))
            groups = count(partition_by=unit)
        ranks = alias(rank, RANK), alias(groups, GROUPS)
        return select([*self._own, *self._measure_names, *ranks], rows, order_by=list_parts(columns))

    def _build_counts(self) -> list[tuple[str, list[object]]]:
        columns = list(map(identifier, self.columns))
        counted = select(
            [*columns, alias(count(), UNITS), *self._add_up_units()],
            path(self.pairs),
            group_by=list_parts(columns),
            having=more_than(count(), "0"),  # without columns there would be a group of no unit
            order_by=descending(UNITS),
        )
        return [(create_table(path(self.counts), counted, replace=True), [])]

    def _add_up_units(self) -> Iterator[str]:
        """Yield the measures of a group: those of its units, each between its bounds."""
        if self.measures is None:
            return
        positions, rows = range(len(self.measures.sums)), self.measures.rows
        ranges = {name: (0, rows) for name in (ROWS, *map(name_values, positions)) if rows is not None}
        ranges |= {name_sum(at): (found.low, found.high) for at, (_, found) in enumerate(self.measures.sums)}
        for name, (low, high) in ranges.items():
            yield alias(or_zero(bigint(sum_column(clamp(name, low, high=high)))), name)


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
