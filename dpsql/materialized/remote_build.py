"""Builder of materialized tables in the database that has the data, for `dpsql materialize`.

The tables are in a schema of their own. Their names are a digest of all that they mean: the table, its unit, the sets
of columns with their types, and the bounds. Tables of one name are therefore the same question asked of the data at
another time, and an open session may read either. All tables of a build are made from one snapshot of the data.

A build only adds the new rows if the engine can tell which these are, and that all rows of the last build are still
there: the same tables as a build of all rows would make. Otherwise it reads all rows again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Protocol, runtime_checkable

from dpsql.engines import Column, Engine
from dpsql.errors import PolicyError
from dpsql.materialized.lookup import (
    FileFingerprint,
    MaterializedSum,
    MaterializedTable,
    describe_table,
    find_relation,
    list_summed,
    list_tables,
    name_counts,
    name_pairs,
    parse_descriptions,
)
from dpsql.policy import Policy, PrivateTable
from dpsql.policy.validation import fold
from dpsql.sql.ir.tree import Type, parse_type
from dpsql.sql.rewrite.materialization import RemoteSet, SQLStatement

_PREFIX = "m_"


class SchemaWriter(Protocol):
    """Connection to an engine that writes tables in one schema."""

    @property
    def schema(self) -> str:
        """The name of the schema."""
        ...

    def is_filtered(self, relation: tuple[str, ...]) -> bool:
        """Say whether the table shows rows by the role that reads it."""
        ...

    def create(self, table: str, rows: SQLStatement) -> tuple[str, ...]:
        """Make a new table of the rows of a SELECT, and return a path by which it can be read at once."""
        ...


@runtime_checkable
class ReplacingWriter(SchemaWriter, Protocol):
    """Writer that changes and replaces tables while sessions read them, as that of PostgreSQL."""

    @property
    def scratch(self) -> str:
        """The schema of temporary tables."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Run the body alone in the schema, with one snapshot of the data, all or nothing from the last commit on."""
        ...

    def commit(self) -> None:
        """Commit new tables, before they take the place of others; the data is not read afterwards."""
        ...

    def run(self, statements: Iterable[SQLStatement]) -> None:
        """Run statements; raise `EngineError` if one fails."""
        ...

    def rows(self, sql: str, parameters: Iterable[object] = ()) -> list[tuple[object, ...]]:
        """Return the rows of a SELECT; raise `EngineError` if it fails."""
        ...

    def tables(self) -> set[str]:
        """Return the names of the tables in the schema."""
        ...

    def read_state(self) -> dict[str, str]:
        """Return the descriptions of what is materialized."""
        ...

    def read_secrets(self, name: str) -> tuple[tuple[int, int], str] | None:
        """Return the salts of a table's ranks, and the mark of the rows of its last build."""
        ...

    def write_state(self, name: str, description: str, *, salts: tuple[int, int], mark: str) -> None:
        """Replace what is known of a table."""
        ...

    def mark_rows(self, relation: tuple[str, ...]) -> str:
        """Return a mark of the rows of a table as they are now, "" if rows that are added cannot be told by one."""
        ...

    def copy_new_rows(self, relation: tuple[str, ...], columns: Iterable[str], *, mark: str) -> tuple[str, ...] | None:
        """Copy columns of the rows that were added since a mark, and return the path of the copy.

        Returns None if earlier rows were changed or deleted, or if that is not known, and () if no row was added.
        """
        ...

    def index(self, table: str, columns: Iterable[str]) -> None:
        """Make an index of a new table."""
        ...

    def replace_tables(self, tables: Iterable[str], *, dropped: Iterable[str]) -> None:
        """Give new tables their names, in place of those that had them, and drop others."""
        ...


@runtime_checkable
class NamingWriter(SchemaWriter, Protocol):
    """Writer whose tables never change, as that of Spark: each build has new names, which are published at the end."""

    def publish(self, name: str, description: str, *, tables: Iterable[str]) -> None:
        """Let new sessions read these tables as those of a table of the policy."""
        ...


@dataclass(frozen=True, slots=True)
class RemoteData:
    """Open engine of sessions, the data version, and a source of secret random bytes.

    With `again`, all rows are read.
    """

    engine: Engine
    version: int
    tokens: Callable[[int], bytes]
    again: bool = False


def materialize_in_schema(
    policy: Policy, data: RemoteData, *, writer: SchemaWriter, name: str
) -> tuple[str, tuple[FileFingerprint, ...]]:
    """Materialize one table, and return "appended", "made" or, if no row was added, "current", and the build's stamps.

    Raises `PolicyError` for a table that cannot be materialized, and `EngineError` if the build fails; the last build
    then stays in use.
    """
    table = policy.tables[name]
    if not isinstance(table, PrivateTable) or not table.materialized:
        hint = 'List sets of its columns in the policy, such as materialized = [["article"]].'
        reason = f'The policy lists no columns to materialize for the table "{name}".'
        raise PolicyError("policy-prepared", reason, hint=hint, place=policy.where(f"tables.{name}"))
    if writer.is_filtered(data.engine.relation(name)):
        reason = "The table has row-level security, which rows in another table would escape."
        hint = "Materialize a view that shows the rows which sessions may read, or leave materialized out."
        raise PolicyError("policy-prepared", reason, hint=hint, place=policy.where(f"tables.{name}.materialized"))
    build = _RemoteBuild(writer, data, table, name)
    if isinstance(writer, ReplacingWriter):
        with writer.transaction():
            return build.replace(writer)
    if isinstance(writer, NamingWriter):
        return build.publish(writer)
    raise TypeError


@dataclass(frozen=True, slots=True)
class _RemoteBuild:
    """Build of one table."""

    writer: SchemaWriter
    data: RemoteData
    table: PrivateTable
    name: str

    def publish(self, writer: NamingWriter) -> tuple[str, tuple[FileFingerprint, ...]]:
        """Make the tables of all rows, under names of this build alone."""
        kept = self._describe()
        kept = replace(kept, file=f"{kept.file}_{kept.stamps[0][0]}")
        self._make(kept, self._draw_salts())
        writer.publish(self.name, describe_table(kept), tables=list_tables(kept))
        return "made", kept.stamps

    def replace(self, writer: ReplacingWriter) -> tuple[str, tuple[FileFingerprint, ...]]:
        """Add rows if that is possible, else make the tables; then record it, and drop tables of earlier meanings."""
        kept, relation = self._describe(), self.data.engine.relation(self.name)
        before, there = parse_descriptions(writer.read_state()), writer.tables()
        unused = _find_unused(there, used={each.file for each in (*before.values(), kept)})
        known, names, hidden = before.get(self.name), list(list_tables(kept)), writer.read_secrets(self.name)
        is_same = known is not None and known.file == kept.file and set(names) <= there and not self.data.again
        new = None
        if is_same and hidden is not None:
            new = writer.copy_new_rows(relation, sorted(_read_names(kept)), mark=hidden[1])
        if hidden is None or new is None:
            salts, done = self._draw_salts(), "made"
            for at, (pairs, counts) in enumerate(self._make(kept, salts)):
                writer.index(pairs, [kept.unit])
                if kept.columns[at]:
                    writer.index(counts, kept.columns[at])
            mark = writer.mark_rows(relation)
            writer.commit()
            writer.replace_tables(names, dropped=unused)
        else:
            salts, done = hidden[0], "appended" if new else "current"
            if new:
                self._append(writer, kept, salts=salts, new=new)
            mark = writer.mark_rows(relation)
            writer.replace_tables([], dropped=unused)
        writer.write_state(self.name, describe_table(kept), salts=salts, mark=mark)
        return done, kept.stamps

    def _draw_salts(self) -> tuple[int, int]:
        return int.from_bytes(self.data.tokens(8)), int.from_bytes(self.data.tokens(8))

    def _describe(self) -> MaterializedTable:
        """Return the materialized table to build, with column names as the data has them."""
        columns = {fold(column.name): column for column in self._stored}
        sets = tuple(tuple(columns[fold(column)].name for column in each) for each in self.table.materialized)
        sums = tuple(
            MaterializedSum(columns[fold(name)].name, columns[fold(name)].type, low, high)
            for name, low, high in list_summed(self.table)
        )
        unit, place = columns[fold(self.table.privacy_unit or "")].name, find_relation(self.data.engine, self.name)
        kept = MaterializedTable("", place, unit, sets, 0, (), self.table.bounds.rows, sums)
        types = [(name, self._types[name].name) for name in sorted({unit, *(name for each in sets for name in each)})]
        meaning = json.dumps([asdict(kept), types], default=str)
        file = _PREFIX + hashlib.sha256(meaning.encode()).hexdigest()[:16]
        stamp = self.data.tokens(8).hex(), 0, time.time_ns()
        return replace(kept, file=file, data_version=self.data.version, stamps=(stamp,))

    def _make(self, kept: MaterializedTable, salts: tuple[int, int]) -> list[tuple[str, str]]:
        """Make the tables of all sets, and return the names of the pairs and counts of each."""
        made = []
        for at, each in enumerate(self._sets(kept, salts)):
            pairs, counts = (f"{kept.file}_{name(at)}" for name in (name_pairs, name_counts))
            place = self.writer.create(pairs, each.make_pairs())
            self.writer.create(counts, each.make_counts(place))
            made.append((pairs, counts))
        return made

    def _append(
        self, writer: ReplacingWriter, kept: MaterializedTable, *, salts: tuple[int, int], new: tuple[str, ...]
    ) -> None:
        for each in self._sets(kept, salts, scratch=writer.scratch):
            writer.run(each.add_rows(new))
            for nulls in writer.rows(*each.null_patterns):
                writer.run(each.change_counts(nulls))
            writer.run(each.drop_scratch())

    def _sets(self, kept: MaterializedTable, salts: tuple[int, int], *, scratch: str = "") -> Iterator[RemoteSet]:
        source, dialect = self.data.engine.relation(self.name), self.data.engine.dialect
        types = tuple(parse_type(each.type) for each in kept.sums)
        for at, columns in enumerate(kept.columns):
            pairs, counts = ((self.writer.schema, f"{kept.file}_{name(at)}") for name in (name_pairs, name_counts))
            yield RemoteSet(
                source,
                kept.unit,
                columns,
                pairs,
                counts,
                salts,
                measures=kept.measures,
                types=types,
                dialect=dialect,
                kinds=self._types,
                scratch=scratch,
            )

    @property
    def _stored(self) -> tuple[Column, ...]:
        return self.data.engine.columns(self.name)

    @property
    def _types(self) -> dict[str, Type]:
        return {column.name: parse_type(column.type, column.collation) for column in self._stored}


def _read_names(kept: MaterializedTable) -> set[str]:
    """Return the names of the columns that are read."""
    return {kept.unit, *(name for each in kept.columns for name in each), *(each.column for each in kept.sums)}


def _find_unused(there: Iterable[str], *, used: set[str]) -> list[str]:
    """Return the tables of the schema that neither this build nor the last one of a table has."""
    return [
        table
        for table in sorted(there)
        if table.startswith(_PREFIX) and not any(table.startswith(f"{file}_") for file in used)
    ]
