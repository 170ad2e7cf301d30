"""Two looks: noisy sums say how much stands out, and by them one of three mechanisms answers with what is left."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.accounting import ZCDP, BoundedRange, check_tail, delta_of_each, epsilon_of_draws
from dpsql.errors import UsageError
from dpsql.mechanisms.base import Histogram, check_epsilon, check_k, check_leaders
from dpsql.mechanisms.domain_discovery import DomainDiscovery
from dpsql.mechanisms.gate import LOOK_SHARE, Gate, Look, bound_weight_sum, find_open_probability
from dpsql.mechanisms.gaussian_threshold import (
    WEIGHT_STEPS,
    GaussianHistogram,
    LowerCut,
    WeightedGaussian,
    check_sparse,
    find_cut,
    weighted_threshold,
)
from dpsql.mechanisms.limited_domain import LimitedDomain
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.quantities import Delta, Epsilon, Rho

_ENOUGH = Fraction(4, 5)  # of the k groups: with so many above its threshold the limited domain answers at once
_CROWDED = 2  # by the second look the groups are so heavy that it pays to choose among them by their counts


class Answerer(Enum):
    """Which mechanism answers after the looks."""

    AT_ONCE = "limited domain, after the first look"
    LEADERS = "limited domain, after both looks"
    WEIGHTS = "weighted Gaussian"
    DISCOVERY = "domain discovery"
    HISTOGRAM = "Gaussian histogram"


_remember = lru_cache(maxsize=64)  # what a plan, its need, its notes and its draw compute about ten times a query


@dataclass(frozen=True, slots=True)
class TwoLooks:
    """Look at the counts, and unless enough stands out at the weights; then answer with the mechanism that they favour.

    The first look adds up by how much each of the k first counts is above half of what the limited domain asks for,
    above count number k_bar + 1. If it says that more than .8 of the k groups are far above, a limited domain answers
    with what is left. Otherwise the second look adds up the k heaviest weights, each from a fifth of the threshold of
    a weighted Gaussian on. If this is above what noise reaches where there is nothing, but for the allowed share of
    queries, and above what the first look said, the weighted Gaussian answers, or domain discovery where groups are
    very heavy. Otherwise a limited domain does.
    Given: epsilon is the bounded-range parameter of one item; delta in (0, 1) is this query's; 1 <= k <= k_bar;
    `max_groups_contributed` bounds how many groups one privacy unit is counted in (None: no bound), `weighed_groups` in
    how many it is weighed, both enforced by the caller. The counts of the first look are those of the limited domain,
    read in one statement; weights and counts of the second are another's. Both are of groups in an order of labels that
    does not depend on data. A weight of 1 is `steps`, other than WEIGHT_STEPS only where the looks alone are computed.
    Returns: the shares that the looks give, each once; what answers takes these numbers and public ones alone.
    Loss: with rho = k epsilon**2 / 8: .03 rho for each look that was taken, then that of the mechanism that answers, of
    .97 rho at most after one look, .94 rho after two; never more than rho. Delta once, for one mechanism answers.
    With `counts_rho` a Gaussian histogram answers in place of weights and discovery, and that much rho is added to what
    it has, since it releases counts as well: it needs `max_groups_contributed`.
    Utility: where there is nothing, the second look opens with probability p (`open_probability`), so that a query
    costs about .06 + .94 p of rho, and one item of the limited domain, on average.
    Cost: a sort of the k_bar first counts; of the weights, the k largest.
    Source: `maths.md` 9.5. Counts minus count k_bar + 1 change by at most 1, in one direction, and clipping does not
    widen that: the sum of k changes by at most k. A unit adds w <= 1 / sqrt(t) to the weights of t groups, and ordered
    weights change by no more than what they are ordered of: the sum of k changes by min(k, t) w <= sqrt(min(k, t)).

    >>> looks = TwoLooks(Epsilon("0.1"), Delta("1e-6"), k=10, k_bar=1000, weighed_groups=100)
    >>> float(looks.first.rho.value / looks.rho.value), round(float(looks.open_probability), 4)
    (0.03, 0.2021)
    """

    name: ClassVar[str] = "two_looks"  # in SQL
    epsilon: Epsilon
    delta: Delta
    k: int
    k_bar: int
    weighed_groups: int
    max_groups_contributed: int | None = None
    counts_rho: Rho | None = None
    steps: int = WEIGHT_STEPS

    def __post_init__(self) -> None:
        check_k(self.k, self.k_bar)
        # After both looks the least is left, so that what is valid there is valid after one.
        _ = self.leaders(Answerer.LEADERS), self.weighted  # which refuse what means nothing
        rho = self._stage_rho  # no answer has less
        check_sparse(rho, self.delta, k=self.k, max_groups_contributed=self.weighed_groups)
        check_epsilon(epsilon_of_draws(rho.value, self.k))
        check_tail(delta_of_each(self.delta, self.weighed_groups))  # of the threshold, which is found after a charge
        if self.counts_rho is not None:
            _ = self.histogram

    @property
    def rho(self) -> Rho:
        """Return the loss of k items."""
        return BoundedRange(self.epsilon).rho * self.k

    @property
    def worst_case(self) -> ZCDP:
        """The loss of k items, and of the counts of a histogram, and delta."""
        return ZCDP(self.rho if self.counts_rho is None else self.rho + self.counts_rho, self.delta)

    def _left(self, looks: int) -> Rho:
        """Return the loss that so many looks leave."""
        return Rho(self.rho.value * (1 - looks * LOOK_SHARE))

    @_remember
    def leaders(self, answerer: Answerer) -> LimitedDomain:
        """Return the limited domain that answers after one look, or after both."""
        share = self._left(1 if answerer is Answerer.AT_ONCE else 2)
        return LimitedDomain(
            epsilon_of_draws(share.value, self.k), self.delta, self.k, self.k_bar, self.max_groups_contributed
        )

    @property
    def weighted(self) -> WeightedGaussian:
        """Return the weighted Gaussian that answers after both looks."""
        return self._weighted()

    @_remember  # below a property, Python 3.14 makes no slots of it
    def _weighted(self) -> WeightedGaussian:
        return WeightedGaussian(self._left(2), self.delta, self.k, self.weighed_groups)

    @property
    def _stage_rho(self) -> Rho:
        """Return the loss of each stage of domain discovery: half of what both looks leave."""
        return Rho(self._left(2).value / 2)

    @property
    def discovery(self) -> DomainDiscovery:
        """Return the domain discovery that answers after both looks."""
        rho = self._stage_rho
        peeling = epsilon_of_draws(rho.value, self.k)
        return DomainDiscovery(rho, self.delta, self.weighed_groups, peeling, self.k)

    @property
    def histogram(self) -> GaussianHistogram:
        """Return the Gaussian histogram that answers after both looks, with its counts."""
        return self._histogram()

    @_remember
    def _histogram(self) -> GaussianHistogram:
        if self.counts_rho is None or self.max_groups_contributed is None:
            raise UsageError("bound-range", "A Gaussian histogram needs a bound, and a rho for its counts.")
        rho = Rho(self._left(2).value + self.counts_rho.value)
        return GaussianHistogram(rho, self.delta, self.k, self.max_groups_contributed)

    @property
    def first(self) -> Look:
        """Return the look at counts: its share is about the part of k that the limited domain would find."""
        return Look(Rho(self.rho.value * LOOK_SHARE), self.k, self.k * self._count_window[1])

    @property
    def _count_window(self) -> tuple[int, int]:
        """Return from which lead on the first look sees a count, and how much of it."""
        offset = self.leaders(Answerer.AT_ONCE).threshold_offset
        return math.ceil(offset / 2), math.ceil(offset * Fraction(7, 10))

    def add_leads(self, leaders: Histogram) -> int:
        """Return the exact sum of the first look, which one unit changes by at most k; 0 of no group."""
        check_leaders(leaders, self.k_bar)
        start, width = self._count_window
        leads = np.array(leaders.leaders[: self.k], np.int64) - (leaders.following + start)
        return int(np.clip(leads, 0, width).sum())

    def look_at_counts(self, leaders: Histogram, noise: Noise) -> Fraction:
        """Draw the first look."""
        return self.first.draw(self.add_leads(leaders), noise)

    @property
    def threshold(self) -> int:
        """Return the threshold of the weighted Gaussian, in steps."""
        variance = self.steps**2 / (2 * self._left(2).value)
        return weighted_threshold(variance, self.delta, most=self.weighed_groups, steps=self.steps)

    @property
    def gate(self) -> Gate:
        """Return the look at weights, which opens with `open_probability` where there is nothing."""
        sensitivity = bound_weight_sum(min(self.k, self.weighed_groups), steps=self.steps)
        rho = Rho(self.rho.value * LOOK_SHARE)
        return Gate(rho, self.k, self.threshold, sensitivity, self.open_probability)

    def look_at_weights(self, weights: npt.NDArray[np.int64], noise: Noise) -> Fraction:
        """Draw the second look at the weights of all groups, at least of those above a fifth of the threshold."""
        return self.gate.draw(weights, noise)

    @property
    def open_probability(self) -> Fraction:
        """Return the largest probability with which the second look may open on nothing."""
        return find_open_probability(self.k, looks=2)

    @property
    def height(self) -> Fraction:
        """Return what the second look must reach to open."""
        return self.gate.height

    def choose(self, first: Fraction, second: Fraction | None = None) -> Answerer | None:
        """Return what answers by the looks so far; None where the second must be taken."""
        if first > _ENOUGH:
            return Answerer.AT_ONCE
        if second is None:
            return None
        # Here the first look is at most _ENOUGH; the second is compared with it up to there.
        if second < self.height or min(second, _ENOUGH) <= first:
            return Answerer.LEADERS
        if self.counts_rho is not None:
            return Answerer.HISTOGRAM
        return Answerer.DISCOVERY if second >= _CROWDED else Answerer.WEIGHTS

    @property
    def cut(self) -> LowerCut | None:
        """Return the cut of weights below which few groups need be read, if there is one; the loss is the same.

        It is not above what the second look sees from: below it, weights change nothing there.
        """
        if self.counts_rho is not None:  # the threshold of a histogram is one of counts
            return None
        chosen = self.weighted, self.discovery.discovery
        found = find_cut(tuple((each.threshold, each.variance) for each in chosen))
        return None if found is None else found.lower_to(self.gate.start)

    def items(self, answerer: Answerer, loss: ZCDP) -> Fraction:
        """Return how many items the looks and a mechanism of this loss cost, at most k."""
        looks = 1 if answerer is Answerer.AT_ONCE else 2
        return looks * LOOK_SHARE * self.k + loss.rho.value / BoundedRange(self.epsilon).rho.value

    def loss(self, answerer: Answerer, loss: ZCDP) -> ZCDP:
        """Return what the looks and a mechanism of this loss cost, at most `worst_case`."""
        looks = 1 if answerer is Answerer.AT_ONCE else 2
        return ZCDP(Rho(self.rho.value * looks * LOOK_SHARE + loss.rho.value), self.delta)
