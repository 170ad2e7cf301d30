"""Private quantile: the bin of a public grid that holds a wanted rank, by one draw of the exponential mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.accounting import ZCDP, BoundedRange
from dpsql.errors import UsageError
from dpsql.mechanisms.base import check_epsilon
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.mechanisms.sampling.race import LEAST_EPSILON, race
from dpsql.quantities import Delta, Epsilon

LARGEST_DENOMINATOR = 1_000  # of a wanted quantile
MOST_SHIFT = 10
_LARGEST_RANGE = 2**24  # of scores, so that those of 2**33 units stay below 2**57
OUTSIDE = Fraction(1, 20)  # probability of an answer outside the bins of the data


@dataclass(frozen=True, slots=True)
class ExponentialQuantile:
    """Draw the bin that holds the `wanted` quantile of weighted rows, or no bin where the rows are too few to tell.

    Given: the wanted quantile p / d, above 0 and below 1, with d of at most 1,000; `bins` public bins in ascending
    order; for each bin the weight of the rows in it, in steps of 2**-shift rows. One unit weighs at most `rows` rows in
    all: n rows of a unit in a bin weigh n * 2**shift where the unit has at most `rows`, and else
    floor(n * rows * 2**shift / (the unit's rows)). `find_shift` finds the shift.
    Returns: the number of a bin, from 0, or None.
    Scores: with the weights N< below a bin, N<= up to it, N>= from it on and N> above it,

        score(bin)  = -max(0, (d - p) N< - p N>=, p N> - (d - p) N<=)
        score(None) = R ln(bins / 0.05) / epsilon - min(p, d - p) N,         R = 2 max(p, d - p) rows 2**shift.

    A bin's score is its distance, in ranks, from the wanted one: 0 for the bin that holds it, also among equal values.
    A unit of weight w changes a score by at most max(p, d - p) w upwards or downwards, and that of None by 0 to
    -min(p, d - p) w, so that the changes of two scores differ by at most R.
    Loss: epsilon-bounded range, hence rho = epsilon**2 / 8; delta 0.
    Utility: the answer is a bin below or above all rows with probability at most 0.05, whatever the rows are: the score
    of such a bin is at most -min(p, d - p) N, which None exceeds by R ln(20 bins) / epsilon. The rank of a bin that is
    drawn is further than `rank_error` rows from the wanted one with probability at most beta.
    Cost: O(bins log(bins)).
    Source: McSherry and Talwar 2007, Mechanism Design via Differential Privacy (FOCS); bounded range: Dong, Durfee and
    Rogers 2020, Optimal Differential Privacy Composition for Exponential Mechanisms (ICML); quantiles: Smith 2011,
    Privacy-preserving Statistical Estimation with Optimal Convergence Rates (STOC), here with ranks of bins.

    >>> median = ExponentialQuantile(Epsilon("0.2"), Fraction(1, 2), bins=1024, rows=1, shift=10)
    >>> median.loss.rho, round(median.rank_error())
    (Rho(0.005), 50)
    """

    name: ClassVar[str] = "quantiles"
    epsilon: Epsilon
    wanted: Fraction
    bins: int
    rows: int
    shift: int

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if not 0 < self.wanted < 1 or self.wanted.denominator > LARGEST_DENOMINATOR:
            raise UsageError("quantile-range", "A quantile is above 0 and below 1, with at most three decimals.")
        if self.bins < 1 or self.rows < 1 or not 0 <= self.shift <= MOST_SHIFT:
            raise UsageError("quantile-range", "Bins and rows are at least 1, and the shift is 0 to 10.")
        if self.range > _LARGEST_RANGE or self.rate < LEAST_EPSILON:
            raise UsageError("quantile-range", "One unit has too many rows for this epsilon.")

    @property
    def most_weight(self) -> int:
        """Return the largest weight of one unit: that of its rows together."""
        return self.rows << self.shift

    @property
    def range(self) -> int:
        """Return by how much the changes of two scores differ at most, where one unit is added or removed."""
        return _multiply(self.wanted) * self.most_weight

    @property
    def rate(self) -> Fraction:
        """Return the factor of the scores in the exponent."""
        return self.epsilon.value / self.range

    @property
    def loss(self) -> ZCDP:
        """Return what a draw costs."""
        return ZCDP(BoundedRange(self.epsilon).rho, Delta(0))

    @property
    def lead(self) -> Fraction:
        """Return by how much the score of no bin is above that of a bin, where there are no rows."""
        return self.range * Fraction(round(math.log(self.bins / OUTSIDE) * 10**6), 10**6) / self.epsilon.value

    def rank_error(self, beta: float = 0.05) -> float:
        """Return how many rows are at most between the answer and the wanted rank, but with probability `beta`."""
        of_row = self.range / self.most_weight / self.wanted.denominator * self.rows
        return of_row * math.log(self.bins / beta) / float(self.epsilon.value)

    @property
    def fewest_rows(self) -> float:
        """Return from about how many rows on a bin is more likely than None."""
        side = min(self.wanted, 1 - self.wanted)
        return float(self.lead / self.wanted.denominator / side / (1 << self.shift))

    def score(self, weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the score of each bin."""
        p, d = self.wanted.numerator, self.wanted.denominator
        up_to = np.cumsum(weights, dtype=np.int64)
        total, below = int(up_to[-1]), up_to - weights
        too_high = (d - p) * below - p * (total - below)
        too_low = p * (total - up_to) - (d - p) * up_to
        scores: npt.NDArray[np.int64] = -np.maximum(0, np.maximum(too_high, too_low))
        return scores

    def score_of_none(self, total: int) -> Fraction:
        """Return the score of no bin, given the weight of all rows."""
        side = min(self.wanted, 1 - self.wanted)
        return self.lead - int(side * self.wanted.denominator) * total

    def select(self, weights: npt.NDArray[np.int64], noise: Noise) -> int | None:
        """Draw a bin, or None."""
        bottom = self.score_of_none(int(weights.sum(dtype=np.int64)))
        (drawn,) = race(self.score(weights).tolist(), bottom, epsilon=self.rate, steps=1, noise=noise)
        return drawn if drawn < self.bins else None


def find_shift(wanted: Fraction, rows: int, *, epsilon: Epsilon) -> int | None:
    """Return the largest shift, at most 10, that a quantile of units of so many rows has; None where it has none."""
    width = _multiply(wanted) * rows
    for shift in range(MOST_SHIFT, -1, -1):
        if width << shift <= _LARGEST_RANGE and epsilon.value / (width << shift) >= LEAST_EPSILON:
            return shift
    return None


def _multiply(wanted: Fraction) -> int:
    """Return by how much one step of weight changes the difference of two scores at most."""
    return 2 * max(wanted.numerator, wanted.denominator - wanted.numerator)
