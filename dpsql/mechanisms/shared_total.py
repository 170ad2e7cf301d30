"""Counts of chosen labels that share one noisy total of units, so that each needs less noise of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import BoundedRange
from dpsql.errors import UsageError
from dpsql.mechanisms.parameters import check_bound
from dpsql.mechanisms.sampling.discrete_gaussian import discrete_gaussian
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.quantities import Epsilon, Rho

__all__ = ["SharedTotal", "SharedTotalRelease"]

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
        bound = self.max_groups_contributed
        return self.measures * (self.labels if bound is None else min(self.labels, bound))

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
    return Fraction(math.isqrt(number * _ROOT_STEPS**2 - 1) + 1, _ROOT_STEPS)
