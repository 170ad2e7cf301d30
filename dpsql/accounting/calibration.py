"""Tails of the discrete Gaussian, and the integers at which they fall below a probability.

N_Z(0, sigma^2) has mass proportional to exp(-n^2 / (2 sigma^2)) on the integers (Canonne, Kamath and Steinke 2020,
arXiv:2004.00010). A threshold for integer noise is computed from integer tails, never from the continuous quantile
(`maths.md` 13.1, item 0).
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np

from dpsql.errors import UsageError

__all__ = ["discrete_gaussian_offset", "discrete_gaussian_tail"]

_REACH = 40  # standard deviations beyond which exp(-x^2 / 2) is below the least double
_WIDEST = 10**9
_SLACK = 1e-9  # relative, far above the rounding error of the sums
_LEAST = 1e-300  # below it a tail may underflow


def _masses(variance: Fraction, first: int) -> float:
    """Return the sum of exp(-n^2 / (2 variance)) over n >= first >= 0."""
    last = first + math.ceil(_REACH * math.sqrt(float(variance))) + 1
    points = np.arange(first, last, dtype=np.float64)
    return float(np.sum(np.exp(points * points / (-2.0 * float(variance)))))


def discrete_gaussian_tail(variance: Fraction, at_least: int) -> float:
    """Return P[N_Z(0, variance) >= at_least], rounded up; `variance` is sigma squared, at most 1e9."""
    if not 0 < variance <= _WIDEST:
        raise UsageError("variance-range", "The variance of a discrete Gaussian must lie between 0 and 1e9.")
    if at_least < 0:
        below = discrete_gaussian_tail(variance, 1 - at_least) * (1.0 - 2.0 * _SLACK)
        return min(1.0, math.nextafter(1.0 - below, 2.0))
    tail = _masses(variance, at_least) / (2.0 * _masses(variance, 0) - 1.0) * (1.0 + _SLACK)
    return min(1.0, max(sys.float_info.min, tail))


def discrete_gaussian_offset(variance: Fraction, probability: float) -> int:
    """Return the least n >= 0 with P[N_Z(0, variance) >= n] <= probability, never one too small."""
    if not _LEAST <= probability < 1.0:
        raise UsageError("probability-range", "A tail probability must lie between 1e-300 and 1, 1 excluded.")
    low, high = -1, 1  # the tail at `low` is above, at `high` it may be below
    while discrete_gaussian_tail(variance, high) > probability:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if discrete_gaussian_tail(variance, middle) > probability:
            low = middle
        else:
            high = middle
    return high
