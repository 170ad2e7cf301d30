"""Tables of DataFusion: Parquet files and folders, their types in DuckDB's words.

Which files a folder has is settled when the engine opens: DataFusion, which would list a folder again for each
statement, is given folders of links to them.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.dialects import quote_name, quote_text
from dpsql.engines.base import Column, CsvFile, Registered, RemoteFiles
from dpsql.engines.lakes.folder import DataFile, Folder
from dpsql.errors import EngineError, PolicyError

if TYPE_CHECKING:
    import pyarrow as pa
    from datafusion import SessionContext

__all__ = ["FolderLinks", "register"]

_TYPES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "large_string": "VARCHAR",
    "string_view": "VARCHAR",
    "binary": "BLOB",
    "binary_view": "BLOB",
    "date32[day]": "DATE",
    "timestamp[us]": "TIMESTAMP",
}
_DECIMAL = re.compile(r"decimal\d+\((\d+), (\d+)\)")
_ZONED = re.compile(r"timestamp\[\w+, tz=.*\]")
_MOST_PARTITIONS = 1_000


class FolderLinks:
    """Temporary folders of symbolic links to the files of tables; they go with the engine."""

    def __init__(self) -> None:
        self._root: Path | None = None

    def add(self, files: list[Path]) -> Path:
        """Return a new folder of links to files, in their order."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="dpsql-datafusion-"))
        folder = Path(tempfile.mkdtemp(dir=self._root))
        for at, file in enumerate(files):
            (folder / f"{at:06}.parquet").symlink_to(file)
        return folder

    def close(self) -> None:
        """Remove the folders; closing twice is closing once."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None


def register(
    context: SessionContext, name: str, *, source: Path | CsvFile | Folder | RemoteFiles | None, links: FolderLinks
) -> Registered:
    """Return a table by its name in the policy. Raises `EngineError` and `PolicyError`."""
    place = f"table {name}"
    if source is None:
        hint = f'Write source = "{name}.parquet" for it, or the folder of its Parquet files.'
        raise EngineError("table-missing", f'DataFusion has no table "{name}".', hint=hint, place=place)
    if isinstance(source, CsvFile):
        hint = "Write it as Parquet first: dpsql reads CSV files by a grammar of its own, into DuckDB."
        raise PolicyError(
            "policy-source", "CSV files are not supported with DataFusion.", hint=hint, place=f"tables.{name}.source"
        )
    if isinstance(source, RemoteFiles):
        hint = "Leave [source] out: DuckDB reads addresses. Or copy the files to this machine."
        raise PolicyError(
            "policy-source", "DataFusion reads local files, not addresses.", hint=hint, place=f"tables.{name}.source"
        )
    if isinstance(source, Folder) and source.kind != "parquet":
        reason, hint = "Tables of Delta Lake and Iceberg are read by DuckDB.", "Leave [source] out of the policy."
        raise PolicyError("policy-source", reason, hint=hint, place=f"tables.{name}.source")
    groups = _groups(source, place=place)
    found: list[pa.Field] | None = None
    with suppress(Exception):
        found = _register(context, name, groups=groups, links=links, source=source)
    if found is None:
        hint = "Give a Parquet file, or a folder of them with the same columns."
        raise EngineError("source-unreadable", "DataFusion cannot read the source as Parquet.", hint=hint, place=place)
    times = Counter(field.name.lower() for field in found)
    columns = tuple(Column(field.name, _type(str(field.type))) for field in found if times[field.name.lower()] == 1)
    return Registered((name,), columns)


def _groups(source: Path | Folder, *, place: str) -> dict[tuple[str | None, ...], list[Path]]:
    """Return the files by the values that their folders have for all rows of them."""
    files = [DataFile(source.absolute())] if isinstance(source, Path) else source.files
    if not all(file.path.is_file() for file in files):
        hint = "Check the path; in a policy file it is relative to the policy file."
        raise EngineError("source-missing", "There is no such file.", hint=hint, place=place)
    groups: dict[tuple[str | None, ...], list[Path]] = {}
    for file in files:
        groups.setdefault(file.values, []).append(file.path)
    if len(groups) > _MOST_PARTITIONS:
        reason, hint = (
            f"The folder has more than {_MOST_PARTITIONS} partitions.",
            "Leave [source] out: DuckDB reads it.",
        )
        raise EngineError("source-files", reason, hint=hint, place=place)
    return groups


def _register(
    context: SessionContext,
    name: str,
    *,
    groups: dict[tuple[str | None, ...], list[Path]],
    links: FolderLinks,
    source: Path | Folder,
) -> list[pa.Field]:
    """Register a table of the files of each group, all of them under one name; return its columns."""
    partitions = source.partitions if isinstance(source, Folder) else ()
    if not partitions:
        (files,) = groups.values()
        context.register_parquet(quote_name(name), links.add(files))
        return list(context.table(quote_name(name)).schema())
    selects = []
    for at, (values, files) in enumerate(groups.items()):
        part = f"{name}/{at}"
        context.register_parquet(quote_name(part), links.add(files))
        fixed = (
            f"CAST({_text(value)} AS VARCHAR) AS {quote_name(key)}"
            for key, value in zip(partitions, values, strict=True)
        )
        stored = [field.name for field in context.table(quote_name(part)).schema() if field.name not in partitions]
        selects.append(f"SELECT {', '.join([*map(quote_name, stored), *fixed])} FROM {quote_name(part)}")  # noqa: S608 - quoted
    whole = context.sql(" UNION ALL ".join(selects))
    context.register_view(quote_name(name), whole)
    return list(whole.schema())


def _type(kind: str) -> str:
    """Return DuckDB's name of a type of Arrow's, and Arrow's own for one that dpsql does not compute with."""
    if found := _DECIMAL.fullmatch(kind):
        return f"DECIMAL({found[1]},{found[2]})"
    return "TIMESTAMP WITH TIME ZONE" if _ZONED.fullmatch(kind) else _TYPES.get(kind, kind)


def _text(value: str | None) -> str:
    return "NULL" if value is None else quote_text(value)
