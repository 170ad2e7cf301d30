"""Stable top-k with Gaussian noise on the gaps: choose k by report noisy max, then test the gap after it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, RenyiCurve
from dpsql.errors import UsageError
from dpsql.mechanisms.base import Histogram
from dpsql.mechanisms.propose_test_release import PTRGaussian
from dpsql.mechanisms.sampling.discrete_noise import discrete_gaussian
from dpsql.mechanisms.sampling.noise import BitReader, Noise
from dpsql.mechanisms.stable_top_k import GapChoice, StableSelection
from dpsql.quantities import Delta, Epsilon, Rho

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
