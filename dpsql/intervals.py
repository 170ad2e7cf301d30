"""Intervals of released values: between which numbers the exact value lies, by the known law of the noise.

Post-processing of what was released. The exact value is that of the bounded data: each unit within its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from dpsql.accounting import discrete_gaussian_offset
from dpsql.errors import UsageError
from dpsql.mechanisms.sampling.laplace_tails import laplace_offset

__all__ = ["LEVEL", "ValueNoise", "widen_quotients"]

LEVEL = 0.95  # of intervals, unless another is asked for
_WIDE = 10**8  # a variance above which tails are bounded instead of summed
_LARGEST, _WIDEST = 2**63 - 1, 18  # BIGINT, and digits of a DECIMAL


@dataclass(frozen=True, slots=True)
class ValueNoise:
    """Noise of the released values of a measure.

    It is discrete Gaussian of the variance or, with a scale, discrete Laplace, whose variance is at most that; both are
    in steps of which each is worth `step`. `may_be_negative` says that exact values may be.
    """

    variance: Fraction
    scale: Fraction | None = None
    step: Fraction = Fraction(1)
    may_be_negative: bool = False

    def reach(self, level: float) -> int:
        """Return the half width in whole steps of an interval that holds the exact value with probability `level`."""
        if not isinstance(level, int | float) or not 0 < level < 1:
            reason = "The level of an interval must be a number strictly between 0 and 1."
            raise UsageError("level-range", reason, hint="Such as 0.95.")
        return _find_reach(self, (1.0 - level) / 2.0)

    def widen(self, values: Iterable[object], level: float) -> tuple[list[object], list[object]]:
        """Return the ends of the intervals of values, in their type and rounded outwards; None for NULL."""
        width = self.reach(level) * self.step
        found = list(values)
        return [self._move(each, -width) for each in found], [self._move(each, width) for each in found]

    def _move(self, value: object, by: Fraction) -> object:
        """Return a value moved by a width and rounded on: never beyond its type nor, if it can be none, below 0."""
        if not isinstance(value, int | float | Decimal):
            return None
        away = 1 if by > 0 else -1
        if isinstance(value, float):
            return self._clip(_round_outwards(Fraction(value) + by + away * Fraction(math.ulp(value)), away))
        scale = 0 if isinstance(value, int) else -min(0, int(value.as_tuple().exponent))
        end = (Fraction(value) + by) * 10**scale
        if (self.step * 10**scale).denominator > 1:  # the value was rounded to its type
            end += away * Fraction(1, 2)
        most = _LARGEST if isinstance(value, int) else 10**_WIDEST - 1
        whole = min(max(math.floor(end) if by < 0 else math.ceil(end), -most), most)
        whole = whole if self.may_be_negative else max(0, whole)
        return whole if isinstance(value, int) else Decimal(whole).scaleb(-scale)

    def _clip(self, end: float) -> float:
        return end if self.may_be_negative else max(0.0, end)


def _find_reach(noise: ValueNoise, outside: float) -> int:
    """Return the half width in steps at which the exact value is beyond one end with at most probability `outside`."""
    if noise.scale is not None:
        return laplace_offset(noise.scale, Fraction(outside)) - 1
    if noise.variance > _WIDE:  # P[N_Z >= t] <= exp(-t^2 / (2 variance)), arXiv:2004.00010, Corollary 7
        return math.ceil(math.sqrt(-2.0 * float(noise.variance) * math.log(outside)))
    return discrete_gaussian_offset(noise.variance, outside) - 1


def _surround(noise: ValueNoise, steps: int, *, reach: int) -> tuple[Fraction, Fraction]:
    """Return the ends of the interval of a value in steps, exactly."""
    low, high = (steps - reach) * noise.step, (steps + reach) * noise.step
    return (low, high) if noise.may_be_negative else (max(Fraction(0), low), max(Fraction(0), high))


def widen_quotients(
    values: Sequence[tuple[int, int]], *, noises: tuple[ValueNoise, ValueNoise], level: float
) -> tuple[list[object], list[object]]:
    """Return the ends of the intervals of averages, each the quotient of a noisy sum and a noisy number of rows.

    Conservative: the sum and the number of rows each leave their interval with at most half of the probability that
    the level leaves, so both are inside with at least that of the level, and the exact average is then between the
    smallest and the largest quotient of the two intervals. That the number of rows is at least 1 is used, since no
    average exists otherwise. None where the noisy number is below 1, as the average itself.
    """
    noises[0].reach(level)  # refuses a wrong level
    reaches = [_find_reach(noise, (1.0 - level) / 4.0) for noise in noises]
    low, high = list[object](), list[object]()
    for total, rows in values:
        if rows < 1:
            low.append(None)
            high.append(None)
            continue
        (least, most), (fewest, many) = (
            _surround(noise, steps, reach=reach)
            for noise, steps, reach in zip(noises, (total, rows), reaches, strict=True)
        )
        fewest, many = max(Fraction(1), fewest), max(Fraction(1), many)
        low.append(_round_outwards(least / (many if least > 0 else fewest), -1))
        high.append(_round_outwards(most / (fewest if most > 0 else many), 1))
    return low, high


def _round_outwards(end: Fraction, away: int) -> float:
    """Return the nearest DOUBLE that is not inside of an end."""
    try:
        found = float(end)
    except OverflowError:
        return math.inf if end > 0 else -math.inf
    if (Fraction(found) - end) * away < 0:
        return math.nextafter(found, away * math.inf)
    return found
