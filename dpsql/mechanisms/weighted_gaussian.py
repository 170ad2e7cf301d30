"""Weighted Gaussian: every unit spreads one weight over its groups; names and order in one release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dpsql.accounting import ZCDP, delta_of_each, discrete_gaussian_offset, discrete_gaussian_tail
from dpsql.mechanisms.base import FullHistogram, LabelPosition, NoisyRelease
from dpsql.mechanisms.gaussian_histogram import check_sparse
from dpsql.mechanisms.known_names import NONE_KNOWN, KnownValues, release_beside_known
from dpsql.mechanisms.lower_cut import LowerCut, find_cut
from dpsql.mechanisms.sampling.above import noisy_above
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.quantities import Delta, Rho

WEIGHT_STEPS = 2**20  # of fixed point in a weight of 1


def unit_weight(groups: int, *, steps: int = WEIGHT_STEPS) -> int:
    """Return what a unit in so many groups adds to each of them: 1 / sqrt(groups) in `steps`, rounded down.

    Rounded down, so that the squares of a unit's weights never add up to more than steps**2.

    >>> [unit_weight(groups) for groups in (1, 2, 3, 4, 100)]
    [1048576, 741455, 605395, 524288, 104857]
    """
    return math.isqrt(steps * steps // groups)


def list_weights(most: int) -> list[int]:
    """Return what a unit adds to each of its groups if it is in 1, 2, ... of them, up to so many: `unit_weight`.

    >>> list_weights(4) == [unit_weight(groups) for groups in (1, 2, 3, 4)]
    True
    """
    square = WEIGHT_STEPS * WEIGHT_STEPS
    return [math.isqrt(square // groups) for groups in range(1, most + 1)]


@dataclass(frozen=True, slots=True)
class WeightedGaussian:
    """Add discrete Gaussian noise to the weight of every group and release the first k that reach a public threshold.

    A unit that is in t groups adds `unit_weight(t)` to each, so the noise need not grow with the groups of a unit.
    Of a measure that a unit raises by c of at most R, it adds c * unit_weight(t) / R, rounded down (`maths.md` 10.2).
    Given: rho sets the noise; delta in (0, 1) is this query's; no privacy unit is in more than
    `max_groups_contributed` groups, enforced by the caller, best a cap that hardly any unit reaches. The histogram
    holds the weights of all groups that exist, in steps of 1 / WEIGHT_STEPS and in an order of labels that does not
    depend on data: it breaks ties, the exact weights never do. Groups whose labels are `known` without the data, or
    from earlier releases, need not reach the threshold: all of them take part with their noisy weights, those that do
    not exist with 0, and the histogram holds the others.
    Returns: a `NoisyRelease` of at most k positions with their noisy weights in steps, the highest first. A weight is
    no number of units: it is that divided by the root of the groups that these units are in.
    Loss: rho = 1 / (2 sigma**2) and delta, sigma in weights of 1, however many groups are released.
    Utility: a group of weight threshold + sigma * sqrt(2 ln(1 / beta)) passes with probability at least 1 - beta.
    Cost: one pass over the weights, and a draw of noise for each that is near the threshold or above it.
    Source: Raman, Dick and Joseph 2026, arXiv:2603.14016, the weighted Gaussian mechanism; Delta_0 =
    max_groups_contributed, W_u = a unit's groups. They pass the names alone on to a second stage; here their order by
    noisy weight is the answer, which is post-processing (`maths.md` 9.3). Noise and weights are integers, and the
    threshold is the largest over all t of the weight in t groups plus the least integer that the noise itself reaches
    with probability at most 1 - (1 - delta)**(1 / t).

    >>> mechanism = WeightedGaussian(Rho("0.01"), Delta("1e-7"), k=10, max_groups_contributed=100)
    >>> mechanism.variance == 50 * WEIGHT_STEPS**2, round(mechanism.threshold / WEIGHT_STEPS, 4)
    (True, 42.5109)
    """

    rho: Rho
    delta: Delta
    k: int
    max_groups_contributed: int

    def __post_init__(self) -> None:
        check_sparse(self.rho, self.delta, k=self.k, max_groups_contributed=self.max_groups_contributed)

    @property
    def name(self) -> str:
        """The mechanism's name in SQL."""
        return "weighted_gaussian"

    @property
    def loss(self) -> ZCDP:
        """Return what a release costs, also an empty one."""
        return ZCDP(self.rho, self.delta)

    @property
    def variance(self) -> Fraction:
        """Return sigma squared, in squared steps."""
        return WEIGHT_STEPS**2 / (2 * self.rho.value)

    @property
    def threshold(self) -> int:
        """Return the noisy weight in steps that a group needs: one unit alone reaches it, anywhere, but for delta."""
        return weighted_threshold(self.variance, self.delta, most=self.max_groups_contributed, steps=WEIGHT_STEPS)

    @property
    def least_threshold(self) -> int:
        """Return a number that the threshold is not below: what a unit in as many groups as the bound allows needs."""
        failure = delta_of_each(self.delta, self.max_groups_contributed)
        weight = unit_weight(self.max_groups_contributed)
        return weight + discrete_gaussian_offset(self.variance, failure)

    @property
    def cut(self) -> LowerCut | None:
        """Return the cut below which few groups need be read, if there is one; the loss is the same."""
        return find_cut(((self.threshold, self.variance),))

    def passed(self, histogram: FullHistogram, noise: Noise) -> list[tuple[LabelPosition, int]]:
        """Draw all groups that pass, with their noisy weights, in no order."""
        return noisy_above(histogram, self.threshold, variance=self.variance, noise=noise)

    def release(self, histogram: FullHistogram, noise: Noise, *, known: KnownValues = NONE_KNOWN) -> NoisyRelease:
        """Draw the release; positions count the known groups first."""
        return release_beside_known(
            known, histogram, k=self.k, threshold=self.threshold, variance=self.variance, noise=noise
        )


@lru_cache(maxsize=256)
def weighted_threshold(variance: Fraction, delta: Delta, *, most: int, steps: int) -> int:
    """Return the largest of unit_weight(t) + offset(t) over t = 1..most; which t attains it moves with sigma and delta.

    offset(t) is the least n >= 0 that the noise reaches with probability at most 1 - (1 - delta)**(1 / t).
    """
    threshold = -1
    for groups in (1, *range(most, 1, -1)):  # the ends first: most others then need no search
        weight, failure = unit_weight(groups, steps=steps), delta_of_each(delta, groups)
        if threshold < weight or discrete_gaussian_tail(variance, threshold - weight) > failure:
            threshold = weight + discrete_gaussian_offset(variance, failure)
    return threshold
