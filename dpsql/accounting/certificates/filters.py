"""Filters of the certificates other than zcdp: their guarantee, and the price of a loss (`maths.md` 6.3).

A session has one certificate from beginning to end. Each filter turns losses into a `BudgetVector`, which
`dpsql.accounting.filter.Filter` admits and settles alike for all certificates.

    certificate   refunded    never refunded   fixed beforehand
    zcdp          rho         delta            nothing
    pure          epsilon     delta            nothing
    theorem2      items       queries          epsilon and delta of a query, items, queries
    optimal       items       delta            the largest epsilon of an item, items
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from dpsql.accounting.budget import BudgetVector
from dpsql.accounting.certificates.composition import durfee_rogers
from dpsql.accounting.certificates.optimal import MOST_ITEMS, adaptive_epsilon
from dpsql.accounting.conversions import epsilon_of_zcdp
from dpsql.accounting.guarantees import ApproximateDP, BoundedRange, Certificate, PureLoss, Steps
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

__all__ = [
    "CertificateFilter",
    "CertificateTerms",
    "OptimalFilter",
    "PureFilter",
    "TheoremTwoFilter",
    "item_price",
]


@dataclass(frozen=True, slots=True)
class CertificateTerms:
    """A certificate, and what it fixes beforehand: the epsilon of an item, and of a query that has one its delta."""

    certificate: Certificate = Certificate.zcdp
    epsilon: Epsilon | None = None
    delta: Delta | None = None

    @property
    def fixes(self) -> bool:
        """Whether the number of items is fixed, so that no more may be granted later."""
        return self.epsilon is not None


def item_price(certificate: Certificate, epsilon: Epsilon) -> Fraction:
    """Return what one item takes of the currency that is refunded."""
    match certificate:
        case Certificate.zcdp:
            return BoundedRange(epsilon).rho.value
        case Certificate.pure:
            return epsilon.value
        case Certificate.theorem2 | Certificate.optimal:
            return Fraction(1)


class _CertificateFilter(ABC):
    """Common part of the three filters; all methods are pure functions of exact numbers."""

    __slots__ = ()
    certificate: Certificate

    @property
    @abstractmethod
    def certified(self) -> CertificateTerms:
        """Return the certificate and what it fixes."""

    @abstractmethod
    def times(self, periods: int) -> Self:
        """Return the filter for so many periods together, each with a budget like this one (`maths.md` 6.3)."""

    @property
    @abstractmethod
    def limits(self) -> tuple[Fraction, Fraction]:
        """Return what is granted, refunded part first."""

    @property
    @abstractmethod
    def total(self) -> ApproximateDP:
        """Return the guarantee for everything the filter admits, against every analyst."""

    @abstractmethod
    def _price(self, loss: object) -> tuple[Fraction, Fraction]:
        """Return both parts of a loss; raise UsageError for one that this certificate does not cover."""

    @property
    def limit(self) -> BudgetVector:
        """Return what is granted, in the currencies of the certificate."""
        return BudgetVector(*self.limits, certificate=self.certificate)

    def price(self, loss: object) -> BudgetVector:
        """Return what a loss uses of the budget; raise UsageError for a loss that the certificate does not cover."""
        return BudgetVector(*self._price(loss), certificate=self.certificate)


@dataclass(frozen=True, slots=True)
class PureFilter(_CertificateFilter):
    """The sum of epsilons and the sum of deltas stay within the total (`maths.md` 4, pure mode).

    The likelihood ratio of the coupled transcript is bounded on every path, so all may be chosen adaptively.
    """

    budget: ApproximateDP
    certificate = Certificate.pure

    @property
    def certified(self) -> CertificateTerms:
        """Return the certificate, which fixes nothing."""
        return CertificateTerms(self.certificate)

    def times(self, periods: int) -> Self:
        """Return the filter of so many periods together."""
        epsilon = Epsilon(self.budget.epsilon.value * periods)
        return replace(self, budget=ApproximateDP(epsilon, self.budget.delta * periods))

    @property
    def limits(self) -> tuple[Fraction, Fraction]:
        """Return epsilon and delta."""
        return self.budget.epsilon.value, self.budget.delta.value

    @property
    def total(self) -> ApproximateDP:
        """Return the budget itself."""
        return self.budget

    def _price(self, loss: object) -> tuple[Fraction, Fraction]:
        if not isinstance(loss, PureLoss):
            raise UsageError("wrong-certificate", "A session with the certificate pure adds up epsilons alone.")
        return loss.epsilon, loss.delta.value


@dataclass(frozen=True, slots=True)
class TheoremTwoFilter(_CertificateFilter):
    """At most `items` items and `queries` queries, all with one epsilon and one delta.

    Source: Durfee and Rogers 2019, arXiv:1905.04273, Algorithm 2 and Theorem 2, literally: k* = items, l* = queries,
    delta' = conversion, and 2 l* delta for the queries although l* delta suffices (`maths.md` 3.3): the mode is there
    to be the paper's. A query of a known domain cannot fail, so it has no delta and is none of the l*.
    """

    each: Epsilon
    delta: Delta
    items: int
    queries: int
    conversion: Delta
    certificate = Certificate.theorem2

    @property
    def certified(self) -> CertificateTerms:
        """Return the certificate, and the epsilon and the delta that it fixes."""
        return CertificateTerms(self.certificate, self.each, self.delta)

    def times(self, periods: int) -> Self:
        """Return the filter of so many periods together."""
        items, queries = self.items * periods, self.queries * periods
        return replace(self, items=items, queries=queries, conversion=self.conversion * periods)

    @property
    def limits(self) -> tuple[Fraction, Fraction]:
        """Return items and queries."""
        return Fraction(self.items), Fraction(self.queries)

    @property
    def total(self) -> ApproximateDP:
        """Return (epsilon*, 2 l* delta + delta')."""
        best = durfee_rogers(self.items, self.each, delta=self.conversion).best
        return ApproximateDP(Epsilon(Fraction(best)), self.delta * (2 * self.queries) + self.conversion)

    def _price(self, loss: object) -> tuple[Fraction, Fraction]:
        if not isinstance(loss, Steps):
            raise UsageError("wrong-certificate", "A session with the certificate theorem2 counts items alone.")
        if loss.each.epsilon != self.each or loss.delta.value not in {0, self.delta.value}:
            reason = "With the certificate theorem2 every query has the epsilon and the delta that were fixed at first."
            raise UsageError("fixed-parameters", reason)
        return Fraction(loss.items), Fraction(loss.delta.value > 0)


@dataclass(frozen=True, slots=True)
class OptimalFilter(_CertificateFilter):
    """At most `items` items of bounded range, none above `each`; deltas of queries stay within `pool`.

    An item of a smaller epsilon counts in full: its range lies within that of `each`. The deltas may be chosen
    adaptively. Source: `maths.md` 6.4, over the recursion of Dong, Durfee and Rogers 2020, arXiv:1909.13830.
    """

    each: Epsilon
    items: int
    pool: Delta
    conversion: Delta
    certificate = Certificate.optimal

    @property
    def certified(self) -> CertificateTerms:
        """Return the certificate, and the largest epsilon of an item."""
        return CertificateTerms(self.certificate, self.each)

    def times(self, periods: int) -> Self:
        """Return the filter of so many periods together."""
        pool, conversion = self.pool * periods, self.conversion * periods
        return replace(self, items=self.items * periods, pool=pool, conversion=conversion)

    @property
    def limits(self) -> tuple[Fraction, Fraction]:
        """Return items and delta."""
        return Fraction(self.items), self.pool.value

    @property
    def total(self) -> ApproximateDP:
        """Return the certified epsilon, and the conversion's and the queries' delta; computed again each time.

        Of more items than the optimum is computed for, that of their rho, which is more.
        """
        if self.items > MOST_ITEMS:
            epsilon = epsilon_of_zcdp(BoundedRange(self.each).rho * self.items, self.conversion)
        else:
            epsilon = adaptive_epsilon(self.items, self.each, delta=self.conversion)
        return ApproximateDP(Epsilon(Fraction(epsilon)), self.pool + self.conversion)

    def _price(self, loss: object) -> tuple[Fraction, Fraction]:
        if not isinstance(loss, Steps):
            raise UsageError("wrong-certificate", "A session with the certificate optimal counts items alone.")
        if loss.each.epsilon > self.each:
            reason = "With the certificate optimal no item has an epsilon above the one that was fixed at first."
            raise UsageError("fixed-parameters", reason)
        return Fraction(loss.items), loss.delta.value


CertificateFilter = PureFilter | TheoremTwoFilter | OptimalFilter
