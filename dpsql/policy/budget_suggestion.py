"""Suggestion of epsilon and delta for a start, from public numbers alone.

An item of epsilon e ranks two counts that differ by g units in their right order with probability 1 / (1 + exp(-e g)).
The total is what so many items of e^2 / 8 come to, by the conversion of Canonne, Kamath and Steinke 2020
(arXiv:2004.00010, Corollary 13; `maths.md` 2.3) at the best of a few orders alpha, each of which is sound. This package
cannot import the accounting; tests check that the two agree.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.errors import PolicyError
from dpsql.policy.validation import check_count, wrong_type

__all__ = ["separated", "suggested"]

_ODDS = 19  # 95 of 100
_LARGEST_DELTA = 6  # as a negative power of ten
_WEAK = 10
_MOST_USERS = 10**9
_DIGITS = 3
_STEPS = 20


def separated(users: int) -> int:
    """Return the difference of counts that an item of a suggested budget ranks correctly in 95 of 100 cases.

    The count of a group that a share p of n users is in has by chance a standard deviation of sqrt(n p (1 - p)), at
    most half of sqrt(n).
    """
    if isinstance(users, bool) or not isinstance(users, int):
        raise wrong_type("a whole number", users, place="users")
    if not 1 <= users <= _MOST_USERS:
        reason = f"The number of users must be at least 1 and at most {_MOST_USERS}."
        raise PolicyError("policy-range", reason, hint="A rough number is enough, and a public one.", place="users")
    return math.isqrt(users - 1) // 2 + 1


def suggested(items: int, *, users: int) -> tuple[Fraction, Fraction]:
    """Return epsilon and delta for so many items; raise `PolicyError` if that epsilon is above 10."""
    item = math.log(_ODDS) / separated(users)
    delta = Fraction(1, 10 ** max(_LARGEST_DELTA, _least_power(users)))
    rho = check_count(items, "budget.items") * item**2 / 8
    epsilon = _rounded_up(_epsilon(rho, math.log(2 / delta)))
    if epsilon > _WEAK:
        reason = f"To rank {items} items among {users} users takes an epsilon of {float(epsilon):g}, a weak guarantee."
        raise PolicyError(
            "policy-suggestion", reason, hint="Plan for fewer items, or choose a budget yourself.", place="items"
        )
    return epsilon, delta


def _least_power(users: int) -> int:
    """Return the least m with 10^-m <= users^-1.5."""
    return next(m for m in range(15) if 10 ** (2 * m) >= users**3)


def _epsilon(rho: float, level: float) -> float:
    largest = math.sqrt(level / rho)  # alpha - 1 of Bun and Steinke's bound
    return min(_at(rho, level, order=largest * step / _STEPS) for step in range(1, _STEPS + 1))


def _at(rho: float, level: float, *, order: float) -> float:
    return (1 + order) * rho + (level - order * math.log1p(1 / order) - math.log1p(order)) / order


def _rounded_up(value: float) -> Fraction:
    grid = Fraction(10) ** (_DIGITS - 1 - math.floor(math.log10(value)))
    return math.ceil(Fraction(value) * grid) / grid
