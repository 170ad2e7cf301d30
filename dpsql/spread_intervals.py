"""Values and intervals of variances, standard deviations and covariances, from their noisy sums.

Post-processing of what was released. The exact value is that of the weighted rows, in which each unit has one weight.
With N rows, sums of distances S and T from the middles of the ranges, and Q of products less their public middle m,

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
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.intervals import SLACK, ValueNoise, check_level, find_reach
from dpsql.sql.ir.measures import Statistic

_ROUNDING = 1e-12  # of the largest value: far above the rounding error of the DOUBLEs below
_DEGREES = (3, 4)
Steps = int | Fraction


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
        low, high = 0.0 if apart[0][0] <= 0.0 <= apart[0][1] else min(each * each for each in apart[0]), max(moved)
    else:
        low, high = min(moved), max(moved)
    base = first * second + middle
    return base + around[0] - high - _ROUNDING, base + around[1] - low + _ROUNDING


def _solve(mean: float, variance: float, *, rows: float) -> tuple[float, float]:
    """Return the ends of {x : |mean - x| <= sqrt(variance + x^2 rows^2)}, for rows below 1."""
    left = 1.0 - rows * rows
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
