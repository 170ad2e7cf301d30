"""A folder that is one table: which Parquet files it consists of, fixed when it was looked at, and what is beside them.

These are values alone. `detection.py` finds them, in the process that has the policy; `duckdb/folder_scan.py` reads
them, in the one that has the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from dpsql.errors import EngineError

Spelled = tuple[str, str, list[list[object]], list[str], list[list[object]]]


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
