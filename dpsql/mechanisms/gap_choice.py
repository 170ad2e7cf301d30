"""Let the data choose k: at a wide gap between the k-th count and the next, by an exponential mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from dpsql.accounting import ZCDP, BoundedRange
from dpsql.errors import UsageError
from dpsql.mechanisms.histogram import COUNT_LIMIT, Histogram
from dpsql.mechanisms.parameters import check_epsilon, check_leaders, check_sensitivity
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.mechanisms.sampling.race import race
from dpsql.quantities import Delta, Epsilon

__all__ = ["GapChoice", "distance_regulariser"]


def distance_regulariser(k: int, k_bar: int, *, penalty: Fraction) -> tuple[int, ...]:
    """Return -penalty * |j - k|, rounded up, for j in 1..k_bar: a gap must be wider to draw the choice away from k."""
    if not 0 <= penalty * k_bar < COUNT_LIMIT:
        raise UsageError("penalty-range", "The penalty must be at least 0, and less than 2**53 for all of k_bar.")
    return tuple(-int(penalty * abs(j - k)) for j in range(1, k_bar + 1))


@dataclass(frozen=True, slots=True)
class GapChoice:
    """Choose k in 1..k_bar with weights exp(epsilon * (gap after the k-th + regulariser) / (2 * sensitivity)).

    Given: epsilon of at least 1e-9; k_bar is public; `regulariser` holds an integer for each of 1..k_bar that does
    not depend on data (empty: none). The histogram holds the k_bar first groups and the count after them; its gaps go
    on with zeros where groups are missing. Nothing bounds how many groups a privacy unit is in. `sensitivity` is the
    most by which the difference of two counts moves between neighbours: 1 where they differ by one unit more, 2 where
    one unit is exchanged for another, R where counts are sums to which one unit adds at most R.
    Returns: k, private in itself.
    Loss: epsilon-bounded range, hence rho = epsilon**2 / 8 and delta 0. A gap moves by its sensitivity either way,
    so it is not monotone and the half is needed.
    Utility: with probability 1 - beta the chosen gap plus regulariser is within
    2 * sensitivity * ln(k_bar / beta) / epsilon of the largest.
    Cost: O(k_bar), whatever the counts.
    Source: Zhu and Wang 2022, Adaptive Private-K-Selection (AISTATS), Algorithm 1 and Proposition 7; k-bar = k_bar,
    r = regulariser. Gumbel(2 / epsilon) there is for one unit more; for one exchanged see `maths.md` 7.6.

    >>> GapChoice(Epsilon("0.4"), 3, distance_regulariser(2, 3, penalty=Fraction(3, 2))).regulariser
    (-1, 0, -1)
    """

    epsilon: Epsilon
    k_bar: int
    regulariser: tuple[int, ...] = ()
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check_sensitivity(self.sensitivity)
        check_epsilon(self.epsilon, self.sensitivity)
        if self.k_bar < 1:
            raise UsageError("k-range", "k_bar must be at least 1.")
        whole = all(type(each) is int and abs(each) < COUNT_LIMIT for each in self.regulariser)
        if not whole or len(self.regulariser) not in (0, self.k_bar):
            raise UsageError("regulariser", "A regulariser holds one integer below 2**53 for each of 1 to k_bar.")

    @property
    def loss(self) -> ZCDP:
        """Return what a choice costs."""
        return ZCDP(BoundedRange(self.epsilon).rho, Delta(0))

    def gaps(self, histogram: Histogram) -> tuple[int, ...]:
        """Return the exact gaps after the 1st to the k_bar-th count."""
        return tuple(higher - lower for higher, lower in pairwise(histogram.padded(self.k_bar + 1)))

    def choose(self, histogram: Histogram, noise: Noise) -> int:
        """Draw k with the exact law of the exponential mechanism."""
        check_leaders(histogram, self.k_bar)
        regulariser = self.regulariser or (0,) * self.k_bar
        scores = [gap + more for gap, more in zip(self.gaps(histogram), regulariser, strict=True)]
        [last] = race(scores, None, epsilon=self.epsilon.value / (2 * self.sensitivity), steps=1, noise=noise)
        return last + 1
