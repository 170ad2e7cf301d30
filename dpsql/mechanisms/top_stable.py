"""Top stable: look down the ranks for the first gap that holds, and choose within the leaders above it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

from dpsql.accounting import ZCDP, ApproximateDP, BoundedRange, laplace_difference_offset
from dpsql.errors import UsageError
from dpsql.mechanisms.base import Histogram, check_delta, check_epsilon, check_k, check_leaders, check_sensitivity
from dpsql.mechanisms.sampling.discrete_noise import discrete_laplace
from dpsql.mechanisms.sampling.noise import BitReader, Noise
from dpsql.mechanisms.sampling.race import race
from dpsql.quantities import Delta, Epsilon, Rho

_SHARE = Fraction(37, 100)


@dataclass(frozen=True, slots=True)
class TopStableSelection:
    """The rank whose gap held (0: none did), and k positions or fewer.

    `members` is a set: whoever shows the labels must put them in an order that does not depend on their counts.
    `ranked` is in noisy rank order. One of the two is empty.
    """

    rank: int
    members: frozenset[int]
    ranked: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopStable:
    """Test the distance to instability of the k_bar leaders, of k_bar - 1, and so on; stop at the first that holds.

    Given: epsilon of at least 1e-9 is for all tests together, delta in (0, 1) is this query's; 1 <= k <= k_bar;
    `threshold_share`, in (0, 1), is the part of epsilon that the noise of the threshold gets; `within` is the epsilon
    of one draw of an exponential mechanism among more than k stable leaders (None: k of them at random, at no cost).
    The histogram holds the k_bar first groups and the count after them. Nothing bounds how many groups a privacy unit
    is in. One unit changes each count by at most R = `sensitivity`, all in one direction (1 where units are counted).
    Returns: a `TopStableSelection`. Where a rank of at most k holds, all leaders up to it; above k, k of them.
    Loss: (epsilon, delta)-differential privacy for the rank and the set, hence rho = epsilon**2 / 2 and delta, whether
    or not a rank holds; k * within**2 / 8 more where leaders were drawn.
    Utility: with probability 1 - beta the first rank whose gap exceeds R + offset + R (1 / e1 + 2 / e2) *
    ln(2 k_bar / beta) is not passed over, e1 and e2 the two parts of epsilon.
    Cost: O(k_bar), whatever the counts.
    Source: Carvalho, Wang, Gondara and Miao 2020, Differentially Private Top-k Selection via Stability on Unknown
    Domain (UAI), Algorithm 3; p1 = threshold_share, eps_EM = k * within. Corrected: a distance is at least 0 (line 6 of
    the paper leaves the maximum out), and rank i is tested by the gap after i (its code tests the next). The noise is
    discrete and the threshold the least integer n with k_bar * P[X - Y >= n] <= delta for the two noises, in the place
    of Lemma 3.1 (`maths.md` 8.2).

    >>> mechanism = TopStable(Epsilon(1), Delta("1e-6"), 5, k_bar=10)
    >>> mechanism.offset, mechanism.worst_case.rho
    (54, Rho(0.5))
    """

    name: ClassVar[str] = "top_stable"  # in SQL
    epsilon: Epsilon
    delta: Delta
    k: int
    k_bar: int
    threshold_share: Fraction = _SHARE
    within: Epsilon | None = None
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check_sensitivity(self.sensitivity)
        check_epsilon(self.epsilon, self.sensitivity)
        check_epsilon(self.within or self.epsilon, self.sensitivity)
        check_k(self.k, self.k_bar)
        check_delta(self.delta)
        if not 0 < self.threshold_share < 1:
            raise UsageError("share-range", "The share of the threshold must lie strictly between 0 and 1.")

    @property
    def threshold_scale(self) -> Fraction:
        """Return the scale of the threshold's noise, drawn once."""
        return self.sensitivity / (self.threshold_share * self.epsilon.value)

    @property
    def distance_scale(self) -> Fraction:
        """Return the scale of each distance's noise: twice over, as distances are not monotone."""
        return 2 * self.sensitivity / ((1 - self.threshold_share) * self.epsilon.value)

    @property
    def offset(self) -> int:
        """Return the threshold before noise: k_bar distances of 0 reach it with probability at most delta in all."""
        chance = self.delta.value / self.k_bar
        return laplace_difference_offset(self.distance_scale, self.threshold_scale, probability=chance)

    @property
    def guarantee(self) -> ApproximateDP:
        """Return what a release promises by itself."""
        drawn = self.k * self.within.value if self.within else 0
        return ApproximateDP(Epsilon(self.epsilon.value + drawn), self.delta)

    @property
    def worst_case(self) -> ZCDP:
        """The loss to reserve before the data is read; a public number."""
        return self._loss(drawn=self.within is not None and self.k < self.k_bar)

    def select(self, histogram: Histogram, noise: Noise) -> TopStableSelection:
        """Draw the noise, find the rank, and choose within the leaders above it."""
        check_leaders(histogram, self.k_bar)
        rank = self._rank(histogram, noise)
        stable = range(min(rank, len(histogram.leaders)))
        # Above k the draws are charged by the rank alone, also if fewer groups exist and none is made: the rank is
        # released, and the number of groups is not.
        if rank <= self.k or len(stable) <= self.k:
            return TopStableSelection(rank, frozenset(stable), ())
        if self.within is None:
            return TopStableSelection(rank, frozenset(BitReader(noise).shuffled(len(stable))[: self.k]), ())
        counts = histogram.leaders[: len(stable)]
        drawn = race(counts, None, epsilon=self.within.value / self.sensitivity, steps=self.k, noise=noise)
        return TopStableSelection(rank, frozenset(), tuple(drawn))

    def loss(self, selection: TopStableSelection) -> ZCDP:
        """Return what a selection cost, at most `worst_case`."""
        return self._loss(drawn=self.within is not None and selection.rank > self.k)

    def _rank(self, histogram: Histogram, noise: Noise) -> int:
        """Return the highest rank whose noisy distance reaches the noisy threshold, 0 if none does."""
        [shift] = discrete_laplace(self.threshold_scale, noise, count=1)
        threshold = self.offset + shift
        # The search goes down from k_bar and stops; the noise of the ranks below is drawn at once, and is of no use
        # then.
        draws = discrete_laplace(self.distance_scale, noise, count=self.k_bar)
        gaps = [higher - lower for higher, lower in pairwise(histogram.padded(self.k_bar + 1))]
        distances = [max(0, gap - self.sensitivity) for gap in gaps]  # a gap of R can be closed by one unit
        holding = [at for at in range(self.k_bar) if distances[at] + draws[at] >= threshold]
        return holding[-1] + 1 if holding else 0

    def _loss(self, *, drawn: bool) -> ZCDP:
        tests = Rho(self.epsilon.value**2 / 2)
        draws = BoundedRange(self.within).rho * self.k if drawn and self.within else Rho(0)
        return ZCDP(tests + draws, self.delta)
