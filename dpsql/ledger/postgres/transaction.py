"""The book of a ledger in PostgreSQL. What was read under the lock is not read again before the transaction ends.

Terms and balances are JSON, so that they can come to tell more; numbers are fractions as text, with which the server
never calculates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any, TypeVar

from dpsql.accounting import BudgetState
from dpsql.ledger.event_rows import FIRST, HISTORY, LINKED, EventRows, Found, encode_holder
from dpsql.ledger.postgres.connection import Connection, open_cursor
from dpsql.ledger.postgres.errors import damaged, newer
from dpsql.ledger.postgres.schema import PLAIN, REPEATS, VERSION, raise_version
from dpsql.ledger.record import Event, Terms, decode_fraction, decode_present, encode_fraction, encode_present

__all__ = ["Rows"]

_PAGE = 2000
_CURSORS = count()  # one that was not read to its end may stand open for a moment
# The hash of a key finds its events and gives them no order. OFFSET keeps the server from reading all events in order
# instead, until enough of them fit. They are looked through where they are, and a page of them is fetched.
_UNDER = """SELECT seq, at, kind, body, chain, (
    SELECT before.chain FROM events AS before WHERE before.seq = under.seq - 1
) FROM (
    SELECT * FROM events WHERE kind = 'reserved' AND told_key(body) <> '""' AND told_key(body) = ? OFFSET 0
) AS under"""
_STATE = ("spent_rho", "spent_delta", "reserved_rho")
Json = TypeVar("Json", str, dict[str, Any])


class Rows(EventRows):
    """One transaction's view of the schema, by an open connection."""

    SETTLEMENT = f"{LINKED} WHERE kind = 'settled' AND told_entry(body) = ?"
    ASKED = f"{_UNDER} WHERE (substr(body, 1, ?) = ? OR body NOT LIKE ?) AND seq < ? ORDER BY seq DESC LIMIT ?"
    ENTRY = "told_entry(settled.body)"
    FIRST_ASKED = f"{_UNDER} WHERE body LIKE ? AND seq > ? ORDER BY seq LIMIT ?"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._terms: Terms | None = None
        self._version = 0
        self._balances: dict[str | None, BudgetState] = {}
        self._head: tuple[int, str] | None = None

    def take_turn(self) -> Terms:
        """Wait until no other writer is within its transaction, and return the terms that the last one left."""
        self._terms = self._read_terms("SELECT version, body FROM terms FOR UPDATE")
        return self._terms

    def terms(self) -> Terms:
        """Return the present terms."""
        if self._terms is None:
            self._terms = self._read_terms("SELECT version, body FROM terms")
        return self._terms

    def set_terms(self, terms: Terms) -> None:
        """Put other terms in place of the present ones."""
        told = encode_present(terms)
        changed = self._connection.execute("UPDATE terms SET body = %s", (_json(told),)).rowcount
        if not changed:  # a new ledger; those who come later need no right to insert
            self._run("INSERT INTO terms (one, version, body) VALUES (1, ?, ?)", REPEATS, _json(told))
            self._version = REPEATS
        self._terms = terms

    def tell_repeats(self) -> bool:
        """Return whether the ledger's version says that entries may repeat others; a new ledger's does.

        The version of an older ledger is raised when a role opens it that may change it; roles for analysts may not.
        """
        self.terms()
        return self._version >= REPEATS

    def tell_divisions(self) -> bool:
        """Say in the ledger's version that values may have budgets; return whether this role may."""
        self.terms()
        if self._version < VERSION and raise_version(self._connection, VERSION):
            self._version = VERSION
        return self._version >= VERSION

    def balance(self, account: str | None) -> BudgetState:
        """Return the spent and reserved amounts."""
        if account not in self._balances:
            row = self._run("SELECT body FROM balances WHERE holder = ?", _json(encode_holder(account))).fetchone()
            if row is None and account is None:
                raise damaged()
            self._balances[account] = BudgetState() if row is None else _state(row[0])
        return self._balances[account]

    def set_balance(self, account: str | None, state: BudgetState) -> None:
        """Put another state in place of the present one."""
        self._run(
            "INSERT INTO balances (holder, body) VALUES (?, ?) ON CONFLICT (holder) DO UPDATE SET body = excluded.body",
            *(_json(encode_holder(account)), _json(_encode_state(state))),
        )
        self._balances[account] = state

    def start_afresh(self) -> None:
        """Put a fresh state in place of every balance."""
        self._run("UPDATE balances SET body = ?", _json(_encode_state(BudgetState())))
        self._balances = {}
        self.set_balance(None, BudgetState())

    def balances(self) -> dict[str, BudgetState]:
        """Return the state of every holder: the total and all accounts."""
        return {_read(holder, str): _state(body) for holder, body in self._run("SELECT holder, body FROM balances")}

    def head(self) -> tuple[int, str]:
        """Return number and chain of the last event."""
        if self._head is None:
            self._head = super().head()
        return self._head

    def history(self, after: int = FIRST) -> Iterator[tuple[Any, ...]]:
        """Return seq, at, kind, body and chain of all events that follow number `after`, oldest first.

        They are read in pages.
        """
        with open_cursor(self._connection, f"history_{next(_CURSORS)}") as cursor:
            cursor.itersize = _PAGE
            yield from cursor.execute(HISTORY.replace("?", "%s"), (after,))

    def answers(self) -> Iterator[int]:
        """Return the entries of all answers, in their order, without holding them all."""
        with open_cursor(self._connection, f"answers_{next(_CURSORS)}") as cursor:
            cursor.itersize = _PAGE
            for (entry,) in cursor.execute("SELECT entry FROM answers ORDER BY entry"):
                yield entry

    def _insert(self, event: Event) -> None:
        super()._insert(event)
        self._head = event.seq, event.chain

    def _read_terms(self, statement: str) -> Terms:
        row = self._run(statement).fetchone()
        if row is None:
            raise damaged()
        version, body = row
        if version > VERSION:
            raise newer(version, VERSION)
        told = _read(body, dict)
        if version < REPEATS and ("certificate" in told) != (version > PLAIN):
            raise damaged()
        self._version = version
        try:
            return decode_present(told)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged() from error

    def _run(self, statement: str, *values: object) -> Found:
        return self._connection.execute(statement.replace("?", "%s"), values)


def _json(value: object) -> str:
    """Return a value in ASCII, which every encoding of a database preserves."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _read(text: str, kind: type[Json]) -> Json:
    """Return what `_json` wrote, in the one spelling that it has."""
    try:
        value = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise damaged() from error
    if not isinstance(value, kind) or _json(value) != text:
        raise damaged()
    return value


def _encode_state(state: BudgetState) -> dict[str, str]:
    values = (state.spent, state.permanent, state.reserved)
    return dict(zip(_STATE, map(encode_fraction, values), strict=True))


def _state(body: str) -> BudgetState:
    told = _read(body, dict)
    try:
        return BudgetState(*(decode_fraction(told[name]) for name in _STATE))
    except (KeyError, ValueError) as error:
        raise damaged() from error
