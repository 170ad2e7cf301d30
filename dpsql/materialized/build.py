"""Builder of materialized tables, for `dpsql materialize`.

Each build writes a new file, and then state.json names it in place of the old one. Open sessions continue to read the
old file, and new sessions find one of the two, complete.

A build only adds the appended rows if all rows of the last build are unchanged: for a table of DuckDB, if the number
and checksum of the rows up to the last one read are the same; for a folder, if its files are. Otherwise it reads all
rows again, which takes longer and gives the same result.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dpsql.dialects import ENUM
from dpsql.engines import Column
from dpsql.engines.duckdb.catalog import describe
from dpsql.engines.duckdb.materialization_writer import MADE, MaterializationWriter, open_writer
from dpsql.engines.sources import Folder
from dpsql.errors import EngineError, PolicyError
from dpsql.materialized.lookup import (
    FileFingerprint,
    MaterializedSum,
    MaterializedTable,
    Source,
    convert_enum,
    describe_schema,
    find_place,
    list_summed,
    name_counts,
    name_pairs,
    read_fingerprints,
    read_state,
    write_state,
)
from dpsql.policy import Policy, PrivateTable
from dpsql.policy.toml import spell
from dpsql.policy.validation import fold
from dpsql.sql.ir.tree import parse_type
from dpsql.sql.rewrite.materialization import AppendCheck, MaterializationStatements

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
        hint = 'List sets of its columns in the policy, such as materialized = [["article"]].'
        reason = f'The policy lists no columns to materialize for the table "{name}".'
        raise PolicyError("policy-prepared", reason, hint=hint, place=policy.where(f"tables.{name}"))
    done = None
    with _lock_folder(folder):
        known = read_state(folder)
        with suppress(OSError):  # its text names files: raise our own error outside, without this one as its context
            made, kept = _build_or_reuse(policy, table, data=data, name=name, before=known.get(name))
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
        private = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.close(private)
        shutil.copyfile(folder / last.file, file)
    with open_writer(
        data.database, sources, file=file, memory_limit=limits.memory_limit, threads=limits.threads
    ) as writer:
        kept = _describe_table(writer, table, name=name, file=file.name)
        _check_collations(policy, writer, kept=kept, name=name)
        same = last is not None and set(kept.columns) == set(last.columns) and kept.has_measures_of(last)
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


def _describe_table(writer: MaterializationWriter, table: PrivateTable, *, name: str, file: str) -> MaterializedTable:
    """Return the materialized table to build, with column names as the data has them."""
    stored = describe(writer.connection, name, relation=writer.paths[name]).columns
    spelled = {fold(column.name): column.name for column in stored}
    columns = tuple(tuple(spelled[fold(column)] for column in each) for each in table.materialized)
    types = {fold(column.name): column.type for column in stored}
    sums = tuple(
        MaterializedSum(spelled[fold(column)], types[fold(column)], low, high)
        for column, low, high in list_summed(table)
    )
    unit = spelled[fold(table.privacy_unit or "")]
    return MaterializedTable(file, "", unit, columns, 0, (), table.bounds.rows, sums)


def _check_collations(policy: Policy, writer: MaterializationWriter, *, kept: MaterializedTable, name: str) -> None:
    """Refuse columns with a collation before a statement reads rows: DuckDB may not bind one with two of them."""
    read = {kept.unit, *(column for each in kept.columns for column in each)}
    stored = describe(writer.connection, name, relation=writer.paths[name]).columns
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
        writer, salts = self.writer, (int.from_bytes(tokens(8)), int.from_bytes(tokens(8)))
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
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
