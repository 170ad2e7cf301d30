"""A durable ledger in one SQLite file, shared by all threads and processes of one machine; its check and its copies.

Balances and terms stand in rows of their own and change in the same transaction as the event that explains them.
Checking writes nothing. A copy is private, and consistent while others write.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
import threading
from collections.abc import Hashable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.ledger import sqlite_files, sqlite_tables
from dpsql.ledger.base import Failures, ledger_closed, ledger_forked, refuse_other
from dpsql.ledger.base_ledger import LedgerTransaction, begin
from dpsql.ledger.durable import (
    Durable,
    Mark,
    Verified,
    checkpoint_if_due,
    decode_checkpoint,
    is_behind,
    replayed,
    verify_rows,
)
from dpsql.ledger.history import History, Sums
from dpsql.ledger.record import Clock, LedgerTerms, now
from dpsql.ledger.sqlite_files import Sidecars, damaged, refuse_network, rolled_back, sealed, unopened
from dpsql.ledger.sqlite_tables import SQLiteRows, migrate


class SQLiteLedger(Durable[Path | str]):
    """A ledger that outlives the process: what `reserve` and `settle` did is on the disk when they return."""

    def _start(self, place: Path | str, wanted: LedgerTerms | None, *, clock: Clock) -> None:
        self._path = Path(place).absolute()
        self._clock = clock
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._connection: sqlite3.Connection | None = None
        refuse_network(self._path)
        if wanted is None:
            refuse_missing(self._path)
        else:
            sqlite_files.create(self._path)
        if os.path.isfile(self._path):  # noqa: PTH113 - Path.is_file raises on names that are too long
            _identity(self._path)  # before SQLite takes the locks that belong to the other name
        self._connection = sqlite_files.connect(self._path)
        try:
            self._identity = _identity(self._path)
            self._sidecars = Sidecars(self._path)
            self._logs: tuple[tuple[int, int] | None, ...] | None = None  # until they are there
            self._terms = self._open_book(wanted)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; closing it twice is allowed. Open reservations stay reserved."""
        if os.getpid() != self._process:
            return  # the file's locks are the parent's
        with self._lock, sealed():
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _open_book(self, wanted: LedgerTerms | None) -> LedgerTerms:
        """Create the tables of a new ledger, or migrate an old one, and verify the events that no checkpoint covers."""
        with self._file() as connection:
            with self._sidecars.turn():
                mark, checkpoint = self._sidecars.read_mark(), self._sidecars.read_checkpoint()
                sqlite_files.make_durable(connection)
                with sqlite_files.transaction(connection):
                    _prepare(connection, wanted, mark=mark, clock=self._clock)
                self._logs = self._sidecars.identify_logs()
            with sqlite_files.snapshot(connection):  # takes long for a long history; others need not wait
                replay, terms = check(connection, mark, checkpoint=decode_checkpoint(checkpoint))
            if wanted is not None:
                refuse_other(terms, wanted)
            self._history, self._failures = replay, Failures()
            told = checkpoint_if_due(replay)
            with self._sidecars.turn():
                head = Mark(terms.data_set, *SQLiteRows(connection).head())
                if self._sidecars.read_mark() != head:
                    self._sidecars.write_mark(head)
                if told is not None:
                    with suppress(LedgerError):  # an older one only costs time
                        self._sidecars.write_checkpoint(told)
        return terms

    @contextmanager
    def _writing(self) -> Iterator[LedgerTransaction]:
        data_set = self._terms.data_set
        with self._file() as connection, self._sidecars.turn():
            # the mark is read and written within the turn, so that it never says more than the file has
            mark, rows = self._sidecars.read_mark(), SQLiteRows(connection)
            with sqlite_files.transaction(connection):
                hold_against(mark, rows, data_set=data_set)
                yield rows
                head = Mark(data_set, *rows.head())
            if head != mark:
                with suppress(LedgerError):  # the commit is done, and an older mark only detects less
                    self._sidecars.write_mark(head)

    @contextmanager
    def _reading(self) -> Iterator[LedgerTransaction]:
        with self._file() as connection, sqlite_files.snapshot(connection):
            yield SQLiteRows(connection)

    def _find_version(self) -> Hashable:
        with self._file() as connection:
            return _read_version(connection)

    def _peek_version(self) -> Hashable:
        if os.getpid() != self._process or not self._lock.acquire(blocking=False):
            return None
        try:
            with self._checked_file() as connection:
                return _read_version(connection)
        finally:
            self._lock.release()

    @contextmanager
    def _file(self) -> Iterator[sqlite3.Connection]:
        """Give one thread the connection, if it writes to the files that the path names, also when it is done."""
        if os.getpid() != self._process:  # before the lock, which a thread of the parent may hold for ever
            raise ledger_forked()
        with self._lock, self._checked_file() as connection:
            yield connection

    @contextmanager
    def _checked_file(self) -> Iterator[sqlite3.Connection]:
        """Give the thread that has the lock the connection, as `_file` does.

        What is committed to a file that has lost its name is lost; so nothing is answered on the strength of it.
        """
        with sealed():
            if self._connection is None:
                raise ledger_closed()
            self._check_files()
            yield self._connection
            self._check_files()

    def _check_files(self) -> None:
        """Raise `ledger-moved` unless the paths name the ledger, the write-ahead log and its index that are open.

        SQLite makes log and index in the first transaction, and removes them when the last connection is closed: as
        long as this process has one open, they stay what they are. A checkpoint writes over the log, in place.
        """
        if _identity(self._path) != self._identity:
            raise _moved()
        if self._logs is not None and (None in self._logs or self._sidecars.identify_logs() != self._logs):
            raise LedgerError(
                "ledger-moved",
                "The ledger's -wal or -shm file was moved, deleted or replaced while it was open.",
                hint="Close every program that has the ledger open, then check it with dpsql ledger verify.",
            )


def _prepare(connection: sqlite3.Connection, wanted: LedgerTerms | None, *, mark: Mark | None, clock: Clock) -> None:
    """Bring the file to the present version, new or old, and make sure that it can be written."""
    if sqlite_files.is_blank(connection):
        if wanted is None:
            raise missing()
        if mark is not None:  # what it marks was here
            raise rolled_back()
        sqlite_tables.build(connection)
        begin(SQLiteRows(connection), wanted, at=now(clock))
    elif sqlite_tables.read_version(connection) == 1:
        migrate(connection)
    elif not sqlite_tables.is_whole(connection):
        raise damaged()
    # BEGIN IMMEDIATE is content with a read-only file; a write, even of no row, is not
    connection.execute("UPDATE terms SET data_version = 0 WHERE 0")


def _read_version(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return a version of the file: the first number changes with commits of others, the second with our own."""
    (others,) = connection.execute("PRAGMA data_version").fetchone()
    return others, connection.total_changes


def _identity(path: Path) -> tuple[int, int]:
    """Return the identity of the file at `path`, which another file of the same name does not have."""
    try:
        found = path.stat()
    except OSError as error:
        raise _moved() from error
    if stat.S_ISREG(found.st_mode) and found.st_nlink != 1:
        raise LedgerError(
            "ledger-linked",
            "The ledger file has a second name, and what is spent under one is not seen under the other.",
            hint="Remove the other hard link, or copy the file instead.",
        )
    return found.st_dev, found.st_ino


def _moved() -> LedgerError:
    return LedgerError(
        "ledger-moved",
        "The ledger file was moved, deleted or replaced while it was open.",
        hint="Put it back and connect again; an older copy would give spent budget back.",
    )


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
    # A file that nobody has open is read as immutable. If it is another one afterwards, somebody has written to it
    # meanwhile, and what was found says nothing: it is then read again, beside the writer.
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
    with closing(sqlite_files.connect(file, mode)) as connection, sealed(), sqlite_files.snapshot(connection):
        if sqlite_files.is_blank(connection):
            raise missing()
        if sqlite_tables.read_version(connection) == 1:
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


def check(connection: sqlite3.Connection, mark: Mark | None, *, checkpoint: Sums | None) -> tuple[History, LedgerTerms]:
    """Return what a file adds up to whose tables, chain and balances fit, and that came at least to its mark."""
    rows = _whole(connection)
    replay, terms = replayed(rows, checkpoint)
    hold_against(mark, rows, data_set=terms.data_set)
    return replay, terms


def _whole(connection: sqlite3.Connection) -> SQLiteRows:
    if not sqlite_tables.is_whole(connection):
        raise damaged()
    return SQLiteRows(connection)


def hold_against(mark: Mark | None, rows: SQLiteRows, *, data_set: str) -> None:
    """Raise `ledger-rolled-back` if the file never came to what its mark says."""
    if mark is not None and is_behind(rows, mark, data_set=data_set):
        raise rolled_back()


def refuse_missing(path: Path) -> None:
    """Raise `ledger-missing` if there is nothing at `path`, and `ledger-rolled-back` if its mark is still there."""
    try:
        path.stat()
    except FileNotFoundError as error:
        raise (missing() if Sidecars(path).read_mark() is None else rolled_back()) from error
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
        closing(sqlite_files.connect(file)) as source,
        closing(sqlite3.connect(copy, isolation_level=None)) as target,
    ):
        source.backup(target)  # all pages in one step, so of one state
        # The copy has the write-ahead mode of its source: what stands in a log beside it is brought into the one file.
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
