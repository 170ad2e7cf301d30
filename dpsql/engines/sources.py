"""What an engine reads: tables with their columns, the files of a policy's tables, and the versions of those.

These are values alone. A folder is one table: `lakes.py` finds out which files it has, in the process that has the
policy; `duckdb/folder_scan.py` reads them, in the one that has the data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from dpsql.dialects import CsvFormat, strip_type_details
from dpsql.errors import EngineError, UsageError

Spelled = tuple[str, str, list[list[object]], list[str], list[list[object]]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its name, and its type in the words of the engine, without labels, fields and tags.

    Those may come from rows, and what an engine says of its columns is shown to everybody. `collation` is the one by
    which statements of this engine would compare the column; "" where that is by its bytes.
    """

    name: str
    type: str
    collation: str = ""

    def __post_init__(self) -> None:
        """Leave out of the type what may hold any text."""
        object.__setattr__(self, "type", strip_type_details(self.type))


@dataclass(frozen=True, slots=True)
class Registered:
    """Table that an engine may read: the parts of its qualified name, and its columns.

    It `is_stored` where its rows are known to be its own, and not computed as those of a view.
    """

    relation: tuple[str, ...]
    columns: tuple[Column, ...]
    is_stored: bool = False


def open_exact_table(tables: Mapping[str, Registered], name: str) -> Registered:
    """Return the table of this name; raise `UsageError` for one that the policy did not name."""
    try:
        return tables[name]
    except KeyError:
        raise UsageError(
            "table-unknown", f'No table was registered as "{name}".', hint="Name it in the policy."
        ) from None


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table that a user may read, by the name that a policy gives it, with its keys where the engine knows them.

    `leads_to` maps a column with a foreign key to the name of the other table. Keys of one column only are listed.
    """

    name: str
    primary_key: tuple[str, ...] = ()
    unique: frozenset[str] = frozenset()
    leads_to: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A CSV file and the columns to load from it with the types they get; what else is in it does not exist.

    Its format is `form`, or that of RFC 4180.
    """

    path: Path
    columns: tuple[Column, ...]
    form: CsvFormat | None = None

    def describe(self) -> list[object]:
        """Return what says how it is read, as JSON has it."""
        columns = [[column.name, column.type] for column in self.columns]
        return [columns] if self.form is None else [columns, self.form.written()]


@dataclass(frozen=True, slots=True)
class RemoteFiles:
    """Parquet files of a table at an address, such as "s3://bucket/events/*.parquet", which the engine reads itself."""

    url: str


@dataclass(frozen=True, slots=True)
class AttachedTable:
    """A table of the schema main of a DuckDB file that dpsql itself has written, beside the data."""

    path: Path
    table: str


@dataclass(frozen=True, slots=True)
class Field:
    """A column as the metadata of a table describe it: name, type in DuckDB's words, and id where it has one."""

    name: str
    type: str
    id: int | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file, and as text the values that all of its rows have in the folder's partition columns."""

    path: Path
    values: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class DataAddress:
    """A Parquet file that the engine reads at an address, and the values of its partition columns as in `DataFile`."""

    path: str
    values: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteFolder:
    """The files of one table at addresses, in a fixed order, with columns as in a `Folder` of Parquet files."""

    files: tuple[DataAddress, ...]
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of one table at one moment, in a fixed order.

    `kind` is "parquet", "delta" or "iceberg". A folder of Parquet files alone has no `fields`: its columns are those of
    its files, alike in each. `partitions` names the columns to which the values of a file belong, in their order.
    """

    path: Path
    kind: str
    files: tuple[DataFile, ...]
    partitions: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()


def encode_folder(folder: Folder) -> Spelled:
    """Return the folder as JSON has it, for another process."""
    files: list[list[object]] = [[str(file.path), *file.values] for file in folder.files]
    fields: list[list[object]] = [[field.name, field.type, field.id, field.required] for field in folder.fields]
    return str(folder.path), folder.kind, files, list(folder.partitions), fields


def decode_folder(words: Spelled) -> Folder:
    """Return the folder that `encode_folder` encoded."""
    path, kind, files, partitions, fields = words
    found = tuple(DataFile(Path(str(file)), tuple(_text(value) for value in values)) for file, *values in files)
    named = tuple(
        Field(str(name), str(type_), id_ if isinstance(id_, int) else None, required=bool(required))
        for name, type_, id_, required in fields
    )
    return Folder(Path(path), kind, found, tuple(partitions), named)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def read_text(value: object) -> str | None:
    """Return a value of a partition as text that DuckDB's CAST reads as the same; raise `TypeError` for others."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case Decimal():
            # Decimal("1E+2") is written 100.
            return format(value, "f")
        case str() | int() | float() | date() | UUID():
            return str(value)
    raise TypeError


def within(root: Path, file: Path, *, place: str) -> Path:
    """Return the path of a data file below `root`; refuse one that is elsewhere, also by way of a symbolic link."""
    if root not in file.parents or ".." in file.parts or file.resolve() != file:
        raise EngineError(
            "source-outside",
            "A file of the table lies outside of its folder, or is reached by a symbolic link below it.",
            hint="Copy the files into the folder; a table that was moved must be written again where it is now.",
            place=place,
        )
    return file


def file_versions(files: tuple[Path, ...]) -> Mapping[Path, tuple[int, int, int]]:
    """Return inode, size and time of change of each file that is there; nothing in it is read."""
    found = {}
    for file in files:
        with suppress(OSError, ValueError):  # the second for names that no file can have
            status = file.stat()
            found[file] = status.st_ino, status.st_size, status.st_mtime_ns
    return found


def digest_versions(database: str | Path | None, sources: Mapping[str, object]) -> dict[str, str]:
    """Return the digest of size and time of change of the files of each table that is read from them only once.

    These are the tables of a database file, which is locked while it is open, and CSV files, which are loaded. All
    others may have other rows in the next statement.
    """
    found = {}
    for name, source in sources.items():
        files: tuple[Path, ...] = ()
        if isinstance(source, CsvFile):
            files = (source.path,)
        elif source is None and isinstance(database, str | Path):
            # DuckDB's write-ahead log has the rows that are not in the file yet.
            files = Path(database), Path(f"{database}.wal")
        versions: list[object] = [list(version[1:]) for version in file_versions(files).values()]
        if versions and isinstance(source, CsvFile) and source.form is not None:
            versions.append(source.form.written())
        if versions:
            found[name] = hashlib.sha256(json.dumps(versions).encode()).hexdigest()
    return found
