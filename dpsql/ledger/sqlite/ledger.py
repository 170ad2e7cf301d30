"""A durable ledger in one SQLite file, shared by all threads and processes of one machine.

Balances and terms stand in rows of their own and change in the same transaction as the event that explains them.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.ledger.base import ledger_closed, ledger_forked, refuse_other
from dpsql.ledger.base_ledger import LedgerTransaction, begin
from dpsql.ledger.calendar import Clock
from dpsql.ledger.durable import Durable
from dpsql.ledger.failures import Failures
from dpsql.ledger.record import LedgerTerms, now
from dpsql.ledger.sqlite import file as sqlite_file
from dpsql.ledger.sqlite import tables
from dpsql.ledger.sqlite.errors import damaged, refuse_network, sealed
from dpsql.ledger.sqlite.sidecars import Sidecars, rolled_back
from dpsql.ledger.sqlite.tables import SQLiteRows, migrate
from dpsql.ledger.sqlite.verification import check, hold_against, missing, refuse_missing
from dpsql.ledger.verification import Mark, checkpoint_if_due, decode_checkpoint

__all__ = ["SQLiteLedger"]


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
            sqlite_file.create(self._path)
        if os.path.isfile(self._path):  # noqa: PTH113 - Path.is_file raises on names that are too long
            _identity(self._path)  # before SQLite takes the locks that belong to the other name
        self._connection = sqlite_file.connect(self._path)
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
                sqlite_file.make_durable(connection)
                with sqlite_file.transaction(connection):
                    _prepare(connection, wanted, mark=mark, clock=self._clock)
                self._logs = self._sidecars.identify_logs()
            with sqlite_file.snapshot(connection):  # takes long for a long history; others need not wait
                replay, terms = check(connection, mark, checkpoint=decode_checkpoint(checkpoint))
            if wanted is not None:
                refuse_other(terms, wanted)
            self._replay, self._failures = replay, Failures()
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
            mark, rows = self._sidecars.read_mark(), SQLiteRows(connection)
            with sqlite_file.transaction(connection):
                hold_against(mark, rows, data_set=data_set)
                yield rows
                head = Mark(data_set, *rows.head())
            if head != mark:
                with suppress(LedgerError):  # the commit is done, and an older mark only detects less
                    self._sidecars.write_mark(head)

    @contextmanager
    def _reading(self) -> Iterator[LedgerTransaction]:
        with self._file() as connection, sqlite_file.snapshot(connection):
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
    if tables.is_blank(connection):
        if wanted is None:
            raise missing()
        if mark is not None:  # what it marks was here
            raise rolled_back()
        tables.build(connection)
        begin(SQLiteRows(connection), wanted, at=now(clock))
    elif tables.read_version(connection) == 1:
        migrate(connection)
    elif not tables.is_whole(connection):
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
