"""Noisy votes: what every teacher says of one example, with Gaussian noise on the votes for every label of a list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, BoundedRange
from dpsql.errors import UsageError
from dpsql.mechanisms.base import COUNT_LIMIT, check_epsilon
from dpsql.mechanisms.sampling.discrete_noise import discrete_gaussian
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.quantities import Delta, Epsilon

VOTE_STEPS = 2**10  # of fixed point in a whole vote


def vote_weight(labels: int, most: int) -> int:
    """Return what each vote of a teacher for so many labels counts, in steps: 1, or sqrt(most / labels) above `most`.

    Rounded down, so that the squares of a teacher's votes never add up to more than `most` * VOTE_STEPS**2.

    >>> [vote_weight(labels, 2) for labels in (1, 2, 3, 8)]
    [1024, 1024, 836, 512]
    """
    return min(VOTE_STEPS, math.isqrt(VOTE_STEPS**2 * most // labels))


@dataclass(frozen=True, slots=True)
class NoisyVotes:
    """Release the votes for every label of a public list with discrete Gaussian noise.

    Given: `labels` is the length of the list. The votes are sums over teachers, one for each label of the list, 0 where
    nobody votes; a teacher who votes for t labels adds `vote_weight(t, max_labels)` to each, enforced by the caller. At
    `max_labels` of `labels` every vote counts in full. Neighbours differ by one teacher exchanged for another, or by
    one teacher more.
    Returns: the noisy votes in steps of 1 / VOTE_STEPS, which may be negative. What is made of them costs no more:
    the labels of most teachers, or the one label of the most votes.
    Loss: rho = epsilon**2 / 4, and delta 0: the squared distance of neighbours is at most min(2 * max_labels, labels)
    votes, and of that is the noise.
    Utility: unbiased where no teacher votes for more than max_labels; variance
    2 * min(2 * max_labels, labels) / epsilon**2 votes for every label.
    Cost: a draw for every label of the list.
    Source: Papernot et al. 2018, Scalable Private Learning with PATE, as in Example 13 of Zhu and Wang 2022,
    Adaptive Private-K-Selection (AISTATS): one label each is max_labels = 1, a Renyi divergence of alpha / sigma**2.
    Their PATE for many labels is max_labels = labels, and PATE-tau has tau = max_labels: there the votes of a teacher
    above tau are scaled so that they add up to tau, here so that their squares do, which costs the same and keeps more
    (`maths.md` 7.6).

    >>> votes = NoisyVotes(Epsilon("0.2"), labels=20, max_labels=3)
    >>> votes.variance / VOTE_STEPS**2, votes.loss.rho
    (Fraction(300, 1), Rho(0.01))
    """

    epsilon: Epsilon
    labels: int
    max_labels: int

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if not 1 <= self.max_labels <= self.labels:
            raise UsageError("labels-range", "max_labels must be at least 1 and at most the number of labels.")

    @property
    def loss(self) -> ZCDP:
        """Return what the votes for one example cost: two items."""
        return ZCDP(BoundedRange(self.epsilon).rho * 2, Delta(0))

    @property
    def variance(self) -> Fraction:
        """Return sigma squared, in squared steps."""
        return VOTE_STEPS**2 * 2 * min(2 * self.max_labels, self.labels) / self.epsilon.value**2

    def release(self, votes: Sequence[int], noise: Noise) -> tuple[int, ...]:
        """Return the noisy votes, in steps and in the order of the list."""
        if len(votes) != self.labels or not all(0 <= count < COUNT_LIMIT for count in votes):
            raise UsageError("votes", "There must be votes of 0 to 2**53 steps for every label of the list.")
        draws = discrete_gaussian(self.variance, noise, count=self.labels)
        return tuple(count + draw for count, draw in zip(votes, draws, strict=True))
