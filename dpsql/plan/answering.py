"""How a query is answered: what a plan asks of any mechanism, and each mechanism asked it.

A mechanism pays by the item, for what it returns, or at once, whatever comes back. Both prices are told in items of
one epsilon, so that plans can be compared: at once costs what the items would cost if all of them came back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpsql.accounting import ZCDP, BoundedRange
from dpsql.mechanisms import (
    FullHistogram,
    GaussianHistogram,
    Histogram,
    LaplaceLimitedDomain,
    LimitedDomain,
    Noise,
    NoisyCounts,
    Peeling,
)
from dpsql.mechanisms.base import Selection
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.sql.query import Listed, PrivateQuery
from dpsql.sql.rewrite import Bound, CountingQuery, rewrite, rewrite_all

__all__ = [
    "AllGroups",
    "Answering",
    "Candidates",
    "Drawn",
    "Leaders",
    "LeadersAtOnce",
    "Named",
    "Offer",
    "Price",
    "root_below",
]

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Price:
    """What k keys cost in items of one epsilon, with their counts where `counts` says how these are released."""

    epsilon: Epsilon
    counts: NoisyCounts | None

    def items(self, k: int) -> int:
        """Return how many items k keys cost at most; counts cost fewer than one each under a bound."""
        return k + (0 if self.counts is None else self.counts.items(k))

    def rho(self, items: int) -> Rho:
        """Return the loss of so many items."""
        return BoundedRange(self.epsilon).rho * items

    def pure(self, items: int) -> Epsilon:
        """Return the epsilon of pure differential privacy that costs no more rho than so many items, rounded down."""
        return Epsilon(root_below(2 * self.rho(items).value))


def root_below(square: Fraction) -> Fraction:
    """Return the square root, rounded down to twelve decimals."""
    return Fraction(math.isqrt(math.floor(square * 10**24)), 10**12)


@dataclass(frozen=True, slots=True)
class Offer:
    """What is known of an answer before a row is read: what is read, what it may cost, what keys must reach.

    At most `k` keys come back. `counting` returns at most `most_rows` rows (None: any number), each with a count of at
    least `least_count`. `k_bar` of the exact leaders take part, 0 where all groups or candidates do; the threshold
    stands `threshold_offset` above the count after them, or above 0, and at least at `least_threshold`.
    `count_variance` is that of the noise of the counts, None where they are not asked for: discrete Gaussian, or
    discrete Laplace of `count_scale`, of which it is a bound. `half` is the loss if half of the keys come back, rounded
    up; `charged` says in words what is charged of the items reserved, and `facts`, as name and value, who takes part.
    """

    counting: CountingQuery
    k: int
    worst_case: ZCDP
    half: ZCDP
    charged: str
    facts: tuple[tuple[str, str], ...]
    count_variance: Fraction | None
    count_scale: Fraction | None = None
    k_bar: int = 0
    threshold_offset: Fraction = Fraction(0)
    least_threshold: Fraction = Fraction(0)
    most_rows: int | None = None
    least_count: int = 1


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was drawn: rows of the engine's answer in released order, noisy counts of them if there are any, and cost.

    `stopped_at_bottom` says that fewer than k came back because nothing else stood out.
    """

    rows: tuple[int, ...]
    counts: tuple[int, ...] | None
    loss: ZCDP
    items: int
    stopped_at_bottom: bool


class Answering(Protocol):
    """What a plan asks of the mechanism that answers it; every part but `draw` is public."""

    @property
    def selection(self) -> Named:
        """The mechanism with its parameters."""
        ...

    @property
    def price(self) -> Price:
        """What the query costs in items."""
        ...

    @property
    def law(self) -> tuple[object, object]:
        """All that decides what is drawn from given rows, and what it costs: the mechanism's part of a replay key."""
        ...

    def offer(self, query: PrivateQuery, bound: Bound | None) -> Offer:
        """Return what is known before a row is read."""
        ...

    def draw(self, counts: Counts, noise: Noise) -> Drawn:
        """Draw from the counts of the rows of the offer's counting query."""
        ...


class Named(Protocol):
    """A mechanism, as far as a plan tells of it."""

    @property
    def name(self) -> str:
        """The mechanism's name in SQL."""
        ...


@dataclass(frozen=True, slots=True)
class Leaders:
    """The limited domain: the leading groups, paid for by what comes back, BOTTOM included."""

    selection: LimitedDomain
    price: Price

    @property
    def law(self) -> tuple[object, object]:
        """The mechanism, and how the counts are drawn."""
        return self.selection, self.price.counts

    def offer(self, query: PrivateQuery, bound: Bound | None) -> Offer:
        """Return the offer: k_bar + 1 groups are read, and half of the keys save the others but for BOTTOM."""
        chosen, price = self.selection, self.price
        returned = math.ceil(chosen.k / 2)
        threshold = f"{float(chosen.threshold_offset):.1f} units above group number {chosen.k_bar + 1}"
        if chosen.least_threshold:
            threshold += f", and at least {float(chosen.least_threshold):.1f} units"
            threshold += f" (the policy's min_units = {chosen.min_units})"
        return Offer(
            counting=rewrite(query, chosen.k_bar + 1, bound=bound),
            k=chosen.k,
            worst_case=ZCDP(price.rho(price.items(chosen.k)), chosen.delta),
            half=ZCDP(price.rho(price.items(returned) + (returned < chosen.k)), chosen.delta),
            charged="charged: one for each key and count returned, and for BOTTOM",
            facts=(("k_bar", str(chosen.k_bar)), ("threshold", threshold)),
            count_variance=None if price.counts is None else price.counts.variance,
            k_bar=chosen.k_bar,
            threshold_offset=chosen.threshold_offset,
            least_threshold=chosen.least_threshold,
            most_rows=chosen.k_bar + 1,
        )

    def draw(self, counts: Counts, noise: Noise) -> Drawn:
        """Draw keys, and then counts of them."""
        exact = tuple(counts.tolist())
        chosen = self.selection.select(Histogram.of_leaders(exact, self.selection.k_bar), noise)
        return _paid_by_item(chosen, self.selection.loss(chosen), exact=exact, counts=self.price.counts, noise=noise)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Peeling: every candidate of a known domain, paid for by what comes back, which is all that was asked for."""

    selection: Peeling
    price: Price

    @property
    def law(self) -> tuple[object, object]:
        """The mechanism, and how the counts are drawn."""
        return self.selection, self.price.counts

    def offer(self, query: PrivateQuery, bound: Bound | None) -> Offer:
        """Return the offer: every candidate is read, and no delta is spent."""
        chosen, price, domain = self.selection, self.price, query.domain
        worst_case = ZCDP(price.rho(price.items(chosen.k)), Delta(0))
        listed = f"{len(domain.values)} values of the query" if isinstance(domain, Listed) else "a public column"
        return Offer(
            counting=rewrite(query, None, bound=bound),
            k=chosen.k,
            worst_case=worst_case,
            half=worst_case,
            charged="charged: one for each key and count returned",
            facts=(("domain", f"{listed}; every one takes part, also with no unit at all"),),
            count_variance=None if price.counts is None else price.counts.variance,
            least_count=0,
        )

    def draw(self, counts: Counts, noise: Noise) -> Drawn:
        """Draw keys, and then counts of them."""
        exact = tuple(counts.tolist())
        chosen = self.selection.select(Histogram.of_leaders(exact, len(exact)), noise)
        return _paid_by_item(chosen, self.selection.loss(chosen), exact=exact, counts=self.price.counts, noise=noise)


@dataclass(frozen=True, slots=True)
class AllGroups:
    """The Gaussian histogram: all groups in the order of their labels, keys and counts at once, paid for at once."""

    selection: GaussianHistogram
    price: Price

    @property
    def law(self) -> tuple[object, object]:
        """The mechanism, and the items that its loss is told in."""
        return self.selection, self.price

    def offer(self, query: PrivateQuery, bound: Bound | None) -> Offer:
        """Return the offer: all groups are read, and the price is one, whatever comes back."""
        chosen, threshold = self.selection, self.selection.threshold
        sigma = math.sqrt(chosen.variance)
        return Offer(
            counting=rewrite_all(query, bound=bound),
            k=chosen.k,
            worst_case=chosen.loss,
            half=chosen.loss,
            charged="paid at once, whatever comes back",
            facts=(
                ("threshold", f"a noisy count of {threshold} units, whatever the other groups have"),
                ("noise", f"sigma {sigma:.1f} on the count of every group; all groups are read"),
            ),
            count_variance=None if self.price.counts is None else chosen.variance,
            threshold_offset=Fraction(threshold),
        )

    def draw(self, counts: Counts, noise: Noise) -> Drawn:
        """Draw keys and counts together; rows are in the order of labels, so positions may break ties."""
        drawn, items = self.selection.release(FullHistogram(counts), noise), self.price.items(self.selection.k)
        stopped = len(drawn.positions) < self.selection.k
        return Drawn(drawn.positions, drawn.counts, self.selection.loss, items, stopped_at_bottom=stopped)


@dataclass(frozen=True, slots=True)
class LeadersAtOnce:
    """The limited domain with Laplace noise: the leading groups, keys and counts at once, paid for at once."""

    selection: LaplaceLimitedDomain
    price: Price

    @property
    def law(self) -> tuple[object, object]:
        """The mechanism, and the items that its loss is told in."""
        return self.selection, self.price

    def offer(self, query: PrivateQuery, bound: Bound | None) -> Offer:
        """Return the offer: k_bar + 1 groups are read, and the price is one, whatever comes back."""
        chosen, counted = self.selection, self.price.counts is not None
        threshold = f"{chosen.offset + 1} units above group number {chosen.k_bar + 1}"
        return Offer(
            counting=rewrite(query, chosen.k_bar + 1, bound=bound),
            k=chosen.k,
            worst_case=chosen.worst_case,
            half=chosen.worst_case,
            charged="paid at once, whatever comes back",
            facts=(
                ("k_bar", str(chosen.k_bar)),
                ("threshold", threshold),
                ("noise", f"Laplace of scale {float(chosen.scale):.1f} on every count and on the threshold"),
            ),
            count_variance=2 * chosen.scale**2 if counted else None,
            count_scale=chosen.scale,
            k_bar=chosen.k_bar,
            threshold_offset=Fraction(chosen.offset + 1),
            most_rows=chosen.k_bar + 1,
        )

    def draw(self, counts: Counts, noise: Noise) -> Drawn:
        """Draw keys and counts together; the mechanism puts equal noisy counts in a random order."""
        chosen = self.selection
        drawn = chosen.select(Histogram.of_leaders(tuple(counts.tolist()), chosen.k_bar), noise)
        items = self.price.items(chosen.k)
        return Drawn(
            drawn.positions, drawn.counts, chosen.loss(drawn), items, stopped_at_bottom=drawn.stopped_at_bottom
        )


def _paid_by_item(
    chosen: Selection, loss: ZCDP, *, exact: tuple[int, ...], counts: NoisyCounts | None, noise: Noise
) -> Drawn:
    """Return what was chosen, with the counts drawn for it if they are asked for."""
    rows, stopped = chosen.positions, chosen.stopped_at_bottom
    if counts is None:
        return Drawn(rows, None, loss, chosen.steps, stopped_at_bottom=stopped)
    private = tuple(counts.release([exact[row] for row in rows], noise))
    loss += ZCDP(counts.loss(len(rows)), Delta(0))
    return Drawn(rows, private, loss, chosen.steps + counts.items(len(rows)), stopped_at_bottom=stopped)
