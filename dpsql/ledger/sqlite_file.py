"""The file under a durable ledger: made once, opened only if it is ours, and never a raw sqlite3 error.

A commit is on the disk when it returns: write-ahead log with `synchronous=FULL`, set and read back at every opening
because SQLite does not remember the latter. A network file system that cannot keep a write-ahead log is refused.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpsql.errors import LedgerError

__all__ = ["APPLICATION_ID", "VERSION", "build", "connect", "damaged", "is_blank", "sealed", "transaction", "verify"]

APPLICATION_ID = 0x64707371  # "dpsq", in the header of the file
VERSION = 1
WAIT = 30.0  # seconds; a commit takes milliseconds, so this is a queue of thousands

_FULL = 2
_PAUSE = 0.01
_SCHEMA = (
    """CREATE TABLE terms (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    created_at TEXT NOT NULL,
    budget_rho TEXT NOT NULL,
    budget_delta TEXT NOT NULL,
    total_epsilon TEXT NOT NULL,
    total_delta TEXT NOT NULL
)""",
    """CREATE TABLE balance (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    spent_rho TEXT NOT NULL,
    spent_delta TEXT NOT NULL,
    reserved_rho TEXT NOT NULL
)""",
    """CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    opened_at TEXT NOT NULL,
    query TEXT NOT NULL,
    worst_rho TEXT NOT NULL,
    delta TEXT NOT NULL,
    settled_at TEXT,
    loss_rho TEXT,
    digest TEXT
)""",
    """CREATE TRIGGER entries_stay BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END""",
    """CREATE TRIGGER entries_settle_once BEFORE UPDATE ON entries
WHEN old.settled_at IS NOT NULL OR new.id <> old.id OR new.opened_at <> old.opened_at OR new.query <> old.query
    OR new.worst_rho <> old.worst_rho OR new.delta <> old.delta
BEGIN SELECT RAISE(ABORT, 'an entry is settled once and changed in nothing else'); END""",
)

_BUSY = (
    "ledger-busy",
    f"The ledger was held by someone else for {WAIT:.0f} seconds.",
    "Try again, or look for a process that stopped while it held the file.",
)
_REASONS = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_READONLY: (
        "ledger-read-only",
        "The ledger cannot be written.",
        "Give this process the right to write the file and its directory.",
    ),
    sqlite3.SQLITE_FULL: ("ledger-disk-full", "The disk under the ledger is full.", "Make room, then ask again."),
    sqlite3.SQLITE_CORRUPT: (
        "ledger-damaged",
        "The ledger holds what dpsql did not write.",
        "Keep the file and settle by hand what was spent; an older copy would give spent budget back.",
    ),
    sqlite3.SQLITE_NOTADB: (
        "not-a-ledger",
        "The file is not a ledger of dpsql.",
        "Name another file, or one that does not exist yet.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "ledger-cannot-open",
        "The ledger file cannot be opened.",
        "Look whether the path names a file that this process may read and write.",
    ),
}
_OTHER = ("ledger-failed", "The ledger could not be read or written.", "Look at the disk and the file's permissions.")
_CREATION = {
    errno.EACCES: sqlite3.SQLITE_READONLY,
    errno.EPERM: sqlite3.SQLITE_READONLY,
    errno.EROFS: sqlite3.SQLITE_READONLY,
    errno.ENOSPC: sqlite3.SQLITE_FULL,
}

# Closing any descriptor of a file drops every lock that this process holds on it, SQLite's too. So no thread may open
# a file between its creation and the end of the descriptor that created it.
_CREATING = threading.Lock()


def _because(kind: int) -> LedgerError:
    code, reason, hint = _REASONS.get(kind, _OTHER)
    return LedgerError(code, reason, hint=hint)


def damaged() -> LedgerError:
    """Return the error of a file that is a ledger but says what dpsql never writes."""
    return _because(sqlite3.SQLITE_CORRUPT)


@contextmanager
def sealed() -> Iterator[None]:
    """Turn every sqlite3 error inside into a LedgerError."""
    try:
        yield
    except sqlite3.Error as error:
        raise _because(_kind(error)) from error


def _kind(error: sqlite3.Error) -> int:
    """Return SQLite's primary code, or 0 for an error that Python's side of sqlite3 raised."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the body alone among all writers; durable when this returns, undone if anything is raised."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def connect(path: Path) -> sqlite3.Connection:
    """Open `path`, made empty and private to its owner if it is not there, with durable commits."""
    with _CREATING, sealed():
        _create(path)
        address = path.as_uri() + "?mode=rw"
        connection = sqlite3.connect(address, uri=True, timeout=WAIT, isolation_level=None, check_same_thread=False)
    try:
        with sealed():
            _refuse_foreign(connection)
            _make_durable(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = "Make the directory, or name a file elsewhere."
        raise LedgerError("ledger-directory", "The ledger's directory does not exist.", hint=hint) from error
    except OSError as error:
        raise _because(_CREATION.get(error.errno or 0, sqlite3.SQLITE_CANTOPEN)) from error
    except ValueError as error:  # a NUL in the path
        raise _because(sqlite3.SQLITE_CANTOPEN) from error


def _refuse_foreign(connection: sqlite3.Connection) -> None:
    """Look before the first write: a file of another application is left exactly as it is."""
    if not is_blank(connection) and _header(connection)[0] != APPLICATION_ID:
        raise _because(sqlite3.SQLITE_NOTADB)


def _make_durable(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA fullfsync = ON")  # macOS: flush the drive as well; elsewhere without effect
    connection.execute("PRAGMA synchronous = FULL")
    journal = _write_ahead(connection)
    (flushed,) = connection.execute("PRAGMA synchronous").fetchone()
    if journal != "wal" or flushed != _FULL:
        raise LedgerError(
            "ledger-not-durable",
            "Commits to the ledger would not survive a loss of power here.",
            hint="Put the ledger on a local disk.",
        )


def _write_ahead(connection: sqlite3.Connection) -> object:
    """Ask for the write-ahead log; processes that make a file together are told "busy" at once and must ask again."""
    deadline = time.monotonic() + WAIT
    while True:
        try:
            return connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if _kind(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)


def _header(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version


def is_blank(connection: sqlite3.Connection) -> bool:
    """Say whether nobody has written to the file: it is new, or its making was cut short."""
    (things,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return _header(connection) == (0, 0) and things == 0


def build(connection: sqlite3.Connection) -> None:
    """Give a blank file the tables and the header of a ledger; inside the caller's transaction."""
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def verify(connection: sqlite3.Connection) -> None:
    """Refuse a file of a newer version, and one whose tables are not exactly those that `build` makes."""
    application, version = _header(connection)
    if version > VERSION:
        raise LedgerError(
            "ledger-newer",
            f"The ledger has version {version} and this dpsql knows only up to {VERSION}.",
            hint="Install the dpsql that wrote it, or a newer one.",
        )
    found = {text for (text,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    if (application, version) != (APPLICATION_ID, VERSION) or found != set(_SCHEMA):
        raise damaged()
