"""Rank from the top: a bin of a public axis that about so many units are above, for bounds of what one unit adds.

What one unit adds to a sum is cut off at a bound U. A higher bound adds noise, a lower one cuts off more. For a sum
that is released with noise of standard deviation 2 U / e the best bound is the one that a certain number of units are
above, whatever their number is: about 3 / e. No quantile is right for 1,000 units and for 1,000,000.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, BoundedRange
from dpsql.errors import UsageError
from dpsql.mechanisms.base import COUNT_LIMIT, check_epsilon
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.mechanisms.sampling.race import race
from dpsql.quantities import Delta, Epsilon

BEST_RANK = 3  # units above the best bound of a sum, times the epsilon of an item
FALSE_BIN = Fraction(1, 1000)  # how often a bin above all units may be drawn
FALSE_ALARM = Fraction(1, 20)  # how often a bin may be drawn of too few units
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
