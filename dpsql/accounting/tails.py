"""Tails of discrete Gaussian and discrete Laplace noise, and the integers at which they fall below a probability.

N_Z(0, sigma^2) has mass proportional to exp(-n^2 / (2 sigma^2)) on the integers (Canonne, Kamath and Steinke 2020,
arXiv:2004.00010). A threshold for integer noise is computed from integer tails, never from the continuous quantile
(`maths.md` 13.1, item 0).

Lap_Z(s) has mass proportional to q**|n| on the integers, q = exp(-1 / s). Its tails are closed forms (`maths.md` 8.2),
enclosed by interval arithmetic of 256 bits, so an offset is certainly large enough, whatever rounding does.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.errors import UsageError
from dpsql.quantities import Delta

if TYPE_CHECKING:
    from mpmath.ctx_iv import MPIntervalContext


_REACH = 40  # standard deviations beyond which exp(-x^2 / 2) is below the least double
_SUMMED = 10**9  # variances up to here are summed, those beyond are bounded by integrals
_WIDEST = 10**21
_SLACK = 1e-9  # relative, far above the rounding error of the sums
_LEAST = 1e-300  # below it a tail may underflow


def _masses(variance: Fraction, first: int) -> float:
    """Return the sum of exp(-n^2 / (2 variance)) over n >= first >= 0."""
    last = first + math.ceil(_REACH * math.sqrt(float(variance))) + 1
    # 40 standard deviations on, exp(-x**2 / 2) is 0 in doubles: what is left out is below any rounding.
    points = np.arange(first, last, dtype=np.float64)
    return float(np.sum(np.exp(points * points / (-2.0 * float(variance)))))


def discrete_gaussian_tail(variance: Fraction, at_least: int) -> float:
    """Return P[N_Z(0, variance) >= at_least], rounded up; `variance` is sigma squared, at most 1e21."""
    if not 0 < variance <= _WIDEST:
        raise UsageError("variance-range", "The variance of a discrete Gaussian must lie between 0 and 1e21.")
    if variance > _SUMMED:
        return _wide_tail(math.sqrt(float(variance)), at_least)
    if at_least < 0:
        # P[N >= -n] = 1 - P[N >= n + 1]: the subtracted tail was rounded up, and is rounded down here.
        below = discrete_gaussian_tail(variance, 1 - at_least) * (1.0 - 2.0 * _SLACK)
        return min(1.0, math.nextafter(1.0 - below, 2.0))
    # The sum over all n counts both sides, and 0 once.
    tail = _masses(variance, at_least) / (2.0 * _masses(variance, 0) - 1.0) * (1.0 + _SLACK)
    return min(1.0, max(sys.float_info.min, tail))


def _wide_tail(sigma: float, at_least: int) -> float:
    """Return the tail of wide noise, rounded up, from the continuous one.

    The masses are those of g(x) = exp(-x^2 / (2 sigma^2)) at integers, divided by Z, which exceeds the integral of g
    over all x (Poisson summation: every further term is positive). Beyond sigma, g is convex, so g(n) is at most its
    mean on [n - 1/2, n + 1/2]; from 0 on it falls, so g(n) is at most its mean on [n - 1, n], at least that on
    [n, n + 1]. Z exceeds the integral by less than any double can tell.
    """
    if at_least <= 0:
        first: float = 1 - at_least
    else:
        first = at_least - 0.5 if at_least - 0.5 >= sigma else at_least - 1
    continuous = math.erfc(first / sigma / math.sqrt(2.0)) / 2.0
    if at_least <= 0:
        return min(1.0, math.nextafter(1.0 - continuous * (1.0 - _SLACK), 2.0))
    return max(sys.float_info.min, continuous * (1.0 + _SLACK))


def delta_of_each(delta: Delta, parts: int) -> float:
    """Return 1 - (1 - delta)**(1 / parts), rounded down: `parts` independent failures of it make one of delta."""
    if not 0 < delta.value < 1:
        raise UsageError("delta-range", "Delta must lie strictly between 0 and 1 to be shared among failures.")
    # float(delta) may be rounded up; the double below it is certainly not above delta.
    below = math.nextafter(float(delta), 0.0)
    return -math.expm1(math.log1p(-below) / parts) * (1.0 - _SLACK)


def check_tail(probability: float) -> None:
    """Raise UsageError for a probability to which no offset is computed."""
    if not _LEAST <= probability < 1.0:
        raise UsageError("probability-range", "A tail probability must lie between 1e-300 and 1, 1 excluded.")


@lru_cache(maxsize=1_000)  # it depends on public parameters alone, and sums millions of masses for wide noise
def discrete_gaussian_offset(variance: Fraction, probability: float) -> int:
    """Return the least n >= 0 with P[N_Z(0, variance) >= n] <= probability, never one too small."""
    check_tail(probability)
    deviations = -NormalDist().inv_cdf(probability)  # of continuous noise: near enough to begin with
    high, step = max(0, math.ceil(deviations * math.sqrt(float(variance)))), 1
    # The search widens its steps from the guess, upwards while the tail is too heavy, else downwards, and then halves.
    low = high - 1
    while discrete_gaussian_tail(variance, high) > probability:
        low, high, step = high, high + step, 2 * step
    while low >= 0 and discrete_gaussian_tail(variance, low) <= probability:
        low, high, step = max(-1, low - step), low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        if discrete_gaussian_tail(variance, middle) > probability:
            low = middle
        else:
            high = middle
    return high


_PRECISION = 256
_Enclosure = Any  # mpmath carries no types


@cache
def laplace_offset(scale: Fraction, probability: Fraction) -> int:
    """Return the least n >= 0 with P[Lap_Z(scale) >= n] <= probability."""
    context = _context()
    decay = _decay(scale, context)
    return _least(lambda n: decay**n / (1 + decay), probability, context=context)


@cache
def laplace_difference_offset(first: Fraction, second: Fraction, *, probability: Fraction) -> int:
    """Return the least n >= 0 with P[X - Y >= n] <= probability, X of scale `first` and Y of scale `second`."""
    context = _context()
    if first == second:
        decay = _decay(first, context)
        return _least(lambda n: _tail_of_equals(decay, n), probability, context=context)
    slow, fast = _decay(max(first, second), context), _decay(min(first, second), context)
    return _least(lambda n: _tail_of_unequals(slow, fast, n=n), probability, context=context)


def _context() -> MPIntervalContext:
    from mpmath.ctx_iv import MPIntervalContext  # only what needs a tail pays for the import

    context = MPIntervalContext()
    context.prec = _PRECISION
    return context


def _decay(scale: Fraction, context: MPIntervalContext) -> _Enclosure:
    if scale <= 0:
        raise UsageError("scale-range", "The scale of a discrete Laplace must be positive.")
    return context.exp(-context.mpf(scale.denominator) / scale.numerator)


def _tail_of_equals(q: _Enclosure, n: int) -> _Enclosure:
    return (1 - q) / (1 + q) ** 2 * q**n * (n + (1 + q + 2 * q * q) / (1 - q * q))


def _tail_of_unequals(slow: _Enclosure, fast: _Enclosure, *, n: int) -> _Enclosure:
    both = slow * fast
    # slow > fast, so that the difference is above 0 also as an interval.
    ends = [(q, q**n / (1 - q)) for q in (slow, fast)]
    within = (slow * ends[0][1] - fast * ends[1][1]) / (slow - fast)
    beyond = (ends[0][1] + ends[1][1]) * both / (1 - both)
    return (1 - slow) / (1 + slow) * (1 - fast) / (1 + fast) * (within + beyond)


def _least(tail: Callable[[int], _Enclosure], probability: Fraction, *, context: MPIntervalContext) -> int:
    """Return the least n >= 0 whose tail is certainly at most `probability`; tails fall."""
    if not 0 < probability < 1:
        raise UsageError("probability-range", "A tail probability must lie strictly between 0 and 1.")
    allowed = context.mpf(probability.numerator) / probability.denominator
    low, high = -1, 1
    # Only a certain yes counts. 256 bits leave no overlap, at which mpmath would raise.
    while (tail(high) <= allowed) is not True:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if (tail(middle) <= allowed) is True:
            high = middle
        else:
            low = middle
    return high
