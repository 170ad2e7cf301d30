"""Budgets that are granted again in every period, and what they promise in all (`maths.md` 4.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from dpsql.accounting.budget import BudgetVector
from dpsql.accounting.certificates.filters import CertificateFilter
from dpsql.accounting.conversions import epsilon_of_zcdp
from dpsql.accounting.guarantees import ApproximateDP
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

__all__ = ["Periods", "describe_periods", "total_after"]

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
    epsilon = max(found, each.epsilon.value)
    return ApproximateDP(Epsilon(_rounded_up(epsilon)), delta)


def _rounded_up(value: Fraction) -> Fraction:
    """Return `value` in six digits, none of them too small."""
    grid = Fraction(10) ** (_DIGITS - 1 - math.floor(math.log10(value)))
    return math.ceil(value * grid) / grid
