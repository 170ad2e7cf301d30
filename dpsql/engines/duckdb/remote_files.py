"""Parquet files at addresses, which DuckDB reads by its extension httpfs.

The extension is loaded before the instance is locked, and never downloaded. Credentials are those of DuckDB: persistent
secrets of the user who runs this process, or its environment. Which files belong to a table is settled here; a locked
instance reads these addresses and no others.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import duckdb

from dpsql.dialects import quote_text
from dpsql.engines.base import RemoteFiles
from dpsql.engines.lakes.detection import MOST_FILES, is_hidden, read_partitions
from dpsql.engines.lakes.folder import DataAddress, RemoteFolder
from dpsql.errors import EngineError, PolicyError, UsageError

__all__ = ["check_url", "list_remote_files", "load_network", "unreadable"]

_TROUBLE = (duckdb.Error, RuntimeError, ValueError)
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
    with suppress(*_TROUBLE):
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
    with suppress(*_TROUBLE):
        known = "SELECT name FROM system.main.duckdb_settings()"
        names = {name for (name,) in connection.execute(known).fetchall()}
        for name in settings.keys() & names:
            connection.execute(f"SET GLOBAL {name} = {quote_text(settings[name])}")
        return
    raise EngineError(
        "engine-settings",
        "DuckDB refused a setting that dpsql needs.",
        hint="Install a version of DuckDB that dpsql supports.",
    )


def _find_certificates() -> str | None:
    """Return the file of certificates that this machine trusts; $SSL_CERT_FILE comes first."""
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
        if _list(connection, root + inside, place=place, at_most=1):
            reason = f"The address is that of a {kind} table, and not every file of that holds rows of it."
            hint = "Read it through Spark by its name in the catalog, or copy the table to this machine."
            raise EngineError("source-ambiguous", reason, hint=hint, place=place)
    found = _list(connection, source.url, place=place, at_most=MOST_FILES + 1)
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


def _list(connection: duckdb.DuckDBPyConnection, pattern: str, *, place: str, at_most: int) -> Sequence[str]:
    with suppress(*_TROUBLE):
        sql = f"SELECT file FROM system.main.glob($1) ORDER BY file LIMIT {at_most:d}"  # noqa: S608 - a number
        return [file for (file,) in connection.execute(sql, [pattern]).fetchall()]
    raise unreadable(place)


def unreadable(place: str) -> EngineError:
    """Return the error for an address that cannot be read."""
    hint = "Read it with DuckDB itself, as the user who runs dpsql; docs/how-to/object-stores.md has the steps."
    reason = "The address cannot be read: no such file, no access, or no Parquet."
    return EngineError("source-unreadable", reason, hint=hint, place=place)
