"""Statements that materialize a private table in an engine other than DuckDB.

The tables are those of `materialization.py`. Columns are stored as queries read them: text is compared by its bytes,
and a value that a column form reads as NULL is NULL. The SELECTs are in the engine's own SQL, and what is around them
is standard SQL. To add rows, the pairs of the units that have new ones are ranked again, and the counts of the groups
that these change are updated; other pairs and counts are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from dpsql.dialects import DUCKDB, ENUM, Dialect
from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.tree import Cast, Column, Expression
from dpsql.sql.ir.types import TEXT, Type
from dpsql.sql.render.clauses import (
    add,
    alias,
    assign,
    both,
    combine,
    create_table,
    delete,
    either,
    equal,
    in_query,
    insert,
    is_null,
    list_parts,
    more_than,
    not_equal,
    not_exists,
    not_null,
    path,
    qualify_column,
    select,
    subquery,
    update,
)
from dpsql.sql.render.duckdb import Writer, identifier
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.materialization import SetStatements
from dpsql.sql.rewrite.stored_measures import UNITS

__all__ = ["RemoteSet", "SQLStatement"]

SQLStatement = tuple[str, list[object]]  # text and the values of its parameters


@dataclass(frozen=True, slots=True, repr=False)
class RemoteSet(SetStatements):
    """Statements for one set, in SQL of `dialect`; `kinds` are the types of the unit and the columns by name.

    Those that add rows use tables of their own in the schema `scratch`.
    """

    dialect: Dialect = DUCKDB
    kinds: dict[str, Type] = field(default_factory=dict)
    scratch: str = ""

    @property
    def draw_types(self) -> dict[str, Type]:
        """Types of the unit and the keys as they are stored, by their names in statements."""
        kinds = ((name, self.kinds[name]) for name in (self.unit, *self.columns))
        return {identifier(name): TEXT if kind.name == ENUM else kind for name, kind in kinds}

    def read_column(self, writer: Writer, name: str) -> str:
        """Return the expression that reads a column as a key; an ENUM as its text."""
        column: Expression = Column(1, name, self.kinds[name])
        if column.type.name == ENUM:
            column = Cast(column, TEXT)
        return writer.expression(canonicalize(column))

    def read_values(self, writer: Writer, name: str, *, type_: Type) -> str:
        """Return the expression that reads a summed column."""
        return writer.expression(Column(1, name, type_))

    def make_pairs(self) -> SQLStatement:
        """Return the SELECT of the ranked pairs of all rows."""
        writer = writer_for(self.dialect, self.draw_types)
        return writer.finished(self.rank(writer, subquery(self.select_pairs(writer)))), writer.parameters

    def make_counts(self, pairs: tuple[str, ...]) -> SQLStatement:
        """Return the SELECT of the groups of some pairs."""
        return self._finish(self.count_groups(self.count_each(path(pairs))))

    def add_rows(self, source: tuple[str, ...]) -> Iterator[SQLStatement]:
        """Yield the statements that change the pairs for the rows of `source`, and compute what changes in counts."""
        unit, own = identifier(self.unit), self.pair_names
        new, ranks = writer_for(self.dialect), writer_for(self.dialect, self.draw_types)
        rows = new.finished(replace(self, source=source).select_pairs(new))
        fresh = select(own, self._own_table("added"))
        if self.measures is None:  # pairs that are there already change nothing
            fresh = combine("EXCEPT", fresh, select(own, self._own_table("stored")))
        yield self._create("added", (rows, new.parameters))
        units = select([unit], self._own_table("added"))
        yield self._create("stored", self._finish(select(own, path(self.pairs), where=in_query(unit, units))))
        yield self._create("fresh", self._finish(fresh))
        units = select([unit], self._own_table("fresh"))
        known = select(own, self._own_table("stored"), where=in_query(unit, units))
        yield self._create("known", self._finish(known))
        again = self.add_pairs(select(own, self._own_table("known")), select(own, self._own_table("fresh")))
        yield self._create("again", self._finish(again))
        yield delete(path(self.pairs), where=in_query(unit, units)), []
        ranked = ranks.finished(self.rank(ranks, self._own_table("again")))
        yield insert(path(self.pairs), ranked), ranks.parameters
        changes = combine(
            "UNION ALL",
            self.count_each(self._own_table("known"), subtracted=True),
            self.count_each(self._own_table("again")),
        )
        changed = either(*(not_equal(name, "0") for name in self.count_names))
        sums = select([*self.keys, *self.count_names], subquery(self.add_up(changes)), where=changed)
        yield self._create("changed", self._finish(sums))

    @property
    def null_patterns(self) -> SQLStatement:
        """SELECT of the combinations of keys that are NULL in groups which change; without keys, of none."""
        nulls = [alias(subquery(is_null(key)), f"c{at}") for at, key in enumerate(self.keys)] or [alias("TRUE", "c0")]
        return self._finish(select(nulls, self._own_table("changed"), distinct=True))

    def change_counts(self, nulls: Sequence[object]) -> Iterator[SQLStatement]:
        """Yield the statements that change the counts of the groups whose keys are NULL in these places.

        An equality can use an index and a hash, and IS NOT DISTINCT FROM neither.
        """
        counts, changed = path(self.counts), self._own_table("changed")
        same = [
            both(is_null(_of("dpsql_old", key)), is_null(_of("dpsql_new", key)))
            if is_missing
            else equal(_of("dpsql_old", key), _of("dpsql_new", key))
            for key, is_missing in zip(self.keys, nulls, strict=False)
        ]
        match = both(*same) if same else "TRUE"
        added = [assign(name, add(_of("dpsql_old", name), _of("dpsql_new", name))) for name in self.count_names]
        yield update(alias(counts, "dpsql_old"), added, source=alias(changed, "dpsql_new"), where=match), []
        here = [
            is_null(key) if is_missing else not_null(key) for key, is_missing in zip(self.keys, nulls, strict=False)
        ]
        names = [*self.keys, *self.count_names]
        unknown = not_exists(select(["1"], alias(counts, "dpsql_old"), where=match))
        groups = select(names, alias(changed, "dpsql_new"), where=both(*here, more_than(UNITS, "0"), unknown))
        yield insert(f"{counts} ({list_parts(names)})", groups), []

    def drop_scratch(self) -> Iterator[SQLStatement]:
        """Yield the statements that drop the tables of `add_rows`."""
        for name in ("added", "stored", "fresh", "known", "again", "changed"):
            yield f"DROP TABLE {self._own_table(name)}", []

    def _own_table(self, name: str) -> str:
        return path((self.scratch, f"dpsql_{name}"))

    def _create(self, name: str, rows: SQLStatement) -> SQLStatement:
        return create_table(identifier(f"dpsql_{name}"), rows[0], temporary=True), rows[1]

    def _finish(self, sql: str) -> SQLStatement:
        writer = writer_for(self.dialect)
        return writer.finished(sql), writer.parameters


def _of(relation: str, name: str) -> str:
    return qualify_column(relation, name)
