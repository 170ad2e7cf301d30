"""Stable top-k: let the data choose k at a wide gap, then release that many leaders, unordered, if the gap holds.

Two steps: k is chosen at a wide gap between the k-th count and the next, by an exponential mechanism or by Gaussian
noise on the gaps; then the gap is tested in private (propose, test, release), and the leaders are released as a set, at
the price of one test, if it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

from dpsql.accounting import (
    ZCDP,
    ApproximateDP,
    BoundedRange,
    BoundedRangeCurve,
    CurveSum,
    RenyiCurve,
    discrete_gaussian_offset,
    laplace_offset,
)
from dpsql.errors import UsageError
from dpsql.mechanisms.base import (
    COUNT_LIMIT,
    Histogram,
    check_delta,
    check_epsilon,
    check_k,
    check_leaders,
    check_sensitivity,
)
from dpsql.mechanisms.sampling.discrete_noise import discrete_gaussian, discrete_laplace
from dpsql.mechanisms.sampling.noise import BitReader, Noise
from dpsql.mechanisms.sampling.race import race
from dpsql.quantities import Delta, Epsilon, Rho

_WIDEST = 10**9  # the largest variance of a sensitivity of 1
_MOST_VARIANCE = 10**21  # the widest noise whose tails are bounded


def _tested(histogram: Histogram, k: int, *, room: int) -> frozenset[int] | None:
    """Return the k leaders (those that exist, if fewer) if the gap after them and `room` are 0 or more together."""
    check_k(k)
    # Beyond the last group both counts are 0, a gap that is not stable: it holds with probability delta at most.
    *_, last, following = histogram.padded(k + 1)
    held = last - following + room >= 0
    return frozenset(range(min(k, len(histogram.leaders)))) if held else None


@dataclass(frozen=True, slots=True)
class PTRGaussian:
    """Release the k leaders, unordered, if the gap after them, less what neighbours move it by, holds against noise.

    It holds if gap - sensitivity + discrete Gaussian noise reaches the offset: at a gap of its sensitivity a neighbour
    can have a tie there and other leaders.

    Given: `variance`, sigma squared, in (0, 1e9 * sensitivity**2]; delta in (0, 1) is this query's; k is public or a
    function of earlier answers. The histogram holds at least the k first groups and the count after them, unless fewer
    exist. Nothing bounds how many groups a privacy unit is in. `sensitivity` is the most by which the difference of two
    counts moves between neighbours: 1 where they differ by one unit more, 2 where one unit is exchanged for another, R
    where counts are sums to which one unit adds at most R.
    Returns: the positions as a set, or None. Whoever shows the labels must put them in an order that does not depend
    on their counts. With fewer than k groups in all the set holds those that exist.
    Loss: rho = sensitivity**2 / (2 * variance) and delta, whether or not labels are released.
    Utility: a gap of 2 * offset + sensitivity or more is released with probability at least 1 - delta.
    Cost: O(k), whatever the counts.
    Source: Zhu and Wang 2022, Adaptive Private-K-Selection (AISTATS), Algorithm 4; delta_t = delta. The paper's offset
    sigma * sqrt(2 ln(1 / delta_t)) is replaced by the noise's own tail, an integer (`maths.md` 7.2). The paper is of
    one unit more; for one exchanged see `maths.md` 7.6.

    >>> test = PTRGaussian(Fraction(25), Delta("1e-6"))
    >>> test.offset, test.loss.rho
    (25, Rho(0.02))
    """

    variance: Fraction
    delta: Delta
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check_sensitivity(self.sensitivity)
        if not 0 < self.variance <= min(_WIDEST * self.sensitivity**2, _MOST_VARIANCE):
            reason = "The variance of the test must lie between 0 and 1e9 times its squared sensitivity, 1e21 at most."
            raise UsageError("variance-range", reason)
        check_delta(self.delta)

    @property
    def offset(self) -> int:
        """Return the least integer that the noise reaches with probability at most delta."""
        return discrete_gaussian_offset(self.variance, float(self.delta))

    @property
    def loss(self) -> ZCDP:
        """Return what a test costs, also one that releases no label."""
        return ZCDP(Rho(self.sensitivity**2 / (2 * self.variance)), self.delta)

    def release(self, histogram: Histogram, k: int, *, noise: Noise) -> frozenset[int] | None:
        """Test the gap after the k-th count, and return the leaders if it holds."""
        [draw] = discrete_gaussian(self.variance, noise, count=1)
        return _tested(histogram, k, room=draw - self.offset - self.sensitivity)


@dataclass(frozen=True, slots=True)
class PTRLaplace:
    """Release the k leaders, unordered, if the gap after them less 1 plus discrete Laplace noise reaches an offset.

    Given: epsilon of at least 1e-9; otherwise as `PTRGaussian` of sensitivity 1.
    Returns: the positions as a set, or None, as `PTRGaussian`.
    Loss: (epsilon, delta)-differential privacy, hence rho = epsilon**2 / 2 and delta, whether or not labels are
    released.
    Utility: a gap of 2 * offset + 1 or more is released with probability at least 1 - delta.
    Cost: O(k), whatever the counts.
    Source: Zhu and Wang 2022, Adaptive Private-K-Selection (AISTATS), Algorithm 5; delta_t = delta. The paper's offset
    ln(1 / delta_t) / epsilon is replaced by the noise's own tail, an integer (`maths.md` 7.4).

    >>> test = PTRLaplace(Epsilon("0.2"), Delta("1e-6"))
    >>> test.offset, test.loss.rho
    (67, Rho(0.02))
    """

    epsilon: Epsilon
    delta: Delta

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    @property
    def scale(self) -> Fraction:
        """Return the scale of the noise."""
        return 1 / self.epsilon.value

    @property
    def offset(self) -> int:
        """Return the least integer that the noise reaches with probability at most delta."""
        return laplace_offset(self.scale, self.delta.value)

    @property
    def guarantee(self) -> ApproximateDP:
        """Return what a release promises by itself."""
        return ApproximateDP(self.epsilon, self.delta)

    @property
    def loss(self) -> ZCDP:
        """Return what a test costs in a session, also one that releases no label."""
        return ZCDP(Rho(self.epsilon.value**2 / 2), self.delta)

    def release(self, histogram: Histogram, k: int, *, noise: Noise) -> frozenset[int] | None:
        """Test the gap after the k-th count, and return the leaders if it holds."""
        [draw] = discrete_laplace(self.scale, noise, count=1)
        return _tested(histogram, k, room=draw - self.offset - 1)


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

    name: ClassVar[str] = "stable"  # in SQL
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


_ANY = Epsilon(1)  # the choice by Gumbel noise, of which only the scores are used here


@dataclass(frozen=True, slots=True)
class GaussianGapChoice:
    """Choose k in 1..k_bar by the largest of gap + regulariser + discrete Gaussian noise.

    Given: `variance`, sigma squared, is positive; otherwise as `GapChoice`, whose sensitivity is the same.
    Returns: k, private in itself; equal noisy gaps are chosen at random.
    Loss: a Renyi divergence of order alpha of at most 2 * sensitivity**2 * alpha / variance + ln(k_bar) / (alpha - 1),
    and rho = k_bar * sensitivity**2 / (2 * variance). Both hold. The first has no rho, and grows in a sum by ln(k_bar)
    each time: of many choices the second is less unless k_bar is large.
    Utility: with probability 1 - beta the chosen gap plus regulariser is within 2 * sigma * sqrt(2 ln(2 k_bar / beta))
    of the largest.
    Cost: O(k_bar), whatever the counts.
    Source: Zhu and Wang 2022, Adaptive Private-K-Selection (AISTATS), Theorem 8 and Corollary 9 (RNM-Gaussian over
    gaps), with the alternative of one Gaussian release of all gaps (`maths.md` 7.5). `GapChoice` of the same spread
    costs less from k_bar = 2 on: rho = 0.82 * sensitivity**2 / variance.

    >>> choice = GaussianGapChoice(Fraction(2500), k_bar=40)
    >>> choice.curve, choice.loss.rho
    (RenyiCurve(rho=Rho(0.0008), candidates=40, delta=Delta(0)), Rho(0.008))
    """

    variance: Fraction
    k_bar: int
    regulariser: tuple[int, ...] = ()
    sensitivity: int = 1

    def __post_init__(self) -> None:
        if self.variance <= 0:
            raise UsageError("variance-range", "The variance of a discrete Gaussian must be positive.")
        _ = self._scores  # it refuses what it cannot use

    @property
    def _scores(self) -> GapChoice:
        return GapChoice(_ANY, self.k_bar, self.regulariser, self.sensitivity)

    @property
    def curve(self) -> RenyiCurve:
        """Return the bound on the Renyi divergences between neighbours."""
        return RenyiCurve(Rho(2 * self.sensitivity**2 / self.variance), self.k_bar, Delta(0))

    @property
    def loss(self) -> ZCDP:
        """Return what a choice costs in a session: that of all noisy gaps."""
        return ZCDP(Rho(self.k_bar * self.sensitivity**2 / (2 * self.variance)), Delta(0))

    def choose(self, histogram: Histogram, noise: Noise) -> int:
        """Draw the noise and return the k of the widest noisy gap."""
        scores = self._scores.scores(histogram)
        draws = discrete_gaussian(self.variance, noise, count=self.k_bar)
        noisy = [score + draw for score, draw in zip(scores, draws, strict=True)]
        # max() returns the first of equal ones, which is any of them in a random order.
        return max(BitReader(noise).shuffled(self.k_bar), key=noisy.__getitem__) + 1


@dataclass(frozen=True, slots=True)
class GaussianStableTopK:
    """Choose k by the widest noisy gap, test that gap in private, release the k leaders if it holds.

    Given: `choice_variance` and `test_variance`, squared, are those of the noise of the two steps; delta in (0, 1) is
    this query's; otherwise as `StableTopK`.
    Returns: a `StableSelection`; k is private in itself, the labels are an unordered set.
    Loss: that of `GaussianGapChoice`, in both forms, with sensitivity**2 / (2 * test_variance) and delta for the test,
    whether or not labels are released.
    Utility: a chosen gap of at least 2 * offset + sensitivity - 1 is released with probability at least 1 - delta, as
    in `PTRGaussian`.
    Cost: O(k_bar), whatever the counts.
    Source: Zhu and Wang 2022, Adaptive Private-K-Selection (AISTATS), Algorithm 2 with RNM-Gaussian in its second line,
    as in their EXP3: sigma_1**2 = choice_variance, sigma**2 = test_variance, delta_t = delta.

    >>> of_paper = GaussianStableTopK(Fraction(50**2), Fraction(60**2), Delta("1e-9"), k_bar=40)
    >>> of_paper.test.offset, round(float(of_paper.loss.rho), 6), of_paper.curve.candidates
    (361, 0.008139, 40)
    """

    choice_variance: Fraction
    test_variance: Fraction
    delta: Delta
    k_bar: int
    regulariser: tuple[int, ...] = ()
    sensitivity: int = 1

    def __post_init__(self) -> None:
        _ = self.choice, self.test  # each refuses what it cannot use

    @property
    def choice(self) -> GaussianGapChoice:
        """Return the choice of k."""
        return GaussianGapChoice(self.choice_variance, self.k_bar, self.regulariser, self.sensitivity)

    @property
    def test(self) -> PTRGaussian:
        """Return the test of the gap."""
        return PTRGaussian(self.test_variance, self.delta, self.sensitivity)

    @property
    def curve(self) -> RenyiCurve:
        """Return the bound on the Renyi divergences between neighbours, but for delta."""
        return self.choice.curve + RenyiCurve(self.test.loss.rho, 1, self.delta)

    @property
    def loss(self) -> ZCDP:
        """Return what a selection costs in a session, also one that releases no label."""
        return self.choice.loss + self.test.loss

    def select(self, histogram: Histogram, noise: Noise) -> StableSelection:
        """Draw k, then test the gap after the k-th count."""
        k = self.choice.choose(histogram, noise)
        return StableSelection(k, self.test.release(histogram, k, noise=noise))
