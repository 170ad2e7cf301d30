"""The book of a durable ledger: rows of a SQLite file. SQLite never calculates with the numbers."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator

from dpsql.accounting import ZCDP, FilterState
from dpsql.ledger.record import GENESIS, Body, Event, Terms, follow, fraction, terms_of, told_terms, written
from dpsql.ledger.replay import tampered
from dpsql.ledger.sqlite_errors import damaged
from dpsql.quantities import Delta, Rho

__all__ = ["Rows", "holder_of"]

_TERMS = ("budget_rho", "budget_delta", "total_epsilon", "total_delta")


class Rows:
    """One transaction's view of the file, by an open connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def terms(self) -> Terms:
        """Return the present terms."""
        row = self._connection.execute(
            "SELECT budget_rho, budget_delta, total_epsilon, total_delta, data_set, data_version FROM terms"
        ).fetchone()
        if row is None:
            raise damaged()
        *told, data_set, version = row
        try:
            return terms_of(dict(zip(_TERMS, told, strict=True)), data_set, data_version=int(version))
        except (TypeError, ValueError) as error:
            raise damaged() from error

    def set_terms(self, terms: Terms) -> None:
        """Put other terms in place of the present ones."""
        told = told_terms(terms.budget, terms.total)
        self._connection.execute(
            "REPLACE INTO terms (one, budget_rho, budget_delta, total_epsilon, total_delta, data_set, data_version) "
            "VALUES (1, ?, ?, ?, ?, ?, ?)",
            (*(told[name] for name in _TERMS), terms.data_set, terms.data_version),
        )

    def balance(self, account: str | None) -> FilterState:
        """Return what is spent and held."""
        row = self._connection.execute(
            "SELECT spent_rho, spent_delta, reserved_rho FROM balances WHERE holder = ?", (holder_of(account),)
        ).fetchone()
        if row is None and account is None:
            raise damaged()
        state = FilterState.fresh() if row is None else _state(row)
        budget = self.terms().budget
        if account is None and (state.spent.rho + state.reserved > budget.rho or state.spent.delta > budget.delta):
            raise damaged()
        return state

    def set_balance(self, account: str | None, state: FilterState) -> None:
        """Put another state in place of the present one."""
        values = (state.spent.rho.value, state.spent.delta.value, state.reserved.value)
        self._connection.execute(
            "REPLACE INTO balances (holder, spent_rho, spent_delta, reserved_rho) VALUES (?, ?, ?, ?)",
            (holder_of(account), *map(written, values)),
        )

    def balances(self) -> dict[str, FilterState]:
        """Return the state of every holder: the total and all accounts."""
        rows = self._connection.execute("SELECT holder, spent_rho, spent_delta, reserved_rho FROM balances")
        return {holder: _state(row) for holder, *row in rows}

    def append(self, kind: str, body: Body, *, at: str) -> int:
        """Write an event after all others and return its number."""
        event = follow(self.head(), kind, body=body, at=at)
        self._connection.execute(
            "INSERT INTO events (seq, at, kind, body, chain) VALUES (?, ?, ?, ?, ?)",
            (event.seq, event.at, event.kind, event.body, event.chain),
        )
        return event.seq

    def head(self) -> tuple[int, str]:
        """Return number and chain of the last event."""
        row = self._connection.execute("SELECT seq, chain FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        return (0, GENESIS) if row is None else row

    def chain_at(self, seq: int) -> str | None:
        """Return the chain of an event, if it is there."""
        row = self._connection.execute("SELECT chain FROM events WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else row[0]

    def is_settled(self, entry: int) -> bool:
        """Say whether the entry has its settlement."""
        return self._settlement(entry) is not None

    def keep(self, entry: int, answer: bytes) -> None:
        """Keep the answer of an entry, for good."""
        self._connection.execute("INSERT INTO answers (entry, content) VALUES (?, ?)", (entry, answer))

    def asked(self, key: str) -> Iterator[Event]:
        """Return the reservations that were made under a key, newest first."""
        rows = self._connection.execute(
            # the key is read as the index read it, whatever letters it holds
            "SELECT seq, at, kind, body, chain FROM events "
            "WHERE kind = 'reserved' AND json_extract(body, '$.key') <> '' "
            "AND json_extract(body, '$.key') = json_extract(?, '$') ORDER BY seq DESC",
            (json.dumps(key),),
        )
        return (Event(*row) for row in rows)

    def answer(self, entry: int) -> bytes | None:
        """Return the answer of an entry, if it kept one; it must be the one that its settlement names."""
        settlement = self._settlement(entry)
        digest = settlement["answer"] if settlement else ""
        if not digest:
            return None
        row = self._connection.execute("SELECT content FROM answers WHERE entry = ?", (entry,)).fetchone()
        if row is None or not isinstance(row[0], bytes) or hashlib.sha256(row[0]).hexdigest() != digest:
            raise tampered(f"the answer of event {entry} is not the one it was given")
        return row[0]

    def answers(self) -> Iterator[int]:
        """Return the entries of all answers, in their order."""
        return (entry for (entry,) in self._connection.execute("SELECT entry FROM answers ORDER BY entry"))

    def registrations(self) -> Iterator[Event]:
        """Return the declarations of units, oldest first."""
        rows = self._connection.execute(
            "SELECT seq, at, kind, body, chain FROM events WHERE kind = 'registered' ORDER BY seq"
        )
        return (Event(*row) for row in rows)

    def events(self, after: int, most: int) -> list[Event]:
        """Return so many events, from the one that follows number `after`."""
        rows = self._connection.execute(
            "SELECT seq, at, kind, body, chain FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (after, most)
        )
        return [Event(*row) for row in rows]

    def _settlement(self, entry: int) -> dict[str, str] | None:
        found = "SELECT body FROM events WHERE kind = 'settled' AND json_extract(body, '$.entry') = ?"
        row = self._connection.execute(found, (entry,)).fetchone()
        return None if row is None else json.loads(row[0])


def holder_of(account: str | None) -> str:
    """Return the name under which a balance stands: no account's is the total's."""
    return "total" if account is None else f"account {account}"


def _state(row: tuple[object, ...] | list[object]) -> FilterState:
    try:
        spent_rho, spent_delta, reserved_rho = map(fraction, row)
    except ValueError as error:
        raise damaged() from error
    return FilterState(ZCDP(Rho(spent_rho), Delta(spent_delta)), Rho(reserved_rho))
