"""The discrete Gaussian, sampled exactly, and noisy counts made with it.

Source: Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Algorithm 3, in integer arithmetic; nothing is ever rounded.
Where many are wanted they are drawn by arrays, which takes a tenth of the time or less: `many_gaussians.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dpsql.accounting import BoundedRange
from dpsql.errors import UsageError
from dpsql.mechanisms.discrete_laplace import laplace_draw
from dpsql.mechanisms.exponential import bernoulli_exp
from dpsql.mechanisms.many_gaussians import many_gaussians
from dpsql.mechanisms.noise import BitReader, Noise
from dpsql.mechanisms.parameters import check_bound
from dpsql.quantities import Epsilon, Rho
from dpsql.values import dataclass

__all__ = ["NoisyCounts", "discrete_gaussian"]

_MANY = 16  # draws that take as long one by one as by arrays


def discrete_gaussian(variance: Fraction, noise: Noise, *, count: int) -> list[int]:
    """Return `count` independent draws of N_Z(0, variance); `variance` is sigma squared and positive."""
    if variance <= 0:
        raise UsageError("variance-range", "The variance of a discrete Gaussian must be positive.")
    draws = many_gaussians(variance, noise, count=count) if count >= _MANY else None
    if draws is not None:
        return draws
    reader = BitReader(noise)
    return [_gaussian(variance.numerator, variance.denominator, reader=reader) for _ in range(count)]


def _gaussian(p: int, q: int, *, reader: BitReader) -> int:
    """Return a draw of N_Z(0, p / q), by rejection from a discrete Laplace of scale s, its root rounded down, plus 1.

    x is kept with probability exp(-e), e = (|x| - p/(q s))**2 / (2 p/q) = (|x| q s - p)**2 / (2 p q s**2).
    """
    scale = math.isqrt(p // q) + 1
    step, spread = q * scale, 2 * p * q * scale * scale
    while True:
        candidate = laplace_draw(scale, 1, reader=reader)
        excess = abs(candidate) * step - p
        if bernoulli_exp(excess * excess, spread, reader=reader):
            return candidate


@dataclass(frozen=True, slots=True)
class NoisyCounts:
    """Count release: every chosen label's count plus an exact discrete Gaussian of sigma = 2 / epsilon.

    Given: the counts of labels chosen by an earlier release, of sensitivity 1 each; `max_groups_contributed` is the
    most labels that one privacy unit can be in (None: no bound), enforced by the caller.
    Loss: rho = min(m, max_groups_contributed) * epsilon**2 / 8 for m labels, so one item each; delta 0.
    Utility: unbiased, variance 4 / epsilon**2 each, whatever m.
    Source: `maths.md` 10; Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Theorem 4.

    >>> NoisyCounts(Epsilon("0.1")).variance
    Fraction(400, 1)
    """

    epsilon: Epsilon
    max_groups_contributed: int | None = None

    def __post_init__(self) -> None:
        check_bound(self.max_groups_contributed)

    @property
    def variance(self) -> Fraction:
        """Return sigma squared."""
        return 4 / self.epsilon.value**2

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
