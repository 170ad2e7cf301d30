"""Exact noise on a fixed list of numbers: counts of chosen labels, or sums; those of known groups; and votes.

`NoisyCounts` is Gaussian, `LaplaceCounts` serves the certificates that have no rho, and `SharedTotal` lets counts share
a noisy total of units, so that each needs less noise of its own. `KnownGroups` releases every group of a list, and
`NoisyVotes` what teachers say of one example. Nothing is selected here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.accounting import ZCDP, BoundedRange
from dpsql.errors import UsageError
from dpsql.mechanisms.base import COUNT_LIMIT, check_bound, check_epsilon, check_sensitivity
from dpsql.mechanisms.sampling.discrete_noise import discrete_gaussian, discrete_laplace
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.quantities import Delta, Epsilon, Rho


@dataclass(frozen=True, slots=True)
class NoisyCounts:
    """Count release: every chosen label's count plus an exact discrete Gaussian of sigma = 2 R / epsilon.

    Given: the counts of labels chosen by an earlier release; one privacy unit changes each by at most R = `sensitivity`
    (1 where units are counted), and at most `max_groups_contributed` of them (None: no bound), enforced by the caller.
    Loss: rho = min(m, max_groups_contributed) * epsilon**2 / 8 for m labels, so one item each; delta 0.
    Utility: unbiased, variance 4 R**2 / epsilon**2 each, whatever m.
    Source: `maths.md` 10; Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Theorem 4.

    >>> NoisyCounts(Epsilon("0.1")).variance
    Fraction(400, 1)
    """

    epsilon: Epsilon
    max_groups_contributed: int | None = None
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check_bound(self.max_groups_contributed)
        check_sensitivity(self.sensitivity)

    @property
    def variance(self) -> Fraction:
        """Return sigma squared."""
        return (2 * self.sensitivity / self.epsilon.value) ** 2

    @property
    def scale(self) -> None:
        """Return no scale of a Laplace."""
        return

    def items(self, labels: int) -> int:
        """Return how many items of epsilon**2 / 8 the release of `labels` counts costs."""
        return _count_charged(labels, self.max_groups_contributed)

    def loss(self, labels: int) -> Rho:
        """Return the rho of the release of `labels` counts."""
        return BoundedRange(self.epsilon).rho * self.items(labels)

    def release(self, counts: Sequence[int], noise: Noise) -> list[int]:
        """Return the noisy counts, integers that may be negative."""
        draws = discrete_gaussian(self.variance, noise, count=len(counts))
        return [count + draw for count, draw in zip(counts, draws, strict=True)]


@dataclass(frozen=True, slots=True)
class LaplaceCounts:
    """Count release: every chosen label's count plus an exact discrete Laplace of a scale of R `share` / epsilon.

    Given: the counts of labels chosen by an earlier release; one privacy unit changes each by at most R = `sensitivity`
    (1 where units are counted), and at most `max_groups_contributed` of them (None: no bound), enforced by the caller.
    `share` is 1 where an item is
    to be epsilon-DP, and 2 where it is to be of epsilon-bounded range: a likelihood ratio within exp(+-1 / scale) has a
    range of 2 / scale, and the discrete Laplace attains it.
    Loss: one item for each of min(m, max_groups_contributed) of m labels; on the others a unit has no effect. delta 0.
    Utility: unbiased, of a variance just below 2 * scale**2 each, whatever m.
    Source: `maths.md` 6.3 and 10; Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Algorithm 2.

    >>> LaplaceCounts(Epsilon("0.1"), share=2).scale
    Fraction(20, 1)
    """

    epsilon: Epsilon
    share: int
    max_groups_contributed: int | None = None
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_bound(self.max_groups_contributed)
        check_sensitivity(self.sensitivity)

    @property
    def scale(self) -> Fraction:
        """Return the scale of the noise."""
        return self.sensitivity * self.share / self.epsilon.value

    @property
    def variance(self) -> Fraction:
        """Return a bound of the variance."""
        return 2 * self.scale**2

    def items(self, labels: int) -> int:
        """Return how many items of epsilon the release of `labels` counts costs."""
        return _count_charged(labels, self.max_groups_contributed)

    def release(self, counts: Sequence[int], noise: Noise) -> list[int]:
        """Return the noisy counts, integers that may be negative."""
        draws = discrete_laplace(self.scale, noise, count=len(counts))
        return [count + draw for count, draw in zip(counts, draws, strict=True)]


CountRelease = NoisyCounts | LaplaceCounts


def _count_charged(labels: int, max_groups_contributed: int | None) -> int:
    """Return how many of so many labels one unit can be counted in, which are those that cost an item."""
    return labels if max_groups_contributed is None else min(labels, max_groups_contributed)


_ROOT_STEPS = 2**20  # square roots are rounded up to a multiple of 1 / _ROOT_STEPS


@dataclass(frozen=True, slots=True)
class SharedTotalRelease:
    """Result of `SharedTotal`: the noisy number of units, and twice the noisy counts, a list for each measure."""

    total: int
    doubled: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class SharedTotal:
    """Release the number n of units, and counts of labels, with noise that they share in part.

    With R = `high` - `low`, C = `high` + `low` and M = `labels` * `measures` counts f in all, it draws N = n + Z_0 and
    Y = 2 f - C n + Z of each count, and returns N and Y + C N, which is twice the count with noise of mean 0.
    Given: labels chosen by an earlier release; one privacy unit changes n by at most 1, and each count by a number from
    `low` to `high`, `low` <= 0 <= `high`, always in the direction of n; and n changes by exactly 1 if any count
    changes. The caller enforces both. Units are in at most `max_groups_contributed` groups (None: no bound), which the
    loss does not depend on, but the price.
    Loss: M R**2 / (2 sigma_1**2) + 1 / (2 sigma_0**2), at most the rho that `NoisyCounts` has for the same counts:
    `measures` * min(`labels`, `max_groups_contributed`) * epsilon**2 / 8; delta 0.
    Utility: unbiased, variance (R sqrt(M) + |C|)**2 / (8 rho) each but for rounding; where units are counted, without a
    bound and in one measure, (1 + 1 / sqrt(m))**2 / epsilon**2 of m labels: independent noise has 4 / epsilon**2.
    Source: `maths.md` 10.3; Lebeda 2025, Better Gaussian Mechanism using Correlated Noise, SOSA, here on integers.

    >>> shared = SharedTotal(Epsilon("0.1"), labels=10)
    >>> shared.pays, round(float(shared.variance), 3)
    (True, 173.246)
    """

    epsilon: Epsilon
    labels: int
    max_groups_contributed: int | None = None
    low: int = 0
    high: int = 1
    measures: int = 1

    def __post_init__(self) -> None:
        check_bound(self.max_groups_contributed)
        if self.labels < 1 or self.measures < 1:
            raise UsageError("histogram-size", "A total is shared by at least one count.")
        if not self.low <= 0 <= self.high or self.low == self.high:
            raise UsageError("sensitivity-range", "A unit must add from a number below or at 0 to one at or above it.")
        if not self.centre:
            raise UsageError("sensitivity-range", "Where a unit adds as much as it takes, a total tells nothing.")

    @property
    def width(self) -> int:
        """Return R, the most by which a unit changes a Y."""
        return self.high - self.low

    @property
    def centre(self) -> int:
        """Return C, which Y has of n."""
        return self.high + self.low

    @property
    def items(self) -> int:
        """Return how many items of epsilon**2 / 8 the release costs."""
        return self.measures * _count_charged(self.labels, self.max_groups_contributed)

    @property
    def rho(self) -> Rho:
        """Return the loss that is charged."""
        return BoundedRange(self.epsilon).rho * self.items

    @property
    def pays(self) -> bool:
        """Say whether each count of a measure has less variance than with independent noise; a single label never.

        (R sqrt(m) + |C|)**2 < 4 S**2 min(m, `max_groups_contributed`) for m labels, S = max(`high`, -`low`); where
        units are counted, (sqrt(m) + 1)**2 < 4 min(m, `max_groups_contributed`).
        """
        most, price = max(self.high, -self.low), self.items // self.measures
        return (self.width * _root(self.labels) + abs(self.centre)) ** 2 < 4 * most**2 * price

    @property
    def total_variance(self) -> Fraction:
        """Return sigma_0 squared, of the noise of n: (R sqrt(M) + |C|) / (2 rho |C|), rounded up."""
        return self._sum / (2 * self.rho.value * abs(self.centre))

    @property
    def own_variance(self) -> Fraction:
        """Return sigma_1 squared, of the noise that each Y has: R sqrt(M) (R sqrt(M) + |C|) / (2 rho), rounded up."""
        return self.width * self._root * self._sum / (2 * self.rho.value)

    @property
    def variance(self) -> Fraction:
        """Return the variance of a count, a bound of it as of all discrete Gaussians."""
        return (self.own_variance + self.centre**2 * self.total_variance) / 4

    @property
    def _root(self) -> Fraction:
        return _root(self.labels * self.measures)

    @property
    def _sum(self) -> Fraction:
        return self.width * self._root + abs(self.centre)

    def release(self, counts: Sequence[Sequence[int]], total: int, *, noise: Noise) -> SharedTotalRelease:
        """Draw the release of the counts of each measure, `labels` of each, and of the exact number of units."""
        if [len(each) for each in counts] != [self.labels] * self.measures:
            raise UsageError("histogram-size", "The total is shared by another number of counts.")
        (drawn,) = discrete_gaussian(self.total_variance, noise, count=1)
        own = iter(discrete_gaussian(self.own_variance, noise, count=self.labels * self.measures))
        shared = self.centre * drawn  # Y + C N = 2 f - C n + Z + C (n + Z_0)
        doubled = tuple(tuple(2 * count + next(own) + shared for count in each) for each in counts)
        return SharedTotalRelease(total + drawn, doubled)


def _root(number: int) -> Fraction:
    """Return a square root, rounded up to a multiple of 1 / _ROOT_STEPS."""
    # isqrt(m - 1) + 1 is the root of m rounded up, also for squares. A larger root means more noise, which is safe.
    return Fraction(math.isqrt(number * _ROOT_STEPS**2 - 1) + 1, _ROOT_STEPS)


@dataclass(frozen=True, slots=True)
class KnownGroups:
    """Release of the counts of all of `groups` known groups, each with the noise of `release`; a total is one group.

    Given: the groups are public or a function of earlier answers, never of the data; a group without a unit has the
    count 0. One privacy unit changes each count by at most 1, and at most `release.max_groups_contributed` of them
    (None: any number), which the caller enforces.
    Loss: that of `release` for so many labels, one item for each that a unit can be in; delta 0.
    Utility: unbiased; the variance of a count is that of `release`, however many groups there are.
    Source: `maths.md` 10; the Gaussian mechanism on integers, Canonne, Kamath and Steinke 2020, arXiv:2004.00010,
    Theorem 4, with l2 sensitivity sqrt(min(groups, max_groups_contributed)).

    >>> from dpsql.mechanisms import NoisyCounts
    >>> from dpsql.quantities import Epsilon
    >>> KnownGroups(NoisyCounts(Epsilon("0.1"), 3), groups=1000).items
    3
    """

    name: ClassVar[str] = "known_groups"  # in SQL
    counts: CountRelease
    groups: int

    def __post_init__(self) -> None:
        if type(self.groups) is not int or self.groups < 1:
            raise UsageError("items-range", "There must be at least one known group.", hint="List the groups.")

    @property
    def items(self) -> int:
        """Return how many items of the release's epsilon all counts cost."""
        return self.counts.items(self.groups)

    def release(self, counts: Sequence[int], noise: Noise) -> tuple[int, ...]:
        """Return the noisy counts, integers that may be negative, in the order of `counts`.

        Raises `UsageError` for more counts than there are groups.
        """
        if len(counts) > self.groups:
            raise UsageError("items-range", "There are more counts than known groups.", hint="Report this as a defect.")
        return tuple(self.counts.release(counts, noise))


VOTE_STEPS = 2**10  # of fixed point in a whole vote


def vote_weight(labels: int, most: int) -> int:
    """Return what each vote of a teacher for so many labels counts, in steps: 1, or sqrt(most / labels) above `most`.

    Rounded down, so that the squares of a teacher's votes never add up to more than `most` * VOTE_STEPS**2.

    >>> [vote_weight(labels, 2) for labels in (1, 2, 3, 8)]
    [1024, 1024, 836, 512]
    """
    # Both roundings go down: smaller votes never move the sum further than the noise covers.
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
