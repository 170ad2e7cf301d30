"""Intervals of released values: between which numbers the exact value lies, by the known law of the noise.

Post-processing of what was released. The exact value is that of the bounded data: each unit within its bounds. That of
an average, variance, standard deviation or covariance is of the weighted rows, in which each unit has one weight.

**Spreads** are computed from noisy sums. With N rows, sums of distances S and T from the middles of the ranges, and Q
of products less their public middle m,

    covariance = m + Q/N - (S/N) (T/N)            a variance has T = S

**One event for every interval.** With independent Gaussian noises Z_i of deviations s_i, i = 1 to k, all linear forms
hold at once: |sum a_i Z_i| <= r sqrt(sum a_i^2 s_i^2) for all a exactly if sum (Z_i / s_i)^2 <= r^2 (Cauchy and
Schwarz), which has the chi-square distribution of k degrees: 3 for a variance (N, S, Q), 4 for a covariance (N, S, T,
Q). The coefficients may be read from the noise. So, for any c and d, the noiseless sums have

    X  in {x : |Q - d S - c T + (c d + m - x) N| <= r sqrt(s_Q^2 + ... + (c d + m - x)^2 s_N^2)}
    u  in {u : |S - u N| <= r sqrt(s_S^2 + u^2 s_N^2)},  v likewise of T

with u, v the exact means and X - (u - c) (v - d) the exact covariance, which is therefore between min X - max of that
product and max X - min of it. c = S/N and d = T/N make the product small. Source: Scheffe 1953 for the set, Fieller
1954 for the quotients.

**Other noises.** A discrete Gaussian is a Gaussian that was rounded, but for a factor 1 / (1 - 1 / (24 s^2)) of every
probability (`maths.md` 10.3): r^2 is taken for these, and what rounding moves, at most half of a step each, is within
sqrt(sum 1 / s_i^2) / 2 more of r, s_i in steps. Of every other noise, and of a deviation below one step, each leaves
its own interval with at most 1/k of the probability: then |sum a_i Z_i| <= sqrt(k) sqrt(sum a_i^2 t_i^2), t_i the half
widths.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dpsql.accounting import discrete_gaussian_offset, laplace_offset
from dpsql.errors import UsageError
from dpsql.sql.ir.measures import Statistic

LEVEL = 0.95  # of intervals, unless another is asked for
_CONVOLVED = 10**6  # variances up to which tails, and the sum of two noises, are added up
SLACK = 1e-9  # relative, far above the rounding error of sums of doubles
_LARGEST, _WIDEST = 2**63 - 1, 38  # BIGINT, and digits of a DECIMAL
_ROUNDING = 1e-12  # of the largest value: far above the rounding error of the DOUBLEs below
_DEGREES = (3, 4)
Steps = int | Fraction


@dataclass(frozen=True, slots=True)
class SharedNoise:
    """Noise of twice a count that shares a total: Z_1 + `factor` * Z_0, independent discrete Gaussians.

    `own` is the variance of Z_1, `shared` that of Z_0, which is the noise of the total.
    """

    own: Fraction
    shared: Fraction
    factor: int


@dataclass(frozen=True, slots=True)
class ValueNoise:
    """Noise of the released values of a measure.

    It is discrete Gaussian of the variance or, with a scale, discrete Laplace, whose variance is at most that; both are
    in steps of which each is worth `step`. With `parts` it is half of that noise: released values are then whole or
    half steps, and shown ones may be rounded to whole ones. `may_be_negative` says that exact values may be.
    """

    variance: Fraction
    scale: Fraction | None = None
    step: Fraction = Fraction(1)
    may_be_negative: bool = False
    parts: SharedNoise | None = None

    def reach(self, level: float) -> int:
        """Return the half width in whole steps of an interval that holds the exact value with probability `level`.

        It is around the value that is shown: a half step that was rounded up or down is within it, since the exact
        value is a whole number of steps.
        """
        check_level(level)
        return math.floor(find_reach(self, (1.0 - level) / 2.0) + Fraction(1, 2))

    def reach_of_difference(self, level: float) -> Fraction:
        """Return the half width in steps of an interval of the difference of two values that are shown.

        Of noise with parts, what the values share is no part of their difference. Of Laplace noise both values are
        within their intervals with at least the probability `level`.
        """
        check_level(level)
        outside = (1.0 - level) / 2.0
        if self.scale is not None:
            return 2 * find_reach(self, outside / 2.0)
        if self.parts is None:
            return Fraction(find_offset(SharedNoise(self.variance, self.variance, 1), outside) - 1)
        reach = find_offset(SharedNoise(self.parts.own, self.parts.own, 1), outside) - 1  # of twice the difference
        return Fraction(math.floor(Fraction(reach, 2) + 1))  # each was rounded by a half at most

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
            # The value that is shown was itself rounded to a DOUBLE: by half of a unit in its last place at most.
            moved = round_outwards(Fraction(value) + by + away * Fraction(math.ulp(value)), away)
            return moved if self.may_be_negative else max(0.0, moved)
        scale = 0 if isinstance(value, int) else -min(0, int(value.as_tuple().exponent))
        end = (Fraction(value) + by) * 10**scale
        least = self.step * 10**scale
        if (least if self.parts is None or least == 1 else least / 2).denominator > 1:  # it was rounded to its type
            end += away * Fraction(1, 2)
        most = _LARGEST if isinstance(value, int) else 10**_WIDEST - 1
        whole = min(max(math.floor(end) if by < 0 else math.ceil(end), -most), most)
        whole = whole if self.may_be_negative else max(0, whole)
        return whole if isinstance(value, int) else Decimal(whole).scaleb(-scale, Context(prec=_WIDEST))


@dataclass(frozen=True, slots=True)
class AveragePlace:
    """What a quotient is the distance of an average from, and the range in which averages lie, if it is known."""

    centre: Fraction = Fraction(0)
    range: tuple[Fraction, Fraction] | None = None

    def put(self, distance: Fraction) -> Fraction:
        """Return the average at a distance from the centre, or the end of the range that it is beyond."""
        found = self.centre + distance
        return found if self.range is None else min(max(found, self.range[0]), self.range[1])


_ANYWHERE = AveragePlace()


def check_level(level: float) -> None:
    """Raise UsageError unless a level is a probability strictly between 0 and 1."""
    if not isinstance(level, int | float) or not 0 < level < 1:
        reason = "The level of an interval must be a number strictly between 0 and 1."
        raise UsageError("level-range", reason, hint="Such as 0.95.")


def find_reach(noise: ValueNoise, outside: float) -> Fraction:
    """Return the half width in steps, whole or halves, that an exact value is beyond at one end with `outside` at most.

    It is around the value as it was released, before it was rounded.
    """
    if noise.parts is not None:
        return Fraction(find_offset(noise.parts, outside) - 1, 2)
    if noise.scale is not None:
        return Fraction(laplace_offset(noise.scale, Fraction(outside)) - 1)
    if noise.variance > _CONVOLVED:  # as of the sum of two noises, of which one is 0 (`maths.md` 10.3)
        spread, share = float(noise.variance), outside * (1.0 - SLACK)
        deviations = -NormalDist().inv_cdf(share * (1.0 - 1.0 / (24.0 * spread))) * (1.0 + SLACK)
        return Fraction(max(1, math.ceil(0.5 + deviations * math.sqrt(spread))) - 1)
    return Fraction(discrete_gaussian_offset(noise.variance, outside) - 1)


@lru_cache(maxsize=1024)
def find_offset(noise: SharedNoise, outside: float) -> int:
    """Return an integer t >= 1 with P[Z_1 + factor * Z_0 >= t] <= outside: the least where the noise is narrow.

    Of noise up to a variance of 1e6 in both parts, all sums are added up; what lies beyond their ends is bounded by
    exp(-x^2 / (2 variance)) (arXiv:2004.00010, Corollary 7). Of wider noise the bound of `_find_wide_offset` is taken.
    """
    if max(noise.own, noise.shared) > _CONVOLVED:
        return max(1, math.ceil(_find_wide_offset(noise, outside, factor=abs(noise.factor))))
    beyond = 2.0 * math.log(1.0 / outside) + 60.0  # ends where less than 1e-13 of `outside` is left
    own, shared = (_find_masses(float(variance), beyond) for variance in (noise.own, noise.shared))
    tails = np.cumsum(own[::-1])[::-1]  # P[Z_1 >= t] at t = -ends, ..., ends
    ends, far = len(own) // 2, len(shared) // 2
    moved = abs(noise.factor) * np.arange(-far, far + 1)

    def tail(at_least: int) -> float:
        # P[Z_1 >= t - factor * z]: below the sum's first index that is 1, beyond its last one 0.
        index = at_least - moved + ends
        found = np.where(index < 0, 1.0, np.where(index > 2 * ends, 0.0, tails[np.clip(index, 0, 2 * ends)]))
        return float(np.dot(shared, found)) * (1.0 + SLACK)

    low, high = 0, ends + abs(noise.factor) * far + 1  # P[>= 0] > 1/2, above any `outside`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(middle) <= outside else (middle, high)
    return high


def _find_masses(variance: float, beyond: float) -> npt.NDArray[np.float64]:
    """Return the probabilities of a discrete Gaussian at -n, ..., n, n**2 >= `beyond` * variance; their sum is 1."""
    ends = math.ceil(math.sqrt(beyond * variance)) + 1
    points = np.arange(-ends, ends + 1, dtype=np.float64)
    masses = np.exp(points * points / (-2.0 * variance))
    found: npt.NDArray[np.float64] = masses / masses.sum()
    return found


def _find_wide_offset(noise: SharedNoise, outside: float, *, factor: float) -> float:
    """Return a number t with P[Z_1 + factor * Z_0 >= t] <= outside, for any real `factor` >= 0.

    The mass of N_Z(0, s^2) at z is at most that of a Gaussian on [z - 1/2, z + 1/2] over 1 - 1 / (24 s^2): its density
    there is, by cosh >= 1, at least exp(-z^2 / (2 s^2)) (1 - u^2 / (2 s^2)) at z + u and z - u together, and the sum of
    the masses is at least the integral (Poisson summation). So the sum is that of two rounded Gaussians, each moved by
    at most 1/2, but for these factors (`maths.md` 10.3).
    """
    own, shared = float(noise.own), float(noise.shared)
    return (1.0 + factor) / 2.0 + _find_deviations(noise, outside) * math.sqrt(own + factor * factor * shared)


def _find_deviations(noise: SharedNoise, outside: float) -> float:
    """Return how many deviations of the two Gaussians are needed, rounded up."""
    own, shared = float(noise.own), float(noise.shared)
    share = outside * (1.0 - 1.0 / (24.0 * own)) * (1.0 - 1.0 / (24.0 * shared)) * (1.0 - SLACK)
    return -NormalDist().inv_cdf(share) * (1.0 + SLACK)


def widen_shares(
    values: Sequence[int | None], total: int, *, noise: SharedNoise, level: float
) -> tuple[list[float | None], list[float | None]]:
    """Return the ends of the intervals of shares of `total`, the noisy number of units; None for None.

    `values` are numbers of units that share the total, each shown rounded to a whole one. For the exact share s of a
    value, twice the value minus 2 s `total` is Z_1 + (factor - 2 s) Z_0: the interval has the shares at which that is
    no further out than its law allows (Fieller's). It is within 0 and 1, and all of that where the total is too small
    beside its noise to tell anything.
    """
    check_level(level)
    outside, nothing = (1.0 - level) / 2.0, [None if each is None else 0.0 for each in values]
    all_of_it = [None if each is None else 1.0 for each in values]
    if min(noise.own, noise.shared) < 1:
        return nothing, all_of_it
    slope = 1.0 + 2.0 * _find_deviations(noise, outside) * math.sqrt(float(noise.shared))
    if 2.0 * total <= slope:  # else the distance below falls from each share to the next
        return nothing, all_of_it

    def reach(share: float) -> float:
        """Return how far out the noise is, and the half by which the value was rounded, doubled."""
        return 1.0 + _find_wide_offset(noise, outside, factor=abs(noise.factor - 2.0 * share))

    def find_end(value: int | None, away: int) -> float | None:
        if value is None:
            return None
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2.0
            is_above = 2.0 * value - 2.0 * middle * total + away * reach(middle) > 0.0
            low, high = (middle, high) if is_above else (low, middle)
        return high if away > 0 else low

    return [find_end(each, -1) for each in values], [find_end(each, 1) for each in values]


def widen_quotients(
    values: Sequence[tuple[int | Fraction, int | Fraction]],
    *,
    noises: tuple[ValueNoise, ValueNoise],
    level: float,
    place: AveragePlace = _ANYWHERE,
) -> tuple[list[object], list[object]]:
    """Return the ends of the intervals of averages, each the quotient of a noisy sum and a noisy number of rows.

    Both are in steps. The averages are those of the weighted rows, in which each unit has one weight.

    Conservative: the sum and the number of rows each leave their interval with at most half of the probability that
    the level leaves, so both are inside with at least that of the level, and the exact average is then between the
    smallest and the largest quotient of the two intervals. That the number of rows is at least 1 is used, since no
    average exists otherwise. None where the noisy number is below 1, as the average itself.
    """
    noises[0].reach(level)  # refuses a wrong level
    reaches = [find_reach(noise, (1.0 - level) / 4.0) for noise in noises]
    low, high = list[object](), list[object]()
    for total, rows in values:
        if rows * noises[1].step < 1:
            low.append(None)
            high.append(None)
            continue
        ends = []
        for noise, steps, reach in zip(noises, (total, rows), reaches, strict=True):
            pair = ((steps - reach) * noise.step, (steps + reach) * noise.step)
            ends.append(pair if noise.may_be_negative else (max(Fraction(0), pair[0]), max(Fraction(0), pair[1])))
        (least, most), (fewest, many) = ends
        fewest, many = max(Fraction(1), fewest), max(Fraction(1), many)
        # A sum above 0 gives the least quotient with the most rows, and one below 0 with the fewest.
        low.append(round_outwards(place.put(least / (many if least > 0 else fewest)), -1))
        high.append(round_outwards(place.put(most / (fewest if most > 0 else many)), 1))
    return low, high


def round_outwards(end: Fraction, away: int) -> float:
    """Return the nearest DOUBLE that is not inside of an end."""
    try:
        found = float(end)
    except OverflowError:
        return math.inf if end > 0 else -math.inf
    if (Fraction(found) - end) * away < 0:
        return math.nextafter(found, away * math.inf)
    return found


@dataclass(frozen=True, slots=True)
class SpreadLaw:
    """What is public of a statistic: the noises of its sums, in the order of their steps, and the ranges of a row.

    The steps are those of N, of the sum of distances of each argument, and of the products. `halves` are half of the
    range of each argument; one for a variance, whose products are squares. `middle` is what was subtracted from them.
    """

    statistic: Statistic
    noises: tuple[ValueNoise, ...]
    halves: tuple[Fraction, ...]
    middle: Fraction = Fraction(0)

    def compute(self, steps: Sequence[Steps]) -> float | None:
        """Return the value for noisy steps; NULL for fewer than one row, and for fewer than two of a sample."""
        rows, *sums, products = (each * noise.step for each, noise in zip(steps, self.noises, strict=True))
        if rows < self.statistic.fewest_rows:
            return None
        least, most = self._range
        spread = self.middle + products / rows - sums[0] * sums[-1] / rows**2
        return self._finish(float(min(max(spread, least), most)), float(rows))

    def widen(self, steps: Sequence[Steps], level: float) -> tuple[float, float] | None:
        """Return the ends of the interval that has the exact value with at least the probability `level`; or None."""
        axes = find_axes(self.noises, level)
        values = [float(each * noise.step) for each, noise in zip(steps, self.noises, strict=True)]
        if values[0] < self.statistic.fewest_rows:
            return None
        scale = [1.0, *map(float, self.halves), float(math.prod(self.halves) ** (2 if len(self.halves) == 1 else 1))]
        rows = values[0]
        means = [each / size / rows for each, size in zip(values, scale, strict=True)]
        widths = [each / size / rows for each, size in zip(axes, scale, strict=True)]
        least, most = (float(each) for each in self._range)
        found = _find_ends(means[1:], widths, middle=float(self.middle) / scale[-1])
        low, high = (least, most) if found is None else (min(max(end * scale[-1], least), most) for end in found)
        fewest = max(float(self.statistic.fewest_rows), rows - axes[0])
        # Of a sample the spread is multiplied by n / (n - 1), which falls in n: each end takes the n that widens the
        # interval.
        ends = [(low, rows + axes[0] if low > 0 else fewest), (high, fewest if high > 0 else rows + axes[0])]
        return tuple(self._finish(end, number) for end, number in ends)  # type: ignore[return-value]

    def find_end(self, steps: Sequence[Steps], level: float, *, is_high: bool) -> float | None:
        """Return one end of the interval."""
        ends = self.widen(steps, level)
        return None if ends is None else ends[is_high]

    @property
    def _range(self) -> tuple[Fraction, Fraction]:
        """Least and greatest value over a population: of a variance 0 and h^2."""
        first, last = self.halves[0], self.halves[-1]
        return (-first * last, first * last) if len(self.halves) > 1 else (Fraction(0), first * first)

    def _finish(self, spread: float, rows: float) -> float:
        """Return the statistic of a variance or covariance of the population."""
        if self.statistic.is_of_sample:
            spread *= rows / (rows - 1.0)
        return math.sqrt(spread) if self.statistic.is_root else spread


def _find_ends(means: Sequence[float], widths: Sequence[float], *, middle: float) -> tuple[float, float] | None:
    """Return the ends of the exact spread in parts of the largest product; None where nothing is known of it.

    `means` are the sums by row, the products last; `widths` are those of N, and of these. All are parts of the largest.
    """
    (rows, *_, of_products), (product,) = widths, means[-1:]
    left = 1.0 - rows * rows
    if left <= 0.0:
        return None
    centres = [min(max(each, -1.0), 1.0) for each in means[:-1]]
    first, second = centres[0], centres[-1]
    if len(centres) == 1:
        own, noise = product - 2.0 * first * means[0], 4.0 * first * first * widths[1] ** 2
    else:
        own = product - second * means[0] - first * means[1]
        noise = (second * widths[1]) ** 2 + (first * widths[2]) ** 2
    around = _solve(own, noise + of_products**2, rows=rows)  # of x - c d - m
    apart = [
        tuple(end - centre for end in _solve(mean, width**2, rows=rows))
        for mean, width, centre in zip(means[:-1], widths[1:-1], centres, strict=True)
    ]
    moved = [one * other for one in apart[0] for other in apart[-1]]
    if len(centres) == 1:
        # A square: where the interval holds 0 it may be 0, although no product of two ends is.
        low, high = 0.0 if apart[0][0] <= 0.0 <= apart[0][1] else min(each * each for each in apart[0]), max(moved)
    else:
        low, high = min(moved), max(moved)
    base = first * second + middle
    return base + around[0] - high - _ROUNDING, base + around[1] - low + _ROUNDING


def _solve(mean: float, variance: float, *, rows: float) -> tuple[float, float]:
    """Return the ends of {x : |mean - x| <= sqrt(variance + x^2 rows^2)}, for rows below 1."""
    left = 1.0 - rows * rows
    # mean - x|**2 <= variance + x**2 rows**2 is a parabola that opens upwards, since rows is below 1.
    half = math.sqrt(variance * left + (rows * mean) ** 2)
    return (mean - half) / left, (mean + half) / left


def find_axes(noises: Sequence[ValueNoise], level: float) -> list[float]:
    """Return for each noise the half width t_i, such that |sum a_i Z_i| <= sqrt(sum a_i^2 t_i^2) for all a at once.

    This holds with at least the probability `level`. Widths and noises are those of values.
    """
    check_level(level)
    variances = [_find_variances(noise) for noise in noises]
    parts = [each for found in variances for each, _ in found]
    if not parts or min(parts) < 1 or not all(variances):
        each = (1.0 - level) / (2.0 * len(noises))
        reaches = [float(find_reach(noise, each) * noise.step) for noise in noises]
        return [reach * math.sqrt(len(noises)) for reach in reaches]
    outside = (1.0 - level) * math.prod(1.0 - 1.0 / (24.0 * each) for each in parts) * (1.0 - SLACK)
    # of each noise the variance of its Gaussian, and what rounding moves it by at most, in steps
    rounded = [
        (sum(part * by * by for part, by in found), sum(abs(by) for _, by in found) / 2.0) for found in variances
    ]
    radius = math.sqrt(find_chi_square(outside, len(noises))) * (1.0 + SLACK)
    radius += math.sqrt(sum(moved * moved / variance for variance, moved in rounded))
    return [
        radius * math.sqrt(variance) * float(noise.step) for (variance, _), noise in zip(rounded, noises, strict=True)
    ]


def _find_variances(noise: ValueNoise) -> list[tuple[float, float]]:
    """Return the discrete Gaussians that add up to a noise in steps: each its variance, and by what it is multiplied.

    None for another noise.
    """
    if noise.parts is not None:
        return [(float(noise.parts.own), 0.5), (float(noise.parts.shared), noise.parts.factor / 2.0)]
    return [] if noise.scale is not None else [(float(noise.variance), 1.0)]


def find_chi_square(outside: float, degrees: int) -> float:
    """Return the number above which a chi-square of 3 or 4 degrees is with the probability `outside`, rounded up.

    3 degrees: erfc(sqrt(x / 2)) + sqrt(2 x / pi) exp(-x / 2); 4 degrees: (1 + x / 2) exp(-x / 2).
    """
    assert degrees in _DEGREES  # noqa: S101 - of a variance and of a covariance

    def tail(x: float) -> float:
        if degrees == _DEGREES[0]:
            return math.erfc(math.sqrt(x / 2.0)) + math.sqrt(2.0 * x / math.pi) * math.exp(-x / 2.0)
        return (1.0 + x / 2.0) * math.exp(-x / 2.0)

    low, high = 0.0, 1.0
    while tail(high) > outside:
        high *= 2.0
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (low, middle) if tail(middle) <= outside else (middle, high)
    return high * (1.0 + SLACK)


@dataclass(frozen=True, slots=True)
class WeightedNoise:
    """Noise of a weighted sum of independent discrete Gaussians: a factor, a variance and how many of each."""

    parts: tuple[tuple[float, float, int], ...]

    @property
    def variance(self) -> float:
        """Variance of the sum, at most: a discrete Gaussian has no more than that of its name."""
        return sum(number * factor * factor * variance for factor, variance, number in self.parts)

    @lru_cache(maxsize=64)  # noqa: B019 - of values, not of what holds anything
    def find_reach(self, outside: float) -> float:
        """Return a number that the noise is above with at most the probability `outside`.

        A Gaussian of 1/600 of its deviation s is added, which makes the characteristic function fall off and moves the
        end by six of its own deviations, 1 % of s, but for 1e-9. By the Fourier series of a step, with period 30 s,

            P[X > r] = 1/2 - h r / (2 pi) - sum over j >= 1 of sin(j h r) E[cos(j h X)] / (pi j),  h = 2 pi / (30 s)

        for all |X - r| < 30 s; X is beyond 15 s with less than exp(-112), as it is subgaussian (arXiv:2004.00010).
        """
        deviation = math.sqrt(self.variance)
        step, smooth = 2.0 * math.pi / (30.0 * deviation), deviation / 600.0
        terms = np.arange(1, math.ceil(7.0 / (smooth * step)), dtype=np.float64)
        law: npt.NDArray[np.float64] = np.exp((smooth * step * terms) ** 2 / -2.0)
        for factor, variance, number in self.parts:
            law = law * _find_characteristic(variance, factor * step * terms) ** number

        def tail(end: float) -> float:
            return (
                0.5 - step * end / (2.0 * math.pi) - float(np.sum(np.sin(terms * step * end) * law / terms)) / math.pi
            )

        low, high = 0.0, 10.0 * deviation
        for _ in range(50):
            middle = (low + high) / 2.0
            low, high = (low, middle) if tail(middle) <= outside * (1.0 - SLACK) - 1e-8 else (middle, high)
        return high + 6.0 * smooth


def _find_characteristic(variance: float, angles: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return E[cos(a Z)] of a discrete Gaussian: by Poisson summation, a sum of Gaussians around multiples of 2 pi."""
    turn = 2.0 * math.pi
    inside = angles - turn * np.round(angles / turn)
    most = math.ceil(9.0 / (turn * math.sqrt(variance)) + 0.5)
    copies = turn * np.arange(-most, most + 1)
    found: npt.NDArray[np.float64] = np.exp((inside[:, None] - copies) ** 2 * variance / -2.0).sum(axis=1)
    whole: float = np.exp(copies**2 * variance / -2.0).sum()
    found /= whole
    return found
