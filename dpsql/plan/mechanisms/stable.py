"""Stable sets of leaders: fixed and adaptive stable top-k, and top stable, whose sets come without an order.

The released rows are sorted by label, or by noisy counts if there are any. The engine returns rows in the order of
labels. A mechanism takes them in the order of exact counts, ties by label, and its choice is translated back to rows,
so that the order reveals nothing about exact counts.

* Fixed stable top-k: a set of about k leaders if its gap holds, and what makes it k; draws not made are refunded.
* With ADAPTIVE: the k at a wide gap, as a set, if the gap holds; the choice is paid at once.
* Top stable: the leaders down to the lowest gap that holds, k of them if they are more; paid at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.accounting import ZCDP, Loss
from dpsql.errors import UsageError
from dpsql.mechanisms import (
    FixedStableSelection,
    FixedStableTopK,
    Histogram,
    Noise,
    StableTopK,
    TopStable,
    distance_regulariser,
)
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Facts,
    Groups,
    ItemLoss,
    MechanismOutput,
    ReleaseSpec,
    RowsRead,
    SpecReport,
    sqrt_rounded_down,
)
from dpsql.plan.mechanisms.counts_by_item import add_counts
from dpsql.plan.mechanisms.measure_text import describe_amount
from dpsql.plan.mechanisms.record import Domain, Mechanism, PerPartition, Reads
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_unordered

BY_LABEL = ("order", "a set by label, then what was drawn one by one; all by noisy counts where these are asked for")


@dataclass(frozen=True, slots=True, repr=False)
class Ranked:
    """The rows of the leaders in the order of their exact counts, and the histogram of these."""

    rows: tuple[int, ...]
    histogram: Histogram

    def in_label_order(self, positions: Iterable[int]) -> tuple[int, ...]:
        """Return the rows of a set of positions, in the order of their labels."""
        return tuple(sorted(self.in_order(positions)))

    def in_order(self, positions: Iterable[int]) -> tuple[int, ...]:
        """Return the rows of positions, in the order of these, which must be a private one."""
        return tuple(self.rows[position] for position in positions)


def rank(groups: Groups, k_bar: int) -> Ranked:
    """Return the leaders of groups that came in the order of their labels: the first k_bar, and the count after."""
    counts = groups.counts.tolist()
    rows = sorted(range(len(counts)), key=lambda row: -counts[row])  # rows of equal counts stay in the order of labels
    return Ranked(tuple(rows), Histogram.of_leaders(tuple(counts[row] for row in rows), k_bar))


def describe_order(drawn: MechanismOutput, groups: Groups, *, price: ItemLoss, noise: Noise) -> MechanismOutput:
    """Return the draw with its noisy counts, if the query releases counts, and its rows sorted by these.

    Counts are compared in whole steps, as they are shown; equal ones come by the labels of their rows.
    """
    if price.counts is None:
        return drawn
    counted = add_counts(drawn, groups, price=price, noise=noise)
    counts, rows = counted.counts or (), counted.rows
    shown = list(map(round, counted.noises[0].read(counts)))
    order = sorted(range(len(rows)), key=lambda at: (-shown[at], rows[at]))
    return replace(
        counted,
        rows=tuple(rows[at] for at in order),
        counts=tuple(counts[at] for at in order),
        others=tuple(tuple(values[at] for at in order) for values in counted.others),
    )


def add_count_loss(loss: ZCDP, keys: int, *, price: ItemLoss) -> ZCDP:
    """Return the loss, plus that of the counts, and further measures, of so many keys if the query releases any."""
    return loss if price.counts is None else loss + ZCDP(price.rho(price.count_items(keys)), Delta(0))


def count_items(loss: ZCDP, price: ItemLoss) -> int:
    """Return a fixed price as a number of items, rounded up."""
    return math.ceil(loss.rho.value / price.rho(1).value)


_LEAST_RHO = Fraction(1, 10**8)  # of the mechanism


@dataclass(frozen=True, slots=True)
class StablePlan:
    """Fixed stable top-k: a set of about k leaders if its gap holds, and what makes it k."""

    selection: FixedStableTopK
    price: ItemLoss

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, and the items of its loss."""
        return self.selection, self.price

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: k_bar + 1 groups are read."""
        chosen, price = self.selection, self.price
        return ReleaseSpec(
            k=chosen.k,
            worst_case=add_count_loss(chosen.worst_case, chosen.k, price=price),
            min_rho=_LEAST_RHO,
            rows=RowsRead(
                counting=rewrite_unordered(query, chosen.k_bar + 1, bound=bound),
                max_rows=chosen.k_bar + 1,
                others=len(query.measures) - 1,
            ),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged="half of the keys' at once, the rest for draws that are made; one for each count returned",
                k_bar=chosen.k_bar,
                threshold_offset=Fraction(chosen.test.offset + chosen.sensitivity),
            ),
        )

    @property
    def half(self) -> Loss:
        """The loss of half of the keys, which save draws where no gap held."""
        chosen, half = self.selection, math.ceil(self.selection.k / 2)
        return add_count_loss(chosen.loss(_unheld(half, chosen.k)), half, price=self.price)

    def describe(self, query: PrivateQuery) -> Facts:
        """Return the leaders, the gap of the set, and the penalty."""
        chosen = self.selection
        wide = describe_amount(query, chosen.test.offset + chosen.sensitivity)
        return (
            ("k_bar", str(chosen.k_bar)),
            ("threshold", f"the last key of the set {wide} above the next; for other keys as limited_domain"),
            ("penalty", f"{_describe_penalty(chosen, query)} for each rank away from {chosen.k}"),
            BY_LABEL,
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw the set and what makes it k, and then counts of both."""
        mechanism = self.selection
        leaders = rank(groups, mechanism.k_bar)
        chosen = mechanism.select(leaders.histogram, noise)
        rows, loss = (*leaders.in_label_order(chosen.stable), *leaders.in_order(chosen.filled)), mechanism.loss(chosen)
        loss = ZCDP(loss.rho, mechanism.delta)
        keys = MechanismOutput(
            rows, None, loss, count_items(loss, self.price), stopped_at_bottom=len(rows) < mechanism.k
        )
        return describe_order(keys, groups, price=self.price, noise=noise)


def _describe_penalty(mechanism: FixedStableTopK, query: PrivateQuery) -> str:
    """Return the penalty as a number of units, or as an amount of another measure."""
    if query.measures[0].bounds is None:
        return f"{float(mechanism.penalty):g} units"
    return describe_amount(query, mechanism.penalty)


def _unheld(returned: int, k: int) -> FixedStableSelection:
    """Return an answer of so many keys where no gap was confirmed, ended by BOTTOM if they are fewer than k."""
    filled = tuple(range(returned))
    return FixedStableSelection(k, held=False, stable=frozenset(), filled=filled, stopped_at_bottom=returned < k)


def _plan_fixed(request: MechanismRequest) -> StablePlan:
    """Return the mechanism of a stable set of about k, at most at the rho of k items."""
    request.check_no_min_units()
    request.refuse(
        ("prefer",), reason="{name} is for TOP ADAPTIVE PRIVATE.", hint="Leave it out: k itself is preferred."
    )
    price, k, k_bar, delta = request.price, request.k, request.k_bar, request.delta
    try:
        rho = price.rho(price.keys(k))
        return StablePlan(FixedStableTopK(rho, delta, k, k_bar, request.penalty, request.groups, request.most), price)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal


STABLE = Mechanism(
    name="stable",
    domain=Domain.UNKNOWN,
    theorem=FixedStableTopK,
    law="a stable set and what makes it k",
    plan=_plan_fixed,
    reads=Reads.LEADERS,
    per_partition=PerPartition.EACH,
    options=frozenset(["delta", "k_bar", "prefer"]),
)


_CHOICE = 2  # items: epsilon**2 / 8 for the choice of k, and as much for the test of its gap
_LEAST_RHO_ADAPTIVE = Fraction(1, 4 * 10**8)  # of the mechanism


@dataclass(frozen=True, slots=True)
class AdaptivePlan:
    """Stable top-k with ADAPTIVE: the k at a wide gap, as a set, if the gap holds; the choice is paid at once."""

    selection: StableTopK
    price: ItemLoss

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, and the items of its loss."""
        return self.selection, self.price

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: it reads k_bar + 1 groups, and the choice has a fixed price."""
        chosen, price = self.selection, self.price
        most = chosen.k_bar
        paid = "two for the choice of k and the test of its gap, also if nothing comes back"
        return ReleaseSpec(
            k=most,
            worst_case=ZCDP(price.rho(price.items(most)), chosen.delta),
            min_rho=_LEAST_RHO_ADAPTIVE,
            rows=RowsRead(
                counting=rewrite_unordered(query, most + 1, bound=bound),
                max_rows=most + 1,
                others=len(query.measures) - 1,
            ),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged=paid if price.counts is None else f"{paid}; one for each count returned",
                k_bar=most,
                threshold_offset=Fraction(chosen.offset + chosen.sensitivity),
                chooses="k",
            ),
        )

    @property
    def half(self) -> Loss:
        """The loss of the choice, and of the counts of half of the keys."""
        price, chosen = self.price, self.selection
        return ZCDP(price.rho(price.items(math.ceil(chosen.k_bar / 2))), chosen.delta)

    def describe(self, query: PrivateQuery) -> Facts:
        """Return the leaders and the gap."""
        chosen = self.selection
        gap = describe_amount(query, chosen.offset + chosen.sensitivity)
        least = "1" if chosen.sensitivity == 1 else describe_amount(query, chosen.sensitivity)
        threshold = f"the last key {gap} above the next; at {least} or less never, but for delta"
        return ("k_bar", str(chosen.k_bar)), ("threshold", threshold), BY_LABEL

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw k and test its gap, and then draw counts of what is returned."""
        leaders = rank(groups, self.selection.k_bar)
        chosen = self.selection.select(leaders.histogram, noise)
        rows = leaders.in_label_order(chosen.positions or ())
        held = chosen.positions is not None
        keys = MechanismOutput(rows, None, self.selection.loss, _CHOICE, stopped_at_bottom=not held, chosen=chosen.k)
        return describe_order(keys, groups, price=self.price, noise=noise)


def _price_adaptive(request: MechanismRequest) -> ItemLoss:
    """Return the price of the choice, whatever comes back, and of counts by the item."""
    return replace(request.price, once=_CHOICE, each=0)


def _plan_adaptive(request: MechanismRequest) -> AdaptivePlan:
    """Return the mechanism that chooses k, drawn to a public one where the query prefers it."""
    request.check_no_min_units()
    price, k_bar = _price_adaptive(request), request.k_bar
    prefer, delta = request.prefer, request.delta
    try:
        near = () if prefer is None else distance_regulariser(prefer, k_bar, penalty=request.penalty)
        return AdaptivePlan(StableTopK(price.epsilon, delta, k_bar, near, request.most), price)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal


ADAPTIVE = Mechanism(
    name="stable",
    domain=Domain.ADAPTIVE,
    theorem=StableTopK,
    law="a stable set at a private k",
    plan=_plan_adaptive,
    price=_price_adaptive,
    reads=Reads.LEADERS,
    per_partition=PerPartition.EACH,
    options=frozenset(["delta", "k_bar", "prefer"]),
)


_WITHIN = Fraction(1, 5)  # of rho, for draws among more than k: with more the tests fail oftener, with none it is luck


@dataclass(frozen=True, slots=True)
class TopStablePlan:
    """Top stable: the leaders down to the lowest gap that holds, k of them if they are more; paid at once."""

    selection: TopStable
    price: ItemLoss

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, and the items of its loss."""
        return self.selection, self.price

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: k_bar + 1 groups are read, and only draws among more than k leaders can be saved."""
        chosen, price = self.selection, self.price
        return ReleaseSpec(
            k=chosen.k,
            worst_case=add_count_loss(chosen.worst_case, chosen.k, price=price),
            rows=RowsRead(
                counting=rewrite_unordered(query, chosen.k_bar + 1, bound=bound),
                max_rows=chosen.k_bar + 1,
                others=len(query.measures) - 1,
            ),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged="the tests at once; draws among more than k; one for each count returned",
                k_bar=chosen.k_bar,
                threshold_offset=Fraction(chosen.offset + chosen.sensitivity),
            ),
        )

    @property
    def half(self) -> Loss:
        """The loss of all keys, and of the counts of half of them."""
        return add_count_loss(self.selection.worst_case, math.ceil(self.selection.k / 2), price=self.price)

    def describe(self, query: PrivateQuery) -> Facts:
        """Return the leaders and the gap."""
        chosen = self.selection
        gap = describe_amount(query, chosen.offset + chosen.sensitivity)
        return ("k_bar", str(chosen.k_bar)), ("threshold", f"the last of the leaders {gap} above the next"), BY_LABEL

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw the rank and, above k, which k of the leaders; then counts of what is returned."""
        mechanism = self.selection
        leaders = rank(groups, mechanism.k_bar)
        chosen = mechanism.select(leaders.histogram, noise)
        rows, loss = (*leaders.in_label_order(chosen.members), *leaders.in_order(chosen.ranked)), mechanism.loss(chosen)
        keys = MechanismOutput(
            rows, None, loss, count_items(loss, self.price), stopped_at_bottom=len(rows) < mechanism.k
        )
        return describe_order(keys, groups, price=self.price, noise=noise)


def _plan_top_stable(request: MechanismRequest) -> TopStablePlan:
    """Return the mechanism at the rho of k items at most: a fifth for draws among more than k, if k_bar is more."""
    request.check_no_min_units()
    price, k, k_bar, delta = request.price, request.k, request.k_bar, request.delta
    rho = price.rho(price.keys(k)).value
    share = _WITHIN if k < k_bar else Fraction(0)
    try:
        tests = Epsilon(sqrt_rounded_down(2 * (1 - share) * rho))
        within = Epsilon(sqrt_rounded_down(8 * share * rho / k)) if share else None
        mechanism = TopStable(tests, delta, k, k_bar, within=within, sensitivity=request.most)
        return TopStablePlan(mechanism, price)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal


TOP_STABLE = Mechanism(
    name="top_stable",
    domain=Domain.UNKNOWN,
    theorem=TopStable,
    law="leaders down to a gap",
    plan=_plan_top_stable,
    reads=Reads.LEADERS,
    per_partition=PerPartition.EACH,
    options=frozenset(["delta", "k_bar"]),
)
