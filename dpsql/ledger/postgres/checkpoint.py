"""Storage of the checkpoint of a ledger in PostgreSQL: with the user who opens it, not in the database.

A role that serves analysts may write balances and append events. If it could also write the checkpoint, the next
opening would trust what it wrote. The checkpoint is therefore in a folder of the user who opened the ledger,
XDG_CACHE_HOME or ~/.cache, which nobody else can read.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["read", "write"]


def read(data_set: str) -> str | None:
    """Return the text of the checkpoint of a data set; None if there is none, or none that is ours alone to write."""
    with suppress(OSError, RuntimeError), _place(data_set).open("rb") as file:
        if _is_ours(os.fstat(file.fileno())):
            return file.read().decode("utf-8", "replace")
    return None


def write(data_set: str, text: str) -> None:
    """Put a checkpoint in place of the one before, whole or not at all; where it cannot, the next opening reads all."""
    with suppress(OSError, RuntimeError):
        place = _place(data_set)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=place.parent)  # private to its owner
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode())
            Path(draft).replace(place)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise


def _place(data_set: str) -> Path:
    stated = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(stated) if stated.startswith("/") else Path.home() / ".cache"
    return cache / "dpsql" / f"{hashlib.sha256(data_set.encode()).hexdigest()}.checkpoint"


def _is_ours(found: os.stat_result) -> bool:
    if not stat.S_ISREG(found.st_mode):
        return False
    return sys.platform == "win32" or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)
