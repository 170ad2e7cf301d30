"""How a durable ledger is opened, wherever it stands: on the terms of a policy, or on those that it records."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, Self, TypeVar

from dpsql.accounting import ApproximateDP, BudgetVector, CertificateTerms, Periods
from dpsql.ledger.base_ledger import BaseLedger, new_terms
from dpsql.ledger.calendar import Clock, utc
from dpsql.ledger.record import Terms

__all__ = ["Durable"]

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
        """Open the ledger at `place`, or make it for these terms.

        One that is there must have the same certificate (zcdp unless `certified` says otherwise) and stand for the same
        `total` and `periods`; it keeps the budget that it was made with or granted since. `clock` tells the time of
        events and so when a period begins.
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
    def _start(self, place: Where, wanted: Terms | None, *, clock: Clock) -> None:
        """Open what stands at `place`, or make it for the terms that are wanted."""
