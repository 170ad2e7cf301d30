"""Number of items that a total buys under each certificate, and the epsilon of an item for a number of items.

`total.delta` is the share that pays for the composition alone, as in `rho_of_total`; the deltas of queries come out of
the rest, as each certificate prescribes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from dpsql.accounting.certificates.composition import durfee_rogers
from dpsql.accounting.certificates.optimal import adaptive_delta, adaptive_items
from dpsql.accounting.certificates.search import crossing
from dpsql.accounting.conversions import rho_of_total
from dpsql.accounting.guarantees import ApproximateDP, BoundedRange, Certificate
from dpsql.errors import UsageError
from dpsql.quantities import Epsilon

__all__ = ["item_epsilon", "items_bought"]

_GRID = 10**12
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
            found = _most(lambda step: _by_theorem_2(items, Epsilon(Fraction(step, _GRID)), total=total))
            return _on_grid(found)
        case Certificate.zcdp:
            squared = 8 * rho_of_total(total).value * _GRID**2 / items
            return _on_grid(math.isqrt(math.floor(squared)))
        case Certificate.optimal:
            return _optimal_epsilon(items, total=total)


def _on_grid(steps: int) -> Epsilon:
    if steps < 1:
        raise UsageError("items-range", "The total is too small for that many items.")
    return Epsilon(Fraction(steps, _GRID))


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
