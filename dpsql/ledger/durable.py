"""Half of a durable ledger that does not depend on its database: its opening, and its events and answers as rows.

Events and answers are in tables that only grow. The database never calculates with what is in them.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from dpsql.accounting import ApproximateDP, BudgetVector, CertificateTerms, Periods
from dpsql.ledger.base_ledger import BaseLedger, new_terms
from dpsql.ledger.calendar import Clock, utc
from dpsql.ledger.record import GENESIS, Body, Event, LedgerTerms, encode_account_prefix, encode_version, make_event
from dpsql.ledger.replay import refuse_unlinked, tampered

HISTORY = "SELECT seq, at, kind, body, chain FROM events WHERE seq > ? ORDER BY seq"
LINKED = """SELECT seq, at, kind, body, chain, (
    SELECT before.chain FROM events AS before WHERE before.seq = events.seq - 1
) FROM events"""  # with the chain of the event before
_ANSWERED = """SELECT asked.seq, asked.at, asked.kind, asked.body, asked.chain, (
    SELECT before.chain FROM events AS before WHERE before.seq = asked.seq - 1
) FROM events AS settled JOIN events AS asked ON asked.seq = {entry}
WHERE settled.kind = 'settled' AND settled.seq > ? AND substr(asked.body, 1, ?) = ? ORDER BY settled.seq"""
FIRST, LAST = -(2**63), 2**63 - 1  # numbers that a row can have, also where no event has them
_PAGE = 100


class RowsFound(Protocol):
    """Result of a statement."""

    def fetchone(self) -> Any:  # noqa: ANN401 - as the database says
        """Return the next row, or None."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Return the rows."""
        ...


class EventRows(ABC):
    """Events and answers as rows. The database never calculates with what is in them."""

    # Each finds events as `LINKED` has them. The last two values for reservations are the number beyond which a page of
    # them begins, and how many it has.
    SETTLEMENT: ClassVar[str]  # of an entry
    ASKED: ClassVar[str]  # reservations under a key, given as JSON, of an account or another data version, newest first
    FIRST_ASKED: ClassVar[str]  # reservations under a key on a data version, oldest first
    ENTRY: ClassVar[str]  # the entry that the body of the event `settled` settles, as an expression

    @abstractmethod
    def _run(self, statement: str, *values: object) -> RowsFound:
        """Run a statement with values in place of its question marks."""

    def append(self, kind: str, body: Body, *, at: str) -> int:
        """Write an event after all others and return its number."""
        event = make_event(self.head(), kind, body=body, at=at)
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
        return None if row is None else _linked(row, "settled", part=f'"entry":{entry},')

    def keep(self, entry: int, answer: bytes) -> None:
        """Keep the answer of an entry, for good."""
        self._run("INSERT INTO answers (entry, content) VALUES (?, ?)", entry, answer)

    def asked(self, key: str, *, account: str | None, version: int) -> Iterator[Event]:
        """Return the reservations under a key, newest first, without those of other accounts on this data version."""
        whose = encode_account_prefix(account)
        return self._pages(self.ASKED, key, given=(len(whose), whose, _like(version)), beyond=LAST)

    def first_asked(self, key: str, *, version: int) -> Iterator[Event]:
        """Return the reservations under a key on a data version, oldest first."""
        return self._pages(self.FIRST_ASKED, key, given=(_like(version),), beyond=FIRST)

    def _pages(self, statement: str, key: str, *, given: tuple[object, ...], beyond: int) -> Iterator[Event]:
        """Yield the reservations under a key, in pages: mostly the first of all is the one that is wanted."""
        text = json.dumps(key)
        for most in chain((1,), repeat(_PAGE)):
            found = [_linked(row, "reserved") for row in self._run(statement, text, *given, beyond, most)]
            yield from (event for event in found if f'"key":{text}' in event.body)  # SQLite takes "a\0b" for "a"
            if len(found) < most:
                return
            beyond = found[-1].seq

    def answer(self, entry: int) -> bytes | None:
        """Return the stored answer of an entry, if there is one; its digest must be that of the settlement."""
        settlement = self.settlement(entry)
        digest = "" if settlement is None else json.loads(settlement.body)["answer"]
        if not digest:
            return None
        row = self._run("SELECT content FROM answers WHERE entry = ?", entry).fetchone()
        if row is None or not isinstance(row[0], bytes) or hashlib.sha256(row[0]).hexdigest() != digest:
            raise tampered(f"the answer of event {entry} is not the one it was given")
        return row[0]

    def answered(self, account: str | None, *, after: int) -> Iterator[int]:
        """Return the entries of an account that were settled after event number `after`, in the order of settling."""
        whose = encode_account_prefix(account)
        rows = self._run(_ANSWERED.format(entry=self.ENTRY), after, len(whose), whose)
        events = [_linked(row, "reserved") for row in rows]
        return (event.seq for event in events if event.body.startswith(whose))

    def answers(self) -> Iterator[int]:
        """Return the entries of all answers, in their order."""
        return (entry for (entry,) in self._run("SELECT entry FROM answers ORDER BY entry"))

    def registrations(self) -> Iterator[Event]:
        """Return the declarations of units, oldest first."""
        rows = self._run(f"{LINKED} WHERE kind = 'registered' ORDER BY seq")
        return (_linked(row, "registered") for row in rows)

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


def _like(version: int) -> str:
    return f"%{encode_version(version)}%"


def _linked(row: tuple[Any, ...], kind: str, *, part: str = "") -> Event:
    """Return the event of a row that ends with the chain before, as an index found it.

    It may be one that no replay here has read. A damaged index may find one of another kind, or without the part of a
    body by which it was looked for.
    """
    *told, before = row
    event = Event(*told)
    refuse_unlinked(event, str(before))
    if event.kind != kind or part not in event.body:
        raise tampered(f"event {event.seq} is not the one that its index names")
    return event


def encode_holder(account: str | None) -> str:
    """Return the key of a balance: no account has the key of the total."""
    return "total" if account is None else f"account {account}"


Where = TypeVar("Where")


class Durable(BaseLedger, Generic[Where]):
    """A ledger that outlives the process."""

    def __init__(
        self,
        place: Where,
        budget: BudgetVector,
        *,
        total: ApproximateDP,
        periods: Periods | None = None,
        certified: CertificateTerms | None = None,
        clock: Clock = utc,
    ) -> None:
        """Open the ledger at `place`, or create it with these terms.

        An existing ledger must have the same certificate (zcdp unless `certified` says otherwise), and at most this
        `total` and these `periods`; its budget stays as it was created or last granted. `clock` gives the time of
        events, and so decides when a period begins.
        """
        terms = new_terms(budget, total, periods=periods, certified=certified or CertificateTerms())
        self._start(place, terms, clock=clock)

    @classmethod
    def open(cls, place: Where, *, clock: Clock = utc) -> Self:
        """Open the ledger at `place` on the terms that it records; raise `ledger-missing` if there is none."""
        ledger = cls.__new__(cls)
        ledger._start(place, None, clock=clock)  # noqa: SLF001 - its own
        return ledger

    @property
    def durable(self) -> bool:
        """Always: the opening refuses a place where it would not be."""
        return True

    @abstractmethod
    def _start(self, place: Where, wanted: LedgerTerms | None, *, clock: Clock) -> None:
        """Open the ledger at `place`, or create it with the wanted terms."""
