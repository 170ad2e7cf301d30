"""A ledger that ends with its process: for examples, tests and public data."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from datetime import UTC, datetime

from dpsql.accounting import ZCDP, Filter, FilterState
from dpsql.ledger.base import Entry, Held, Reservation, Settlement, admit, closed, forked, twice

__all__ = ["MemoryLedger"]


class MemoryLedger:
    """A ledger in memory. A new process has the whole budget again, so it guards nothing across sessions."""

    def __init__(self, budget: ZCDP) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._state = FilterState.fresh()
        self._entries: list[Entry] = []
        self._closed = False
        self._process = os.getpid()

    @property
    def budget(self) -> ZCDP:
        """What may be spent in all."""
        return self._budget

    @property
    def durable(self) -> bool:
        """Never: the record ends with the process."""
        return False

    def reserve(self, worst_case: ZCDP, query: str) -> Reservation:
        """Hold `worst_case` or raise `Shortfall`."""
        with self._lock:
            self._check_open()
            self._state = admit(self._budget, self._state, worst_case=worst_case)
            self._entries.append(Entry(datetime.now(UTC), query, worst_case, settlement=None))
            return Held(len(self._entries) - 1, worst_case, self._settle)

    def state(self) -> FilterState:
        """Return what is spent and what is held."""
        with self._lock:
            self._check_open()
            return self._state

    def entries(self) -> tuple[Entry, ...]:
        """Return the whole record, oldest first."""
        with self._lock:
            self._check_open()
            return tuple(self._entries)

    def close(self) -> None:
        """Refuse every further act."""
        with self._lock:
            self._closed = True

    def _settle(self, held: Held, settlement: Settlement) -> None:
        with self._lock:
            self._check_open()
            entry = self._entries[held.number]
            if entry.settlement is not None:
                raise twice()
            state = Filter(self._budget).settle(self._state, held.worst_case, loss=settlement.loss)
            # in this order, so that an interrupt between the two leaves the worst case held
            self._entries[held.number] = replace(entry, settlement=settlement)
            self._state = state

    def _check_open(self) -> None:
        if os.getpid() != self._process:  # both halves would spend the whole budget
            raise forked()
        if self._closed:
            raise closed()
