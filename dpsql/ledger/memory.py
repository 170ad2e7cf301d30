"""Ledger in memory, which ends with its process: for examples, tests and public data."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from dpsql.accounting import ApproximateDP, BudgetState, BudgetVector, CertificateTerms, Periods
from dpsql.ledger.base import Failures, ledger_closed, ledger_forked
from dpsql.ledger.base_ledger import Ledger, LedgerTransaction, begin, new_terms
from dpsql.ledger.history import History
from dpsql.ledger.record import (
    GENESIS,
    Body,
    Clock,
    Event,
    LedgerTerms,
    encode_account_prefix,
    encode_version,
    make_event,
    now,
    utc,
)


class MemoryLedger(Ledger):
    """A ledger in memory. A new process has the whole budget again, so it guards nothing across sessions."""

    def __init__(
        self,
        budget: BudgetVector,
        *,
        total: ApproximateDP,
        periods: Periods | None = None,
        certified: CertificateTerms | None = None,
        clock: Clock = utc,
    ) -> None:
        terms = new_terms(budget, total, periods=periods, certified=certified or CertificateTerms())
        self._clock = clock
        self._history, self._failures = History(), Failures()
        self._book = _Book(terms)
        self._terms = begin(self._book, terms, at=now(clock))
        self._lock = threading.Lock()
        self._closed = False
        self._version = 0
        self._process = os.getpid()

    @property
    def durable(self) -> bool:
        """Never: the record ends with the process."""
        return False

    def close(self) -> None:
        """Refuse every further act."""
        self._closed = True

    def _find_version(self) -> Hashable:
        with self._reading():
            return self._version

    def _peek_version(self) -> Hashable:
        is_free = not self._closed and os.getpid() == self._process and not self._lock.locked()
        return self._version if is_free else None

    @contextmanager
    def _writing(self) -> Iterator[LedgerTransaction]:
        with self._reading():
            draft = self._book.draft()
            # Before the act: one that is undone changes the version for nothing, and one that is done never too late.
            self._version += 1
            yield draft
            self._book = draft  # one assignment, so that an interrupt finds all of an act or nothing

    @contextmanager
    def _reading(self) -> Iterator[LedgerTransaction]:
        if os.getpid() != self._process:  # both halves would spend the whole budget
            raise ledger_forked()
        with self._lock:
            if self._closed:
                raise ledger_closed()
            yield self._book


@dataclass(slots=True)
class _Book:
    """A `LedgerTransaction` of which `count` events are valid; lists, answers and keys are shared with its draft.

    `keys` has the ascending numbers of the reservations under a key, some of which may no longer be valid.
    """

    present: LedgerTerms
    count: int = 0
    balances: dict[str | None, BudgetState] = field(default_factory=dict)
    record: list[Event] = field(default_factory=list)
    settlements: dict[int, int] = field(default_factory=dict)
    answers: dict[int, bytes] = field(default_factory=dict)
    keys: dict[str, list[int]] = field(default_factory=dict)

    def draft(self) -> _Book:
        """Return a copy to change; what an earlier draft left behind is dropped."""
        # lists and dicts are shared: an act that was undone may have appended to them, beyond `count`
        del self.record[self.count :]
        return replace(self, balances=dict(self.balances))

    def terms(self) -> LedgerTerms:
        return self.present

    def set_terms(self, terms: LedgerTerms) -> None:
        self.present = terms

    def balance(self, account: str | None) -> BudgetState:
        state = self.balances.get(account)
        return BudgetState() if state is None else state

    def set_balance(self, account: str | None, state: BudgetState) -> None:
        self.balances[account] = state

    def start_afresh(self) -> None:
        self.balances = {}

    def append(self, kind: str, body: Body, *, at: str) -> int:
        event = make_event(self.head(), kind, body=body, at=at)
        self.record.append(event)
        self.count = event.seq
        # the two indices that a database keeps: the settlement of an entry, and the reservations under a key
        if kind == "settled":
            self.settlements[int(str(body["entry"]))] = event.seq
        if kind == "reserved":
            under = self.keys.setdefault(str(body["key"]), [])
            while under and under[-1] >= event.seq:  # left behind by an act that was undone
                under.pop()
            under.append(event.seq)
        return event.seq

    def head(self) -> tuple[int, str]:
        return self.count, self.record[-1].chain if self.count else GENESIS

    def chain_at(self, seq: int) -> str | None:
        return self.record[seq - 1].chain if 0 < seq <= self.count else None

    def tell_repeats(self) -> bool:
        return True

    def tell_divisions(self) -> bool:
        return True

    def tell_tables(self) -> bool:
        return True

    def settlement(self, entry: int) -> Event | None:
        seq = self.settlements.get(entry, self.count + 1)
        return self.record[seq - 1] if seq <= self.count else None

    def keep(self, entry: int, answer: bytes) -> None:
        self.answers[entry] = answer

    def asked(self, key: str, *, account: str | None, version: int) -> Iterator[Event]:
        whose, when = encode_account_prefix(account), encode_version(version)
        for event in self._under(key, reversed(self.keys.get(key, ()))):
            if event.body.startswith(whose) or when not in event.body:
                yield event

    def first_asked(self, key: str, *, version: int) -> Iterator[Event]:
        when = encode_version(version)
        return (event for event in self._under(key, self.keys.get(key, ())) if when in event.body)

    def _under(self, key: str, numbers: Iterable[int]) -> Iterator[Event]:
        """Yield the reservations of these numbers that are under a key; others are of acts that were undone."""
        told = f'"key":{json.dumps(key)}'
        for seq in numbers:
            event = self.record[seq - 1] if seq <= self.count else None
            if event is not None and event.kind == "reserved" and told in event.body:
                yield event

    def answer(self, entry: int) -> bytes | None:
        return None if self.settlement(entry) is None else self.answers.get(entry)

    def answered(self, account: str | None, *, after: int) -> Iterator[int]:
        whose = encode_account_prefix(account)
        for event in self.record[after : self.count]:
            if event.kind == "settled":
                entry = json.loads(event.body)["entry"]
                if self.record[entry - 1].body.startswith(whose):
                    yield entry

    def registrations(self) -> Iterator[Event]:
        return (event for event in self.record if event.kind == "registered")

    def events(self, after: int, most: int) -> list[Event]:
        return self.record[after : min(after + most, self.count)]
