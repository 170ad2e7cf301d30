"""Tails of the discrete Laplace, and the integers at which they fall below a probability.

Lap_Z(s) has mass proportional to q**|n| on the integers, q = exp(-1 / s). Every tail here is a closed form (`maths.md`
8.2), enclosed by interval arithmetic of 256 bits, so an offset is certainly large enough, whatever rounding does.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from dpsql.errors import UsageError

if TYPE_CHECKING:
    from mpmath.ctx_iv import MPIntervalContext


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
    while (tail(high) <= allowed) is not True:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if (tail(middle) <= allowed) is True:
            high = middle
        else:
            low = middle
    return high
