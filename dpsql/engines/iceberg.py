"""Current files of an Iceberg table, as the package pyiceberg reads its metadata; statistics are not used.

No catalog is contacted and nothing outside of the folder is opened. Delete files, later formats, and files other than
Parquet are refused: nothing here removes deleted rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, NoReturn

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import DataFile as Listed
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dpsql.engines.sources import DataFile, Field, Folder, read_text, within
from dpsql.errors import EngineError

_FORMATS = (1, 2)
_TYPES: Mapping[type[IcebergType], str] = {
    BooleanType: "BOOLEAN",
    IntegerType: "INTEGER",
    LongType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    StringType: "VARCHAR",
    BinaryType: "BLOB",
    FixedType: "BLOB",
    DateType: "DATE",
    TimeType: "TIME",
    TimestampType: "TIMESTAMP",
    TimestamptzType: "TIMESTAMP WITH TIME ZONE",
    UUIDType: "UUID",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# v3.metadata.json of a Hadoop catalog, 00003-<uuid>.metadata.json of others; .gz where it is compressed.
_NUMBERED = re.compile(r"(?:v(?P<version>[0-9]{1,18})|(?P<number>[0-9]{1,18})-[^/]*?)(?:\.gz)?\.metadata\.json")
_LOCAL = re.compile(r"(?:file:(?://)?(?=/))?(?P<path>/.*)", re.DOTALL)


class _Unknown(Exception):
    """The table has something that is not read here: in words, for our own error."""


def open_iceberg(root: Path, metadata: Path | None, *, place: str) -> Folder:
    """Return the current snapshot of the table in a folder, by the `metadata` file that is given, or by the newest.

    Raises `EngineError` for a table that cannot be read for certain.
    """
    found = _newest(root, place=place) if metadata is None else metadata
    io, table, failure = _Local(root, place), None, None
    try:
        table = _table(FromInputFile.table_metadata(io.new_input(str(found))), io)
    except (_Unknown, EngineError) as error:
        failure = error
    except Exception:  # noqa: BLE001, S110 - words of the package may tell of values; ours is raised elsewhere
        pass
    if isinstance(failure, EngineError):
        raise failure
    if failure is not None:
        hint = "Rewrite the table with what wrote it, so that no row is deleted by a file of its own; or copy it."
        raise EngineError("source-feature", f"The Iceberg table has {failure}.", hint=hint, place=place)
    if table is None:
        reason = "The metadata of the Iceberg table cannot be read."
        hint = "Open it with the package pyiceberg itself: a file may be missing or damaged."
        raise EngineError("source-unreadable", reason, hint=hint, place=place)
    return table


def _newest(root: Path, *, place: str) -> Path:
    """Return the metadata file of the greatest number, if there is one such and no version hint says otherwise."""
    numbered: dict[int, list[Path]] = {}
    for file in (root / "metadata").iterdir():
        if known := _NUMBERED.fullmatch(file.name):
            numbered.setdefault(int(known["version"] or known["number"]), []).append(file)
    newest = numbered[max(numbered)] if numbered else []
    hint = root / "metadata" / "version-hint.text"
    said = _hinted(hint) if hint.exists() else None
    if len(newest) != 1 or (said is not None and not _is_meant(newest[0], said)):
        raise EngineError(
            "source-ambiguous",
            "The names of the metadata files of the Iceberg table do not say which one is current.",
            hint='Name the file that the catalog names: source = "table/metadata/00003-....metadata.json".',
            place=place,
        )
    return newest[0]


def _hinted(hint: Path) -> str:
    with suppress(OSError, ValueError):
        return hint.read_text(encoding="utf-8").strip()
    return ""


def _is_meant(file: Path, said: str) -> bool:
    """Say whether a version hint, a number or a name with or without its ending, means a metadata file."""
    name = file.name.removesuffix(".metadata.json").removesuffix(".gz")
    return said in {file.name, name, name.removeprefix("v")}


def _table(metadata: TableMetadata, io: _Local) -> Folder:
    if metadata.format_version not in _FORMATS:
        raise _Unknown(f"version {metadata.format_version} of the format")
    columns = metadata.schema().fields
    fields = tuple(field for column in columns if (field := _field(column)) is not None)
    types = {column.field_id: column.field_type for column in columns}
    files: list[tuple[Path, Mapping[int, str | None]]] = []
    for manifest, listed in _list_data_files(metadata, io):
        spec = metadata.specs()[manifest.partition_spec_id]
        files.append((io.path(listed.file_path), _values(listed, spec, types=types)))
    given = sorted({field_id for _, values in files for field_id in values})
    names = {field.id: field.name for field in fields}
    partitions = [field_id for field_id in given if field_id in names]
    found = [DataFile(path, tuple(values.get(field_id) for field_id in partitions)) for path, values in files]
    found.sort(key=lambda file: file.path)
    return Folder(io.root, "iceberg", tuple(found), tuple(names[field_id] for field_id in partitions), fields)


def _list_data_files(metadata: TableMetadata, io: _Local) -> Iterable[tuple[ManifestFile, Listed]]:
    """Yield the files of data in the current snapshot; refuse the table if it has any other."""
    snapshot = None
    if metadata.current_snapshot_id is not None:
        snapshot = metadata.snapshot_by_id(metadata.current_snapshot_id)
        if snapshot is None:
            raise ValueError
    for manifest in () if snapshot is None else snapshot.manifests(io):
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            listed = entry.data_file
            if listed.content != DataFileContent.DATA:
                raise _Unknown("files of deleted rows (merge on read)")
            if listed.file_format != FileFormat.PARQUET:
                raise _Unknown("data files that are no Parquet")
            if manifest.key_metadata is not None or listed.key_metadata is not None:
                raise _Unknown("encrypted files")
            yield manifest, listed


def _field(column: NestedField) -> Field | None:
    """Return a column of a type that is read; nested and unknown ones do not exist for analysts."""
    type_ = column.field_type
    known = f"DECIMAL({type_.precision},{type_.scale})" if isinstance(type_, DecimalType) else _TYPES.get(type(type_))
    if known is not None and column.initial_default is not None:
        raise _Unknown("a column with a default value for older rows")
    return None if known is None else Field(column.name, known, column.field_id, required=column.required)


def _values(listed: Listed, spec: PartitionSpec, *, types: Mapping[int, IcebergType]) -> dict[int, str | None]:
    """Return the values of columns by which a file is partitioned as they are, and which it may therefore lack."""
    found: dict[int, str | None] = {}
    for position, field in enumerate(spec.fields):
        if isinstance(field.transform, IdentityTransform) and field.source_id in types:
            found[field.source_id] = _value(listed.partition[position], types[field.source_id])
    return found


def _value(value: object, type_: IcebergType) -> str | None:
    """Return a value of a partition as text; dates and times are counted from 1970, and a DOUBLE comes as a FLOAT."""
    if isinstance(type_, DateType) and isinstance(value, int):
        return read_text((_EPOCH + timedelta(days=value)).date())
    if isinstance(type_, TimestampType | TimestamptzType) and isinstance(value, int):
        moment = _EPOCH + timedelta(microseconds=value)
        return read_text(moment if isinstance(type_, TimestamptzType) else moment.replace(tzinfo=None))
    if isinstance(type_, BinaryType | FixedType | TimeType | FloatType | DoubleType):
        raise _Unknown("a partition by bytes, times of day or floating-point numbers")
    return read_text(value)


class _Local(FileIO):
    """Opens files below one folder for reading, and nothing else: no other place, no network."""

    def __init__(self, root: Path, place: str) -> None:
        super().__init__()
        self.root = root
        self._place = place

    def path(self, location: str) -> Path:
        """Return where a file is, however its folder was called when it was written; refuse one that lies elsewhere."""
        found = _LOCAL.fullmatch(location)
        local = Path(found["path"] if found else "/")
        # The table may have been written by another name of its folder, so links above the file are followed. A file
        # that is a link itself is refused by `within`.
        return within(self.root, local.parent.resolve() / local.name, place=self._place)

    def new_input(self, location: str) -> InputFile:
        """Return the file, to be read."""
        return _Input(location, self.path(location))

    def new_output(self, location: str) -> OutputFile:
        """Refuse: nothing is written."""
        raise PermissionError(location)

    def delete(self, location: str | InputFile | OutputFile) -> NoReturn:
        """Refuse: nothing is removed."""
        raise PermissionError(str(location))


class _Input(InputFile):
    """A local file."""

    def __init__(self, location: str, path: Path) -> None:
        super().__init__(location)
        self._path = path

    def __len__(self) -> int:
        return self._path.stat().st_size

    def exists(self) -> bool:
        """Say whether it is there."""
        return self._path.exists()

    def open(self, seekable: bool = True) -> BinaryIO:  # noqa: ARG002, FBT001, FBT002 - the package's own signature
        """Open it."""
        return self._path.open("rb")
