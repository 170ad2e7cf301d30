"""Statements that materialize a private table, in DuckDB and in other engines.

Each set of columns has two tables. `pairs` has one row for each unit and each combination of values in its rows, with
two more columns: RANK, the rank of the row within its unit in the order of `bounding.py`, and GROUPS, the
number of rows of the unit. `counts` has one row for each combination of values with UNITS, the number of its units.
Both have the measures that the policy bounds, as `use_materialized.py` says. Rows without a unit are dropped. The salts
of the ranks are drawn when the tables are first built and are stored with them. A unit whose rows did not change
therefore has the same ranks after an update. For visits(user_id, city), without measures:

    pairs     SELECT user_id, city, row_number() OVER (PARTITION BY user_id ORDER BY draw, city) AS dpsql_rank,
                     count() OVER (PARTITION BY user_id) AS dpsql_groups
              FROM (SELECT DISTINCT user_id, city FROM visits WHERE user_id IS NOT NULL) ORDER BY city
    counts    SELECT city, sum(dpsql_units) AS dpsql_units FROM (SELECT city, 1 AS dpsql_units FROM pairs) GROUP BY city

Equal values of the column types are equal in every byte. No expression can distinguish rows that were merged into one.
An ENUM is stored as its text, as queries read it, because its labels, codes and order may come from rows.

To add rows, the pairs of the units that have new ones are ranked again; counts change by what these units add:

    added     pairs of the new rows
    stored    pairs that the units of these have already
    fresh     pairs of the new rows that change something
    known     pairs that the units of these have already
    again     all pairs of these units, which replace those that are known

In an engine other than DuckDB, columns are stored as queries read them: text is compared by its bytes, and a value that
a column form reads as NULL is NULL. The SELECTs are in the engine's own SQL, and what is around them is standard SQL.
The counts of the groups that change are updated; other counts are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from dpsql.dialects import DUCKDB, ENUM, Dialect, quote_name, quote_path
from dpsql.sql.ir.catalog import StoredMeasures
from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure
from dpsql.sql.ir.transforms import canonicalize, make_total
from dpsql.sql.ir.tree import TEXT, Cast, ColumnRef, Expression, Type
from dpsql.sql.render.duckdb import Writer, compose, sort_nulls_last
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.row_steps import build_row_steps, clamp
from dpsql.sql.rewrite.use_materialized import ROWS, UNITS, name_sum, name_values, read_number

SQLStatement = tuple[str, list[object]]  # text and the values of its parameters


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
        return list(map(quote_name, self.columns))

    @property
    def own(self) -> list[str]:
        """Quoted names of the unit and the columns."""
        return [quote_name(self.unit), *self.keys]

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
        own = [f"{self.read_column(writer, name)} AS {quote_name(name)}" for name in (self.unit, *self.columns)]
        # SELECT DISTINCT user_id, city FROM visits AS t1 WHERE user_id IS NOT NULL AND rowid >= 1000
        where = f"{self.read_column(writer, self.unit)} IS NOT NULL"
        where = f"{where} AND {condition}" if condition else where
        rows = f"{quote_path(self.source)} AS t1"
        if self.measures is None:
            return compose("SELECT DISTINCT {own} FROM {rows} WHERE {where}", own=own, rows=rows, where=where)
        summed = list(enumerate(zip(self.measures.sums, self.types, strict=True)))
        values = [
            f"system.main.count({self.read_values(writer, name, type_=type_)}) AS {name_values(at)}"
            for at, ((name, _), type_) in summed
        ]
        sums = []
        for at, ((name, bounds), type_) in summed:
            steps = build_row_steps(Measure(Aggregate.SUM, read_number(ColumnRef(1, name, type_)), bounds=bounds))
            if steps is not None:
                added = writer.expression(make_total(steps))
                sums.append(f"CAST(system.main.sum({added}) AS BIGINT) AS {name_sum(at)}")
        return compose(
            """
            SELECT {columns}
            FROM {rows} WHERE {where}
            GROUP BY {places}
            """,
            columns=[*own, f"system.main.count() AS {ROWS}", *values, *sums],
            rows=rows,
            where=where,
            places=map(str, range(1, len(own) + 1)),
        )

    def list_pairs(self, relation: str, where: str = "") -> str:
        """Return the SELECT of the pairs of a table, a join of tables, or those that a condition holds for."""
        template = "SELECT {names} FROM {relation}\nWHERE {where}"
        return compose(template, names=self.pair_names, relation=relation, where=where)

    def list_fresh(self, added: str, *, stored: str) -> str:
        """Return the SELECT of added pairs that change something: without measures, those that are not stored."""
        fresh = self.list_pairs(added)
        return fresh if self.measures is not None else f"{fresh} EXCEPT {self.list_pairs(stored)}"

    def add_pairs(self, known: str, *, fresh: str) -> str:
        """Return the SELECT of the pairs of two tables, which are apart but for their measures; these are added up."""
        both = f"{self.list_pairs(known)} UNION ALL {self.list_pairs(fresh)}"
        if self.measures is None:
            return both
        # SELECT user_id, city, sum(dpsql_rows) AS dpsql_rows FROM (known UNION ALL fresh) GROUP BY user_id, city
        sums = (f"CAST(system.main.sum({name}) AS BIGINT) AS {name}" for name in self.pair_names[len(self.own) :])
        return compose("SELECT {own}, {sums} FROM ({both}) GROUP BY {own}", own=self.own, sums=sums, both=both)

    def rank(self, writer: Writer, rows: str) -> str:
        """Return the SELECT of pairs with their RANK and GROUPS."""
        unit, columns = quote_name(self.unit), self.keys
        # row_number() OVER (PARTITION BY user_id ORDER BY draw, city) AS dpsql_rank,
        # count() OVER (PARTITION BY user_id) AS dpsql_groups
        rank = groups = "CAST(1 AS BIGINT)"
        if columns:  # else each unit has one row
            order = f"{writer.draw(columns, unit, salts=self.salts)}, {sort_nulls_last(columns)}"
            rank = f"system.main.row_number() OVER (PARTITION BY {unit} ORDER BY {order})"
            groups = f"system.main.count() OVER (PARTITION BY {unit})"
        template = "SELECT {names}, {rank} AS dpsql_rank, {groups} AS dpsql_groups FROM {rows}"
        return compose(template, names=self.pair_names, rank=rank, groups=groups, rows=rows)

    @property
    def _ranges(self) -> dict[str, ContributionRange]:
        """Columns of the measures of groups, each with the bounds of what one unit adds."""
        if self.measures is None:
            return {}
        positions, rows = range(len(self.measures.sums)), self.measures.rows
        counts = [ROWS, *map(name_values, positions)] if rows is not None else []
        ranges = {name: ContributionRange(0, rows or 0) for name in counts}
        return ranges | {name_sum(at): bounds for at, (_, bounds) in enumerate(self.measures.sums)}

    def count_each(self, pairs: str, *, sign: str = "") -> str:
        """Return the SELECT of what each of some pairs adds to its group: 1, and its measures between their bounds."""
        # The pair has the sums of all rows of the unit, so that the clamp is that of the unit, as in `add_rows`.
        added = {UNITS: "1", **{name: clamp(name, bounds) for name, bounds in self._ranges.items()}}
        columns = [*self.keys, *(f"{sign}{each} AS {name}" for name, each in added.items())]
        return compose("SELECT {columns} FROM {pairs}", columns=columns, pairs=pairs)

    def add_up(self, units: str, *, having: str = "") -> str:
        """Return the SELECT of the groups, with the sums of what each of `units` adds to them."""
        sums = (f"CAST(system.main.sum({name}) AS BIGINT) AS {name}" for name in self.count_names)
        return compose(
            """
            SELECT {columns} FROM ({units})
            GROUP BY {keys}
            HAVING {having}
            """,
            columns=[*self.keys, *sums],
            units=units,
            keys=self.keys,
            having=having,
        )

    def count_groups(self, *units: str) -> str:
        """Return the SELECT of the groups that have a unit; without columns there would be a group of no unit."""
        return self.add_up(" UNION ALL ".join(units), having="system.main.sum(dpsql_units) > 0")


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
        return quote_name(name)

    def made(self) -> list[SQLStatement]:
        """Return the statements that build both tables from all rows."""
        writer = Writer()
        ranked = self.rank(writer, f"({self.select_pairs(writer)})")
        counted = self.count_groups(self.count_each(quote_path(self.pairs)))
        create = "CREATE TABLE {pairs} AS {ranked}\nORDER BY {keys}"
        sql = compose(create, pairs=quote_path(self.pairs), ranked=ranked, keys=self.keys)
        return [(sql, writer.parameters), self._replace_counts(counted)]

    def appended(self, source: tuple[str, ...], first: int | None) -> list[SQLStatement]:
        """Return the statements that add the rows of `source`, or only its rows from number `first` on.

        Pairs are read and written of the units that have new ones, and counts change by what these units add.
        """
        added, ranks = Writer(), Writer()
        unit, pairs = quote_name(self.unit), quote_path(self.pairs)
        rows = replace(self, source=source).select_pairs(added, "" if first is None else f"rowid >= {first:d}")
        ranked = self.rank(ranks, "temp.main.dpsql_again")
        # the counts are those before, less what the units with new rows added, and what they add now:
        # SELECT city, sum(dpsql_units) AS dpsql_units
        # FROM (SELECT city, dpsql_units FROM counts UNION ALL
        #       SELECT city, -1 FROM known UNION ALL SELECT city, 1 FROM again)
        # GROUP BY city HAVING sum(dpsql_units) > 0
        before = compose(
            "SELECT {names} FROM {counts}", names=[*self.keys, *self.count_names], counts=quote_path(self.counts)
        )
        # The clamp is applied to the old and to the new sums of a unit, not to their difference.
        known = self.count_each("temp.main.dpsql_known", sign="-")
        counted = self.count_groups(before, known, self.count_each("temp.main.dpsql_again"))
        stored = self.list_pairs(f"{pairs} SEMI JOIN temp.main.dpsql_added USING ({unit})")
        fresh = self.list_fresh("temp.main.dpsql_added", stored="temp.main.dpsql_stored")
        old = self.list_pairs(f"temp.main.dpsql_stored SEMI JOIN temp.main.dpsql_fresh USING ({unit})")
        again = self.add_pairs("temp.main.dpsql_known", fresh="temp.main.dpsql_fresh")
        units = "DELETE FROM {pairs} WHERE {unit} IN (SELECT {unit} FROM temp.main.dpsql_fresh)"
        insert = "INSERT INTO {pairs} {ranked}\nORDER BY {keys}"
        return [
            (f"CREATE OR REPLACE TEMP TABLE dpsql_added AS {rows}", added.parameters),
            (f"CREATE OR REPLACE TEMP TABLE dpsql_stored AS {stored}", []),
            (f"CREATE OR REPLACE TEMP TABLE dpsql_fresh AS {fresh}", []),
            (f"CREATE OR REPLACE TEMP TABLE dpsql_known AS {old}", []),
            (f"CREATE OR REPLACE TEMP TABLE dpsql_again AS {again}", []),
            (compose(units, pairs=pairs, unit=unit), []),
            (compose(insert, pairs=pairs, ranked=ranked, keys=self.keys), ranks.parameters),
            self._replace_counts(counted),
        ]

    def _replace_counts(self, counted: str) -> SQLStatement:
        create = "CREATE OR REPLACE TABLE {counts} AS {counted} ORDER BY dpsql_units DESC"
        return compose(create, counts=quote_path(self.counts), counted=counted), []


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
    def written(self) -> SQLStatement:
        """Statement that records number and checksum of all current rows."""
        return f"CREATE OR REPLACE TABLE {quote_path(self.place)} AS {self._sum_rows(_LAST)}", []

    def extended(self, first: int) -> SQLStatement:
        """Return the statement that adds the rows from number `first` on to number and checksum."""
        sql = compose(
            """
            CREATE OR REPLACE TABLE {place} AS
            SELECT system.main.max(next_number) AS next_number, system.main.sum(number_of_rows) AS number_of_rows,
            system.main.sum(total) AS total, system.main.bit_xor(mixed) AS mixed
            FROM (SELECT next_number, number_of_rows, total, mixed FROM {place} UNION ALL {new})
            """,
            place=quote_path(self.place),
            new=self._sum_rows(_LAST, where=f"number >= {first:d}"),
        )
        return sql, []

    @property
    def next_number(self) -> str:
        """SELECT of the number of the first new row; it returns no row if earlier rows changed."""
        known = compose("number < (SELECT next_number FROM {place})", place=quote_path(self.place))
        return compose(
            "SELECT next_number FROM {place} JOIN ({sums}) USING (number_of_rows, total, mixed)",
            place=quote_path(self.place),
            sums=self._sum_rows("", where=known),
        )

    def _sum_rows(self, last: str, where: str = "") -> str:
        """Return the SELECT of number and checksum of the rows, after the number of the next if `last` says it."""
        # Sum and XOR do not depend on the order of the rows. The second hash mixes: DuckDB's hash of several values
        # only XORs in the last one (`Writer.draw`), and XORs of rows could cancel each other.
        return compose(
            """
            SELECT
            {last},
            system.main.count() AS number_of_rows, coalesce(system.main.sum(mixed_row), 0) AS total,
            coalesce(system.main.bit_xor(mixed_row), 0) AS mixed
            FROM (
                SELECT rowid AS number, system.main.hash(system.main.hash({values})) AS mixed_row FROM {source}
            )
            WHERE {where}
            """,
            last=last,
            values=(_read(column, self.enums) for column in self.columns),
            source=quote_path(self.source),
            where=where,
        )


_LAST = "coalesce(system.main.max(number) + 1, 0) AS next_number"


def _read(column: str, enums: frozenset[str]) -> str:
    """Return the expression that reads a column of the source, an ENUM as its text."""
    return f"CAST({quote_name(column)} AS VARCHAR)" if column in enums else quote_name(column)


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
        return {quote_name(name): TEXT if kind.name == ENUM else kind for name, kind in kinds}

    def read_column(self, writer: Writer, name: str) -> str:
        """Return the expression that reads a column as a key; an ENUM as its text."""
        column: Expression = ColumnRef(1, name, self.kinds[name])
        if column.type.name == ENUM:
            column = Cast(column, TEXT)
        return writer.expression(canonicalize(column))

    def read_values(self, writer: Writer, name: str, *, type_: Type) -> str:
        """Return the expression that reads a summed column."""
        return writer.expression(ColumnRef(1, name, type_))

    def make_pairs(self) -> SQLStatement:
        """Return the SELECT of the ranked pairs of all rows."""
        writer = writer_for(self.dialect, self.draw_types)
        return writer.finished(self.rank(writer, f"({self.select_pairs(writer)})")), writer.parameters

    def make_counts(self, pairs: tuple[str, ...]) -> SQLStatement:
        """Return the SELECT of the groups of some pairs."""
        return self._finish(self.count_groups(self.count_each(quote_path(pairs))))

    def add_rows(self, source: tuple[str, ...]) -> Iterator[SQLStatement]:
        """Yield the statements that change the pairs for the rows of `source`, and compute what changes in counts."""
        unit, pairs = quote_name(self.unit), quote_path(self.pairs)
        added, stored, fresh, known, again = map(self._own_table, ("added", "stored", "fresh", "known", "again"))
        new, ranks = writer_for(self.dialect), writer_for(self.dialect, self.draw_types)
        rows = new.finished(replace(self, source=source).select_pairs(new))
        yield self._create("added", (rows, new.parameters))
        units = "{unit} IN (SELECT {unit} FROM {table})"
        # PostgreSQL and others have no SEMI JOIN, which `appended` uses in DuckDB.
        has_added = compose(units, unit=unit, table=added)
        is_fresh = compose(units, unit=unit, table=fresh)
        yield self._create("stored", self._finish(self.list_pairs(pairs, has_added)))
        yield self._create("fresh", self._finish(self.list_fresh(added, stored=stored)))
        yield self._create("known", self._finish(self.list_pairs(stored, is_fresh)))
        yield self._create("again", self._finish(self.add_pairs(known, fresh=fresh)))
        yield compose("DELETE FROM {pairs} WHERE {is_fresh}", pairs=pairs, is_fresh=is_fresh), []
        yield f"INSERT INTO {pairs} {ranks.finished(self.rank(ranks, again))}", ranks.parameters
        sums = compose(
            """
            SELECT {columns}
            FROM ({sums}) WHERE ({changed})
            """,
            columns=[*self.keys, *self.count_names],
            sums=self.add_up(f"{self.count_each(known, sign='-')} UNION ALL {self.count_each(again)}"),
            # A row of `changed` is what a group gains or, below 0, loses; a group without a row there keeps its counts.
            changed=" OR ".join(f"{name} <> 0" for name in self.count_names),
        )
        yield self._create("changed", self._finish(sums))

    @property
    def null_patterns(self) -> SQLStatement:
        """SELECT of the combinations of keys that are NULL in groups which change; without keys, of none."""
        nulls = [f"({key} IS NULL) AS c{at}" for at, key in enumerate(self.keys)] or ["TRUE AS c0"]
        return self._finish(
            compose("SELECT DISTINCT {nulls} FROM {changed}", nulls=nulls, changed=self._own_table("changed"))
        )

    def change_counts(self, nulls: Sequence[object]) -> Iterator[SQLStatement]:
        """Yield the statements that change the counts of the groups whose keys are NULL in these places.

        An equality can use an index and a hash, and IS NOT DISTINCT FROM neither.
        """
        counts, changed, names = quote_path(self.counts), self._own_table("changed"), self.count_names
        keys = list(zip(self.keys, nulls, strict=False))
        same = [
            f"dpsql_old.{key} IS NULL AND dpsql_new.{key} IS NULL" if is_null else f"dpsql_old.{key} = dpsql_new.{key}"
            for key, is_null in keys
        ]
        # Of two keys with the first NULL: dpsql_old.a IS NULL AND dpsql_new.a IS NULL AND dpsql_old.b = dpsql_new.b
        match = " AND ".join(same) or "TRUE"
        # UPDATE counts AS dpsql_old SET dpsql_units = dpsql_old.dpsql_units + dpsql_new.dpsql_units
        # FROM changed AS dpsql_new WHERE dpsql_old.city = dpsql_new.city
        update = compose(
            "UPDATE {counts} AS dpsql_old SET {sums} FROM {changed} AS dpsql_new WHERE {match}",
            counts=counts,
            sums=(f"{name} = dpsql_old.{name} + dpsql_new.{name}" for name in names),
            changed=changed,
            match=match,
        )
        yield update, []
        insert = compose(
            """
            INSERT INTO {counts} ({names})
            SELECT {names} FROM {changed} AS dpsql_new
            WHERE {here} AND NOT EXISTS (SELECT 1 FROM {counts} AS dpsql_old WHERE {match})
            """,
            counts=counts,
            names=[*self.keys, *names],
            changed=changed,
            here=" AND ".join(
                [*(f"{key} IS NULL" if is_null else f"{key} IS NOT NULL" for key, is_null in keys), "dpsql_units > 0"]
            ),
            match=match,
        )
        yield insert, []

    def drop_scratch(self) -> Iterator[SQLStatement]:
        """Yield the statements that drop the tables of `add_rows`."""
        for name in ("added", "stored", "fresh", "known", "again", "changed"):
            yield f"DROP TABLE {self._own_table(name)}", []

    def _own_table(self, name: str) -> str:
        return quote_path((self.scratch, f"dpsql_{name}"))

    def _create(self, name: str, rows: SQLStatement) -> SQLStatement:
        return f"CREATE TEMP TABLE {quote_name(f'dpsql_{name}')} AS {rows[0]}", rows[1]

    def _finish(self, sql: str) -> SQLStatement:
        writer = writer_for(self.dialect)
        return writer.finished(sql), writer.parameters
