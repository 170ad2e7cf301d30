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
from dataclasses import dataclass, replace

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
    negate,
    not_null,
    number_rows,
    order_by,
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

__all__ = ["AppendCheck", "MaterializationStatements", "SetStatements"]

_ADDED = "temp.main.dpsql_added"  # pairs of the new rows
_STORED = "temp.main.dpsql_stored"  # pairs that the units of these have already
_FRESH = "temp.main.dpsql_fresh"  # pairs of the new rows that change something
_KNOWN = "temp.main.dpsql_known"  # pairs that the units of these have already
_AGAIN = "temp.main.dpsql_again"  # all pairs of these units


@dataclass(frozen=True, slots=True, repr=False)
class SetStatements:
    """SELECTs of one set of columns of the table at `source`, for every engine.

    `pairs` and `counts` are the paths of the two tables, and `salts` the salts of the ranks. `measures` are stored too,
    if there are any; `types` are those of their columns.
    """

    source: tuple[str, ...]
    unit: str
    columns: tuple[str, ...]
    pairs: tuple[str, ...]
    counts: tuple[str, ...]
    salts: tuple[int, int]
    measures: StoredMeasures | None = None
    types: tuple[Type, ...] = ()

    @property
    def keys(self) -> list[str]:
        """Quoted names of the columns."""
        return list(map(identifier, self.columns))

    @property
    def own(self) -> list[str]:
        """Quoted names of the unit and the columns."""
        return [identifier(self.unit), *self.keys]

    @property
    def pair_names(self) -> list[str]:
        """Quoted names of the unit, the columns, and the measures of pairs."""
        if self.measures is None:
            return self.own
        positions = range(len(self.measures.sums))
        return [*self.own, ROWS, *map(name_values, positions), *map(name_sum, positions)]

    @property
    def count_names(self) -> list[str]:
        """Names of the number of units and of the measures of groups."""
        return [UNITS, *self._ranges]

    def read_column(self, writer: Writer, name: str) -> str:
        """Return the expression that reads a column of the source as it is stored."""
        raise NotImplementedError

    def read_values(self, writer: Writer, name: str, *, type_: Type) -> str:
        """Return the expression that is NULL where a summed column has no value."""
        raise NotImplementedError

    def select_pairs(self, writer: Writer, condition: str = "") -> str:
        """Return the SELECT of the pairs of some rows, with their measures."""
        own = [alias(self.read_column(writer, name), identifier(name)) for name in (self.unit, *self.columns)]
        has_unit = not_null(self.read_column(writer, self.unit))
        rows, where = alias(path(self.source), "t1"), both(has_unit, *[condition] * bool(condition))
        if self.measures is None:
            return select(own, rows, distinct=True, where=where)
        summed = list(zip(self.measures.sums, self.types, strict=True))
        values = [
            alias(count(self.read_values(writer, name, type_=type_)), name_values(at))
            for at, ((name, _), type_) in enumerate(summed)
        ]
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

    def add_pairs(self, *selects: str) -> str:
        """Return the SELECT of the pairs of several, which are apart but for their measures; these are added up."""
        together = combine("UNION ALL", *selects)
        if self.measures is None:
            return together
        sums = (alias(bigint(sum_column(name)), name) for name in self.pair_names[len(self.own) :])
        return select([*self.own, *sums], subquery(together), group_by=list_parts(self.own))

    def rank(self, writer: Writer, rows: str) -> str:
        """Return the SELECT of pairs with their RANK and GROUPS."""
        unit, columns = identifier(self.unit), self.keys
        rank = groups = bigint("1")
        if columns:  # else each unit has one row
            draw = writer.draw(columns, unit, salts=self.salts)
            rank = number_rows(unit, list_parts([draw, sort_nulls_last(columns)]))
            groups = count(partition_by=unit)
        return select([*self.pair_names, alias(rank, RANK), alias(groups, GROUPS)], rows)

    @property
    def _ranges(self) -> dict[str, tuple[int, int]]:
        """Columns of the measures of groups, each with the bounds of what one unit adds."""
        if self.measures is None:
            return {}
        positions, rows = range(len(self.measures.sums)), self.measures.rows
        ranges = {name: (0, rows) for name in (ROWS, *map(name_values, positions)) if rows is not None}
        return ranges | {name_sum(at): (found.low, found.high) for at, (_, found) in enumerate(self.measures.sums)}

    def count_each(self, pairs: str, *, subtracted: bool = False) -> str:
        """Return the SELECT of what each of some pairs adds to its group: 1, and its measures between their bounds."""
        added = {UNITS: "1", **{name: clamp(name, low, high=high) for name, (low, high) in self._ranges.items()}}
        steps = (alias(negate(each) if subtracted else each, name) for name, each in added.items())
        return select([*self.keys, *steps], pairs)

    def add_up(self, units: str, *, having: str = "") -> str:
        """Return the SELECT of the groups, with the sums of what each of `units` adds to them."""
        sums = (alias(bigint(sum_column(name)), name) for name in self.count_names)
        return select([*self.keys, *sums], subquery(units), group_by=list_parts(self.keys), having=having)

    def count_groups(self, *units: str) -> str:
        """Return the SELECT of the groups that have a unit."""
        return self.add_up(
            combine("UNION ALL", *units),
            having=more_than(sum_column(UNITS), "0"),  # without columns there would be a group of no unit
        )


@dataclass(frozen=True, slots=True, repr=False)
class MaterializationStatements(SetStatements):
    """Statements of DuckDB for one set: SQL, each with the values of its parameters.

    `enums` are the columns of the source whose type is an ENUM.
    """

    enums: frozenset[str] = frozenset()

    def read_column(self, writer: Writer, name: str) -> str:  # noqa: ARG002 - as the base has it
        """Return the expression that reads a column of the source, an ENUM as its text."""
        return _read(name, self.enums)

    def read_values(self, writer: Writer, name: str, *, type_: Type) -> str:  # noqa: ARG002 - as the base has it
        """Return the column, whose values are all its own."""
        return identifier(name)

    def made(self) -> list[tuple[str, list[object]]]:
        """Return the statements that build both tables from all rows."""
        writer = Writer()
        ranked = order_by(self.rank(writer, subquery(self.select_pairs(writer))), list_parts(self.keys))
        counted = order_by(self.count_groups(self.count_each(path(self.pairs))), descending(UNITS))
        return [
            (create_table(path(self.pairs), ranked), writer.parameters),
            (create_table(path(self.counts), counted, replace=True), []),
        ]

    def appended(self, source: tuple[str, ...], first: int | None) -> list[tuple[str, list[object]]]:
        """Return the statements that add the rows of `source`, or only its rows from number `first` on.

        Pairs are read and written of the units that have new ones, and counts change by what these units add.
        """
        added, ranks = Writer(), Writer()
        unit, pairs, own = identifier(self.unit), path(self.pairs), self.pair_names
        rows = replace(self, source=source).select_pairs(added, "" if first is None else at_least("rowid", first))
        stored = select(own, join(pairs, _ADDED, kind="SEMI", using=[unit]))
        fresh = select(own, _ADDED)
        if self.measures is None:  # pairs that are there already change nothing
            fresh = combine("EXCEPT", fresh, select(own, _STORED))
        known = select(own, join(_STORED, _FRESH, kind="SEMI", using=[unit]))
        again = self.add_pairs(select(own, _KNOWN), select(own, _FRESH))
        ranked = order_by(self.rank(ranks, _AGAIN), list_parts(self.keys))
        before = select([*self.keys, *self.count_names], path(self.counts))
        changes = self.count_each(_KNOWN, subtracted=True), self.count_each(_AGAIN)
        counted = order_by(self.count_groups(before, *changes), descending(UNITS))
        return [
            (create_table("dpsql_added", rows, replace=True, temporary=True), added.parameters),
            (create_table("dpsql_stored", stored, replace=True, temporary=True), []),
            (create_table("dpsql_fresh", fresh, replace=True, temporary=True), []),
            (create_table("dpsql_known", known, replace=True, temporary=True), []),
            (create_table("dpsql_again", again, replace=True, temporary=True), []),
            (delete(pairs, where=in_query(unit, select([unit], _FRESH))), []),
            (insert(pairs, ranked), ranks.parameters),
            (create_table(path(self.counts), counted, replace=True), []),
        ]


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
        return create_table(path(self.place), select([_LAST, _SUMS], subquery(self._rows)), replace=True), []

    def extended(self, first: int) -> tuple[str, list[object]]:
        """Return the statement that adds the rows from number `first` on to number and checksum."""
        new = select([_LAST, _SUMS], subquery(self._rows), where=at_least("number", first))
        known = select(_NAMES, path(self.place))
        added = select([_ADDED_SUMS], subquery(combine("UNION ALL", known, new)))
        return create_table(path(self.place), added, replace=True), []

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


_NAMES = ["next_number", "number_of_rows", "total", "mixed"]
_LAST = "coalesce(system.main.max(number) + 1, 0) AS next_number"
_ADDED_SUMS = (
    "system.main.max(next_number) AS next_number, system.main.sum(number_of_rows) AS number_of_rows, "
    "system.main.sum(total) AS total, system.main.bit_xor(mixed) AS mixed"
)
_SUMS = (
    "system.main.count() AS number_of_rows, coalesce(system.main.sum(mixed_row), 0) AS total, "
    "coalesce(system.main.bit_xor(mixed_row), 0) AS mixed"
)


def _read(column: str, enums: frozenset[str]) -> str:
    """Return the expression that reads a column of the source, an ENUM as its text."""
    return text(identifier(column)) if column in enums else identifier(column)
