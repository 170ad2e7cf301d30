"""Report noisy max over a known domain, with four noises; a library for comparison, each with its own guarantee.

All take the counts of all candidates, absent ones as 0 (`Peeling` says why), and break ties of noisy counts at random:
positions are ordered by exact counts, so a position may not break one.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, ApproximateDP, BoundedRange, Certificate, RenyiCurve, item_epsilon
from dpsql.errors import UsageError
from dpsql.mechanisms.base import Histogram, Selection, check_delta, check_epsilon, check_k, known_candidates
from dpsql.mechanisms.peeling import Peeling
from dpsql.mechanisms.sampling.discrete_noise import bernoulli_exp, discrete_gaussian, discrete_laplace
from dpsql.mechanisms.sampling.noise import BitReader, Noise
from dpsql.quantities import Delta, Epsilon, Rho

_NO_FAILURE = Delta(0)


def _highest(noisy: list[int], k: int, *, noise: Noise) -> Selection:
    """Return the positions of the k highest, in order, equal ones in a random order."""
    # sorted() is stable, so that equal noisy counts stay in the random order of `shuffled`.
    order = sorted(BitReader(noise).shuffled(len(noisy)), key=lambda at: -noisy[at])
    return Selection(tuple(order[:k]), stopped_at_bottom=False)


@dataclass(frozen=True, slots=True)
class NoisyMaxGumbel:
    """Return the highest of count + Gumbel(1 / epsilon): one draw of the exponential mechanism.

    Given: epsilon of at least 1e-9. The histogram holds all candidates of a known domain.
    Loss: epsilon-bounded range, hence rho = epsilon**2 / 8; delta 0.
    Utility: as `Peeling` with k = 1.
    Cost: O(number of candidates).
    Source: Durfee and Rogers 2019, arXiv:1905.04273, Lemma 4.2; it is `Peeling` with k = 1.

    >>> NoisyMaxGumbel(Epsilon("0.2")).loss.rho
    Rho(0.005)
    """

    epsilon: Epsilon

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @property
    def loss(self) -> ZCDP:
        """Return what a draw costs."""
        return ZCDP(BoundedRange(self.epsilon).rho, Delta(0))

    def select(self, histogram: Histogram, noise: Noise) -> Selection:
        """Draw the winner; none where there is no candidate."""
        return Peeling(self.epsilon, 1).select(histogram, noise)


@dataclass(frozen=True, slots=True)
class PermuteAndFlip:
    """Take the candidates in a random order, and each with probability exp(-epsilon * (highest count - its count)).

    Given: epsilon of at least 1e-9. The histogram holds all candidates of a known domain.
    Loss: epsilon-differential privacy, hence rho = epsilon**2 / 2 in a session. Its range can be close to 2 epsilon:
    the epsilon**2 / 8 of an exponential mechanism does not hold for it.
    Utility: never worse in expectation than the exponential mechanism of the same epsilon.
    Cost: O(number of candidates).
    Source: McKenna and Sheldon 2020, Permute-and-Flip, arXiv:2010.12603, Algorithm 1 with monotone scores; it is
    report noisy max with exponential noise of scale 1 / epsilon (Ding et al. 2021, arXiv:2105.07260).

    >>> PermuteAndFlip(Epsilon("0.2")).loss.rho
    Rho(0.02)
    """

    epsilon: Epsilon

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @property
    def guarantee(self) -> ApproximateDP:
        """Return what a draw promises by itself."""
        return ApproximateDP(self.epsilon, Delta(0))

    @property
    def loss(self) -> ZCDP:
        """Return what a draw costs in a session."""
        return ZCDP(Rho(self.epsilon.value**2 / 2), Delta(0))

    def select(self, histogram: Histogram, noise: Noise) -> Selection:
        """Draw the winner; none where there is no candidate."""
        counts, reader = known_candidates(histogram), BitReader(noise)
        rate = self.epsilon.value
        for at in reader.shuffled(len(counts)):
            short = counts[0] - counts[at]  # the first is the highest; it is always taken when its turn comes
            if bernoulli_exp(short * rate.numerator, rate.denominator, reader=reader):
                return Selection((at,), stopped_at_bottom=False)
        return Selection((), stopped_at_bottom=False)


@dataclass(frozen=True, slots=True)
class OneShotLaplace:
    """Return the k highest of count + discrete Laplace noise, in order; k = 1 is the noisy max.

    The scale is k / epsilon. With a delta it is at most sqrt(2 k ln(1 / delta)) / epsilon, less than k / epsilon from
    k = 16 on for delta = 1e-6.
    Given: epsilon of at least 1e-9 for all k together, k at least 1, delta in [0, 1). The histogram holds all
    candidates of a known domain.
    Returns: a `Selection` of min(k, number of candidates) positions, and no counts.
    Loss: (epsilon, delta)-differential privacy; in a session rho = k / (2 * scale**2) and no delta, which is
    epsilon**2 / (2 k) without a delta. `Peeling` with draws of epsilon / k costs a quarter of that.
    Utility: with probability 1 - beta every noise is within scale * ln(number of candidates / beta).
    Cost: O(d log d) for d candidates.
    Source: Qiao, Su and Zhang 2021, Oneshot Differentially Private Top-k Selection (ICML), with a proof of its own for
    integers (`maths.md` 9.7): k draws of (2 / scale)-bounded range, and k / scale together. The scale of the paper's
    Theorem 2.2, 8 * sqrt(k ln(d / delta)) / epsilon for d candidates, epsilon <= 0.2 and delta <= 0.05, is more than
    5 times as large.

    >>> mechanism = OneShotLaplace(Epsilon("0.2"), k=4)
    >>> mechanism.scale, mechanism.loss.rho
    (Fraction(20, 1), Rho(0.005))
    >>> [round(float(OneShotLaplace(Epsilon("0.2"), k, Delta("1e-6")).scale)) for k in (10, 100, 1000)]
    [50, 206, 650]
    """

    epsilon: Epsilon
    k: int = 1
    delta: Delta = _NO_FAILURE

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_k(self.k)
        if self.delta.value:
            check_delta(self.delta)

    @property
    def scale(self) -> Fraction:
        """Return the scale of the noise, rounded up to what is exact."""
        pure = self.k / self.epsilon.value
        if not self.delta.value:
            return pure
        each = item_epsilon(Certificate.zcdp, self.k, total=self.guarantee)
        # A likelihood ratio within exp(+-1 / scale) has a range of 2 / scale: k draws of that range are within the
        # total.
        return min(pure, 2 / each.value)

    @property
    def guarantee(self) -> ApproximateDP:
        """Return what a draw promises by itself."""
        return ApproximateDP(self.epsilon, self.delta)

    @property
    def loss(self) -> ZCDP:
        """Return what a draw costs in a session."""
        return ZCDP(Rho(self.k / (2 * self.scale**2)), Delta(0))

    def select(self, histogram: Histogram, noise: Noise) -> Selection:
        """Draw the noise and return the highest."""
        counts = known_candidates(histogram)
        draws = discrete_laplace(self.scale, noise, count=len(counts))
        return _highest([count + draw for count, draw in zip(counts, draws, strict=True)], self.k, noise=noise)


@dataclass(frozen=True, slots=True)
class NoisyMaxGaussian:
    """Return the highest of count + discrete Gaussian noise.

    Given: `variance`, sigma squared, is positive. The histogram holds all candidates of a known domain.
    Loss: a Renyi divergence of order alpha of at most alpha / (2 * variance) + ln(candidates) / (alpha - 1). It grows
    without bound as alpha falls to 1, so it is no zero-concentrated loss: the mechanism has none and may not enter a
    session that adds up rho.
    Utility: with probability 1 - beta the winner's count is within 2 * sigma * sqrt(2 ln(2 * candidates / beta)) of
    the highest.
    Cost: O(number of candidates).
    Source: Zhu and Wang 2022, Adaptive Private-K-Selection (AISTATS), Theorem 8, which has 2 * alpha / variance for
    counts that move either way. Units that are added or removed move all counts one way (`maths.md` 9.7).

    >>> NoisyMaxGaussian(Fraction(100)).curve(50)
    RenyiCurve(rho=Rho(0.005), candidates=50, delta=Delta(0))
    """

    variance: Fraction

    def __post_init__(self) -> None:
        if self.variance <= 0:
            raise UsageError("variance-range", "The variance of a discrete Gaussian must be positive.")

    def curve(self, candidates: int) -> RenyiCurve:
        """Return the bound on the Renyi divergences between neighbours, for so many candidates."""
        return RenyiCurve(Rho(1 / (2 * self.variance)), candidates, Delta(0))

    def select(self, histogram: Histogram, noise: Noise) -> Selection:
        """Draw the noise and return the highest; none where there is no candidate."""
        counts = known_candidates(histogram)
        draws = discrete_gaussian(self.variance, noise, count=len(counts))
        return _highest([count + draw for count, draw in zip(counts, draws, strict=True)], 1, noise=noise)
