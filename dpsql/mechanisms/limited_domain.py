"""Limited domains: a private top-k over a domain that nobody had to list.

With Gumbel noise the answer is paid for by what it returns; k_bar may be chosen in private, where the threshold would
be lowest. With Laplace noise names and counts of the leaders have one price, where a unit is in few groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

from dpsql.accounting import ZCDP, ApproximateDP, BoundedRange, laplace_difference_offset
from dpsql.errors import UsageError
from dpsql.mechanisms.base import (
    COUNT_LIMIT,
    Histogram,
    Selection,
    check_bound,
    check_delta,
    check_epsilon,
    check_k,
    check_leaders,
    check_sensitivity,
)
from dpsql.mechanisms.sampling.discrete_noise import discrete_laplace
from dpsql.mechanisms.sampling.noise import BitReader, Noise
from dpsql.mechanisms.sampling.race import race
from dpsql.quantities import Delta, Epsilon, Rho

_LOG_ERROR = 2.0**-38  # two logarithms of at most 1e3, each within 4 units in the last place, and their difference
_ROUND_UP = 1.0 + 2.0**-44  # a quotient, the conversion of epsilon and this product


@dataclass(frozen=True, slots=True)
class LimitedDomain:
    """Peel at most k of the k_bar exact leaders with Gumbel noise, against BOTTOM; stop when BOTTOM wins.

    Given: epsilon is the bounded-range parameter of one draw; delta in (0, 1) is this query's; 1 <= k <= k_bar;
    `max_groups_contributed` bounds how many groups one privacy unit is in (None: no bound), enforced by the caller;
    `min_units` is how many units a label should have to be returned (1: no floor). One unit changes each count by at
    most R = `sensitivity`, all in one direction (1 where units are counted); with another R there is no min_units.
    All are public or functions of earlier answers. The histogram holds the k_bar first groups by (count descending,
    a fixed order of labels): data-dependent ties would break delta.
    Returns: a `Selection` of 0..k positions in noisy rank order; with fewer than k the last step was BOTTOM. A label
    of fewer than min_units units is among them with probability at most delta (`maths.md` 3.6).
    Loss: rho = epsilon**2 / 8 for every returned label and for BOTTOM, and delta once, never refunded.
    Utility: with probability 1 - beta every returned label has a count of at least
    h_(k) - R ln(k * k_bar / beta) / epsilon (DR19 Lemma 3.1).
    Cost: O(k_bar log k_bar), whatever the counts.
    Source: Durfee and Rogers 2019, arXiv:1905.04273, Algorithm 1; k-bar = k_bar, h_perp = threshold,
    Delta = max_groups_contributed. The paper charges 2 delta a query; one delta suffices (`maths.md` 3.3). BOTTOM
    stays when fewer than k_bar + 1 groups exist, with the missing count taken as 0. `min_units` and R are not in the
    paper (`maths.md` 3.6 and 10.2).

    >>> mechanism = LimitedDomain(Epsilon("0.1"), Delta("1e-6"), k=10, k_bar=10, max_groups_contributed=1)
    >>> round(float(mechanism.threshold_offset), 6)
    139.155106
    """

    name: ClassVar[str] = "limited_domain"  # in SQL
    epsilon: Epsilon
    delta: Delta
    k: int
    k_bar: int
    max_groups_contributed: int | None = None
    min_units: int = 1
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check_k(self.k, self.k_bar)
        check_delta(self.delta)
        check_bound(self.max_groups_contributed)
        check_sensitivity(self.sensitivity)
        check_epsilon(self.epsilon, self.sensitivity)
        if self.sensitivity > 1 and self.min_units > 1:
            raise UsageError("min-units-range", "min_units counts units, and these counts are of something else.")
        if not 1 <= self.min_units < COUNT_LIMIT:
            raise UsageError("min-units-range", "min_units must be at least 1 and less than 2**53.")

    @property
    def worst_case(self) -> ZCDP:
        """The loss of k steps: BOTTOM takes the place of a label, so never k + 1."""
        return ZCDP(BoundedRange(self.epsilon).rho * self.k, self.delta)

    @property
    def threshold_offset(self) -> Fraction:
        """How far above the (k_bar + 1)-th count BOTTOM stands: R (1 + ln(M / delta) / epsilon), rounded up.

        M = min(max_groups_contributed, k_bar) is how many leaders one unit can exchange. `min(.., d - k_bar)` of the
        paper is unsafe on an unknown domain (`maths.md` 1).
        """
        reach = self.k_bar if self.max_groups_contributed is None else min(self.max_groups_contributed, self.k_bar)
        return self.sensitivity * (1 + self._lead_over(reach))

    @property
    def least_threshold(self) -> Fraction:
        """Where BOTTOM stands at least: min_units - 1 + ln(k_bar / delta) / epsilon, rounded up; 0 without a floor.

        k_bar, not M: all the leaders can have too few units, whatever one unit can exchange.
        """
        return Fraction(0) if self.min_units == 1 else self.min_units - 1 + self._lead_over(self.k_bar)

    def _lead_over(self, labels: int) -> Fraction:
        """Return ln(labels / delta) / epsilon, rounded up: BOTTOM, this far ahead, beats `labels` but for delta."""
        odds = labels / self.delta.value
        # math.log takes whole numbers of any length; float(odds) overflows for a delta below 1e-308.
        logarithm = math.log(odds.numerator) - math.log(odds.denominator) + _LOG_ERROR
        return Fraction(logarithm / float(self.epsilon) * _ROUND_UP)

    def select(self, histogram: Histogram, noise: Noise) -> Selection:
        """Draw the selection with the exact law of repeated exponential mechanisms over the leaders and BOTTOM."""
        check_leaders(histogram, self.k_bar)
        bottom = len(histogram.leaders)
        threshold = max(histogram.following + self.threshold_offset, self.least_threshold)
        # Without any group BOTTOM races alone and wins, and that step is paid for like others.
        steps = min(self.k, bottom + 1)
        order = race(
            histogram.leaders, threshold, epsilon=self.epsilon.value / self.sensitivity, steps=steps, noise=noise
        )
        if bottom in order:
            return Selection(tuple(order[: order.index(bottom)]), stopped_at_bottom=True)
        return Selection(tuple(order), stopped_at_bottom=False)

    def loss(self, selection: Selection) -> ZCDP:
        """Return epsilon**2 / 8 for every step that was drawn, and delta."""
        return ZCDP(BoundedRange(self.epsilon).rho * selection.steps, self.delta)


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
        # counts[k_bar] is that of group number k_bar + 1, as the counts start at 0.
        scores = [-max(counts[k_bar] + offset, floor) for k_bar, offset, floor in places]
        [chosen] = race(scores, None, epsilon=self.epsilon.value / self.sensitivity, steps=1, noise=noise)
        return self.candidates[chosen]


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

    name: ClassVar[str] = "laplace_limited_domain"  # in SQL
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
        # sorted() is stable, so that equal noisy counts stay in the random order of `shuffled`.
        released = sorted(reaching, key=lambda at: -counts[at])[: self.k]
        stopped = len(released) < self.k
        return CountedSelection(tuple(released), tuple(counts[at] for at in released), stopped_at_bottom=stopped)

    def loss(self, _: CountedSelection) -> ZCDP:
        """Return what a selection cost: the same for every answer."""
        return self.worst_case
