"""The half of a durable book that does not depend on the database: events and answers, in tables that only grow."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

from dpsql.ledger.failures import FAILED
from dpsql.ledger.record import GENESIS, Body, Event, follow
from dpsql.ledger.replay import tampered

__all__ = ["FIRST", "HISTORY", "EventRows", "Found", "holder_of"]

HISTORY = "SELECT seq, at, kind, body, chain FROM events WHERE seq > ? ORDER BY seq"
FIRST = -(2**63)  # before every number that a row can have, also those that no event has


class Found(Protocol):
    """What a statement found."""

    def fetchone(self) -> Any:  # noqa: ANN401 - as the database says
        """Return the next row, or None."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Return the rows."""
        ...


class EventRows(ABC):
    """Events and answers as rows. The database never calculates with what is in them."""

    SETTLEMENT: ClassVar[str]  # finds the settlement of an entry
    ASKED: ClassVar[str]  # finds the reservations under a key, given as JSON, newest first

    @abstractmethod
    def _run(self, statement: str, *values: object) -> Found:
        """Run a statement with values in place of its question marks."""

    def append(self, kind: str, body: Body, *, at: str) -> int:
        """Write an event after all others and return its number."""
        event = follow(self.head(), kind, body=body, at=at)
        self._insert(event)
        return event.seq

    def head(self) -> tuple[int, str]:
        """Return number and chain of the last event."""
        row = self._run("SELECT seq, chain FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        return (0, GENESIS) if row is None else row

    def chain_at(self, seq: int) -> str | None:
        """Return the chain of an event, if it is there."""
        row = self._run("SELECT chain FROM events WHERE seq = ?", seq).fetchone()
        return None if row is None else row[0]

    def settlement(self, entry: int) -> Event | None:
        """Return the event that settled the entry, if it has one."""
        row = self._run(self.SETTLEMENT, entry).fetchone()
        return None if row is None else Event(*row)

    def keep(self, entry: int, answer: bytes) -> None:
        """Keep the answer of an entry, for good."""
        self._run("INSERT INTO answers (entry, content) VALUES (?, ?)", entry, answer)

    def asked(self, key: str) -> Iterator[Event]:
        """Return the reservations that were made under a key, newest first."""
        return (Event(*row) for row in self._run(self.ASKED, json.dumps(key)))

    def answer(self, entry: int) -> bytes | None:
        """Return the answer of an entry, if it kept one; it must be the one that its settlement names."""
        settlement = self.settlement(entry)
        digest = "" if settlement is None else json.loads(settlement.body)["answer"]
        if not digest:
            return None
        row = self._run("SELECT content FROM answers WHERE entry = ?", entry).fetchone()
        if row is None or not isinstance(row[0], bytes) or hashlib.sha256(row[0]).hexdigest() != digest:
            raise tampered(f"the answer of event {entry} is not the one it was given")
        return row[0]

    def answers(self) -> Iterator[int]:
        """Return the entries of all answers, in their order."""
        return (entry for (entry,) in self._run("SELECT entry FROM answers ORDER BY entry"))

    def failed(self, after: int) -> Iterator[Event]:
        """Return the settlements after event number `after` whose query failed, oldest first."""
        found = self._run(
            "SELECT seq, at, kind, body, chain FROM events "
            "WHERE seq > ? AND kind = 'settled' AND body LIKE ? ORDER BY seq",
            *(after, f'%"digest":"{FAILED}"%'),
        )
        return (Event(*row) for row in list(found))  # all of them, before the connection reads something else

    def registrations(self) -> Iterator[Event]:
        """Return the declarations of units, oldest first."""
        rows = self._run("SELECT seq, at, kind, body, chain FROM events WHERE kind = 'registered' ORDER BY seq")
        return (Event(*row) for row in rows)

    def events(self, after: int, most: int) -> list[Event]:
        """Return so many events, from the one that follows number `after`."""
        rows = self._run(
            "SELECT seq, at, kind, body, chain FROM events WHERE seq > ? ORDER BY seq LIMIT ?", after, most
        )
        return [Event(*row) for row in rows]

    def _insert(self, event: Event) -> None:
        self._run(
            "INSERT INTO events (seq, at, kind, body, chain) VALUES (?, ?, ?, ?, ?)",
            *(event.seq, event.at, event.kind, event.body, event.chain),
        )


def holder_of(account: str | None) -> str:
    """Return the name under which a balance stands: no account's is the total's."""
    return "total" if account is None else f"account {account}"
