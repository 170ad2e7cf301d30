"""The SELECT by which DuckDB reads a folder of Parquet files, and the files at an address, which it reads by httpfs.

DuckDB's own ways of putting files together are not used: they guess types of partitions and cast what differs, which
may fail on a row. What every file has is read from its footer when the engine opens; files that are built alike are
read together, with every cast written out, and only casts that cannot fail.

The extension httpfs is loaded before the instance is locked, and never downloaded. Credentials are those of DuckDB:
persistent secrets of the user who runs this process, or its environment. Which files belong to a table is settled here;
a locked instance reads these addresses and no others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from dpsql.dialects import quote_name, quote_text, strip_type_details
from dpsql.dialects.duckdb_releases import release
from dpsql.engines.duckdb.instance import TROUBLE, require_setting
from dpsql.engines.lakes import MOST_FILES, is_hidden, read_partitions
from dpsql.engines.sources import DataAddress, DataFile, Field, Folder, RemoteFiles, RemoteFolder
from dpsql.errors import EngineError, PolicyError, UsageError

_FOOTERS = """
    SELECT file_name, name, coalesce(num_children, 0), field_id, duckdb_type, coalesce(type, '')
    FROM system.main.parquet_schema({files}) {order}
"""
_AT_ONCE = 500  # footers
_INDEX = "file_index"  # DuckDB's own column: which of the listed files a row is from, counted from 0
_WIDER: Mapping[str, Sequence[str]] = {
    "TINYINT": ("SMALLINT", "INTEGER", "BIGINT"),
    "SMALLINT": ("INTEGER", "BIGINT"),
    "INTEGER": ("BIGINT",),
    "FLOAT": ("DOUBLE",),
}
_PATTERN = re.compile(r"[*?[\\]" if os.sep == "/" else r"[*?[]")
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_ZONED = "TIMESTAMP WITH TIME ZONE"
_File = DataFile | DataAddress


@dataclass(frozen=True, slots=True)
class _Stored:
    """A top-level column as the footer of a file describes it; `physical` is Parquet's own type of it."""

    name: str
    id: int | None
    type: str
    physical: str


def scan_folder(connection: duckdb.DuckDBPyConnection, folder: Folder, *, place: str) -> str:
    """Return the SELECT of all rows of a folder, having looked at the footer of each of its files.

    Raises `EngineError` for files that are not there, are no Parquet, or do not have the columns of the table.
    """
    _check_files(folder.files, place=place)
    footers = _footers(connection, folder.files)
    if footers is None:
        hint = "Write them again as Parquet, and see that they may be read."
        raise EngineError("source-unreadable", "A file of the folder is no Parquet file.", hint=hint, place=place)
    return _scan(folder, folder.files, footers=footers, place=place)


def scan_remote_folder(connection: duckdb.DuckDBPyConnection, folder: RemoteFolder, *, place: str) -> str | None:
    """Return the SELECT of all rows of files at addresses, or None where one of them cannot be read."""
    footers = _footers(connection, folder.files)
    if footers is None:
        return None
    shape = Folder(Path(), "parquet", (), folder.partitions)
    return _scan(shape, folder.files, footers=footers, place=place)


def _scan(folder: Folder, files: Sequence[_File], *, footers: Mapping[str, tuple[_Stored, ...]], place: str) -> str:
    """Return the SELECT of all rows of files whose footers are known; `folder` says how they belong together."""
    alone = folder.kind == "parquet"
    fields = _common(footers, folder.partitions, place=place) if alone else folder.fields
    _check_names([field.name for field in fields], place=place)
    alike: dict[tuple[tuple[str, ...], frozenset[tuple[str, str]]], list[_File]] = {}
    for file in files:
        stored = footers[str(file.path)]
        _check_names([column.name for column in stored], place=place, also=_INDEX if folder.partitions else None)
        columns = tuple(_column(folder, field, stored=stored, place=place) for field in fields)
        alike.setdefault((columns, frozenset((one.name, one.type) for one in stored)), []).append(file)
    parts = [_select(folder, fields, columns=columns, files=same) for (columns, _), same in alike.items()]
    return " UNION ALL ".join(parts or [_nothing(fields)])


def _check_files(files: Sequence[DataFile], *, place: str) -> None:
    """Refuse missing files, and names that DuckDB reads as patterns, which could match other files."""
    for file in files:
        if not file.path.is_file():
            hint = "Restore it, or repair the table with what wrote it."
            reason = f'There is no file "{file.path.name}", which the table has.'
            raise EngineError("source-missing", reason, hint=hint, place=place)
        if _PATTERN.search(str(file.path)):
            reason = "The name of a file, or of a folder above it, has one of the characters * ? [ and \\ in it."
            hint = "Give it another name: DuckDB would read every file whose name fits."
            raise EngineError("source-unreadable", reason, hint=hint, place=place)


def _footers(connection: duckdb.DuckDBPyConnection, files: Sequence[_File]) -> Mapping[str, tuple[_Stored, ...]] | None:
    """Return the columns of every file, or None where one is no Parquet file."""
    found: dict[str, list[tuple[str, int, int | None, str, str]]] = {str(file.path): [] for file in files}
    with suppress(*TROUBLE, LookupError):
        for start in range(0, len(files), _AT_ONCE):
            listed = _list([quote_text(str(file.path)) for file in files[start : start + _AT_ONCE]])
            for path, *element in connection.execute(_FOOTERS.format(files=listed, order=release().footers)).fetchall():
                found[path].append(tuple(element))
        return {path: _top(elements) for path, elements in found.items()}
    return None


def _top(elements: Sequence[tuple[str, int, int | None, str, str]]) -> tuple[_Stored, ...]:
    """Return the columns of a schema, which lists every element before its children."""
    (_, left, *_), *others = elements
    inside = 0
    found = []
    for name, children, id_, type_, physical in others:
        if not inside:
            found.append(_Stored(name, id_, type_, physical))
            left -= 1
        # `inside` is how many elements below the current column are still to come: each of them brings its own
        # children, and is one.
        inside += children - (inside > 0)
    if left or inside:
        raise ValueError
    return tuple(found)


def _common(
    footers: Mapping[str, tuple[_Stored, ...]], partitions: tuple[str, ...], *, place: str
) -> tuple[Field, ...]:
    """Return the columns that all files have alike, and after them the partition columns, which are text."""
    first, *others = footers.values()
    types = {column.name: column.type for column in first}
    for other in others:
        if {column.name: column.type for column in other} != types:
            reason = "The files of the folder have different columns, or columns of different types."
            hint = "Write all of them with the same columns; a Delta Lake or Iceberg table may add columns later."
            raise EngineError("source-schema", reason, hint=hint, place=place)
    return (
        *(Field(column.name, column.type) for column in first),
        *(Field(name, "VARCHAR") for name in partitions),
    )


def _check_names(names: Sequence[str], *, place: str, also: str | None = None) -> None:
    """Refuse columns that DuckDB would not tell apart, for it would give one of them another name."""
    known = [name.lower() for name in names] + ([also] if also else [])
    if not names or len(set(known)) < len(known):
        reason = "A table has no column that is read, or two whose names differ in case alone"
        reason += f', or one that is called "{also}" beside partitions.' if also else "."
        raise EngineError("source-schema", reason, hint="Write it again with other names.", place=place)


def _column(folder: Folder, field: Field, *, stored: Sequence[_Stored], place: str) -> str:
    """Return the expression that reads a column from a file; "" for a value that belongs to the whole file."""
    found = _find_column(folder, field, stored=stored)
    if found is None and any(column.name.lower() == field.name.lower() for column in stored) and folder.kind == "delta":
        raise _unfit(f'has the column "{field.name}" in another spelling', place=place)
    if folder.kind == "iceberg" and any(column.id is None for column in stored):
        raise _unfit("was not written by Iceberg and has no ids of its columns", place=place)
    if field.name in folder.partitions and (found is None or folder.kind == "delta"):
        return ""
    if found is None and field.required:
        raise _unfit(f'lacks the column "{field.name}", which no row may lack', place=place)
    if found is None:
        return f"CAST(NULL AS {field.type})"
    if folder.kind == "parquet" and field.name in folder.partitions:
        raise _unfit(f'has the column "{field.name}", and so has its folder', place=place)
    name = quote_name(found.name)
    if found.type == field.type:
        return name
    if _holds(field.type, found.type):
        return f"CAST({name} AS {field.type})"
    if folder.kind == "delta" and field.type == _ZONED and found.physical == "INT96":
        return f"system.main.timezone('UTC', {name})"  # as Spark writes moments; no setting changes what this says
    types = strip_type_details(found.type), strip_type_details(field.type)
    raise _unfit(f'has the column "{field.name}" as {types[0]}, the table as {types[1]}', place=place)


def _find_column(folder: Folder, field: Field, *, stored: Sequence[_Stored]) -> _Stored | None:
    """Return the column of a file that is meant: by its id where the table has ids, else by its name."""
    if folder.kind != "iceberg":
        return next((column for column in stored if column.name == field.name), None)
    return next((column for column in stored if column.id == field.id), None)


def _unfit(what: str, *, place: str) -> EngineError:
    hint = "Rewrite the files with what wrote the table, with one schema."
    return EngineError("source-schema", f"A file of the table {what}.", hint=hint, place=place)


def _holds(wide: str, narrow: str) -> bool:
    """Say whether every value of one type is one of the other, so that a cast cannot fail."""
    if wide in _WIDER.get(narrow, ()):
        return True
    one, other = _DECIMAL.fullmatch(wide), _DECIMAL.fullmatch(narrow)
    return bool(one and other and one[2] == other[2] and int(one[1]) >= int(other[1]))


def _select(folder: Folder, fields: Sequence[Field], *, columns: Sequence[str], files: Sequence[_File]) -> str:
    """Return the SELECT of files that are built alike, in their order: `file_index` counts them."""
    read = ", ".join(
        f"{expression or _value(folder, field, files=files)} AS {quote_name(field.name)}"
        for expression, field in zip(columns, fields, strict=True)
    )
    listed = _list([quote_text(str(file.path)) for file in files])
    options = "hive_partitioning = false, union_by_name = false, binary_as_string = false"
    return f"SELECT {read} FROM system.main.read_parquet({listed}, {options})"  # noqa: S608 - quoted


def _value(folder: Folder, field: Field, *, files: Sequence[_File]) -> str:
    """Return the expression for the value that all rows of a file have in a column, of whichever file a row is."""
    place = folder.partitions.index(field.name)
    values = ["NULL" if (value := file.values[place]) is None else quote_text(value) for file in files]
    if len(set(values)) == 1:
        return f"CAST({values[0]} AS {field.type})"
    # list_extract(CAST(list_value('DE', 'FR') AS VARCHAR[]), CAST(file_index AS BIGINT) + 1) AS country
    return f"system.main.list_extract(CAST({_list(values)} AS {field.type}[]), CAST({_INDEX} AS BIGINT) + 1)"


def _nothing(fields: Sequence[Field]) -> str:
    empty = ", ".join(f"CAST(NULL AS {field.type}) AS {quote_name(field.name)}" for field in fields)
    return f"SELECT {empty} WHERE false"


def _list(items: Sequence[str]) -> str:
    return f"system.main.list_value({', '.join(items)})"


_SCHEMES = ("s3", "gs", "gcs", "r2", "https")
_LISTED = ("s3", "gs", "gcs", "r2")
_HINTS = {
    "s3a": "Write s3:// in place of s3a://.",
    "s3n": "Write s3:// in place of s3n://.",
    "file": "Write the path alone, without file:.",
    "http": "Write https://: without TLS, any machine on the way can change the rows.",
}
_READ = "DuckDB reads s3://, gs://, r2:// and https://; for other file systems, name a Spark in [source]."
_SIGNS = "*?["
_UNSAFE = frozenset("*?[\\")  # in the name of one file: DuckDB would read every file that fits
_TABLES = {"_delta_log/*": "Delta Lake", "metadata/*.metadata.json": "Iceberg", ".hoodie/*": "Hudi"}
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


def load_network(connection: duckdb.DuckDBPyConnection) -> None:
    """Load httpfs as the user has it installed, with persistent secrets and checked certificates."""
    loaded = False
    with suppress(*TROUBLE):
        connection.execute("SET GLOBAL allow_persistent_secrets = true")
        connection.execute("LOAD httpfs")
        loaded = True
    if not loaded:
        hint = """Install it as the user who runs dpsql: python -c "import duckdb; duckdb.sql('INSTALL httpfs')"."""
        reason = f"DuckDB {duckdb.__version__} reads addresses by its extension httpfs, which is not installed."
        raise UsageError("not-installed", reason, hint=hint)
    settings = {"enable_server_cert_verification": "true", "enable_curl_server_cert_verification": "true"}
    if (file := _find_certificates()) is not None:
        settings["ca_cert_file"] = file
    names: set[str] = set()
    with suppress(*TROUBLE):
        names |= {name for (name,) in connection.execute("SELECT name FROM system.main.duckdb_settings()").fetchall()}
    for name in settings.keys() & names:
        require_setting(connection, f"SET GLOBAL {name} = {quote_text(settings[name])}")


def _find_certificates() -> str | None:
    """Return the file of certificates that this machine trusts; $SSL_CERT_FILE comes first."""
    import ssl  # start-up: few tables have addresses

    given = ssl.get_default_verify_paths().cafile
    return next((path for path in (given, *_CERTIFICATES) if path is not None and Path(path).is_file()), None)


def list_remote_files(connection: duckdb.DuckDBPyConnection, source: RemoteFiles, *, name: str) -> RemoteFolder:
    """Return the files at the address of the table `name`; those of a pattern are listed.

    Raises `EngineError` where there is no file, or files of a table that has deleted ones.
    """
    place = f"table {name}"
    if not any(sign in source.url for sign in _SIGNS):
        return RemoteFolder((DataAddress(source.url),))
    root = _find_root(source.url)
    for inside, kind in _TABLES.items():
        if _list_addresses(connection, root + inside, place=place, at_most=1):
            reason = f"The address is that of a {kind} table, and not every file of that holds rows of it."
            hint = "Read it through Spark by its name in the catalog, or copy the table to this machine."
            raise EngineError("source-ambiguous", reason, hint=hint, place=place)
    found = _list_addresses(connection, source.url, place=place, at_most=MOST_FILES + 1)
    parts = [tuple(url.removeprefix(root).split("/")) for url in found]
    kept = [(url, each) for url, each in zip(found, parts, strict=True) if not any(map(is_hidden, each))]
    if not kept:
        hint = "Check the address. Names that begin with . or _ are left out."
        raise EngineError("source-empty", "No Parquet file has an address of this pattern.", hint=hint, place=place)
    if len(found) > MOST_FILES:
        reason = f"The table has more than {MOST_FILES} files."
        raise EngineError("source-files", reason, hint="Compact it into larger ones.", place=place)
    if any(not _UNSAFE.isdisjoint(url) for url, _ in kept):
        reason = "The name of a file has one of the characters * ? [ and \\ in it."
        hint = "Give it another name: DuckDB would read every file whose name fits."
        raise EngineError("source-unreadable", reason, hint=hint, place=place)
    partitions, values = read_partitions([each[:-1] for _, each in kept], place=place)
    return RemoteFolder(
        tuple(DataAddress(url, value) for (url, _), value in zip(kept, values, strict=True)), partitions
    )


def check_url(url: str, *, name: str) -> None:
    """Refuse an address that DuckDB is not given, with `policy-source`."""
    scheme, _, rest = url.partition("://")
    place = f"table {name}"
    if not rest or scheme not in _SCHEMES:
        scheme = url.partition(":")[0]
        reason = f"Addresses that begin with {scheme}: are not supported with DuckDB."
        raise PolicyError("policy-source", reason, hint=_HINTS.get(scheme, _READ), place=place)
    if scheme not in _LISTED and any(sign in rest for sign in _SIGNS):
        reason, hint = "Files at https:// cannot be listed.", "Write the address of one file."
        raise PolicyError("policy-source", reason, hint=hint, place=place)
    if not url.lower().endswith(".parquet"):
        is_folder = scheme in _LISTED and "." not in url.rpartition("/")[2]
        folder = f'Write source = "{url.rstrip("/*")}/*.parquet", or the address of one file.'
        hint = folder if is_folder else "Write the rows as Parquet, in files whose names end so."
        reason = "The address of Parquet files must end in .parquet."
        raise PolicyError("policy-source", reason, hint=hint, place=place)


def _find_root(url: str) -> str:
    """Return the folder of an address before the first sign of a pattern, with its slash."""
    first = min(at for sign in _SIGNS if (at := url.find(sign)) >= 0)
    return url[: url.rindex("/", 0, first) + 1]


def _list_addresses(connection: duckdb.DuckDBPyConnection, pattern: str, *, place: str, at_most: int) -> Sequence[str]:
    with suppress(*TROUBLE):
        sql = f"SELECT file FROM system.main.glob($1) ORDER BY file LIMIT {at_most:d}"  # noqa: S608 - a number
        return [file for (file,) in connection.execute(sql, [pattern]).fetchall()]
    raise unreadable(place)


def unreadable(place: str) -> EngineError:
    """Return the error for an address that cannot be read."""
    hint = "Read it with DuckDB itself, as the user who runs dpsql; docs/reference/sources.md has the steps."
    reason = "The address cannot be read: no such file, no access, or no Parquet."
    return EngineError("source-unreadable", reason, hint=hint, place=place)
