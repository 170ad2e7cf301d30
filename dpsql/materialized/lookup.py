"""Materialized tables of a policy: their state file, and which of them a session may read.

    materialized/state.json      for each table: its file, its columns, and the files and data version it was made of
    materialized/<token>.duckdb  the tables themselves, never changed after state.json names them

A session reads a materialized table in place of rows if the path of the database or source and the data version of the
ledger are those that it was made of. Both are public. A change of the data's files does not decide: a file changes when
one user's row is written, and a plan that changed with it would reveal that free of charge. Only the curator sees such
a change: `dpsql materialize` uses it, and `dpsql check` warns about it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dpsql.dialects import ENUM
from dpsql.engines import AttachedTable, Column, CsvFile, Engine
from dpsql.engines.lakes.folder import Folder
from dpsql.errors import UsageError
from dpsql.policy import Policy, PrivateTable
from dpsql.policy.validation import fold
from dpsql.sql.ir.catalog import Catalog, MaterializedSet, Table

__all__ = [
    "FileFingerprint",
    "MaterializedTable",
    "Source",
    "as_materialized",
    "beside",
    "counts_of",
    "kept_in",
    "outdated",
    "pairs_of",
]
__all__ += ["attach_materialized", "place_of", "stamps_of", "write_kept"]

Source = Path | CsvFile | Folder | None
FileFingerprint = tuple[str, int, int]

_STATE = "state.json"
_FORMAT = 2  # 1 had the ENUM columns of the data as such


@dataclass(frozen=True, slots=True)
class MaterializedTable:
    """What is kept of one table: in which file, of which unit and sets of columns, and of what data it was made.

    `place` is the path of the table's database or source; `stamps` are path, size in bytes and time in nanoseconds of
    the files that were read.
    """

    file: str
    place: str
    unit: str
    columns: tuple[tuple[str, ...], ...]
    data_version: int
    stamps: tuple[FileFingerprint, ...]

    def pairs(self, at: int) -> str:
        """Return the name by which an engine knows the pairs of set number `at`, from 0."""
        return f"{self.file} {pairs_of(at)}"

    def counts(self, at: int) -> str:
        """Return the name by which an engine knows the counts of set number `at`, from 0."""
        return f"{self.file} {counts_of(at)}"

    def holds(self, table: PrivateTable) -> bool:
        """Say whether all that the policy wants of a table is here."""
        wanted = {frozenset(map(fold, each)) for each in table.materialized}
        return self._is_of(table) and wanted == {frozenset(map(fold, each)) for each in self.columns}

    def position(self, columns: tuple[str, ...], table: PrivateTable) -> int | None:
        """Return the number of a set of columns that the policy lists."""
        wanted = frozenset(map(fold, columns))
        known = [frozenset(map(fold, each)) for each in self.columns]
        return known.index(wanted) if self._is_of(table) and wanted in known else None

    def _is_of(self, table: PrivateTable) -> bool:
        return table.privacy_unit is not None and fold(table.privacy_unit) == fold(self.unit)


def pairs_of(at: int) -> str:
    """Return the name of the table of pairs of set number `at` in its file."""
    return f"pairs_{at}"


def counts_of(at: int) -> str:
    """Return the name of the table of counts of set number `at` in its file."""
    return f"counts_{at}"


def kept_in(folder: Path) -> dict[str, MaterializedTable]:
    """Return what is kept, by the names of the tables; nothing where nothing can be read."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        state = json.loads((folder / _STATE).read_text("utf-8"))
        if state["format"] == _FORMAT:
            return {name: _kept(words) for name, words in state["tables"].items()}
    return {}


def _kept(words: Mapping[str, object]) -> MaterializedTable:
    match words:
        case {
            "file": str(file),
            "place": str(place),
            "unit": str(unit),
            "columns": list(columns),
            "data_version": int(version),
            "stamps": list(stamps),
        }:
            sets = tuple(tuple(map(str, each)) for each in columns)
            files = tuple((str(path), int(size), int(time)) for path, size, time in stamps)
            return MaterializedTable(file, place, unit, sets, version, files)
    raise ValueError


def write_kept(folder: Path, kept: Mapping[str, MaterializedTable]) -> None:
    """Say what is kept from now on, at once or not at all."""
    state = {"format": _FORMAT, "tables": {name: asdict(each) for name, each in kept.items()}}
    new = folder / f"{_STATE}.new"
    try:
        with new.open("w", encoding="utf-8") as file:
            json.dump(state, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / _STATE)
    except BaseException:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def stamps_of(database: str | Path | None, source: Source) -> tuple[FileFingerprint, ...] | None:
    """Return what tells the files of a table from later ones; None where one cannot be found."""
    with suppress(OSError):
        return tuple(map(_stamp, sorted(_files(database, source))))
    return None


def _files(database: str | Path | None, source: Source) -> Iterator[Path]:
    match source:
        case Folder(files=files):
            yield from (file.path.resolve() for file in files)
        case CsvFile(path=path):
            yield path.resolve()
        case Path():
            yield source.resolve()
        case None if database is not None:
            yield (place := Path(database).resolve())
            if (log := place.with_name(f"{place.name}.wal")).exists():
                yield log


def _stamp(file: Path) -> FileFingerprint:
    status = file.stat()
    return str(file), status.st_size, status.st_mtime_ns


def place_of(database: str | Path | None, source: Source) -> str:
    """Return the path of the database or the source of a table, whatever is in it; "" where there is neither."""
    place = source.path if isinstance(source, CsvFile | Folder) else source or database
    return "" if place is None else str(Path(place).resolve())


def beside(policy: Policy, database: str | Path | None, *, sources: Mapping[str, Source]) -> dict[str, AttachedTable]:
    """Return what is materialized of the data at these places, by the names under which an engine is to know it."""
    found: dict[str, AttachedTable] = {}
    for name, kept in _of_policy(policy):
        if policy.materialized is None or place_of(database, sources[name]) != kept.place:
            continue
        file = policy.materialized / kept.file
        if file.is_file():
            found |= {kept.pairs(at): AttachedTable(file, pairs_of(at)) for at in range(len(kept.columns))}
            found |= {kept.counts(at): AttachedTable(file, counts_of(at)) for at in range(len(kept.columns))}
    return found


def outdated(policy: Policy, database: str | Path | None, *, sources: Mapping[str, Source]) -> Iterator[str]:
    """Yield the tables whose materialized sets are missing or older than their files; for curators only."""
    kept = dict(_of_policy(policy))
    for name, source in sources.items():
        table = policy.tables[name]
        if isinstance(table, PrivateTable) and table.materialized:
            known = kept.get(name)
            if known is None or not known.holds(table) or known.stamps != stamps_of(database, source):
                yield name


def _of_policy(policy: Policy) -> Iterator[tuple[str, MaterializedTable]]:
    """Yield what is kept of the tables of which the policy wants something materialized."""
    wanted = [name for name, table in policy.tables.items() if isinstance(table, PrivateTable) and table.materialized]
    if policy.materialized is not None and wanted:
        kept = kept_in(policy.materialized)
        yield from ((name, kept[name]) for name in wanted if name in kept)


def attach_materialized(catalog: Catalog, engine: Engine, *, policy: Policy) -> Catalog:
    """Return the catalog with what the engine has of all that is materialized, at whatever version of the data."""
    kept = dict(_of_policy(policy))
    tables = (
        _with(table, engine, policy=policy, kept=kept[table.name]) if table.name in kept else table
        for table in catalog.tables
    )
    return replace(catalog, tables=tuple(tables)) if kept else catalog


def _with(table: Table, engine: Engine, *, policy: Policy, kept: MaterializedTable) -> Table:
    wanted = policy.tables[table.name]
    found: list[MaterializedSet] = []
    if not isinstance(wanted, PrivateTable):
        return table
    for columns in wanted.materialized:
        at = kept.position(columns, wanted)
        stored = None if at is None else _columns(engine, kept.pairs(at))
        if at is None or stored is None or not stored <= set(map(as_materialized, engine.columns(table.name))):
            continue
        paths = engine.relation(kept.pairs(at)), engine.relation(kept.counts(at))
        found.append(MaterializedSet(kept.columns[at], kept.unit, kept.data_version, *paths))
    return replace(table, materialized=tuple(found))


def as_materialized(column: Column) -> Column:
    """Return a column of the data as it stands in what is materialized: an ENUM as its text."""
    return Column(column.name, "VARCHAR") if column.type == ENUM else column


def _columns(engine: Engine, name: str) -> set[Column] | None:
    """Return the columns of a materialized table without those that dpsql adds; None if the engine lacks it."""
    try:
        return {column for column in engine.columns(name) if not column.name.startswith("dpsql_")}
    except UsageError:
        return None
