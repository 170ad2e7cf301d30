"""Certificates other than zcdp: their filters and prices, what a total buys under each, and its periods (`maths.md` 6).

A session has one certificate from beginning to end. Each filter turns losses into a `BudgetVector`, which
`dpsql.accounting.budget.Filter` admits and settles alike for all certificates.

    certificate   refunded    never refunded   fixed beforehand
    zcdp          rho         delta            nothing
    pure          epsilon     delta            nothing
    theorem2      items       queries          epsilon and delta of a query, items, queries
    optimal       items       delta            the largest epsilon of an item, items

`total.delta` of what a total buys is the share that pays for the composition alone, as in `rho_of_total`; the deltas of
queries come out of the rest, as each certificate prescribes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from typing import ClassVar, Self

from dpsql.accounting.budget import BudgetVector
from dpsql.accounting.guarantees import (
    ApproximateDP,
    BoundedRange,
    Certificate,
    PureLoss,
    Steps,
    epsilon_of_zcdp,
    rho_of_total,
)
from dpsql.accounting.optimal import MOST_ITEMS, adaptive_delta, adaptive_epsilon, adaptive_items
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

_DR_SLACK = 2.0**-45


@dataclass(frozen=True, slots=True)
class DurfeeRogers:
    """The three bounds of Durfee and Rogers 2019, Theorem 1, on the total epsilon of k items.

    The first two alone are their Theorem 3, advanced composition of any pure guarantee; the third needs bounded range.
    """

    basic: float
    pure: float
    bounded_range: float

    @property
    def best(self) -> float:
        """Return the smallest, the theorem's epsilon'."""
        return min(self.basic, self.pure, self.bounded_range)


def durfee_rogers(k: int, epsilon: Epsilon, *, delta: Delta) -> DurfeeRogers:
    """Return the total epsilon of `k` items of `epsilon` each, with failure `delta` for the composition, rounded up.

    Source: Durfee and Rogers 2019, arXiv:1905.04273, Theorems 1 and 2; (e^x - 1) / (e^x + 1) = tanh(x / 2).
    """
    if k < 1 or not 0 < delta.value < 1:
        raise UsageError("composition-range", "Composition needs k of at least 1 and delta strictly between 0 and 1.")
    level = math.log(delta.value.denominator) - math.log(delta.value.numerator)
    step = float(epsilon)
    squares = k * step**2
    return DurfeeRogers(
        basic=_above(float(k * epsilon.value)),
        pure=_above(k * step * math.tanh(step / 2.0) + math.sqrt(2.0 * squares * level)),
        bounded_range=_above(squares / 2.0 + math.sqrt(squares * level / 2.0)),
    )


def _above(value: float) -> float:
    return value * (1.0 + _DR_SLACK)


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


@dataclass(frozen=True, slots=True)
class PureFilter:
    """The sum of epsilons and the sum of deltas stay within the total (`maths.md` 4, pure mode).

    The likelihood ratio of the coupled transcript is bounded on every path, so all may be chosen adaptively.
    """

    budget: ApproximateDP
    certificate: ClassVar[Certificate] = Certificate.pure

    @property
    def certified(self) -> CertificateTerms:
        """Return the certificate, which fixes nothing."""
        return CertificateTerms(self.certificate)

    def times(self, periods: int) -> Self:
        """Return the filter of so many periods together, each with a budget like this one (`maths.md` 6.3)."""
        epsilon = Epsilon(self.budget.epsilon.value * periods)
        return replace(self, budget=ApproximateDP(epsilon, self.budget.delta * periods))

    @property
    def limit(self) -> BudgetVector:
        """Return what is granted: epsilon and delta."""
        return BudgetVector(self.budget.epsilon.value, self.budget.delta.value, certificate=self.certificate)

    @property
    def total(self) -> ApproximateDP:
        """Return the budget itself."""
        return self.budget

    def price(self, loss: object) -> BudgetVector:
        """Return what a loss uses of the budget; raise UsageError for a loss that the certificate does not cover."""
        if not isinstance(loss, PureLoss):
            raise UsageError("wrong-certificate", "A session with the certificate pure adds up epsilons alone.")
        return BudgetVector(loss.epsilon, loss.delta.value, certificate=self.certificate)


@dataclass(frozen=True, slots=True)
class TheoremTwoFilter:
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
    certificate: ClassVar[Certificate] = Certificate.theorem2

    @property
    def certified(self) -> CertificateTerms:
        """Return the certificate, and the epsilon and the delta that it fixes."""
        return CertificateTerms(self.certificate, self.each, self.delta)

    def times(self, periods: int) -> Self:
        """Return the filter of so many periods together, each with a budget like this one (`maths.md` 6.3)."""
        items, queries = self.items * periods, self.queries * periods
        return replace(self, items=items, queries=queries, conversion=self.conversion * periods)

    @property
    def limit(self) -> BudgetVector:
        """Return what is granted: items and queries."""
        return BudgetVector(self.items, self.queries, certificate=self.certificate)

    @property
    def total(self) -> ApproximateDP:
        """Return (epsilon*, 2 l* delta + delta')."""
        best = durfee_rogers(self.items, self.each, delta=self.conversion).best
        return ApproximateDP(Epsilon(Fraction(best)), self.delta * (2 * self.queries) + self.conversion)

    def price(self, loss: object) -> BudgetVector:
        """Return what a loss uses of the budget; raise UsageError for a loss that the certificate does not cover."""
        if not isinstance(loss, Steps):
            raise UsageError("wrong-certificate", "A session with the certificate theorem2 counts items alone.")
        # Delta 0 is a query of a known domain, which cannot fail and is none of the queries.
        if loss.each.epsilon != self.each or loss.delta.value not in {0, self.delta.value}:
            reason = "With the certificate theorem2 every query has the epsilon and the delta that were fixed at first."
            raise UsageError("fixed-parameters", reason)
        return BudgetVector(loss.items, int(loss.delta.value > 0), certificate=self.certificate)


@dataclass(frozen=True, slots=True)
class OptimalFilter:
    """At most `items` items of bounded range, none above `each`; deltas of queries stay within `pool`.

    An item of a smaller epsilon counts in full: its range lies within that of `each`. The deltas may be chosen
    adaptively. Source: `maths.md` 6.4, over the recursion of Dong, Durfee and Rogers 2020, arXiv:1909.13830.
    """

    each: Epsilon
    items: int
    pool: Delta
    conversion: Delta
    certificate: ClassVar[Certificate] = Certificate.optimal

    @property
    def certified(self) -> CertificateTerms:
        """Return the certificate, and the largest epsilon of an item."""
        return CertificateTerms(self.certificate, self.each)

    def times(self, periods: int) -> Self:
        """Return the filter of so many periods together, each with a budget like this one (`maths.md` 6.3)."""
        pool, conversion = self.pool * periods, self.conversion * periods
        return replace(self, items=self.items * periods, pool=pool, conversion=conversion)

    @property
    def limit(self) -> BudgetVector:
        """Return what is granted: items and delta."""
        return BudgetVector(self.items, self.pool.value, certificate=self.certificate)

    @property
    def total(self) -> ApproximateDP:
        """Return the certified epsilon, and the conversion's and the queries' delta; computed again each time.

        Of more items than the optimum is computed for, that of their rho, which is more.
        """
        if self.items > MOST_ITEMS:
            # Periods multiply the items, so that more than can be computed are asked for here (`maths.md` 6.3).
            epsilon = epsilon_of_zcdp(BoundedRange(self.each).rho * self.items, self.conversion)
        else:
            epsilon = adaptive_epsilon(self.items, self.each, delta=self.conversion)
        return ApproximateDP(Epsilon(Fraction(epsilon)), self.pool + self.conversion)

    def price(self, loss: object) -> BudgetVector:
        """Return what a loss uses of the budget; raise UsageError for a loss that the certificate does not cover."""
        if not isinstance(loss, Steps):
            raise UsageError("wrong-certificate", "A session with the certificate optimal counts items alone.")
        if loss.each.epsilon > self.each:
            reason = "With the certificate optimal no item has an epsilon above the one that was fixed at first."
            raise UsageError("fixed-parameters", reason)
        return BudgetVector(loss.items, loss.delta.value, certificate=self.certificate)


CertificateFilter = PureFilter | TheoremTwoFilter | OptimalFilter


_ITEM_GRID = 10**12
_WITHIN = 1e-5  # of an item's epsilon, for `optimal`
_GAIN = 1.4  # above what the optimum can buy over rho or the plain sum


def items_bought(certificate: Certificate, epsilon: Epsilon, *, total: ApproximateDP) -> int:
    """Return how many items of `epsilon` each the total covers; `optimal` counts to 5,000."""
    match certificate:
        case Certificate.pure:
            return math.floor(total.epsilon.value / epsilon.value)
        case Certificate.theorem2:
            return _most(lambda k: _by_theorem_2(k, epsilon, total=total))
        case Certificate.zcdp:
            return math.floor(rho_of_total(total).value / BoundedRange(epsilon).rho.value)
        case Certificate.optimal:
            return adaptive_items(epsilon, total=total.epsilon, delta=total.delta)


def item_epsilon(certificate: Certificate, items: int, *, total: ApproximateDP) -> Epsilon:
    """Return the largest epsilon, rounded down to a grid, at which the total covers `items` items.

    Raise UsageError when no epsilon of the grid is that small.
    """
    if items < 1:
        raise UsageError("items-range", "The number of items must be at least 1.")
    match certificate:
        case Certificate.pure:
            return Epsilon(total.epsilon.value / items)
        case Certificate.theorem2:
            found = _most(lambda step: _by_theorem_2(items, Epsilon(Fraction(step, _ITEM_GRID)), total=total))
            return _on_grid(found)
        case Certificate.zcdp:
            squared = 8 * rho_of_total(total).value * _ITEM_GRID**2 / items
            return _on_grid(math.isqrt(math.floor(squared)))
        case Certificate.optimal:
            return _optimal_epsilon(items, total=total)


def _on_grid(steps: int) -> Epsilon:
    if steps < 1:
        raise UsageError("items-range", "The total is too small for that many items.")
    return Epsilon(Fraction(steps, _ITEM_GRID))


def _by_theorem_2(k: int, epsilon: Epsilon, *, total: ApproximateDP) -> bool:
    if k * epsilon.value <= total.epsilon.value:
        return True
    return Fraction(durfee_rogers(k, epsilon, delta=total.delta).best) <= total.epsilon.value


def _most(fits: Callable[[int], bool]) -> int:
    """Return the largest n that fits, 0 if none does; what fits is an initial run."""
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _optimal_epsilon(items: int, *, total: ApproximateDP) -> Epsilon:
    """Return an epsilon between what rho or the plain sum allows and the true optimum, by secants."""
    plain = max(item_epsilon(each, items, total=total) for each in (Certificate.pure, Certificate.zcdp))
    most = float(plain) * _GAIN

    def delta(below: float) -> float:
        return adaptive_delta(items, Epsilon(Fraction(most - below)), total=total.epsilon)

    level = 0.999 * float(total.delta)  # so that `items_bought`, on a grid of its own, agrees
    below = crossing(delta, level, low=0.0, high=most - float(plain), within=_WITHIN)
    return max(plain, Epsilon(Fraction(most - below)))


_LEAST = 1e-300
_EDGE = 0.1


def crossing(curve: Callable[[float], float], level: float, *, low: float, high: float, within: float) -> float:
    """Return a point of [low, high] at which the falling `curve` was seen to be at most `level`, or `high`.

    It lies at most `within`, relatively, above the least such point. Secants of the logarithm, which is nearly a
    parabola; the value at an end that stays twice running is halved (the Illinois rule).
    """

    def excess(point: float) -> float:
        return math.log(max(curve(point), _LEAST) / level)

    at_low, at_high, side = excess(low), excess(high), 0
    if at_low <= 0.0:
        return low
    while high - low > within * high:
        # A secant needs ends on both sides of the level; else the middle is taken.
        share = at_low / (at_low - at_high) if at_high < 0.0 else 0.5
        # Kept a little off the ends, where a secant can stall.
        middle = low + min(max(share, _EDGE * within), 1.0 - _EDGE * within) * (high - low)
        at_middle = excess(middle)
        if at_middle <= 0.0:
            at_low *= 0.5 if side < 0 else 1.0
            high, at_high, side = middle, at_middle, -1
        else:
            at_high *= 0.5 if side > 0 else 1.0
            low, at_low, side = middle, at_middle, 1
    return high


_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_LONGEST = 10_000 * _DAY
_DIGITS = 6  # as many as an epsilon is printed with


@dataclass(frozen=True, slots=True)
class Periods:
    """Length of the periods of a budget, in whole hours, and their largest number; None for no end.

    >>> str(Periods(timedelta(days=30), 12))
    '30 days'
    """

    length: timedelta
    most: int | None = None

    def __post_init__(self) -> None:
        if not _HOUR <= self.length <= _LONGEST or self.length % _HOUR or (self.most is not None and self.most < 1):
            reason = "A period has at least one whole hour and at most 10,000 days, and there is at least one of it."
            raise UsageError("period-range", reason, hint="Such as timedelta(days=30).")

    def __str__(self) -> str:
        unit, word = (_HOUR, "hour") if self.length % _DAY else (_DAY, "day")
        count = self.length // unit
        return f"{count} {word}" if count == 1 else f"{count} {word}s"


def describe_periods(periods: Periods | None) -> str:
    """Return how often a budget is granted, in words."""
    if periods is None:
        return "once"
    most = periods.most
    return f"per {periods}" if most is None else f"per {periods}, at most {most} time{'' if most == 1 else 's'}"


def total_after(
    periods: int, each: ApproximateDP, *, budget: BudgetVector, rule: CertificateFilter | None = None
) -> ApproximateDP | None:
    """Return the guarantee after so many periods, each with the guarantee `each` and the budget `budget`, rounded up.

    The shares of delta for the queries and for the conversion grow in proportion. `rule` is the filter of one period
    under a certificate other than `zcdp`. None if delta reaches 1: there is no guarantee.
    """
    delta = each.delta * periods
    if delta.value >= 1:
        return None
    if periods == 1:
        return each
    if rule is None:
        conversion = Delta((each.delta.value - budget.delta.value) * periods)
        found = Fraction(epsilon_of_zcdp(budget.rho * periods, conversion))
    else:
        found = rule.times(periods).total.epsilon.value
    # `found` alone is true: the maximum keeps the epsilon of several periods from being below that of one.
    epsilon = max(found, each.epsilon.value)
    return ApproximateDP(Epsilon(_rounded_up(epsilon)), delta)


def _rounded_up(value: Fraction) -> Fraction:
    """Return `value` in six digits, none of them too small."""
    # 0.012345678 has the grid 10**7: six digits from the first one that is not 0.
    grid = Fraction(10) ** (_DIGITS - 1 - math.floor(math.log10(value)))
    return math.ceil(value * grid) / grid
