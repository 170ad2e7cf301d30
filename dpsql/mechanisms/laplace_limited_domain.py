"""Limited domain with Laplace noise: names and counts of the leaders at one price, where a unit is in few groups."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, ApproximateDP
from dpsql.accounting.tails import laplace_difference_offset
from dpsql.mechanisms.base import (
    Histogram,
    check_bound,
    check_delta,
    check_epsilon,
    check_k,
    check_leaders,
    check_sensitivity,
)
from dpsql.mechanisms.sampling.discrete_noise import discrete_laplace
from dpsql.mechanisms.sampling.noise import BitReader, Noise
from dpsql.quantities import Delta, Epsilon, Rho


@dataclass(frozen=True, slots=True)
class CountedSelection:
    """Positions in the histogram's leaders by descending noisy count, those counts, and whether BOTTOM ended it."""

    positions: tuple[int, ...]
    counts: tuple[int, ...]
    stopped_at_bottom: bool


@dataclass(frozen=True, slots=True)
class LaplaceLimitedDomain:
    """Add discrete Laplace noise to the k_bar exact leaders and to BOTTOM; release the first k that reach BOTTOM.

    Given: epsilon of at least 1e-9 and delta in (0, 1) are this query's; 1 <= k <= k_bar; `max_groups_contributed`
    bounds how many groups one privacy unit is in, enforced by the caller; one unit changes each count by at most
    R = `sensitivity`, all in one direction (1 where units are counted). All are public or functions of earlier
    answers. The histogram holds the k_bar first groups by (count descending, a fixed order of labels): data-dependent
    ties would break delta.
    Returns: a `CountedSelection` of 0..k positions. Equal noisy counts come in a random order: the exact counts, which
    order the leaders, must not decide. The counts may be shown at no further cost; they lean upwards, being chosen.
    Loss: (epsilon, delta)-differential privacy, hence rho = epsilon**2 / 2 and delta, whatever k and k_bar.
    Utility: a count has variance of about 2 * (R max_groups_contributed / epsilon)**2; a label that stands x above
    h_(k_bar + 1) + R + offset misses with probability P[X - Y > x], at most (2 + x / scale) * exp(-x / scale) / 4
    but for the rounding to integers.
    Cost: O(k_bar log k_bar), whatever the counts.
    Source: Durfee and Rogers 2019, arXiv:1905.04273, the Laplace variant for Delta-restricted data; k-bar = k_bar,
    Delta = max_groups_contributed. The constant is derived here (`maths.md` 5.2, with R 10.2): the offset is the least
    integer n with min(max_groups_contributed, k_bar) * P[X - Y >= n] <= delta for two independent noises. The
    continuous Delta * ln(Delta / delta) / epsilon would miss delta by a factor of 4 at delta = 1e-6.

    >>> mechanism = LaplaceLimitedDomain(Epsilon(1), Delta("1e-6"), k=3, k_bar=10, max_groups_contributed=5)
    >>> mechanism.scale, mechanism.offset, mechanism.worst_case.rho
    (Fraction(5, 1), 86, Rho(0.5))
    """

    epsilon: Epsilon
    delta: Delta
    k: int
    k_bar: int
    max_groups_contributed: int
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check_sensitivity(self.sensitivity)
        check_epsilon(self.epsilon, self.sensitivity)
        check_k(self.k, self.k_bar)
        check_delta(self.delta)
        check_bound(self.max_groups_contributed)

    @property
    def name(self) -> str:
        """The mechanism's name in SQL."""
        return "laplace_limited_domain"

    @property
    def scale(self) -> Fraction:
        """Return the scale of the noise: the L1 distance of neighbours, BOTTOM included, over epsilon."""
        return self.sensitivity * self.max_groups_contributed / self.epsilon.value

    @property
    def offset(self) -> int:
        """Return how far above the (k_bar + 1)-th count, plus R, BOTTOM stands."""
        reach = min(self.max_groups_contributed, self.k_bar)
        return laplace_difference_offset(self.scale, self.scale, probability=self.delta.value / reach)

    @property
    def guarantee(self) -> ApproximateDP:
        """Return what a release promises by itself."""
        return ApproximateDP(self.epsilon, self.delta)

    @property
    def worst_case(self) -> ZCDP:
        """The loss in a session; it does not depend on the answer."""
        return ZCDP(Rho(self.epsilon.value**2 / 2), self.delta)

    def select(self, histogram: Histogram, noise: Noise) -> CountedSelection:
        """Draw the noise and return the labels that reach BOTTOM, k at most."""
        check_leaders(histogram, self.k_bar)
        *draws, bottom = discrete_laplace(self.scale, noise, count=len(histogram.leaders) + 1)
        threshold = histogram.following + self.sensitivity + self.offset + bottom
        counts = [count + draw for count, draw in zip(histogram.leaders, draws, strict=True)]
        reaching = [at for at in BitReader(noise).shuffled(len(counts)) if counts[at] >= threshold]
        released = sorted(reaching, key=lambda at: -counts[at])[: self.k]
        stopped = len(released) < self.k
        return CountedSelection(tuple(released), tuple(counts[at] for at in released), stopped_at_bottom=stopped)

    def loss(self, _: CountedSelection) -> ZCDP:
        """Return what a selection cost: the same for every answer."""
        return self.worst_case
