"""Counts of chosen labels, or sums, with exact noise: discrete Gaussian, or Laplace where a Gaussian has no loss.

The discrete Laplace serves the certificates that have no rho.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import BoundedRange
from dpsql.mechanisms.parameters import check_bound, check_epsilon, check_sensitivity
from dpsql.mechanisms.sampling.discrete_gaussian import discrete_gaussian
from dpsql.mechanisms.sampling.discrete_laplace import discrete_laplace
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.quantities import Epsilon, Rho

__all__ = ["CountRelease", "LaplaceCounts", "NoisyCounts"]


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
        bound = self.max_groups_contributed
        return labels if bound is None else min(labels, bound)

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
        bound = self.max_groups_contributed
        return labels if bound is None else min(labels, bound)

    def release(self, counts: Sequence[int], noise: Noise) -> list[int]:
        """Return the noisy counts, integers that may be negative."""
        draws = discrete_laplace(self.scale, noise, count=len(counts))
        return [count + draw for count, draw in zip(counts, draws, strict=True)]


CountRelease = NoisyCounts | LaplaceCounts
