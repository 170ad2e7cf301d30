"""The tables of a durable ledger: events and answers that only grow, and the present that they add up to."""

from __future__ import annotations

import sqlite3

from dpsql.errors import LedgerError
from dpsql.ledger.sqlite.errors import damaged

__all__ = ["APPLICATION_ID", "VERSION", "build", "has_certificate", "has_periods", "header", "holds", "is_blank"]
__all__ += ["is_whole", "make_certificate", "make_periods", "read_version", "tell_divisions", "tell_repeats"]

APPLICATION_ID = 0x64707371  # "dpsq", in the header of the file
# A ledger has the lowest version that describes all of it, so that an earlier dpsql can read it where possible.
VERSION = 6  # with budgets of values, entries that repeat others or none, and certificate and periods or none
_WITH_REPEATS = 5
_WITH_CERTIFICATE = 4  # other than zcdp, and periods or none
_WITH_PERIODS = 3
_PLAIN = 2

_SCHEMA = (
    """CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    chain TEXT NOT NULL
)""",
    "CREATE UNIQUE INDEX settled_once ON events (json_extract(body, '$.entry')) WHERE kind = 'settled'",
    """CREATE INDEX asked ON events (json_extract(body, '$.key'))
WHERE kind = 'reserved' AND json_extract(body, '$.key') <> ''""",
    "CREATE INDEX registrations ON events (seq) WHERE kind = 'registered'",
    """CREATE TABLE answers (
    entry INTEGER PRIMARY KEY,
    content BLOB NOT NULL
)""",
    """CREATE TABLE terms (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    data_set TEXT NOT NULL,
    budget_rho TEXT NOT NULL,
    budget_delta TEXT NOT NULL,
    total_epsilon TEXT NOT NULL,
    total_delta TEXT NOT NULL,
    data_version INTEGER NOT NULL
)""",
    """CREATE TABLE balances (
    holder TEXT PRIMARY KEY NOT NULL,
    spent_rho TEXT NOT NULL,
    spent_delta TEXT NOT NULL,
    reserved_rho TEXT NOT NULL
)""",
    # a row put in place of another is a deletion that fires no trigger of deletions
    """CREATE TRIGGER events_follow BEFORE INSERT ON events
WHEN new.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM events)
BEGIN SELECT RAISE(ABORT, 'events follow one another'); END""",
    """CREATE TRIGGER events_stay BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END""",
    """CREATE TRIGGER events_stay_as_they_are BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are never changed'); END""",
    """CREATE TRIGGER answers_are_given_once BEFORE INSERT ON answers
WHEN EXISTS (SELECT 1 FROM answers WHERE entry = new.entry)
BEGIN SELECT RAISE(ABORT, 'an entry has one answer'); END""",
    """CREATE TRIGGER answers_stay BEFORE DELETE ON answers
BEGIN SELECT RAISE(ABORT, 'answers are never deleted'); END""",
    """CREATE TRIGGER answers_stay_as_they_are BEFORE UPDATE ON answers
BEGIN SELECT RAISE(ABORT, 'answers are never changed'); END""",
)
_PERIODS = """CREATE TABLE periods (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    length_seconds INTEGER NOT NULL,
    most INTEGER,
    began TEXT NOT NULL,
    number INTEGER NOT NULL,
    since INTEGER NOT NULL
)"""
_CERTIFICATE = """CREATE TABLE certificate (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    certificate TEXT NOT NULL,
    item_epsilon TEXT,
    query_delta TEXT
)"""


def header(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the application that a file says it belongs to, and the version of its tables."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version


def is_blank(connection: sqlite3.Connection) -> bool:
    """Say whether nothing was written to the file: it is new, or its creation was interrupted."""
    (things,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return header(connection) == (0, 0) and things == 0


def build(connection: sqlite3.Connection) -> None:
    """Give a blank file the tables and the header of a ledger; inside the caller's transaction."""
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {_PLAIN}")


def has_periods(connection: sqlite3.Connection) -> bool:
    """Say whether the file has the table of a budget that is granted in periods."""
    version = header(connection)[1]
    return version == _WITH_PERIODS if version < _WITH_CERTIFICATE else _has_table(connection, "periods")


def make_periods(connection: sqlite3.Connection) -> None:
    """Give a ledger that has none the table of its periods; inside the caller's transaction."""
    connection.execute(_PERIODS)
    _raise_version(connection, _WITH_PERIODS)


def has_certificate(connection: sqlite3.Connection) -> bool:
    """Say whether the file has the table of a certificate other than zcdp."""
    version = header(connection)[1]
    return version == _WITH_CERTIFICATE if version < _WITH_REPEATS else _has_table(connection, "certificate")


def tell_repeats(connection: sqlite3.Connection) -> None:
    """Say that the ledger has entries that repeat others; inside the caller's transaction."""
    _raise_version(connection, _WITH_REPEATS)


def tell_divisions(connection: sqlite3.Connection) -> None:
    """Say that values of a column have budgets in the ledger; inside the caller's transaction."""
    _raise_version(connection, VERSION)


def _raise_version(connection: sqlite3.Connection, version: int) -> None:
    if header(connection)[1] < version:
        connection.execute(f"PRAGMA user_version = {version}")


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None


def make_certificate(connection: sqlite3.Connection) -> None:
    """Give a new ledger the table of its certificate; inside the caller's transaction."""
    connection.execute(_CERTIFICATE)
    _raise_version(connection, _WITH_CERTIFICATE)


def read_version(connection: sqlite3.Connection) -> int:
    """Return the version of a ledger's tables; refuse one that this dpsql does not know."""
    application, version = header(connection)
    if version > VERSION:
        raise LedgerError(
            "ledger-newer",
            f"The ledger has version {version} and this dpsql knows only up to {VERSION}.",
            hint="Install the dpsql that wrote it, or a newer one.",
        )
    if application != APPLICATION_ID or version < 1:
        raise damaged()
    return version


def is_whole(connection: sqlite3.Connection) -> bool:
    """Say whether a ledger of one of the present versions has exactly its tables, indices and triggers."""
    periods = (_PERIODS,) if has_periods(connection) else ()
    certificate = (_CERTIFICATE,) if has_certificate(connection) else ()
    return holds(connection, (*_SCHEMA, *periods, *certificate))


def holds(connection: sqlite3.Connection, schema: tuple[str, ...]) -> bool:
    """Say whether the tables, indices and triggers of the file are exactly those of `schema`."""
    rows = connection.execute("SELECT CAST(sql AS BLOB) FROM sqlite_master WHERE sql IS NOT NULL")
    found = [bytes(text).decode(errors="replace") for (text,) in rows]
    return sorted(found) == sorted(schema)
