"""Copies of a durable ledger in a file: private, consistent while others write, and verified."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.ledger.sqlite import file as sqlite_file
from dpsql.ledger.sqlite.errors import sealed, unopened
from dpsql.ledger.sqlite.sidecars import Sidecars
from dpsql.ledger.sqlite.verification import refuse_missing, verify_file
from dpsql.ledger.verification import Verified

__all__ = ["backup"]

_ENDINGS = ("", "-journal", "-wal", "-shm")


def backup(path: Path | str, to: Path | str) -> Verified:
    """Copy the ledger at `path` into a new file, while others may write to it, and return what the copy holds.

    The copy is one state of the ledger, at least as late as its mark was when this began. It can be read by its owner
    alone from the moment that it is made, it is on the disk and was verified when this returns, and it is removed if
    anything goes wrong. Raises `ledger-exists` where there is a file already, or a log that SQLite would take for the
    copy's, and what opening and verifying raise.
    """
    file, copy = Path(path).absolute(), Path(to).absolute()
    refuse_missing(file)
    mark = Sidecars(file).read_mark()
    _create(copy, str(to))
    try:
        with sealed():
            _copy(file, copy)
        _flush(copy)
        return verify_file(copy, mark, mode="ro&immutable=1")
    except BaseException:
        for ending in _ENDINGS:
            with suppress(OSError):
                Path(f"{copy}{ending}").unlink()
        raise


def _create(copy: Path, name: str) -> None:
    """Make an empty file that its owner alone can read and write; a umask can take rights and give none.

    `name` is what errors call it.
    """
    for ending in _ENDINGS:
        if os.path.lexists(f"{copy}{ending}"):
            raise _exists(f"{name}{ending}")
    try:
        descriptor = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            if sys.platform != "win32":
                os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except FileExistsError:
        raise _exists(name) from None
    except (OSError, ValueError) as error:
        raise unopened(error) from error


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
        for place, flags in ((copy, os.O_RDWR), (copy.parent, os.O_RDONLY)):
            if place is copy or sys.platform != "win32":
                descriptor = os.open(place, flags)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
    except OSError as error:
        raise unopened(error) from error


def _exists(place: str) -> LedgerError:
    reason, hint = "There is a file of this name already.", "Name another one that does not exist yet."
    return LedgerError("ledger-exists", reason, hint=hint, place=place)
