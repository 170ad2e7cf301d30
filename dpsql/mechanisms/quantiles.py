"""One bin of a public axis, by one draw of the exponential mechanism with ranks as scores.

`ExponentialQuantile` draws the bin that holds a wanted quantile. `RankFromTop` draws the bin that about so many units
are above, for bounds of what one unit adds: what it adds to a sum is cut off at a bound U, a higher bound adds noise,
and a lower one cuts off more. For a sum that is released with noise of standard deviation 2 U / e the best bound is the
one that a certain number of units are above, whatever their number is: about 3 / e. No quantile is right for 1,000
units and for 1,000,000.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.accounting import ZCDP, BoundedRange
from dpsql.errors import UsageError
from dpsql.mechanisms.base import COUNT_LIMIT, FALSE_ALARM, LEAST_EPSILON, check_epsilon
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.mechanisms.sampling.race import race
from dpsql.quantities import Delta, Epsilon

LARGEST_DENOMINATOR = 1_000  # of a wanted quantile
MOST_SHIFT = 10
_LARGEST_RANGE = 2**24  # of scores, so that those of 2**33 units stay below 2**57


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
        # Rounded either way: a lead is a public number, the same for neighbours, so that the loss does not depend on
        # it.
        return self.range * Fraction(round(math.log(self.bins / FALSE_ALARM) * 10**6), 10**6) / self.epsilon.value

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
        # `race` has BOTTOM, which is None here, at the position after all bins.
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


BEST_RANK = 3  # units above the best bound of a sum, times the epsilon of an item
FALSE_BIN = Fraction(1, 1000)  # how often a bin above all units may be drawn
TILT = 3  # how much worse too few units above are than too many
_RANGE = 1 + TILT  # by which one unit can change two scores differently: one falls by 1, the other rises by TILT


@dataclass(frozen=True, slots=True)
class RankFromTop:
    """Draw the bin in which the unit of a rank from the top is, or None where there are too few units to tell.

    With A units above a bin and T in it or above, its score is -max(0, A - rank, 3 (rank - T)): the distance of the
    rank from those of the bin, 0 for the right one. A bin too high counts three times, because it may be far above all
    units, where a bin too low is near. None has the score rank + margin - N, for N units.
    Given: every unit is in one bin of a public list; so one unit more changes each score by -1 to 3, and that of None
    by -1. epsilon is at least 1e-9, and the rank at least `find_least_rank` of it.
    Returns: the position of a bin, or None.
    Loss: epsilon-bounded range, hence rho = epsilon**2 / 8; delta 0.
    Utility: of at least `rank` units, a bin above all units is drawn with probability 0.001 at most. Of at most `rank`
    units any bin is drawn, and of `units_needed` or more None is, with probability 0.05 at most. More than rank + t
    units are above the bin with probability bins * exp(-epsilon t / 4) at most, and fewer than rank - t in it or above
    with bins * exp(-3 epsilon t / 4).
    Cost: O(bins).
    Source: `maths.md` 9.8; the exponential mechanism of McSherry and Talwar 2007 with the bounded range of Durfee and
    Rogers 2019, arXiv:1905.04273, Lemma 4.2: differences of two scores change by at most 4. The score is of a quantile
    (Smith 2011, Privacy-preserving statistical estimation) with ranks on both sides of a bin, for bins of many units.

    >>> RankFromTop.for_sums(Epsilon("0.2"), bins=128, item=Epsilon("0.05"))
    RankFromTop(epsilon=Epsilon(0.2), rank=79, bins=128)
    """

    epsilon: Epsilon
    rank: int
    bins: int

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon, _RANGE)
        if self.bins < 1:
            raise UsageError("bins-range", "There must be at least 1 bin.", hint="Give the number of bins.")
        least = self.find_least_rank(self.epsilon, self.bins)
        if self.rank < least:
            reason = f"A rank below {least} would be drawn from bins above all units."
            raise UsageError("rank-range", reason, hint=f"Give a rank of at least {least}, or a larger epsilon.")

    @staticmethod
    def find_least_rank(epsilon: Epsilon, bins: int) -> int:
        """Return the rank from which all bins above all units together weigh 0.001 of the right one at most."""
        return math.ceil(_RANGE * math.log(bins / float(FALSE_BIN)) / float(TILT * epsilon.value))

    @classmethod
    def for_sums(cls, epsilon: Epsilon, *, bins: int, item: Epsilon, groups: int = 1) -> RankFromTop:
        """Return the mechanism with the best rank of a bound for sums of one `item` each, in so many groups."""
        best = math.ceil(BEST_RANK * groups / item.value)
        return cls(epsilon, max(best, cls.find_least_rank(epsilon, bins)), bins)

    @property
    def margin(self) -> int:
        """Return the distance of two scores at which all bins of the lower one together weigh 0.05 of the other."""
        return math.ceil(_RANGE * math.log(self.bins / float(FALSE_ALARM)) / float(self.epsilon.value))

    @property
    def units_needed(self) -> int:
        """Return the number of units from which None is drawn with probability 0.05 at most."""
        rest = math.ceil(_RANGE * math.log(1 / float(FALSE_ALARM)) / float(self.epsilon.value))
        return self.rank + self.margin + rest

    @property
    def loss(self) -> ZCDP:
        """Return what a draw costs, whatever is drawn."""
        return ZCDP(BoundedRange(self.epsilon).rho, Delta(0))

    def score(self, counts: Sequence[int]) -> tuple[list[int], int]:
        """Return the scores of the bins with so many units each, in ascending order of the axis, and that of None."""
        scores, total, below = list[int](), sum(counts), 0
        # `inside` is T, the units in the bin or above it; total - below, once the bin is added, is A, those above it.
        for count in counts:
            inside = total - below
            below += count
            scores.append(-max(0, total - below - self.rank, TILT * (self.rank - inside)))
        return scores, self.rank + self.margin - total

    def select(self, counts: Sequence[int], noise: Noise) -> int | None:
        """Draw a bin with the exact law of the exponential mechanism; `counts` has the units of each bin."""
        if len(counts) != self.bins or min(counts) < 0 or TILT * sum(counts) >= COUNT_LIMIT:
            reason = "There must be a number of units for each bin, less than 2**51 in all."
            raise UsageError("histogram-counts", reason, hint="Give 0 for a bin without units.")
        scores, none = self.score(counts)
        (drawn,) = race(scores, Fraction(none), epsilon=self.epsilon.value / _RANGE, steps=1, noise=noise)
        return None if drawn == self.bins else drawn
