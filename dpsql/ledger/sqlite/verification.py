"""Check that a ledger's file says what its history says, and verified copies of it.

Checking writes nothing. A copy is private, and consistent while others write.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.ledger.record import LedgerTerms
from dpsql.ledger.replay import Replay, Sums
from dpsql.ledger.sqlite import file as sqlite_file
from dpsql.ledger.sqlite import tables
from dpsql.ledger.sqlite.errors import damaged, sealed, unopened
from dpsql.ledger.sqlite.sidecars import Sidecars, rolled_back
from dpsql.ledger.sqlite.tables import SQLiteRows
from dpsql.ledger.verification import Mark, Verified, decode_checkpoint, is_behind, replayed, verify_rows


def verify(path: Path | str) -> Verified:
    """Check everything in the ledger at `path`, without changing it, while others may write to it.

    Raises `ledger-tampered` naming the first event that does not fit, `ledger-rolled-back`, or what opening raises.
    """
    file = Path(path).absolute()
    refuse_missing(file)
    beside = Sidecars(file)
    mark, checkpoint = (
        beside.read_mark(),
        decode_checkpoint(beside.read_checkpoint()),
    )  # before the file, which only ever goes on
    before = beside.identify_rest()
    if before is not None:  # no process has it open, and reading it need not create a log beside it
        found, failure = None, None
        try:
            found = verify_file(file, mark, checkpoint=checkpoint, mode="ro&immutable=1")
        except LedgerError as error:
            failure = error
        if beside.identify_rest() == before:
            if found is not None:
                return found
            if failure is not None:
                raise failure
    return verify_file(file, mark, checkpoint=checkpoint, mode="ro")


def verify_file(file: Path, mark: Mark | None, *, checkpoint: Sums | None = None, mode: str) -> Verified:
    """Check everything in a file that came at least to its mark, opened in one of the modes of SQLite's addresses."""
    with closing(sqlite_file.connect(file, mode)) as connection, sealed(), sqlite_file.snapshot(connection):
        if tables.is_blank(connection):
            raise missing()
        if tables.read_version(connection) == 1:
            raise LedgerError(
                "ledger-older",
                "The ledger has the tables of an earlier version, which had no chain to verify.",
                hint="Open it once with this version of dpsql, which upgrades it in place.",
            )
        rows = _whole(connection)
        replay, terms = verify_rows(rows, checkpoint)
        hold_against(mark, rows, data_set=terms.data_set)
        if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise damaged()
    return Verified(replay.seq, replay.chain)


def check(connection: sqlite3.Connection, mark: Mark | None, *, checkpoint: Sums | None) -> tuple[Replay, LedgerTerms]:
    """Return what a file adds up to whose tables, chain and balances fit, and that came at least to its mark."""
    rows = _whole(connection)
    replay, terms = replayed(rows, checkpoint)
    hold_against(mark, rows, data_set=terms.data_set)
    return replay, terms


def _whole(connection: sqlite3.Connection) -> SQLiteRows:
    if not tables.is_whole(connection):
        raise damaged()
    return SQLiteRows(connection)


def hold_against(mark: Mark | None, rows: SQLiteRows, *, data_set: str) -> None:
    """Raise `ledger-rolled-back` if the file never came to what its mark says."""
    if mark is not None and is_behind(rows, mark, data_set=data_set):
        raise rolled_back()


def refuse_missing(path: Path) -> None:
    """Raise `ledger-missing` if there is nothing at `path`."""
    try:
        path.stat()
    except FileNotFoundError as error:
        raise missing() from error
    except (OSError, ValueError):  # the opening has a better error
        return


def missing() -> LedgerError:
    """Return the error of a ledger that is not there."""
    return LedgerError("ledger-missing", "There is no ledger here.", hint="Name the file that the policy names.")


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
