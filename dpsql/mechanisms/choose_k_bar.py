"""Choose k_bar in private: where the threshold that a limited domain would have is lowest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from dpsql.accounting import ZCDP, BoundedRange
from dpsql.errors import UsageError
from dpsql.mechanisms.histogram import Histogram
from dpsql.mechanisms.limited_domain import LimitedDomain
from dpsql.mechanisms.parameters import check_leaders
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.mechanisms.sampling.race import race
from dpsql.quantities import Delta, Epsilon

__all__ = ["ChooseKBar"]


@dataclass(frozen=True, slots=True)
class ChooseKBar:
    """Choose k_bar among candidates with probability proportional to exp(-epsilon * threshold at that k_bar).

    Given: epsilon of at least 1e-9 and delta in (0, 1) are those of the limited domain that follows; `candidates` are
    public, ascending, of at least 1 each; `max_groups_contributed`, `min_units` and `sensitivity` as there. The
    histogram holds the max(candidates) first groups and the count after them.
    Returns: one of the candidates, private in itself; `Histogram.first` cuts the histogram to it.
    Loss: epsilon-bounded range, so one item: rho = epsilon**2 / 8, and delta 0; a limited domain of k then costs k + 1.
    One more unit raises the threshold by 0 to R = `sensitivity` at every candidate and lowers it nowhere, min_units or
    not; the weights are exp(-epsilon * threshold / R).
    Utility: with probability 1 - beta the threshold is within 1 + R ln(number of candidates / beta) / epsilon of the
    lowest. It seldom beats a fixed k_bar of 5 k.
    Cost: O(number of candidates).
    Source: Durfee and Rogers 2019, arXiv:1905.04273, the data-dependent k-bar with k + 1 for k, derived in `maths.md`
    5.1; the threshold but for the count is rounded up to an integer. Published code prefers the highest threshold.

    >>> ChooseKBar(Epsilon("0.1"), Delta("1e-6"), (10, 20, 40), max_groups_contributed=20).offsets
    (163, 170, 170)
    """

    epsilon: Epsilon
    delta: Delta
    candidates: tuple[int, ...]
    max_groups_contributed: int | None = None
    min_units: int = 1
    sensitivity: int = 1

    def __post_init__(self) -> None:
        if not self.candidates or any(first >= second for first, second in pairwise(self.candidates)):
            raise UsageError("candidates", "The candidates for k_bar must be one or more integers in ascending order.")
        _ = self.offsets  # the limited domain refuses what it cannot use

    @property
    def offsets(self) -> tuple[int, ...]:
        """Return how far above the count after it BOTTOM would stand, rounded up, at every candidate."""
        return tuple(math.ceil(domain.threshold_offset) for domain in self._domains())

    @property
    def floors(self) -> tuple[int, ...]:
        """Return where BOTTOM would stand at least, rounded up, at every candidate; 0 without min_units."""
        return tuple(math.ceil(domain.least_threshold) for domain in self._domains())

    def _domains(self) -> list[LimitedDomain]:
        rest = self.max_groups_contributed, self.min_units, self.sensitivity
        return [LimitedDomain(self.epsilon, self.delta, 1, k_bar, *rest) for k_bar in self.candidates]

    @property
    def loss(self) -> ZCDP:
        """Return what a choice costs."""
        return ZCDP(BoundedRange(self.epsilon).rho, Delta(0))

    def choose(self, histogram: Histogram, noise: Noise) -> int:
        """Draw a candidate with the exact law of the exponential mechanism."""
        check_leaders(histogram, self.candidates[-1])
        counts = histogram.padded(self.candidates[-1] + 1)
        places = zip(self.candidates, self.offsets, self.floors, strict=True)
        scores = [-max(counts[k_bar] + offset, floor) for k_bar, offset, floor in places]
        [chosen] = race(scores, None, epsilon=self.epsilon.value / self.sensitivity, steps=1, noise=noise)
        return self.candidates[chosen]
