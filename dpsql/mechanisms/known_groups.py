"""Counts of groups that are known in advance: every one is released, and nothing is selected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.errors import UsageError
from dpsql.mechanisms.noisy_counts import CountRelease
from dpsql.mechanisms.sampling.noise import Noise

__all__ = ["KnownGroups"]


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

    counts: CountRelease
    groups: int

    def __post_init__(self) -> None:
        if type(self.groups) is not int or self.groups < 1:
            raise UsageError("items-range", "There must be at least one known group.", hint="List the groups.")

    @property
    def name(self) -> str:
        """The mechanism's name in SQL."""
        return "known_groups"

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
