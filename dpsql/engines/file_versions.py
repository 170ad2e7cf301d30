"""Versions of files, which show whether a file was written since it was loaded."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

__all__ = ["file_versions"]


def file_versions(files: tuple[Path, ...]) -> Mapping[Path, tuple[int, int, int]]:
    """Return inode, size and time of change of each file that is there; nothing in it is read."""
    found = {}
    for file in files:
        with suppress(OSError, ValueError):  # the second for names that no file can have
            status = file.stat()
            found[file] = status.st_ino, status.st_size, status.st_mtime_ns
    return found
