"""Versions of the files of tables whose rows stay what they are as long as an engine is open."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from dpsql.engines.base import CsvFile
from dpsql.engines.file_versions import file_versions

__all__ = ["digest_versions"]


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
