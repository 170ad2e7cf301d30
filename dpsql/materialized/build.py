"""Builder of materialized tables, for `dpsql materialize`.

For tables of DuckDB and files, each build writes a new file, and then state.json names it in place of the old one. Open
sessions continue to read the old file, and new sessions find one of the two, complete. A build only adds the appended
rows if all rows of the last build are unchanged: for a table of DuckDB, if the number and checksum of the rows up to
the last one read are the same; for a folder, if its files are.

In another database the tables are in a schema of their own. Their names are a digest of all that they mean: the table,
its unit, the sets of columns with their types, and the bounds. Tables of one name are therefore the same question asked
of the data at another time, and an open session may read either. All tables of a build are made from one snapshot.
Only new rows are added if the engine can tell which these are, and that all rows of the last build are still there.

Otherwise a build reads all rows again, which takes longer and gives the same result.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.dialects import ENUM
from dpsql.engines import Column, Engine
from dpsql.engines.duckdb.catalog import describe
from dpsql.engines.duckdb.materialization_writer import MADE, MaterializationWriter, open_writer
from dpsql.engines.sources import Folder
from dpsql.engines.spark import SparkWriter
from dpsql.errors import EngineError, PolicyError
from dpsql.materialized.lookup import (
    FileFingerprint,
    MaterializedSum,
    MaterializedTable,
    Source,
    convert_enum,
    describe_schema,
    describe_table,
    find_place,
    find_relation,
    list_summed,
    list_tables,
    name_counts,
    name_pairs,
    parse_descriptions,
    read_fingerprints,
    read_state,
    write_state,
)
from dpsql.policy import Policy, PrivateTable
from dpsql.policy.toml import spell
from dpsql.policy.validation import fold
from dpsql.sql.ir.tree import Type, parse_type
from dpsql.sql.rewrite.materialization import AppendCheck, MaterializationStatements, RemoteSet

if TYPE_CHECKING:
    from dpsql.engines.postgres_writer import PostgresWriter


_APPENDED = "dpsql appended"
_ROW_NUMBER = "rowid"
_SALTS = f'"{MADE}"."main"."dpsql_salts"'


@dataclass(frozen=True, slots=True)
class Data:
    """Sources of a policy's tables, and the data version; `tokens` draws the given number of secret random bytes.

    With `again`, all rows are read even if nothing has changed.
    """

    database: str | Path | None
    sources: Mapping[str, Source]
    version: int
    tokens: Callable[[int], bytes]
    again: bool = False


def materialize(policy: Policy, data: Data, *, name: str) -> str:
    """Materialize one table and return "current" if nothing was to be done, else "appended" or "made".

    Raises `PolicyError` for a table that cannot be materialized, and `EngineError` if the build fails; the last build
    then stays in use.
    """
    table, folder = policy.tables[name], policy.materialized
    if folder is None or not isinstance(table, PrivateTable) or not table.materialized:
        raise _lists_none(policy, name)
    done = None
    with _lock_folder(folder):
        known = read_state(folder)
        with suppress(OSError):  # its text names files: raise our own error outside, without this one as its context
            made, kept = _build_or_reuse(policy, table, data=data, name=name, before=known.get(name))
            # The state names the new file before old ones go, so that a session that opens in between finds the files
            # of its state.
            write_state(folder, {**known, name: kept})
            _remove_unused_files(folder, {each.file for each in (*known.values(), kept)})
            done = made
        if done is None:
            _remove_unused_files(folder, {each.file for each in known.values()})
    if done is None:
        reason = "The table could not be written; the last build is unchanged, and nothing was charged."
        hint = "Free space on the disk of the policy's folder, and let this user write there."
        raise EngineError("prepare-failed", reason, hint=hint, place=policy.where(f"tables.{name}.materialized"))
    return done


def _build_or_reuse(
    policy: Policy, table: PrivateTable, *, data: Data, name: str, before: MaterializedTable | None
) -> tuple[str, MaterializedTable]:
    """Build the table unless it is current; return what was done, and the materialized table."""
    stamps, folder = _require_fingerprints(data, name), policy.materialized or Path()
    last = before if before is not None and before.holds(table) and (folder / before.file).is_file() else None
    schema = describe_schema(data.sources[name])
    if last is not None and (last.schema != schema or data.again):
        last = None
    if last is not None and last.stamps == stamps:
        return "current", replace(last, data_version=data.version)
    file = folder / f"{data.tokens(8).hex()}.duckdb"
    try:
        # The stamps before and after are compared: files that were written meanwhile may have given rows of two
        # moments.
        made = _write_file(policy, table, data=data, name=name, file=file, last=last)
        if _require_fingerprints(data, name) != stamps:
            reason = "The data changed while it was read."
            hint = "Run dpsql materialize again when no process writes it."
            raise EngineError("prepare-changed", reason, hint=hint, place=f"tables.{name}")  # noqa: TRY301
        _copy_permissions(file, Path(stamps[0][0]))
    except BaseException:
        for each in (file, file.with_name(f"{file.name}.wal")):
            with suppress(OSError):
                each.unlink()
        raise
    done, kept = made
    place = find_place(data.database, data.sources[name])
    return done, replace(kept, place=place, data_version=data.version, stamps=stamps, schema=schema)


def _copy_permissions(file: Path, data: Path) -> None:
    """Give the file the data file's owner and permissions."""
    status = data.stat()
    file.chmod(status.st_mode & 0o666)
    if sys.platform != "win32" and os.geteuid() == 0:
        os.chown(file, status.st_uid, status.st_gid)


def _require_fingerprints(data: Data, name: str) -> tuple[FileFingerprint, ...]:
    found = read_fingerprints(data.database, data.sources[name])
    if not found:
        hint = "Check the paths in the policy, and that of the database."
        raise EngineError("prepare-failed", "A file of the data cannot be found.", hint=hint, place=f"tables.{name}")
    return found


def _write_file(
    policy: Policy, table: PrivateTable, *, data: Data, name: str, file: Path, last: MaterializedTable | None
) -> tuple[str, MaterializedTable]:
    """Write the file; start from the last build if its rows are unchanged."""
    folder, limits = policy.materialized or Path(), policy.engine
    sources, later = {name: data.sources[name]}, _find_appended_files(data.sources[name], last)
    if later is not None:
        sources[_APPENDED] = later
    if last is not None:
        # The copy is private before it has a row; `copyfile` leaves the mode as it is.
        private = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.close(private)
        shutil.copyfile(folder / last.file, file)
    with open_writer(
        data.database, sources, file=file, memory_limit=limits.memory_limit, threads=limits.threads
    ) as writer:
        stored = describe(writer.connection, name, relation=writer.paths[name]).columns
        kept = replace(_describe_table(table, stored), file=file.name)
        _check_collations(policy, stored, kept=kept, name=name)
        same = last is not None and set(kept.columns) == set(last.columns) and kept.has_measures_of(last)
        # The tables of the last build are numbered in the order that its sets had.
        kept = replace(kept, columns=last.columns) if last is not None and same else kept
        build = _TableBuild(writer, kept, name)
        done = same and build.append()
        if not done:
            build.make(data.tokens)
    return "appended" if done else "made", kept


def _find_appended_files(source: Source, last: MaterializedTable | None) -> Folder | None:
    """Return the files added to a folder since the last build, or None if an earlier file changed or is missing."""
    if last is None or not isinstance(source, Folder):
        return None
    now = {str(file.path.resolve()): file for file in source.files}
    known = {path for path, size, time in last.stamps}
    same = read_fingerprints(None, replace(source, files=tuple(file for path, file in now.items() if path in known)))
    if same != last.stamps:
        return None
    new = tuple(file for path, file in now.items() if path not in known)
    return replace(source, files=new) if new else None


def _lists_none(policy: Policy, name: str) -> PolicyError:
    hint = 'List sets of its columns in the policy, such as materialized = [["article"]].'
    reason = f'The policy lists no columns to materialize for the table "{name}".'
    return PolicyError("policy-prepared", reason, hint=hint, place=policy.where(f"tables.{name}"))


def _describe_table(table: PrivateTable, stored: Iterable[Column]) -> MaterializedTable:
    """Return the materialized table to build, without a file, with column names as the data has them."""
    columns = {fold(column.name): column for column in stored}
    sets = tuple(tuple(columns[fold(name)].name for name in each) for each in table.materialized)
    sums = tuple(
        MaterializedSum(columns[fold(name)].name, columns[fold(name)].type, low, high)
        for name, low, high in list_summed(table)
    )
    unit = columns[fold(table.privacy_unit or "")].name
    return MaterializedTable("", "", unit, sets, 0, (), table.bounds.rows, sums)


def _draw_salts(tokens: Callable[[int], bytes]) -> tuple[int, int]:
    return int.from_bytes(tokens(8)), int.from_bytes(tokens(8))


def _check_collations(policy: Policy, stored: Iterable[Column], *, kept: MaterializedTable, name: str) -> None:
    """Refuse columns with a collation before a statement reads rows: DuckDB may not bind one with two of them."""
    read = {kept.unit, *(column for each in kept.columns for column in each)}
    found = [spell(column.name) for column in stored if column.name in read and column.collation]
    if found:
        has = f"The column {found[0]} has a collation" if len(found) == 1 else f"{', '.join(found)} have a collation"
        reason = f"{has}, and materialized text is compared by its bytes."
        hint = "Materialize a view that drops the collation, or leave the column out."
        raise PolicyError("policy-prepared", reason, hint=hint, place=policy.where(f"tables.{name}.materialized"))


@dataclass(frozen=True, slots=True)
class _TableBuild:
    """Build of one table with an open writer."""

    writer: MaterializationWriter
    kept: MaterializedTable
    name: str

    def make(self, tokens: Callable[[int], bytes]) -> None:
        """Build from all rows, with new salts."""
        writer, salts = self.writer, _draw_salts(tokens)
        # The file is a copy of the last build where rows could not be added to that.
        writer.run((f'DROP TABLE "{MADE}"."main"."{table}"', []) for table in writer.definitions())
        salted = f"CREATE TABLE {_SALTS} AS SELECT CAST($1 AS UBIGINT) AS first, CAST($2 AS UBIGINT) AS second"
        writer.run([(salted, list(salts))])
        for each in self._materializations(salts):
            writer.run(each.made())
        if self._has_row_numbers:
            writer.run([self._check.written])

    def append(self) -> bool:
        """Add the appended rows, and return whether that was possible."""
        writer = self.writer
        if not self._has_same_columns():
            return False
        if _APPENDED in writer.paths:
            # Of a folder all rows of the new files are new; of a table of DuckDB those from row number `first` on.
            source, first = writer.paths[_APPENDED], None
        elif self._has_row_numbers and (found := writer.row(self._check.next_number)) is not None:
            source, first = writer.paths[self.name], int(str(found[0]))
        else:
            return False
        salts = writer.row(f"SELECT first, second FROM {_SALTS}")  # noqa: S608 - our own name
        if salts is None:
            return False
        for each in self._materializations((int(str(salts[0])), int(str(salts[1])))):
            writer.run(each.appended(source, first))
        if first is not None:
            writer.run([self._check.extended(first)])
        return True

    def _has_same_columns(self) -> bool:
        """Check that the last build has columns of the same names and types as the data."""
        stored = set(map(convert_enum, self._stored))
        for at, columns in enumerate(self.kept.columns):
            kept = describe(self.writer.connection, self.name, relation=(MADE, "main", name_pairs(at))).columns
            if not {column for column in kept if column.name in {self.kept.unit, *columns}} <= stored:
                return False
        return True

    @property
    def _has_row_numbers(self) -> bool:
        """Whether DuckDB stores the table and numbers its rows; a column of that name hides the number."""
        hidden = any(fold(column.name) == _ROW_NUMBER for column in self._stored)
        return self.writer.is_table(self.writer.paths[self.name]) and not hidden

    @property
    def _check(self) -> AppendCheck:
        keys, summed = (
            (column for each in self.kept.columns for column in each),
            (each.column for each in self.kept.sums),
        )
        columns = dict.fromkeys((self.kept.unit, *keys, *summed))
        return AppendCheck(self.writer.paths[self.name], tuple(columns), (MADE, "main", "dpsql_check"), self._enums)

    @property
    def _stored(self) -> tuple[Column, ...]:
        return describe(self.writer.connection, self.name, relation=self.writer.paths[self.name]).columns

    @property
    def _enums(self) -> frozenset[str]:
        return frozenset(column.name for column in self._stored if column.type == ENUM)

    def _materializations(self, salts: tuple[int, int]) -> Iterator[MaterializationStatements]:
        kept, source, enums = self.kept, self.writer.paths[self.name], self._enums
        types = tuple(parse_type(each.type) for each in kept.sums)
        for at, columns in enumerate(kept.columns):
            paths = (MADE, "main", name_pairs(at)), (MADE, "main", name_counts(at))
            yield MaterializationStatements(
                source, kept.unit, columns, *paths, salts, measures=kept.measures, types=types, enums=enums
            )


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of this folder, which is created if needed; wait for other builds in it."""
    descriptor = None
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    if descriptor is None:
        hint = "Let this user write in the folder that the policy names as materialized."
        raise EngineError("prepare-failed", "The folder of materialized tables cannot be written.", hint=hint)
    try:
        with suppress(ImportError):  # Windows has no such lock
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def seal_system_errors() -> Iterator[None]:
    """Turn an error of the system inside, such as a disk without room for temporary files, into an `EngineError`."""
    failed = False
    try:
        yield
    except OSError:  # its text names files: raise our own error outside, without this one as its context
        failed = True
    if failed:
        reason = "A file that is needed to materialize tables could not be read or written; nothing was charged."
        hint = "Free space on the disks of the policy's folder and of TMPDIR, and let this user write there."
        raise EngineError("prepare-failed", reason, hint=hint)


def _remove_unused_files(folder: Path, used: set[str]) -> None:
    """Remove unused files, but for those of the last build, which a session may be opening."""
    for file in folder.glob("*.duckdb*"):
        if file.name not in used:
            with suppress(OSError):
                file.unlink()


_PREFIX = "m_"


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
    policy: Policy, data: RemoteData, *, writer: PostgresWriter | SparkWriter, name: str
) -> tuple[str, tuple[FileFingerprint, ...]]:
    """Materialize one table, and return "appended", "made" or, if no row was added, "current", and the build's stamps.

    Raises `PolicyError` for a table that cannot be materialized, and `EngineError` if the build fails; the last build
    then stays in use.
    """
    table = policy.tables[name]
    if not isinstance(table, PrivateTable) or not table.materialized:
        raise _lists_none(policy, name)
    if writer.is_filtered(data.engine.relation(name)):
        reason = "The table has row-level security, which rows in another table would escape."
        hint = "Materialize a view that shows the rows which sessions may read, or leave materialized out."
        raise PolicyError("policy-prepared", reason, hint=hint, place=policy.where(f"tables.{name}.materialized"))
    build = _RemoteBuild(writer, data, table, name)
    if isinstance(writer, SparkWriter):
        return build.publish(writer)
    with writer.transaction():
        return build.replace(writer)


@dataclass(frozen=True, slots=True)
class _RemoteBuild:
    """Build of one table."""

    writer: PostgresWriter | SparkWriter
    data: RemoteData
    table: PrivateTable
    name: str

    def publish(self, writer: SparkWriter) -> tuple[str, tuple[FileFingerprint, ...]]:
        """Make the tables of all rows, under names of this build alone."""
        kept = self._describe()
        kept = replace(kept, file=f"{kept.file}_{kept.stamps[0][0]}")
        self._make(kept, _draw_salts(self.data.tokens))
        writer.publish(self.name, describe_table(kept), tables=list_tables(kept))
        return "made", kept.stamps

    def replace(self, writer: PostgresWriter) -> tuple[str, tuple[FileFingerprint, ...]]:
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
            salts, done = _draw_salts(self.data.tokens), "made"
            for at, (pairs, counts) in enumerate(self._make(kept, salts)):
                writer.index(pairs, [kept.unit])
                if kept.columns[at]:
                    writer.index(counts, kept.columns[at])
            mark = writer.mark_rows(relation)
            # The new tables are there for all before they have the names that statements read: one whose snapshot is
            # older than a table finds no row in it.
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

    def _describe(self) -> MaterializedTable:
        """Return the materialized table to build, with the digest of all that it means as the file."""
        place = find_relation(self.data.engine, self.name)
        kept = replace(_describe_table(self.table, self.data.engine.columns(self.name)), place=place)
        types = [(name, self._types[name].name) for name in sorted({kept.unit, *chain(*kept.columns)})]
        meaning = json.dumps([asdict(kept), types], default=str)
        file = _PREFIX + hashlib.sha256(meaning.encode()).hexdigest()[:16]
        # The stamp is no part of the digest: tables of two builds of one meaning have the same names.
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
        self, writer: PostgresWriter, kept: MaterializedTable, *, salts: tuple[int, int], new: tuple[str, ...]
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
    def _types(self) -> dict[str, Type]:
        columns = self.data.engine.columns(self.name)
        return {column.name: parse_type(column.type, column.collation) for column in columns}


def _read_names(kept: MaterializedTable) -> set[str]:
    """Return the names of the columns that are read."""
    return {kept.unit, *chain(*kept.columns), *(each.column for each in kept.sums)}


def _find_unused(there: Iterable[str], *, used: set[str]) -> list[str]:
    """Return the tables of the schema that neither this build nor the last one of a table has."""
    return [
        table
        for table in sorted(there)
        if table.startswith(_PREFIX) and not any(table.startswith(f"{file}_") for file in used)
    ]
