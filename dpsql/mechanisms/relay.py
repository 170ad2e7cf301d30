"""Relay: a limited domain, and a weighted Gaussian for what it leaves unspent, if a gate says that it is worth it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpsql.accounting import ZCDP, BoundedRange
from dpsql.errors import UsageError
from dpsql.mechanisms.base import Selection
from dpsql.mechanisms.histogram import FullHistogram, Histogram, LabelPosition
from dpsql.mechanisms.limited_domain import LimitedDomain
from dpsql.mechanisms.lower_cut import LowerCut, find_cut
from dpsql.mechanisms.places import ReadPlaces
from dpsql.mechanisms.sampling.discrete_noise import discrete_gaussian
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.mechanisms.weighted_gaussian import WEIGHT_STEPS, WeightedGaussian
from dpsql.quantities import Delta, Epsilon, Rho

_GATE_SHARE = Fraction(1, 10)  # of the items that are left
_MOST_CUT = 100  # the largest k with a cut: it is below the thresholds of k - 1 second legs
_DEVIATIONS = 2  # of its noise that a gate stands at: the noise alone opens it once in 44 times


@dataclass(frozen=True, slots=True)
class Gate:
    """Say whether the largest weight, with discrete Gaussian noise, reaches a public height.

    Given: rho sets the noise; one privacy unit changes no weight by more than 1, `steps` of fixed point. The largest of
    no weights is 0, and the noise is drawn then too: without it an open gate would tell that there is a group.
    Loss: rho = 1 / (2 sigma**2), sigma in weights of 1, whether or not it opens.

    >>> gate = Gate(Rho("0.01"))
    >>> round(gate.height / WEIGHT_STEPS, 3)
    14.142
    """

    rho: Rho
    steps: int = WEIGHT_STEPS

    @property
    def variance(self) -> Fraction:
        """Return sigma squared, in squared steps."""
        return self.steps**2 / (2 * self.rho.value)

    @property
    def height(self) -> int:
        """Return the noisy weight, in steps, at which it opens: 2 sigma, rounded up."""
        square = self.variance * _DEVIATIONS**2
        root = math.isqrt(math.floor(square))
        return root if root * root == square else root + 1

    def opens(self, weights: npt.NDArray[np.int64], noise: Noise) -> bool:
        """Draw the noise and compare."""
        (drawn,) = discrete_gaussian(self.variance, noise, count=1)
        return int(weights.max(initial=0)) + drawn >= self.height


@dataclass(frozen=True, slots=True)
class RelaySelection:
    """Groups by their positions in the order of labels: those of the limited domain, in order, and those after them.

    `gate_opened` is None where nothing was left to spend.
    """

    positions: tuple[LabelPosition, ...]
    first: Selection
    gate_opened: bool | None = None


@dataclass(frozen=True, slots=True)
class Relay:
    """Peel a limited domain; where BOTTOM ends it before k labels, spend what is left on a weighted Gaussian.

    With j labels and BOTTOM, k - j - 1 items are left. A tenth of them buys a `Gate` on the largest weight of a group
    that was not returned. If it opens, the rest buys a `WeightedGaussian` of at most k - j of these groups, which
    follow in the order of their noisy weights. With nothing left there is no second leg.
    Given: epsilon, k, k_bar, `max_groups_contributed` and R = `sensitivity` as for `LimitedDomain`; `weighed_groups`
    bounds in how many groups a unit is weighed, as for `WeightedGaussian`. Each leg has half of delta. Counts and
    weights are of the same groups, all that exist by their counts, in an order of labels that does not depend on data;
    a group may have a weight of 0.
    Returns: a `RelaySelection` of at most k positions.
    Loss: epsilon**2 / 8 for each item: one for each label of the limited domain and for BOTTOM, those of the gate
    whenever it is asked, and the rest if it opened; never more than k. Delta once.
    Utility: of a query in which nothing stands out, 1 + (k - 1) / 10 items are charged, and all k in 2.3 % of runs.
    Source: `maths.md` 9.5; of the legs, their own.

    >>> relay = Relay(Epsilon("0.1"), Delta("1e-6"), k=10, k_bar=200, weighed_groups=100)
    >>> relay.items(RelaySelection((), Selection((), stopped_at_bottom=True), gate_opened=False))
    Fraction(19, 10)
    """

    epsilon: Epsilon
    delta: Delta
    k: int
    k_bar: int
    weighed_groups: int
    max_groups_contributed: int | None = None
    sensitivity: int = 1

    def __post_init__(self) -> None:
        nothing = Selection((), stopped_at_bottom=True)
        _ = self.first_leg, self.second_leg(nothing) if self.left(nothing) else None  # which refuse what is amiss

    @property
    def name(self) -> str:
        """The mechanism's name in SQL."""
        return "relay"

    @property
    def first_leg(self) -> LimitedDomain:
        """Return the limited domain."""
        half = Delta(self.delta.value / 2)
        bound = self.max_groups_contributed
        return LimitedDomain(self.epsilon, half, self.k, self.k_bar, bound, sensitivity=self.sensitivity)

    @property
    def worst_case(self) -> ZCDP:
        """The loss of k items, and delta."""
        return ZCDP(BoundedRange(self.epsilon).rho * self.k, self.delta)

    def left(self, first: Selection) -> int:
        """Return how many items the first leg left."""
        return self.k - first.steps if first.stopped_at_bottom else 0

    def gate_items(self, first: Selection) -> Fraction:
        """Return how many items the gate costs, a fraction; 0 where none is asked."""
        return self.left(first) * _GATE_SHARE

    def gate(self, first: Selection) -> Gate:
        """Return the gate after a first leg that left an item or more."""
        return Gate(self._rho(self.gate_items(first)))

    def second_leg(self, first: Selection) -> WeightedGaussian:
        """Return the weighted Gaussian behind the gate."""
        rho = self._rho(self.left(first) - self.gate_items(first))
        return WeightedGaussian(rho, Delta(self.delta.value / 2), self.k - len(first.positions), self.weighed_groups)

    @property
    def cut(self) -> LowerCut | None:
        """Return the cut of weights below which few groups need be read, if there is one; the loss is the same.

        It is below the threshold of every second leg that may follow. Read besides are the first k_bar + 1 groups by
        count, and the first k + 1 by weight: among these is the heaviest of those that the first leg did not return.
        """
        if self.k > _MOST_CUT:
            return None
        firsts = (Selection(tuple(range(found)), stopped_at_bottom=True) for found in range(self.k - 1))
        legs = [self.second_leg(first) for first in firsts]
        return find_cut(tuple((leg.threshold, leg.variance) for leg in legs)) if legs else None

    def select(
        self, counts: FullHistogram, weights: npt.NDArray[np.int64], *, noise: Noise, read: ReadPlaces | None = None
    ) -> RelaySelection:
        """Draw both legs; `read` says which groups a cut of weights left."""
        if counts.counts.shape != weights.shape:
            raise UsageError("histogram-size", "Weights and counts must be those of the same groups.")
        order = np.argsort(-counts.counts, kind="stable")[: self.k_bar + 1]
        leaders = Histogram.of_leaders(tuple(counts.counts[order].tolist()), self.k_bar)
        first = self.first_leg.select(leaders, noise)
        returned = tuple(LabelPosition(int(order[at])) for at in first.positions)
        if not self.left(first):
            return RelaySelection(returned, first)
        rest = weights.copy()
        rest[list(returned)] = 0
        if not self.gate(first).opens(rest, noise):
            return RelaySelection(returned, first, gate_opened=False)
        weighed = np.flatnonzero(rest)
        behind = None if read is None else read.take(weighed)
        release = self.second_leg(first).release(FullHistogram(rest[weighed], behind), noise)
        added = tuple(LabelPosition(int(weighed[at])) for at in release.positions)
        return RelaySelection((*returned, *added), first, gate_opened=True)

    def items(self, selection: RelaySelection) -> Fraction:
        """Return how many items `selection` cost, at most k: a whole number but for the gate."""
        first = selection.first
        return first.steps + (Fraction(self.left(first)) if selection.gate_opened else self.gate_items(first))

    def loss(self, selection: RelaySelection) -> ZCDP:
        """Return what `selection` cost, at most `worst_case`."""
        return replace(self.worst_case, rho=self._rho(self.items(selection)))

    def _rho(self, items: Fraction) -> Rho:
        return Rho(BoundedRange(self.epsilon).rho.value * items)
