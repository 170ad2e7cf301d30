"""Version 1 of the durable ledger, taken over: its entries become events, and nothing of what was spent changes."""

from __future__ import annotations

import sqlite3
from datetime import datetime

from dpsql.accounting import BudgetState, BudgetVector
from dpsql.ledger.base import Outcome, Request, sum_entries
from dpsql.ledger.base_ledger import begin, encode_request, encode_settlement, new_data_set
from dpsql.ledger.record import Entry, Settlement, decode_fraction, decode_terms
from dpsql.ledger.sqlite import schema
from dpsql.ledger.sqlite.errors import damaged
from dpsql.ledger.sqlite.transaction import Rows

__all__ = ["migrate"]

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


def migrate(connection: sqlite3.Connection) -> None:
    """Turn a file of version 1 into one of the present version; inside the caller's transaction."""
    if not schema.holds(connection, _SCHEMA):
        raise damaged()
    try:
        terms = connection.execute("SELECT * FROM terms").fetchone()
        balance = connection.execute("SELECT spent_rho, spent_delta, reserved_rho FROM balance").fetchone()
        entries = connection.execute(
            "SELECT opened_at, query, worst_rho, delta, settled_at, loss_rho, digest FROM entries ORDER BY id"
        ).fetchall()
        for table in ("terms", "balance", "entries"):
            connection.execute(f"DROP TABLE {table}")
        schema.build(connection)
        rows = Rows(connection)
        _, created_at, *told = terms
        named = dict(zip(("budget_rho", "budget_delta", "total_epsilon", "total_delta"), told, strict=True))
        begin(rows, decode_terms(named, new_data_set(), data_version=0), at=_time(created_at))
        state = sum_entries(_carry(rows, entry) for entry in entries)
        if state != BudgetState(*map(decode_fraction, balance)):
            raise damaged()
        rows.set_balance(None, state)
    except (TypeError, ValueError) as error:
        raise damaged() from error


def _carry(rows: Rows, row: tuple[str, ...]) -> Entry:
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
