"""Versions of files, which show whether a file was written since it was loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dpsql.engines.base import CsvFile


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
            files = Path(database), Path(f"{database}.wal")
        versions = [list(version[1:]) for version in file_versions(files).values()]
        if versions:
            found[name] = hashlib.sha256(json.dumps(versions).encode()).hexdigest()
    return found
