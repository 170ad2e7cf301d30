"""Composition bounds of the papers, for comparison with the session's own zCDP filter.

None of these is the session's certificate. They say what the same items would cost under the published theorems.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

__all__ = ["DurfeeRogers", "durfee_rogers", "kappa"]


@dataclass(frozen=True, slots=True)
class DurfeeRogers:
    """The three bounds of Durfee and Rogers 2019, Theorem 1, on the total epsilon of k items."""

    basic: float
    pure: float
    bounded_range: float

    @property
    def best(self) -> float:
        """Return the smallest, the theorem's epsilon'."""
        return min(self.basic, self.pure, self.bounded_range)


def durfee_rogers(k: int, epsilon: Epsilon, *, delta: Delta) -> DurfeeRogers:
    """Return the total epsilon of `k` items of `epsilon` each, with failure `delta` for the composition.

    Source: Durfee and Rogers 2019, arXiv:1905.04273, Theorem 1; (e^x - 1) / (e^x + 1) = tanh(x / 2).
    """
    if k < 1 or not 0 < delta.value < 1:
        raise UsageError("composition-range", "Composition needs k of at least 1 and delta strictly between 0 and 1.")
    step, level = float(epsilon), math.log(1.0 / float(delta))
    return DurfeeRogers(
        basic=k * step,
        pure=k * step * math.tanh(step / 2.0) + step * math.sqrt(2.0 * k * level),
        bounded_range=k * step**2 / 2.0 + step * math.sqrt(k * level / 2.0),
    )


def kappa(epsilon: Epsilon) -> float:
    """Return the largest Kullback-Leibler divergence of an epsilon-bounded-range mechanism, at most epsilon**2 / 8.

    Source: Dong, Durfee and Rogers 2020, arXiv:1909.13830: x - 1 - ln x at x = epsilon / (1 - exp(-epsilon)).
    """
    step = float(epsilon)
    ratio = step / -math.expm1(-step)
    return ratio - 1.0 - math.log(ratio)
