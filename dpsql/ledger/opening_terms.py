"""Opening of a durable ledger, with the terms of a policy or with its own recorded terms."""

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
    def _start(self, place: Where, wanted: Terms | None, *, clock: Clock) -> None:
        """Open the ledger at `place`, or create it with the wanted terms."""
