"""Materialized tables of a policy: their state file, and which of them a session may read.

    materialized/state.json      for each table: its file, columns and bounds, and the files and version it was made of
    materialized/<token>.duckdb  the tables themselves, never changed after state.json names them

A session reads a materialized table in place of rows if the path of the database or source, what says how its files are
read, and the data version of the ledger are those that it was made of. All are public. A change of the data's files
does not decide: a file changes when one user's row is written, and a plan that changed with it would reveal that free
of charge. Only the curator sees such a change: `dpsql materialize` uses it, and `dpsql check` warns about it.

In another engine the tables are in a schema of the database, <file>_pairs_0 and so on, and descriptions beside them
take the place of the state file. The name of the file is then the digest of everything that the tables mean, so that a
session that is open reads tables of the same meaning after they were made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Self

from dpsql.dialects import DUCKDB, ENUM
from dpsql.engines import AttachedTable, Column, CsvFile, Engine, RemoteFiles
from dpsql.engines.base import SchemaReader, find_descriptions
from dpsql.engines.sources import Folder
from dpsql.errors import UsageError
from dpsql.policy import Policy, PrivateTable
from dpsql.policy.validation import fold
from dpsql.sql.ir.catalog import Catalog, MaterializedSet, StoredMeasures, Table
from dpsql.sql.ir.measures import ContributionRange
from dpsql.sql.ir.tree import find_read_type, parse_type

Source = Path | CsvFile | Folder | RemoteFiles | None
FileFingerprint = tuple[str, int, int]

_STATE = "state.json"
_FORMAT = 3  # 2 had no measures, 1 the ENUM columns of the data as such


@dataclass(frozen=True, slots=True)
class MaterializedSum:
    """Column whose values are added up, its type, and the bounds of one unit in one group."""

    column: str
    type: str
    least: Fraction
    most: Fraction

    @property
    def range(self) -> ContributionRange:
        """Bounds in whole steps."""
        return ContributionRange.of_values(self.least, self.most, type_=find_read_type(parse_type(self.type)))


@dataclass(frozen=True, slots=True)
class MaterializedTable:
    """One materialized table: its file, unit and sets of columns, and the data that it was made of.

    In a database, `file` begins the names of the tables, and the one stamp is a random name of the build and its time.

    `place` is the path of the table's database or source; `stamps` are path, size in bytes and time in nanoseconds of
    the files that were read, and `schema` what says how to read them. With `rows`, the bound of rows of one unit in one
    group, or with `sums` it has measures.
    """

    file: str
    place: str
    unit: str
    columns: tuple[tuple[str, ...], ...]
    data_version: int
    stamps: tuple[FileFingerprint, ...]
    rows: int | None = None
    sums: tuple[MaterializedSum, ...] = ()
    schema: str = ""

    @property
    def measures(self) -> StoredMeasures | None:
        """Measures that each set has, None without any."""
        if self.rows is None and not self.sums:
            return None
        return StoredMeasures(self.rows, tuple((each.column, each.range) for each in self.sums))

    def pairs(self, at: int) -> str:
        """Return the name by which an engine knows the pairs of set number `at`, from 0."""
        return f"{self.file} {name_pairs(at)}"

    def counts(self, at: int) -> str:
        """Return the name by which an engine knows the counts of set number `at`, from 0."""
        return f"{self.file} {name_counts(at)}"

    def holds(self, table: PrivateTable) -> bool:
        """Check whether these are the unit, the sets of columns and the bounds that the policy lists."""
        wanted = {frozenset(map(fold, each)) for each in table.materialized}
        same = wanted == {frozenset(map(fold, each)) for each in self.columns}
        bounds = {fold(name): (low, high) for name, low, high in list_summed(table)}
        summed = {fold(each.column): (each.least, each.most) for each in self.sums}
        return self._has_unit_of(table) and same and self.rows == table.bounds.rows and summed == bounds

    def is_current(self, database: str | Path | None, source: Source) -> bool:
        """Check whether the files and what says how to read them are as they were."""
        return self.schema == describe_schema(source) and self.stamps == read_fingerprints(database, source)

    def has_measures_of(self, other: Self) -> bool:
        """Check whether another build has the same unit and measures."""
        return (self.unit, self.rows, self.sums) == (other.unit, other.rows, other.sums)

    def position(self, columns: tuple[str, ...], table: PrivateTable) -> int | None:
        """Return the number of a set of columns that the policy lists."""
        wanted = frozenset(map(fold, columns))
        known = [frozenset(map(fold, each)) for each in self.columns]
        return known.index(wanted) if self._has_unit_of(table) and wanted in known else None

    def _has_unit_of(self, table: PrivateTable) -> bool:
        return table.privacy_unit is not None and fold(table.privacy_unit) == fold(self.unit)


def list_summed(table: PrivateTable) -> list[tuple[str, Fraction, Fraction]]:
    """Return the columns that are added up, each with its min and max: those with bounds of sums that analysts see.

    Where each row has a range of its own, every row is clamped to it before it is added; these sums are not stored.
    """
    shown = None if table.columns is None else set(map(fold, table.columns))
    return [
        (name, bounds.min or Fraction(0), bounds.max)
        for name, bounds in table.bounds.columns
        if (shown is None or fold(name) in shown) and bounds.max is not None and bounds.each is None
    ]


def describe_schema(source: Source) -> str:
    """Return what says how the files of a source are read, beside these; "" where they say it themselves."""
    match source:
        case CsvFile():
            columns, *form = source.describe()
            return json.dumps([columns, *form] if form else columns)
        case Folder(kind=kind, partitions=partitions, fields=fields):
            return json.dumps([kind, partitions, [[each.name, each.type, each.id, each.required] for each in fields]])
    return ""


def name_pairs(at: int) -> str:
    """Return the name of the table of pairs of set number `at` in its file."""
    return f"pairs_{at}"


def name_counts(at: int) -> str:
    """Return the name of the table of counts of set number `at` in its file."""
    return f"counts_{at}"


def read_state(folder: Path) -> dict[str, MaterializedTable]:
    """Return the materialized tables by name, or none if the state file is missing, broken or of another format."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        state = json.loads((folder / _STATE).read_text("utf-8"))
        if state["format"] == _FORMAT:
            return {name: _parse_table(words) for name, words in state["tables"].items()}
    return {}


def describe_table(kept: MaterializedTable) -> str:
    """Return a materialized table as a text, which is stored beside it in a database."""
    return json.dumps({"format": _FORMAT, **asdict(kept)}, default=str)


def parse_descriptions(descriptions: Mapping[str, str]) -> dict[str, MaterializedTable]:
    """Return the materialized tables by name, without those whose descriptions cannot be read."""
    found: dict[str, MaterializedTable] = {}
    for name, text in descriptions.items():
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            words = json.loads(text)
            if words["format"] == _FORMAT:
                found[name] = _parse_table(words)
    return found


def _parse_table(words: Mapping[str, object]) -> MaterializedTable:
    match words:
        case {
            "file": str(file),
            "place": str(place),
            "unit": str(unit),
            "columns": list(columns),
            "data_version": int(version),
            "stamps": list(stamps),
            "rows": int() | None as rows,
            "sums": list(sums),
            "schema": str(schema),
        }:
            sets = tuple(tuple(map(str, each)) for each in columns)
            files = tuple((str(path), int(size), int(time)) for path, size, time in stamps)
            known = tuple(
                MaterializedSum(each["column"], each["type"], Fraction(each["least"]), Fraction(each["most"]))
                for each in sums
            )
            return MaterializedTable(file, place, unit, sets, version, files, rows, known, schema)
    raise ValueError


def write_state(folder: Path, kept: Mapping[str, MaterializedTable]) -> None:
    """Replace the state file atomically."""
    state = {"format": _FORMAT, "tables": {name: asdict(each) for name, each in kept.items()}}
    new = folder / f"{_STATE}.new"
    try:
        with new.open("w", encoding="utf-8") as file:
            json.dump(state, file, indent=1, default=str)  # a fraction is written as 1/3
            file.flush()
            # Without it a crash could leave the new name on a file whose text was never written.
            os.fsync(file.fileno())
        new.replace(folder / _STATE)
    except BaseException:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def read_fingerprints(database: str | Path | None, source: Source) -> tuple[FileFingerprint, ...] | None:
    """Return path, size and time of each file of a table, or None if one is missing."""
    with suppress(OSError):
        return tuple(
            (str(file), status.st_size, status.st_mtime_ns)
            for file in sorted(_find_files(database, source))
            for status in (file.stat(),)
        )
    return None


def _find_files(database: str | Path | None, source: Source) -> Iterator[Path]:
    match source:
        case Folder(files=files):
            yield from (file.path.resolve() for file in files)
        case CsvFile(path=path):
            yield path.resolve()
        case Path():
            yield source.resolve()
        case None if database is not None:
            yield (place := Path(database).resolve())
            # DuckDB has rows in this log until a checkpoint brings them into the file.
            if (log := place.with_name(f"{place.name}.wal")).exists():
                yield log


def find_place(database: str | Path | None, source: Source) -> str:
    """Return the path of the source of a table or else of the database, or "" without either."""
    if isinstance(source, RemoteFiles):
        return source.url
    place = source.path if isinstance(source, CsvFile | Folder) else source or database
    return "" if place is None else str(Path(place).resolve())


def find_attached(
    policy: Policy, database: str | Path | None, *, sources: Mapping[str, Source]
) -> dict[str, AttachedTable]:
    """Return the materialized tables of these sources, by the names that the engine gives them."""
    found: dict[str, AttachedTable] = {}
    for name, kept in _read_policy_state(policy):
        source = sources[name]
        # The files may have changed since, which only the curator may see: a plan that depended on it would tell of one
        # row.
        same = find_place(database, source) == kept.place and describe_schema(source) == kept.schema
        if policy.materialized is None or not same:
            continue
        file = policy.materialized / kept.file
        if file.is_file():
            found |= {kept.pairs(at): AttachedTable(file, name_pairs(at)) for at in range(len(kept.columns))}
            found |= {kept.counts(at): AttachedTable(file, name_counts(at)) for at in range(len(kept.columns))}
    return found


def find_relation(engine: Engine, name: str) -> str:
    """Return the place of a table in the engine that has it: its qualified name."""
    return json.dumps(engine.relation(name))


def open_materialized(engine: Engine, policy: Policy, *, schema: str) -> None:
    """Let an engine find the materialized tables in a schema of its database; one that has no schemas finds none."""
    if not isinstance(engine, SchemaReader):
        return
    descriptions = engine.open_schema(schema)
    for name, kept in _list_kept(policy, parse_descriptions(descriptions)):
        if find_relation(engine, name) == kept.place:
            engine.register(schema, list_tables(kept))


def list_tables(kept: MaterializedTable) -> dict[str, str]:
    """Return the names of the tables in a schema, each with that by which an engine knows it."""
    pairs = {f"{kept.file}_{name_pairs(at)}": kept.pairs(at) for at in range(len(kept.columns))}
    return pairs | {f"{kept.file}_{name_counts(at)}": kept.counts(at) for at in range(len(kept.columns))}


def find_build(engine: Engine, name: str) -> tuple[FileFingerprint, ...]:
    """Return the stamps of the last build of a table that the engine found in its database."""
    kept = parse_descriptions(find_descriptions(engine)).get(name)
    return () if kept is None else kept.stamps


def find_unmaterialized(policy: Policy, engine: Engine) -> Iterator[str]:
    """Yield the tables whose sets are missing in the engine's database, or are others; for curators only."""
    kept = parse_descriptions(find_descriptions(engine))
    for name, table in policy.tables.items():
        if isinstance(table, PrivateTable) and table.materialized:
            known = kept.get(name)
            if known is None or not known.holds(table) or known.place != find_relation(engine, name):
                yield name


def find_outdated(policy: Policy, database: str | Path | None, *, sources: Mapping[str, Source]) -> Iterator[str]:
    """Yield the tables whose materialized sets are missing, or of other files or bounds; for curators only."""
    kept = dict(_read_policy_state(policy))
    for name, source in sources.items():
        table = policy.tables[name]
        if isinstance(table, PrivateTable) and table.materialized:
            known = kept.get(name)
            if known is None or not known.holds(table) or not known.is_current(database, source):
                yield name


def _read_policy_state(policy: Policy) -> Iterator[tuple[str, MaterializedTable]]:
    """Yield the materialized tables in the folder of a policy."""
    if policy.materialized is not None:
        yield from _list_kept(policy, read_state(policy.materialized))


def _list_kept(policy: Policy, kept: Mapping[str, MaterializedTable]) -> Iterator[tuple[str, MaterializedTable]]:
    """Yield the materialized tables of the tables for which the policy lists sets of columns."""
    for name, table in policy.tables.items():
        if isinstance(table, PrivateTable) and table.materialized and name in kept:
            yield name, kept[name]


def attach_materialized(catalog: Catalog, engine: Engine, *, policy: Policy) -> Catalog:
    """Return the catalog with the materialized tables that the engine has, of every data version."""
    kept = dict(_read_policy_state(policy))
    if policy.source is not None and policy.source.materialized is not None:
        kept = dict(_list_kept(policy, parse_descriptions(find_descriptions(engine))))
    tables = (
        _attach_to_table(table, engine, policy=policy, kept=kept[table.name]) if table.name in kept else table
        for table in catalog.tables
    )
    return replace(catalog, tables=tuple(tables)) if kept else catalog


def _attach_to_table(table: Table, engine: Engine, *, policy: Policy, kept: MaterializedTable) -> Table:
    wanted, now = policy.tables[table.name], engine.columns(table.name)
    found: list[MaterializedSet] = []
    if not isinstance(wanted, PrivateTable):
        return table
    # A set with a column whose type is another one now is not read, and the others are.
    expected = set(map(convert_enum, now))
    if engine.dialect is not DUCKDB:  # which stores text by its bytes
        expected = {replace(column, collation="") for column in expected}
    types = {(column.name, column.type) for column in now}
    measures = kept.measures if all((each.column, each.type) in types for each in kept.sums) else None
    for columns in wanted.materialized:
        at = kept.position(columns, wanted)
        stored = None if at is None else _find_columns(engine, kept.pairs(at))
        if at is None or stored is None or not stored <= expected:
            continue
        paths = engine.relation(kept.pairs(at)), engine.relation(kept.counts(at))
        found.append(MaterializedSet(kept.columns[at], kept.unit, kept.data_version, *paths, measures))
    return replace(table, materialized=tuple(found))


def convert_enum(column: Column) -> Column:
    """Return a column as a materialized table stores it: an ENUM as text."""
    return Column(column.name, "VARCHAR") if column.type == ENUM else column


def _find_columns(engine: Engine, name: str) -> set[Column] | None:
    """Return the columns of a materialized table without those that dpsql adds; None if the engine lacks it."""
    try:
        return {column for column in engine.columns(name) if not column.name.startswith("dpsql_")}
    except UsageError:
        return None
