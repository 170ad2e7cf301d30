"""Stable top-k: let the data choose k at a wide gap, then release that many leaders, unordered, if the gap holds.

Let the data choose k: at a wide gap between the k-th count and the next, by an exponential mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from dpsql.accounting import ZCDP, BoundedRange, BoundedRangeCurve, CurveSum, RenyiCurve
from dpsql.errors import UsageError
from dpsql.mechanisms.base import COUNT_LIMIT, Histogram, check_epsilon, check_leaders, check_sensitivity
from dpsql.mechanisms.propose_test_release import PTRGaussian
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.mechanisms.sampling.race import race
from dpsql.quantities import Delta, Epsilon


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

    @property
    def curve(self) -> BoundedRangeCurve:
        """Return the Renyi curve of a choice, which is below that of its rho at large orders."""
        return BoundedRangeCurve(BoundedRange(self.epsilon))

    def gaps(self, histogram: Histogram) -> tuple[int, ...]:
        """Return the exact gaps after the 1st to the k_bar-th count."""
        return tuple(higher - lower for higher, lower in pairwise(histogram.padded(self.k_bar + 1)))

    def scores(self, histogram: Histogram) -> tuple[int, ...]:
        """Return the exact gaps plus the regulariser."""
        check_leaders(histogram, self.k_bar)
        regulariser = self.regulariser or (0,) * self.k_bar
        return tuple(gap + more for gap, more in zip(self.gaps(histogram), regulariser, strict=True))

    def choose(self, histogram: Histogram, noise: Noise) -> int:
        """Draw k with the exact law of the exponential mechanism."""
        scores = self.scores(histogram)
        [last] = race(scores, None, epsilon=self.epsilon.value / (2 * self.sensitivity), steps=1, noise=noise)
        return last + 1


_LEAST_EPSILON = Fraction(1, 10**4)  # keeps the variance within what integer tails are computed for


@dataclass(frozen=True, slots=True)
class StableSelection:
    """The k that was chosen, and the positions of the k leaders; None if the gap after them did not hold.

    The positions are a set: whoever shows the labels must put them in an order that does not depend on their counts.
    With fewer than k groups in all the set holds those that exist.
    """

    k: int
    positions: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class StableTopK:
    """Choose k in 1..k_bar by the gap after the k-th count, test the gap in private, release the k leaders if it holds.

    Given: epsilon of at least 1e-4 sets both noises; delta in (0, 1) is this query's; k_bar is public; `regulariser`
    adds to each gap an integer that does not depend on data (empty: none), as `distance_regulariser` makes them. The
    histogram holds the k_bar first groups and the count after them; its gaps go on with zeros where groups are
    missing. Nothing bounds how many groups a privacy unit is in. `sensitivity` is the most by which the difference of
    two counts moves between neighbours: 1 where they differ by one unit more, 2 where one unit is exchanged, R where
    counts are sums to which one unit adds at most R.
    Returns: a `StableSelection`; k is private in itself, the labels are an unordered set.
    Loss: rho = epsilon**2 / 4 and delta, whether or not labels are released: epsilon**2 / 8 for the choice of k, which
    races weights exp(epsilon * gap / (2 * sensitivity)) (a gap moves either way, so it is not monotone and the half is
    needed), and sensitivity**2 / (2 sigma**2) = epsilon**2 / 8 for the test of the gap.
    Utility: a chosen gap of at least 2 * offset + sensitivity - 1 is released with probability at least 1 - delta; with
    probability 1 - beta the chosen gap plus regulariser is within 2 * sensitivity * ln(k_bar / beta) / epsilon of the
    largest.
    Cost: O(k_bar), whatever the counts.
    Source: Zhu and Wang 2022, Adaptive Private-K-Selection (AISTATS), Algorithms 1 and 2 with rho = epsilon**2 / 4;
    k-bar = k_bar, r = regulariser, delta_t = delta. The paper releases if max(1, q) + N(0, sigma**2) exceeds
    1 + sigma * sqrt(2 ln(1 / delta_t)); here the noise is the discrete Gaussian and the offset its own tail's integer,
    sound and lower (`maths.md` 7.2). `max(1, q)` changes nothing and is left out. Its Example 14
    exchanges a unit and keeps these constants, which fails: there the sensitivity is 2 (`maths.md` 7.6).

    >>> mechanism = StableTopK(Epsilon("0.4"), Delta("1e-6"), k_bar=10)
    >>> mechanism.variance, mechanism.offset, mechanism.loss.rho
    (Fraction(25, 1), 25, Rho(0.04))
    """

    epsilon: Epsilon
    delta: Delta
    k_bar: int
    regulariser: tuple[int, ...] = ()
    sensitivity: int = 1

    def __post_init__(self) -> None:
        if self.epsilon.value < _LEAST_EPSILON:
            raise UsageError("epsilon-range", "The epsilon of a stable top-k must be at least 1e-4.")
        _ = self.choice, self.test  # each refuses what it cannot use

    @property
    def name(self) -> str:
        """The mechanism's name in SQL."""
        return "stable"

    @property
    def choice(self) -> GapChoice:
        """Return the choice of k."""
        return GapChoice(self.epsilon, self.k_bar, self.regulariser, self.sensitivity)

    @property
    def test(self) -> PTRGaussian:
        """Return the test of the gap, which costs as much as the choice."""
        return PTRGaussian(4 * self.sensitivity**2 / self.epsilon.value**2, self.delta, self.sensitivity)

    @property
    def variance(self) -> Fraction:
        """Return sigma squared of the noise that tests the gap."""
        return self.test.variance

    @property
    def offset(self) -> int:
        """Return the least integer that the noise reaches with probability at most delta."""
        return self.test.offset

    @property
    def loss(self) -> ZCDP:
        """Return what a selection costs, also one that releases no label: the choice and the test."""
        return self.choice.loss + self.test.loss

    @property
    def curve(self) -> CurveSum:
        """Return the Renyi curve of a selection, but for delta."""
        return CurveSum((self.choice.curve, RenyiCurve(self.test.loss.rho, 1, self.delta)))

    def gaps(self, histogram: Histogram) -> tuple[int, ...]:
        """Return the exact gaps after the 1st to the k_bar-th count."""
        return self.choice.gaps(histogram)

    def select(self, histogram: Histogram, noise: Noise) -> StableSelection:
        """Draw k with the exact law of the exponential mechanism on the gaps, then test the gap after the k-th."""
        k = self.choice.choose(histogram, noise)
        return StableSelection(k, self.test.release(histogram, k, noise=noise))
