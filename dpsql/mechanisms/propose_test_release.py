"""Propose, test, release: the k leaders as a set, at the price of one test, if the gap after them holds."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, ApproximateDP, discrete_gaussian_offset
from dpsql.accounting.tails import laplace_offset
from dpsql.errors import UsageError
from dpsql.mechanisms.base import Histogram, check_delta, check_epsilon, check_k, check_sensitivity
from dpsql.mechanisms.sampling.discrete_noise import discrete_gaussian, discrete_laplace
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.quantities import Delta, Epsilon, Rho

_WIDEST = 10**9  # the largest variance of a sensitivity of 1
_MOST_VARIANCE = 10**21  # the widest noise whose tails are bounded


def _tested(histogram: Histogram, k: int, *, room: int) -> frozenset[int] | None:
    """Return the k leaders (those that exist, if fewer) if the gap after them and `room` are 0 or more together."""
    check_k(k)
    *_, last, following = histogram.padded(k + 1)
    held = last - following + room >= 0
    return frozenset(range(min(k, len(histogram.leaders)))) if held else None


@dataclass(frozen=True, slots=True)
class PTRGaussian:
    """Release the k leaders, unordered, if the gap after them, less what neighbours move it by, holds against noise.

    It holds if gap - sensitivity + discrete Gaussian noise reaches the offset: at a gap of its sensitivity a neighbour
    can have a tie there and other leaders.

    Given: `variance`, sigma squared, in (0, 1e9 * sensitivity**2]; delta in (0, 1) is this query's; k is public or a
    function of earlier answers. The histogram holds at least the k first groups and the count after them, unless fewer
    exist. Nothing bounds how many groups a privacy unit is in. `sensitivity` is the most by which the difference of two
    counts moves between neighbours: 1 where they differ by one unit more, 2 where one unit is exchanged for another, R
    where counts are sums to which one unit adds at most R.
    Returns: the positions as a set, or None. Whoever shows the labels must put them in an order that does not depend
    on their counts. With fewer than k groups in all the set holds those that exist.
    Loss: rho = sensitivity**2 / (2 * variance) and delta, whether or not labels are released.
    Utility: a gap of 2 * offset + sensitivity or more is released with probability at least 1 - delta.
    Cost: O(k), whatever the counts.
    Source: Zhu and Wang 2022, Adaptive Private-K-Selection (AISTATS), Algorithm 4; delta_t = delta. The paper's offset
    sigma * sqrt(2 ln(1 / delta_t)) is replaced by the noise's own tail, an integer (`maths.md` 7.2). The paper is of
    one unit more; for one exchanged see `maths.md` 7.6.

    >>> test = PTRGaussian(Fraction(25), Delta("1e-6"))
    >>> test.offset, test.loss.rho
    (25, Rho(0.02))
    """

    variance: Fraction
    delta: Delta
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check_sensitivity(self.sensitivity)
        if not 0 < self.variance <= min(_WIDEST * self.sensitivity**2, _MOST_VARIANCE):
            reason = "The variance of the test must lie between 0 and 1e9 times its squared sensitivity, 1e21 at most."
            raise UsageError("variance-range", reason)
        check_delta(self.delta)

    @property
    def offset(self) -> int:
        """Return the least integer that the noise reaches with probability at most delta."""
        return discrete_gaussian_offset(self.variance, float(self.delta))

    @property
    def loss(self) -> ZCDP:
        """Return what a test costs, also one that releases no label."""
        return ZCDP(Rho(self.sensitivity**2 / (2 * self.variance)), self.delta)

    def release(self, histogram: Histogram, k: int, *, noise: Noise) -> frozenset[int] | None:
        """Test the gap after the k-th count, and return the leaders if it holds."""
        [draw] = discrete_gaussian(self.variance, noise, count=1)
        return _tested(histogram, k, room=draw - self.offset - self.sensitivity)


@dataclass(frozen=True, slots=True)
class PTRLaplace:
    """Release the k leaders, unordered, if the gap after them less 1 plus discrete Laplace noise reaches an offset.

    Given: epsilon of at least 1e-9; otherwise as `PTRGaussian` of sensitivity 1.
    Returns: the positions as a set, or None, as `PTRGaussian`.
    Loss: (epsilon, delta)-differential privacy, hence rho = epsilon**2 / 2 and delta, whether or not labels are
    released.
    Utility: a gap of 2 * offset + 1 or more is released with probability at least 1 - delta.
    Cost: O(k), whatever the counts.
    Source: Zhu and Wang 2022, Adaptive Private-K-Selection (AISTATS), Algorithm 5; delta_t = delta. The paper's offset
    ln(1 / delta_t) / epsilon is replaced by the noise's own tail, an integer (`maths.md` 7.4).

    >>> test = PTRLaplace(Epsilon("0.2"), Delta("1e-6"))
    >>> test.offset, test.loss.rho
    (67, Rho(0.02))
    """

    epsilon: Epsilon
    delta: Delta

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    @property
    def scale(self) -> Fraction:
        """Return the scale of the noise."""
        return 1 / self.epsilon.value

    @property
    def offset(self) -> int:
        """Return the least integer that the noise reaches with probability at most delta."""
        return laplace_offset(self.scale, self.delta.value)

    @property
    def guarantee(self) -> ApproximateDP:
        """Return what a release promises by itself."""
        return ApproximateDP(self.epsilon, self.delta)

    @property
    def loss(self) -> ZCDP:
        """Return what a test costs in a session, also one that releases no label."""
        return ZCDP(Rho(self.epsilon.value**2 / 2), self.delta)

    def release(self, histogram: Histogram, k: int, *, noise: Noise) -> frozenset[int] | None:
        """Test the gap after the k-th count, and return the leaders if it holds."""
        [draw] = discrete_laplace(self.scale, noise, count=1)
        return _tested(histogram, k, room=draw - self.offset - 1)
