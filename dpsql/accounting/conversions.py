"""From zero-concentrated to (epsilon, delta)-differential privacy and back, always to the safe side.

The bound is Canonne, Kamath and Steinke 2020 (arXiv:2004.00010, Corollary 13; `maths.md` 2.3): for every alpha > 1

    delta = exp((alpha - 1) * (alpha * rho - epsilon)) / (alpha - 1) * (1 - 1 / alpha) ** alpha.

Every alpha gives a true bound, so an imperfect search for the best one costs accuracy, never soundness. What is left
is floating-point error, below 1e-13 relative in each formula; results are moved to the safe side by `_MARGIN`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from dpsql.accounting.guarantees import ApproximateDP
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon, Rho

__all__ = ["delta_of_zcdp", "epsilon_of_zcdp", "rho_of_total"]

_MARGIN = 1e-10
_GRID = 10**12
_LOWEST, _HIGHEST = -15.0, 25.0
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def _minimum(curve: Callable[[float], float]) -> float:
    """Return x in [-15, 25] near the least value of a unimodal `curve`, by golden-section search."""
    low, high = _LOWEST, _HIGHEST
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = curve(left), curve(right)
    for _ in range(100):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = curve(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = curve(right)
    return (low + high) / 2.0


def _log_delta(rho: float, epsilon: float, *, x: float) -> float:
    order = math.exp(x)  # alpha - 1
    alpha = 1.0 + order
    return order * (alpha * rho - epsilon) - x - alpha * math.log1p(1.0 / order)


def _epsilon(rho: float, log_inverse_delta: float, *, x: float) -> float:
    order = math.exp(x)
    alpha = 1.0 + order
    return alpha * rho + (log_inverse_delta - order * math.log1p(1.0 / order) - math.log1p(order)) / order


def _log_inverse(delta: Delta) -> float:
    if not 0 < delta.value < 1:
        raise UsageError("delta-range", "Delta must lie strictly between 0 and 1 to convert a guarantee.")
    return math.log(delta.value.denominator) - math.log(delta.value.numerator)


def epsilon_of_zcdp(rho: Rho, delta: Delta) -> float:
    """Return an epsilon, rounded up, for which rho-zCDP implies (epsilon, delta)-DP."""
    if rho.value == 0:
        return 0.0
    level = _log_inverse(delta)
    x = _minimum(lambda at: _epsilon(float(rho), level, x=at))
    value, leading = _epsilon(float(rho), level, x=x), (1.0 + math.exp(x)) * float(rho)
    return max(0.0, value + _MARGIN * (abs(value) + leading))  # near 0 the terms cancel: they carry the error


def delta_of_zcdp(rho: Rho, epsilon: Epsilon) -> float:
    """Return a delta, rounded up (above 0 even where a double underflows), at most 1, for (epsilon, delta)-DP."""
    if rho.value == 0:
        return 0.0
    log_delta = _least_log_delta(float(rho), float(epsilon))
    delta = math.exp(min(0.0, log_delta)) * (1.0 + _MARGIN * (1.0 + abs(log_delta)))
    return min(1.0, max(sys.float_info.min, delta))


def _least_log_delta(rho: float, epsilon: float) -> float:
    return _log_delta(rho, epsilon, x=_minimum(lambda x: _log_delta(rho, epsilon, x=x)))


@lru_cache(maxsize=64)  # every session of a policy asks for the same total, and each takes 10 ms
def rho_of_total(total: ApproximateDP) -> Rho:
    """Return the largest rho that the total allows a session to spend, rounded down to a grid of 1e-12.

    Given: `total.delta` strictly between 0 and 1, and only the share of delta that pays for the conversion.
    Source: CKS20 inverted by bisection; the returned value is the lower end.
    """
    level, epsilon = -_log_inverse(total.delta), float(total.epsilon)
    low, high = 0.0, max(1.0, epsilon)
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if _least_log_delta(middle, epsilon) <= level:
            low = middle
        else:
            high = middle
    return Rho(Fraction(math.floor(Fraction(low * (1.0 - _MARGIN)) * _GRID), _GRID))
