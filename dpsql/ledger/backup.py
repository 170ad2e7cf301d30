"""Copies of a durable ledger in a file: private, consistent while others write, and verified."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.ledger import sqlite_file
from dpsql.ledger.check import Verified
from dpsql.ledger.sqlite_check import refuse_missing, verify
from dpsql.ledger.sqlite_errors import sealed, unopened

__all__ = ["backup"]


def backup(path: Path | str, to: Path | str) -> Verified:
    """Copy the ledger at `path` into a new file, while others may write to it, and return what the copy holds.

    The copy is one state of the ledger. It can be read by its owner alone from the moment that it is made, it is on the
    disk and was verified when this returns, and it is removed if anything goes wrong. Raises `ledger-exists` where
    there is a file already, and what opening and verifying raise.
    """
    file, copy = Path(path).absolute(), Path(to).absolute()
    refuse_missing(file)
    try:
        os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        reason, hint = "There is a file of this name already.", "Name one that does not exist yet."
        raise LedgerError("ledger-exists", reason, hint=hint, place=str(to)) from None
    except (OSError, ValueError) as error:
        raise unopened(error) from error
    try:
        with sealed():
            _copy(file, copy)
        _flush(copy)
        return verify(copy)
    except BaseException:
        for ending in ("", "-journal", "-wal", "-shm"):
            Path(f"{copy}{ending}").unlink(missing_ok=True)
        raise


def _copy(file: Path, copy: Path) -> None:
    with (
        closing(sqlite_file.connect(file)) as source,
        closing(sqlite3.connect(copy, isolation_level=None)) as target,
    ):
        source.backup(target)  # all pages in one step, so of one state
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _flush(copy: Path) -> None:
    """Have the file and its name on the disk."""
    try:
        for place, flags in ((copy, os.O_RDONLY), (copy.parent, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))):
            descriptor = os.open(place, flags)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise unopened(error) from error
