"""`dpsql materialize`: makes what the policy wants materialized of its tables, or adds to it what was appended since.

What is made goes into a new file, and then state.json names it in place of the old one: a session that has the old one
open reads on, and one that opens meanwhile finds one or the other, whole.

Rows count as appended where all that was read the last time is still there: of a table of DuckDB if number and checksum
of the rows up to the last one read are the same, of a folder if its files are. In all other cases everything is made
anew, which takes longer and comes to the same.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dpsql.dialects import ENUM
from dpsql.engines import Column
from dpsql.engines.duckdb.catalog import describe
from dpsql.engines.duckdb.materialization_writer import MADE, MaterializationWriter, workshop
from dpsql.engines.lakes.folder import Folder
from dpsql.errors import EngineError, PolicyError
from dpsql.materialized.lookup import (
    FileFingerprint,
    MaterializedTable,
    Source,
    as_materialized,
    counts_of,
    kept_in,
    pairs_of,
    place_of,
    stamps_of,
    write_kept,
)
from dpsql.policy import Policy, PrivateTable
from dpsql.policy.validation import fold
from dpsql.sql.rewrite.materialization import Check, Materialization

__all__ = ["Data", "materialize", "sealed_files"]

_APPENDED = "dpsql appended"
_SALTS = f'"{MADE}"."main"."dpsql_salts"'
_COLLATION = re.compile(r"\bCOLLATE\b")


@dataclass(frozen=True, slots=True)
class Data:
    """Where the tables of a policy are, and at which version; `tokens` draws that many bytes that nobody can guess."""

    database: str | Path | None
    sources: Mapping[str, Source]
    version: int
    tokens: Callable[[int], bytes]


def materialize(policy: Policy, data: Data, *, name: str) -> str:
    """Materialize one table and return what was done: "current" for nothing, "appended", or "made".

    Raises `PolicyError` for what cannot be materialized, and `EngineError` if it fails; what was kept then stays.
    """
    table, folder = policy.tables[name], policy.materialized
    if folder is None or not isinstance(table, PrivateTable) or not table.materialized:
        hint = 'List sets of its columns in the policy, such as materialized = [["article"]].'
        reason = f'The policy wants nothing materialized of the table "{name}".'
        raise PolicyError("policy-prepared", reason, hint=hint, place=policy.where(f"tables.{name}"))
    done = None
    with _alone(folder):
        known = kept_in(folder)
        with suppress(OSError):  # whose words name files; the error of ours is raised where it does not hang on it
            made, kept = _materialized(policy, table, data=data, name=name, before=known.get(name))
            write_kept(folder, {**known, name: kept})
            _tidy(folder, {each.file for each in (*known.values(), kept)})
            done = made
        if done is None:
            _tidy(folder, {each.file for each in known.values()})
    if done is None:
        reason = "The table could not be written; what was materialized before is as it was, and nothing was charged."
        hint = "Free space on the disk of the policy's folder, and let this user write there."
        raise EngineError("prepare-failed", reason, hint=hint, place=policy.where(f"tables.{name}.materialized"))
    return done


def _materialized(
    policy: Policy, table: PrivateTable, *, data: Data, name: str, before: MaterializedTable | None
) -> tuple[str, MaterializedTable]:
    """Return what was done, and what is kept now."""
    stamps, folder = _stamps(data, name), policy.materialized or Path()
    held = before if before is not None and before.holds(table) and (folder / before.file).is_file() else None
    if held is not None and held.stamps == stamps:
        return "current", replace(held, data_version=data.version)
    file = folder / f"{data.tokens(8).hex()}.duckdb"
    try:
        made = _written(policy, table, data=data, name=name, file=file, held=held)
        _check_unchanged(data, stamps, name=name)
        _share(file, Path(stamps[0][0]))
    except BaseException:
        for each in (file, file.with_name(f"{file.name}.wal")):
            with suppress(OSError):
                each.unlink()
        raise
    done, kept = made
    place = place_of(data.database, data.sources[name])
    return done, replace(kept, place=place, data_version=data.version, stamps=stamps)


def _share(file: Path, data: Path) -> None:
    """Let those read the file who may read the data, and nobody else."""
    status = data.stat()
    file.chmod(status.st_mode & 0o666)
    if sys.platform != "win32" and os.geteuid() == 0:
        os.chown(file, status.st_uid, status.st_gid)


def _check_unchanged(data: Data, stamps: tuple[FileFingerprint, ...], *, name: str) -> None:
    if _stamps(data, name) != stamps:
        hint = "Materialize it again once nobody writes."
        raise EngineError("prepare-changed", "The data changed while it was read.", hint=hint, place=f"tables.{name}")


def _stamps(data: Data, name: str) -> tuple[FileFingerprint, ...]:
    found = stamps_of(data.database, data.sources[name])
    if not found:
        hint = "Check the paths in the policy, and that of the database."
        raise EngineError("prepare-failed", "A file of the data cannot be found.", hint=hint, place=f"tables.{name}")
    return found


def _written(
    policy: Policy, table: PrivateTable, *, data: Data, name: str, file: Path, held: MaterializedTable | None
) -> tuple[str, MaterializedTable]:
    """Write the file, from the one that is held as far as that will do."""
    folder, limits = policy.materialized or Path(), policy.engine
    sources, later = {name: data.sources[name]}, _later(data.sources[name], held)
    if later is not None:
        sources[_APPENDED] = later
    if held is not None:
        private = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.close(private)
        shutil.copyfile(folder / held.file, file)
    with workshop(data.database, sources, file=file, memory_limit=limits.memory_limit, threads=limits.threads) as shop:
        kept = _kept(shop, table, name=name, file=file.name)
        same = held is not None and set(kept.columns) == set(held.columns) and kept.unit == held.unit
        kept = replace(kept, columns=held.columns) if held is not None and same else kept
        bench = _TableBuild(shop, kept, name)
        done = same and bench.append()
        if not done:
            bench.make(data.tokens)
        if any(map(_COLLATION.search, shop.definitions().values())):
            reason = (
                "A column that is to be materialized has a collation, and materialized text is compared by its bytes."
            )
            hint = "Materialize a view that drops the collation, or leave the column out."
            raise PolicyError("policy-prepared", reason, hint=hint, place=policy.where(f"tables.{name}.materialized"))
    return "appended" if done else "made", kept


def _later(source: Source, held: MaterializedTable | None) -> Folder | None:
    """Return the files that have come to a folder since; None where one that was there has changed or gone."""
    if held is None or not isinstance(source, Folder):
        return None
    now = {str(file.path.resolve()): file for file in source.files}
    known = {path for path, size, time in held.stamps}
    same = stamps_of(None, replace(source, files=tuple(file for path, file in now.items() if path in known)))
    if same != held.stamps:
        return None
    new = tuple(file for path, file in now.items() if path not in known)
    return replace(source, files=new) if new else None


def _kept(shop: MaterializationWriter, table: PrivateTable, *, name: str, file: str) -> MaterializedTable:
    """Return what is to be kept, in the spelling of the data."""
    stored = describe(shop.connection, name, relation=shop.paths[name]).columns
    spelled = {fold(column.name): column.name for column in stored}
    columns = tuple(tuple(spelled[fold(column)] for column in each) for each in table.materialized)
    return MaterializedTable(file, "", spelled[fold(table.privacy_unit or "")], columns, 0, ())


@dataclass(frozen=True, slots=True)
class _TableBuild:
    """The work on one table, in an open workshop."""

    shop: MaterializationWriter
    kept: MaterializedTable
    name: str

    def make(self, tokens: Callable[[int], bytes]) -> None:
        """Make everything from all rows, with new salts."""
        shop, salts = self.shop, (int.from_bytes(tokens(8)), int.from_bytes(tokens(8)))
        shop.run((f'DROP TABLE "{MADE}"."main"."{table}"', []) for table in shop.definitions())
        salted = f"CREATE TABLE {_SALTS} AS SELECT CAST($1 AS UBIGINT) AS first, CAST($2 AS UBIGINT) AS second"
        shop.run([(salted, list(salts))])
        for each in self._materializations(salts):
            shop.run(each.made())
        if shop.is_table(shop.paths[self.name]):
            shop.run([self._check.written])

    def append(self) -> bool:
        """Add what was appended; say whether it could be done."""
        shop = self.shop
        if not self._fits():
            return False
        if _APPENDED in shop.paths:
            source, first = shop.paths[_APPENDED], None
        elif shop.is_table(shop.paths[self.name]) and (found := shop.row(self._check.next_number)) is not None:
            source, first = shop.paths[self.name], int(str(found[0]))
        else:
            return False
        salts = shop.row(f"SELECT first, second FROM {_SALTS}")  # noqa: S608 - our own name
        if salts is None:
            return False
        for each in self._materializations((int(str(salts[0])), int(str(salts[1])))):
            shop.run(each.appended(source, first))
        if first is not None:
            shop.run([self._check.written])
        return True

    def _fits(self) -> bool:
        """Say whether what is kept has the columns of the data, in their types."""
        stored = set(map(as_materialized, self._stored))
        for at, columns in enumerate(self.kept.columns):
            kept = describe(self.shop.connection, self.name, relation=(MADE, "main", pairs_of(at))).columns
            if not {column for column in kept if column.name in {self.kept.unit, *columns}} <= stored:
                return False
        return True

    @property
    def _check(self) -> Check:
        columns = dict.fromkeys((self.kept.unit, *(column for each in self.kept.columns for column in each)))
        return Check(self.shop.paths[self.name], tuple(columns), (MADE, "main", "dpsql_check"), self._enums)

    @property
    def _stored(self) -> tuple[Column, ...]:
        return describe(self.shop.connection, self.name, relation=self.shop.paths[self.name]).columns

    @property
    def _enums(self) -> frozenset[str]:
        return frozenset(column.name for column in self._stored if column.type == ENUM)

    def _materializations(self, salts: tuple[int, int]) -> Iterator[Materialization]:
        enums = self._enums
        for at, columns in enumerate(self.kept.columns):
            paths = (MADE, "main", pairs_of(at)), (MADE, "main", counts_of(at))
            yield Materialization(self.shop.paths[self.name], self.kept.unit, columns, *paths, salts, enums)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait for everybody else who materializes something in this folder, which is made if it is not there."""
    descriptor = None
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if descriptor is None:
        hint = "Give a folder in which this user may write."
        raise EngineError("prepare-failed", "The folder of materialized tables cannot be written.", hint=hint)
    try:
        with suppress(ImportError):  # Windows has no such lock
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def sealed_files() -> Iterator[None]:
    """Turn an error of the system inside, such as a disk without room for temporary files, into an `EngineError`."""
    failed = False
    try:
        yield
    except OSError:  # whose words name files; the error of ours is raised where it does not hang on it
        failed = True
    if failed:
        reason = "A file that is needed to materialize tables could not be read or written; nothing was charged."
        hint = "Free space on the disks of the policy's folder and of TMPDIR, and let this user write there."
        raise EngineError("prepare-failed", reason, hint=hint)


def _tidy(folder: Path, used: set[str]) -> None:
    """Remove files that nothing names any more; the last ones stay, for whoever opens them at this moment."""
    for file in folder.glob("*.duckdb*"):
        if file.name not in used:
            with suppress(OSError):
                file.unlink()
