"""Gaussian histogram: names, order and counts in one release, at a price that k does not enter."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, delta_of_each, discrete_gaussian_offset
from dpsql.errors import UsageError
from dpsql.mechanisms.base import FullHistogram, NoisyRelease, check_delta, check_k, check_sensitivity
from dpsql.mechanisms.known_names import NONE_KNOWN, KnownValues, release_beside_known
from dpsql.mechanisms.lower_cut import LowerCut, find_cut
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.quantities import Delta, Rho

_MOST_GROUPS = 2**16  # and least rho: they keep variances within what integer tails are computed for
_LEAST_RHO, _MOST_RHO = Fraction(1, 10**9), 100
_MOST_VARIANCE = 10**21  # the widest noise whose tails are bounded


def check_sparse(rho: Rho, delta: Delta, *, k: int, max_groups_contributed: int) -> None:
    """Raise UsageError for parameters of a release of all noisy counts above a threshold that mean nothing."""
    if not _LEAST_RHO <= rho.value <= _MOST_RHO:
        raise UsageError("rho-range", "The rho of noise on every count must lie between 1e-9 and 100.")
    check_delta(delta)
    check_k(k)
    if not 1 <= max_groups_contributed <= _MOST_GROUPS:
        raise UsageError("bound-range", "max_groups_contributed must lie between 1 and 2**16.")


@dataclass(frozen=True, slots=True)
class GaussianHistogram:
    """Add discrete Gaussian noise to the count of every group and release the first k that reach a public threshold.

    Given: rho sets the noise; delta in (0, 1) is this query's; no privacy unit is in more than
    `max_groups_contributed` groups, enforced by the caller. One unit changes each count by at most R = `sensitivity`,
    all in one direction (1 where units are counted). The histogram holds the counts of all groups that exist,
    in an order of labels that does not depend on data: it breaks ties, the exact counts never do. Groups whose labels
    are `known` without the data, or from earlier releases, need not reach the threshold: all of them take part with
    their noisy counts, those that do not exist with 0, and the histogram holds the others.
    Returns: a `NoisyRelease` of at most k positions with their noisy counts, the highest first. The counts are
    unbiased before the threshold, so those next to it are too high as released.
    Loss: rho = R**2 * max_groups_contributed / (2 sigma**2) and delta, however many groups are released.
    Utility: a group of threshold + sigma * sqrt(2 ln(1 / beta)) passes with probability at least 1 - beta.
    Cost: one pass over the counts, and a draw of noise for each that is near the threshold or above it.
    Source: `maths.md` 9.4; the stability histogram of Bun, Nissim and Stemmer 2016, arXiv:1511.08631, with Gaussian
    noise, as OpenDP's make_gaussian_threshold and Google's differential privacy libraries have it. There the threshold
    is 1 + sigma * PhiInv((1 - delta)**(1 / Delta)) of continuous noise; integer noise exceeds that too often, so the
    threshold is R + the least integer that the noise itself reaches with probability at most
    1 - (1 - delta)**(1 / Delta); Delta = max_groups_contributed. R is not in these sources (`maths.md` 10.2).

    >>> mechanism = GaussianHistogram(Rho("0.02"), Delta("1e-7"), k=10, max_groups_contributed=1)
    >>> mechanism.variance, mechanism.threshold
    (Fraction(25, 1), 28)
    """

    rho: Rho
    delta: Delta
    k: int
    max_groups_contributed: int
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check_sparse(self.rho, self.delta, k=self.k, max_groups_contributed=self.max_groups_contributed)
        check_sensitivity(self.sensitivity)
        if self.variance > _MOST_VARIANCE:
            raise UsageError("rho-range", "The rho of noise on every count is too small for its sensitivity.")

    @property
    def name(self) -> str:
        """The mechanism's name in SQL."""
        return "gaussian_histogram"

    @property
    def loss(self) -> ZCDP:
        """Return what a release costs, also an empty one."""
        return ZCDP(self.rho, self.delta)

    @property
    def variance(self) -> Fraction:
        """Return sigma squared."""
        return self.sensitivity**2 * self.max_groups_contributed / (2 * self.rho.value)

    @property
    def threshold(self) -> int:
        """Return the noisy count that a group needs: one unit alone reaches it, in any group, but for delta."""
        share = delta_of_each(self.delta, self.max_groups_contributed)
        return self.sensitivity + discrete_gaussian_offset(self.variance, share)

    @property
    def cut(self) -> LowerCut | None:
        """Return the cut below which few groups need be read, if there is one; the loss is the same."""
        return find_cut(((self.threshold, self.variance),))

    def release(self, histogram: FullHistogram, noise: Noise, *, known: KnownValues = NONE_KNOWN) -> NoisyRelease:
        """Draw the release; positions count the known groups first."""
        return release_beside_known(
            known, histogram, k=self.k, threshold=self.threshold, variance=self.variance, noise=noise
        )
