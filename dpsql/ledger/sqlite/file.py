"""The file under a durable ledger: made once, opened only if it is ours.

A commit is on the disk when it returns: write-ahead log with `synchronous=FULL`, set and read back at every opening
because SQLite does not remember the latter. A place that cannot keep a write-ahead log is refused.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpsql.ledger.sqlite import errors
from dpsql.ledger.sqlite.errors import because, classify, not_durable, sealed, unopened
from dpsql.ledger.sqlite.tables import APPLICATION_ID, header, is_blank

__all__ = ["connect", "create", "make_durable", "snapshot", "transaction"]

_FULL = 2
_PAUSE = 0.01

# Closing any descriptor of a file drops every lock that this process holds on it, SQLite's too. So no thread may open
# a file between its creation and the end of the descriptor that created it.
_CREATING = threading.Lock()


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Run the body alone among all writers; durable when this returns, undone if anything is raised."""
    try:
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let the body read one state of the file while others write; it may not write."""
    with transaction(connection, "DEFERRED"):
        yield


def create(path: Path) -> None:
    """Make an empty file, private to its owner, if there is none."""
    try:
        with _CREATING:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    except (OSError, ValueError) as error:
        raise unopened(error) from error


def connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """Open the file at `path`; one of another application is left exactly as it is.

    `mode` is one of SQLite's, such as "ro"; "ro&immutable=1" reads a file that no process
    writes, and creates none beside it.
    """
    with _CREATING, sealed():
        address = f"{path.as_uri()}?mode={mode}"
        connection = sqlite3.connect(
            address, uri=True, timeout=errors.WAIT, isolation_level=None, check_same_thread=False
        )
    try:
        with sealed():
            _refuse_foreign(connection)
            # for json_extract in our own indices; of any other schema nothing is run before it is refused
            connection.execute("PRAGMA trusted_schema = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_foreign(connection: sqlite3.Connection) -> None:
    if not is_blank(connection) and header(connection)[0] != APPLICATION_ID:
        raise because(sqlite3.SQLITE_NOTADB)


def make_durable(connection: sqlite3.Connection) -> None:
    """Let every commit reach the disk before it returns, or refuse the place."""
    connection.execute("PRAGMA fullfsync = ON")  # macOS: flush the drive as well; elsewhere without effect
    connection.execute("PRAGMA synchronous = FULL")
    journal = _write_ahead(connection)
    (flushed,) = connection.execute("PRAGMA synchronous").fetchone()
    if journal != "wal" or flushed != _FULL:
        raise not_durable()


def _write_ahead(connection: sqlite3.Connection) -> object:
    """Switch to the write-ahead log; retry, because processes that create a file together get "busy" at once."""
    deadline = time.monotonic() + errors.WAIT
    while True:
        try:
            return connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if classify(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
