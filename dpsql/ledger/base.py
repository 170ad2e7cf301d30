"""The seam of the ledger, and what every ledger shares: admission, entries, and the sum of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from dpsql.accounting import ZCDP, Filter, FilterState
from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.quantities import Delta, Rho

__all__ = [
    "Entry",
    "Held",
    "Ledger",
    "Reservation",
    "Settlement",
    "Shortfall",
    "admit",
    "balance_of",
    "closed",
    "twice",
]


class Shortfall(BudgetExceeded):
    """The worst case of a query is more than what is `remaining`; decided from public numbers, nothing was charged."""

    def __init__(self, worst_case: ZCDP, remaining: ZCDP) -> None:
        """Name the one of rho and delta that does not suffice; rho if neither does."""
        self.worst_case = worst_case
        self.remaining = remaining
        if worst_case.rho > remaining.rho:
            reason = f"This query may cost rho {worst_case.rho}, and rho {remaining.rho} is left of the budget."
            hint = "Ask for fewer items, or with a smaller epsilon."
        else:
            reason = f"This query may cost delta {worst_case.delta}, and delta {remaining.delta} is left of the budget."
            hint = "Ask with a smaller delta."
        super().__init__("budget-exceeded", reason, hint=hint)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by what `__init__` wants."""
        return Shortfall, (self.worst_case, self.remaining)


@dataclass(frozen=True, slots=True)
class Settlement:
    """How an entry ended: what was returned cost `loss`, and `digest` names the answer without telling it."""

    at: datetime
    loss: Rho
    digest: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One reservation of the record; without a settlement its worst case is held, also after a crash."""

    opened_at: datetime
    query: str
    worst_case: ZCDP
    settlement: Settlement | None


class Reservation(Protocol):
    """A worst case that is held for one query until what it returned is known."""

    def settle(self, loss: Rho, digest: str) -> None:
        """Charge `loss`, at most the worst case, and free the rest of the rho; exactly once."""
        ...


class Ledger(Protocol):
    """The record of one budget; safe to share among threads."""

    @property
    def budget(self) -> ZCDP:
        """What may be spent in all."""
        ...

    @property
    def durable(self) -> bool:
        """Whether what was spent outlives the process and the power."""
        ...

    def reserve(self, worst_case: ZCDP, query: str) -> Reservation:
        """Hold `worst_case` or raise `Shortfall`; `query` is the analyst's canonical text, kept as a note."""
        ...

    def state(self) -> FilterState:
        """Return what is spent and what is held."""
        ...

    def entries(self) -> tuple[Entry, ...]:
        """Return the whole record, oldest first."""
        ...

    def close(self) -> None:
        """Let go of the record; again is no harm. Reservations still open stay held."""
        ...


@dataclass(frozen=True, slots=True)
class Held:
    """The reservation of every ledger here: an entry's number, and the act of its ledger that settles it."""

    number: int
    worst_case: ZCDP
    settler: Callable[[Held, Settlement], None]

    def settle(self, loss: Rho, digest: str) -> None:
        """Charge `loss`, at most the worst case, and free the rest of the rho; exactly once."""
        self.settler(self, Settlement(datetime.now(UTC), loss, digest))


def admit(budget: ZCDP, state: FilterState, *, worst_case: ZCDP) -> FilterState:
    """Return the state that holds `worst_case` too, or raise `Shortfall`."""
    rule = Filter(budget)
    if not rule.admits(state, worst_case):
        raise Shortfall(worst_case, rule.remaining(state))
    return rule.reserve(state, worst_case)


def balance_of(entries: Iterable[Entry]) -> FilterState:
    """Return the state that `entries` add up to, by definition and not by the order of events."""
    spent, held, delta = Rho(0), Rho(0), Delta(0)
    for entry in entries:
        delta += entry.worst_case.delta
        if entry.settlement is None:
            held += entry.worst_case.rho
        else:
            spent += entry.settlement.loss
    return FilterState(spent=ZCDP(spent, delta), reserved=held)


def closed() -> LedgerError:
    """Return the error of every act upon a closed ledger."""
    return LedgerError("ledger-closed", "This ledger is closed.", hint="Connect again to ask further.")


def forked() -> LedgerError:
    """Return the error for a ledger that a fork carried into another process."""
    return LedgerError(
        "ledger-forked",
        "This ledger was opened by another process, before a fork.",
        hint="Connect once in every process.",
    )


def twice() -> LedgerError:
    """Return the error of a second settlement, whatever it says."""
    return LedgerError(
        "already-settled", "A reservation is settled exactly once.", hint="Reserve again for a new query."
    )
