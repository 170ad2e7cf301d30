"""Current files of a Delta Lake table, as the package deltalake reads its log; statistics are not used.

A log can contain more than the list of files: rows deleted by vectors, or columns stored under other names. The package
lists such files without a warning, so tables with features that are unknown or not supported here are refused first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from dpsql.engines.sources import DataFile, Field, Folder, read_text, within
from dpsql.errors import EngineError

_TYPES = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}
_FEATURES = frozenset(["deletionVectors", "timestampNtz", "v2Checkpoint"])
_WITH_FEATURES = 3  # the version of a reader from which on a table names the features that it uses
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_MAPPING = "delta.columnMapping."


@dataclass(frozen=True, slots=True)
class _Head:
    """Requirements of one version of a table for its readers, and its columns."""

    reader: int
    features: frozenset[str]
    mapping: str | None
    columns: Sequence[Mapping[str, Any]]
    partitions: tuple[str, ...]


def open_delta(root: Path, *, place: str) -> Folder:
    """Return the newest version of the table in a folder; raise `EngineError` for one that cannot be read for certain.

    Every file is checked for deleted rows: the package names the files with deleted rows, if it can.
    """
    if "%" in str(root):
        reason = "The folder of the Delta Lake table, or one above it, has a percent sign in its name."
        hint = "Give it another name: the package deltalake would decode it, and read the log of another folder."
        raise EngineError("source-unreadable", reason, hint=hint, place=place)
    table, head = _open_newest(root)
    if table is None or head is None:
        reason = "The log of the Delta Lake table cannot be read, or needs a reader feature that is not supported."
        hint = "Open it with the package deltalake itself, or write a plain copy of the table."
        raise EngineError("source-unreadable", reason, hint=hint, place=place)
    fields = tuple(field for column in head.columns if (field := _field(column)) is not None)
    added = _added(table, head.partitions)
    if (unknown := _unknown(head, fields, deleted=added is None)) is not None:
        hint = "Write a copy without it, or purge it with what wrote the table."
        raise EngineError("source-feature", f"The Delta Lake table has {unknown}.", hint=hint, place=place)
    files = [DataFile(_below(root, path, place=place), values) for path, values in added or ()]
    return Folder(root, "delta", tuple(sorted(files, key=_path)), head.partitions, fields)


def _open_newest(root: Path) -> tuple[DeltaTable | None, _Head | None]:
    """Return the newest version, or None: the package's words may tell of values, and are let go here and below."""
    with suppress(Exception):
        table = DeltaTable(root.as_uri())
        protocol, described = table.protocol(), table.metadata()
        return table, _Head(
            protocol.min_reader_version,
            frozenset(protocol.reader_features or ()),
            described.configuration.get(_MAPPING + "mode"),
            json.loads(table.schema().to_json())["fields"],
            tuple(described.partition_columns),
        )
    return None, None


def _added(table: DeltaTable, partitions: tuple[str, ...]) -> Sequence[tuple[str, tuple[str | None, ...]]] | None:
    """Return the files of a version with their partition values, or None where rows of them are deleted or may be."""
    with suppress(Exception):
        added = pa.table(table.get_add_actions())
        wanted = [name for name in ("path", "partition") if name in added.column_names]  # and no statistics
        files = [
            (add["path"], tuple(read_text(add["partition"][name]) for name in partitions))
            for add in added.select(wanted).to_pylist()
        ]
        # The list of files has those with deleted rows as well, whose rows would be counted.
        return None if pa.table(table.deletion_vectors().read_all()).num_rows else files
    return None


def _unknown(head: _Head, fields: Collection[Field], *, deleted: bool) -> str | None:
    """Return what the table uses that is not read here, in words."""
    if unknown := head.features - _FEATURES:
        return f"the reader feature {min(unknown)}"
    if head.reader > _WITH_FEATURES:
        return "a reader version that is not known here"
    marked = [key for column in head.columns for key in column.get("metadata") or ()]
    if head.mapping not in {None, "none"} or any(key.startswith(_MAPPING) for key in marked):
        return "columns that are stored under other names (column mapping)"
    if "delta.typeChanges" in marked:
        return "columns whose type was changed (type widening)"
    if lost := set(head.partitions) - {field.name for field in fields if field.type != "BLOB"}:
        return f'the partition column "{min(lost)}", whose type is not read'
    return "deletion vectors, or files that may have some" if deleted else None


def _field(column: Mapping[str, Any]) -> Field | None:
    """Return a column of a type that is read; nested and unknown ones do not exist for analysts."""
    type_ = str(column["type"])
    known = type_.upper() if type_.startswith("decimal(") else _TYPES.get(type_)
    return None if known is None else Field(column["name"], known, required=not column["nullable"])


def _below(root: Path, path: str, *, place: str) -> Path:
    """Return where a file is that is named relative to the table; one with an address belongs to another table too."""
    # "/" is below no folder, so that `within` refuses an address.
    return within(root, Path("/") if _ADDRESS.match(path) else root / unquote(path), place=place)


def _path(file: DataFile) -> Path:
    return file.path
