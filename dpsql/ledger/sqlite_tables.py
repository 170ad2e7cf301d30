"""Tables of a ledger in a SQLite file: events and answers that only grow, and the present that they add up to.

A transaction's view of them reads the terms once. SQLite never calculates with the numbers. The entries of version 1,
which had no events, become events, and nothing of what was spent changes.
"""

from __future__ import annotations

import sqlite3
import uuid
from dataclasses import replace
from datetime import datetime

from dpsql.accounting import BudgetState, BudgetVector, CertificateTerms
from dpsql.errors import LedgerError
from dpsql.ledger.base import Outcome, Request
from dpsql.ledger.base_ledger import begin, encode_request, encode_settlement
from dpsql.ledger.durable import FIRST, HISTORY, LINKED, EventRows, RowsFound, encode_holder
from dpsql.ledger.record import (
    Calendar,
    Entry,
    LedgerTerms,
    Settlement,
    budget_names,
    decode_certificate,
    decode_fraction,
    decode_periods,
    decode_terms,
    encode_certificate,
    encode_fraction,
    encode_periods,
    encode_terms,
    sum_entries,
)
from dpsql.ledger.sqlite_files import APPLICATION_ID, damaged, header

# A ledger has the lowest version that describes all of it, so that an earlier dpsql can read it where possible.
VERSION = 7  # with stored tables, and what earlier versions have or not
WITH_DIVISIONS = 6  # budgets of values
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
# Tables that a ledger has if it needs them, each with the first version that may have it.
_ADDED = {
    "periods": (
        _WITH_PERIODS,
        """CREATE TABLE periods (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    length_seconds INTEGER NOT NULL,
    most INTEGER,
    began TEXT NOT NULL,
    number INTEGER NOT NULL,
    since INTEGER NOT NULL
)""",
    ),
    "certificate": (
        _WITH_CERTIFICATE,
        """CREATE TABLE certificate (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    certificate TEXT NOT NULL,
    item_epsilon TEXT,
    query_delta TEXT
)""",
    ),
}


def build(connection: sqlite3.Connection) -> None:
    """Give a blank file the tables and the header of a ledger; inside the caller's transaction."""
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {_PLAIN}")


def _has_added(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether the file has one of the tables that not every ledger has."""
    version, first = header(connection)[1], _ADDED[name][0]
    if version <= first:  # the version in which a table came says that it is there
        return version == first
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None


def _add(connection: sqlite3.Connection, name: str) -> None:
    """Give a ledger one of the tables that not every ledger has, unless it is there."""
    if not _has_added(connection, name):
        version, schema = _ADDED[name]
        connection.execute(schema)
        _raise_version(connection, version)


def _raise_version(connection: sqlite3.Connection, version: int) -> None:
    if header(connection)[1] < version:
        connection.execute(f"PRAGMA user_version = {version}")


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
    added = [schema for name, (_, schema) in _ADDED.items() if _has_added(connection, name)]
    return holds(connection, (*_SCHEMA, *added))


def holds(connection: sqlite3.Connection, schema: tuple[str, ...]) -> bool:
    """Say whether the tables, indices and triggers of the file are exactly those of `schema`."""
    # As bytes, because Python raises on a text of another hand that is no UTF-8.
    rows = connection.execute("SELECT CAST(sql AS BLOB) FROM sqlite_master WHERE sql IS NOT NULL")
    found = [bytes(text).decode(errors="replace") for (text,) in rows]
    return sorted(found) == sorted(schema)


_TOTAL = ("total_epsilon", "total_delta")
# the key is read as the index reads it, for all characters
_UNDER = f"""{LINKED} WHERE kind = 'reserved' AND json_extract(body, '$.key') <> ''
AND json_extract(body, '$.key') = json_extract(?, '$')"""


class SQLiteRows(EventRows):
    """One transaction's view of the file, by an open connection."""

    SETTLEMENT = f"{LINKED} WHERE kind = 'settled' AND json_extract(body, '$.entry') = ?"
    ASKED = f"{_UNDER} AND (substr(body, 1, ?) = ? OR body NOT LIKE ?) AND seq < ? ORDER BY seq DESC LIMIT ?"
    ENTRY = "json_extract(settled.body, '$.entry')"
    FIRST_ASKED = f"{_UNDER} AND body LIKE ? AND seq > ? ORDER BY seq LIMIT ?"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _read_terms(self) -> LedgerTerms:
        row = self._connection.execute(
            "SELECT budget_rho, budget_delta, total_epsilon, total_delta, data_set, data_version FROM terms"
        ).fetchone()
        if row is None:
            raise damaged()
        *told, data_set, version = row
        try:
            certified = self._certified()
            names = (*budget_names(certified.certificate), *_TOTAL)
            body = {**dict(zip(names, told, strict=True)), **encode_certificate(certified)}
            terms = decode_terms(body, data_set, data_version=int(version))
            return replace(terms, calendar=self._calendar())
        except (TypeError, ValueError) as error:
            raise damaged() from error

    def set_terms(self, terms: LedgerTerms) -> None:
        """Put other terms in place of the present ones."""
        told = encode_terms(terms.budget, terms.total, certified=terms.certified)
        names = (*budget_names(terms.certified.certificate), *_TOTAL)
        self._connection.execute(
            "REPLACE INTO terms (one, budget_rho, budget_delta, total_epsilon, total_delta, data_set, data_version) "
            "VALUES (1, ?, ?, ?, ?, ?, ?)",
            (*(told[name] for name in names), terms.data_set, terms.data_version),
        )
        if certificate := encode_certificate(terms.certified):
            self._set_certificate(tuple(certificate.values()))
        if terms.calendar is not None:
            self._set_calendar(terms.calendar)
        self._terms = terms

    def _set_certificate(self, told: tuple[object, ...]) -> None:
        _add(self._connection, "certificate")
        self._connection.execute(
            "REPLACE INTO certificate (one, certificate, item_epsilon, query_delta) VALUES (1, ?, ?, ?)", told
        )

    def _certified(self) -> CertificateTerms:
        """Return the certificate; raise ValueError or TypeError if it is malformed."""
        if not _has_added(self._connection, "certificate"):
            return CertificateTerms()
        row = self._connection.execute("SELECT certificate, item_epsilon, query_delta FROM certificate").fetchone()
        certificate, epsilon, delta = row
        return decode_certificate({"certificate": certificate, "item_epsilon": epsilon, "query_delta": delta})

    def _set_calendar(self, calendar: Calendar) -> None:
        _add(self._connection, "periods")
        seconds, most = encode_periods(calendar.periods).values()
        self._connection.execute(
            "REPLACE INTO periods (one, length_seconds, most, began, number, since) VALUES (1, ?, ?, ?, ?, ?)",
            (seconds, most, calendar.began.isoformat(timespec="microseconds"), calendar.number, calendar.since),
        )

    def _calendar(self) -> Calendar | None:
        """Return the calendar; raise ValueError or TypeError if it is malformed."""
        if not _has_added(self._connection, "periods"):
            return None
        row = self._connection.execute("SELECT length_seconds, most, began, number, since FROM periods").fetchone()
        seconds, most, began, number, since = row
        return Calendar(decode_periods(seconds, most), datetime.fromisoformat(began), int(number), int(since))

    def balance(self, account: str | None) -> BudgetState:
        """Return the spent and reserved amounts."""
        row = self._connection.execute(
            "SELECT spent_rho, spent_delta, reserved_rho FROM balances WHERE holder = ?", (encode_holder(account),)
        ).fetchone()
        if row is None and account is None:
            raise damaged()
        return BudgetState() if row is None else _state(row)

    def set_balance(self, account: str | None, state: BudgetState) -> None:
        """Put another state in place of the present one."""
        values = (state.spent, state.permanent, state.reserved)
        self._connection.execute(
            "REPLACE INTO balances (holder, spent_rho, spent_delta, reserved_rho) VALUES (?, ?, ?, ?)",
            (encode_holder(account), *map(encode_fraction, values)),
        )

    def start_afresh(self) -> None:
        """Put a fresh state in place of every balance."""
        self._connection.execute("UPDATE balances SET spent_rho = '0/1', spent_delta = '0/1', reserved_rho = '0/1'")
        self.set_balance(None, BudgetState())

    def tell_repeats(self) -> bool:
        """Say in the ledger's version that entries may repeat others."""
        _raise_version(self._connection, _WITH_REPEATS)
        return True

    def tell_divisions(self) -> bool:
        """Say in the ledger's version that values may have budgets."""
        _raise_version(self._connection, WITH_DIVISIONS)
        return True

    def tell_tables(self) -> bool:
        """Say in the ledger's version that tables may be stored."""
        _raise_version(self._connection, VERSION)
        return True

    def balances(self) -> dict[str, BudgetState]:
        """Return the state of every holder: the total and all accounts."""
        rows = self._connection.execute("SELECT holder, spent_rho, spent_delta, reserved_rho FROM balances")
        return {holder: _state(row) for holder, *row in rows}

    def history(self, after: int = FIRST) -> RowsFound:
        """Return seq, at, kind, body and chain of all events that follow number `after`, oldest first."""
        return self._run(HISTORY, after)

    def _run(self, statement: str, *values: object) -> RowsFound:
        return self._connection.execute(statement, values)


def _state(row: tuple[object, ...] | list[object]) -> BudgetState:
    try:
        return BudgetState(*map(decode_fraction, row))
    except ValueError as error:
        raise damaged() from error


_SCHEMA_OF_1 = (
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


def migrate(connection: sqlite3.Connection) -> None:
    """Turn a file of version 1 into one of the present version; inside the caller's transaction."""
    if not holds(connection, _SCHEMA_OF_1):
        raise damaged()
    try:
        terms = connection.execute("SELECT * FROM terms").fetchone()
        balance = connection.execute("SELECT spent_rho, spent_delta, reserved_rho FROM balance").fetchone()
        entries = connection.execute(
            "SELECT opened_at, query, worst_rho, delta, settled_at, loss_rho, digest FROM entries ORDER BY id"
        ).fetchall()
        # All was read before, and the transaction of the caller undoes this if anything below does not fit.
        for table in ("terms", "balance", "entries"):
            connection.execute(f"DROP TABLE {table}")
        build(connection)
        rows = SQLiteRows(connection)
        _, created_at, *told = terms
        named = dict(zip(("budget_rho", "budget_delta", "total_epsilon", "total_delta"), told, strict=True))
        begin(rows, decode_terms(named, uuid.uuid4().hex, data_version=0), at=_time(created_at))
        state = sum_entries(_carry(rows, entry) for entry in entries)
        if state != BudgetState(*map(decode_fraction, balance)):
            raise damaged()
        rows.set_balance(None, state)
    except (TypeError, ValueError) as error:
        raise damaged() from error


def _carry(rows: SQLiteRows, row: tuple[str, ...]) -> Entry:
    """Write one entry as its events: the reservation and, if there was one, the settlement right after it."""
    opened_at, query, worst_rho, delta, settled_at, loss_rho, digest = row
    request = Request(_text(query), BudgetVector(decode_fraction(worst_rho), decode_fraction(delta)))
    number = rows.append("reserved", encode_request(request, data_version=0), at=_time(opened_at))
    settlement = None
    if settled_at is not None:
        loss = decode_fraction(loss_rho)
        rows.append("settled", encode_settlement(number, Outcome(loss, _text(digest))), at=_time(settled_at))
        settlement = Settlement(datetime.fromisoformat(settled_at), loss, digest)
    return Entry(datetime.fromisoformat(opened_at), query, request.worst_case, settlement)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _time(value: object) -> str:
    text = _text(value)
    datetime.fromisoformat(text)
    return text
