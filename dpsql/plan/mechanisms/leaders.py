"""Mechanisms that read the leaders alone: the first k_bar groups, and the group after them.

* The limited domain needs a threshold above the group after the leaders. Keys are paid for by what comes back, BOTTOM
  included. With k_bar = AUTO one item more chooses k_bar in private, before anything else is drawn.
* With Laplace noise keys and counts come at once, and are paid for at once.
* Fixed stable top-k: a set of about k leaders if its gap holds, and what makes it k; draws not made are refunded.
* With ADAPTIVE: the k at a wide gap, as a set, if the gap holds; the choice is paid at once.
* Top stable: the leaders down to the lowest gap that holds, k of them if they are more; paid at once.

Stable sets come without an order: the released rows are sorted by label, or by noisy counts if there are any. The
engine returns rows in the order of labels. A mechanism takes them in the order of exact counts, ties by label, and its
choice is translated back to rows, so that the order reveals nothing about exact counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.accounting import ZCDP, Loss
from dpsql.mechanisms import (
    ChooseKBar,
    FixedStableSelection,
    FixedStableTopK,
    Histogram,
    LaplaceLimitedDomain,
    LimitedDomain,
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
    MechanismPlan,
    PrefixLaw,
    ReleaseSpec,
    SpecReport,
    sqrt_rounded_down,
)
from dpsql.plan.mechanisms.draws import (
    add_count_loss,
    charge_and_draw_counts,
    charge_and_draw_others,
    charge_and_draw_selection,
)
from dpsql.plan.mechanisms.record import (
    EVERY_CERTIFICATE,
    Auto,
    Mechanism,
    MechanismRequest,
    Need,
    PerPartition,
    QueryKind,
    Reads,
    describe_amount,
    refuse_out_of_range,
)
from dpsql.plan.mechanisms.rows_fetched import describe_spread, read_leaders
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound

_K_BAR_CHOICE = 1  # item


@dataclass(frozen=True, slots=True)
class LimitedDomainPlan(MechanismPlan):
    """The limited domain: the leading groups, paid for by what comes back, BOTTOM included."""

    selection: LimitedDomain

    @property
    def release_identity(self) -> tuple[object, object]:
        return self.selection, self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        chosen, price = self.selection, self.price
        return ReleaseSpec(
            k=chosen.k,
            worst_case=price.loss(price.items(chosen.k), chosen.delta),
            rows=read_leaders(query, bound, k_bar=chosen.k_bar),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged="charged: one for each key and count returned, and for BOTTOM",
                k_bar=chosen.k_bar,
                threshold_offset=chosen.threshold_offset,
                min_threshold=chosen.least_threshold,
            ),
        )

    @property
    def loss_of_half(self) -> Loss:  # BOTTOM is one item more
        chosen, returned = self.selection, math.ceil(self.selection.k / 2)
        return self.price.loss(self.price.items(returned) + (returned < chosen.k), chosen.delta)

    def describe(self, query: PrivateQuery) -> Facts:
        chosen = self.selection
        threshold = (
            f"{describe_amount(query.measures[0], chosen.threshold_offset)} above group number {chosen.k_bar + 1}"
        )
        if chosen.least_threshold:
            threshold += f", and at least {float(chosen.least_threshold):.1f} units"
            threshold += f" (the policy's min_units = {chosen.min_units})"
        return ("k_bar", str(chosen.k_bar)), ("threshold", threshold)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        exact = tuple(groups.counts.tolist())
        # Here the engine sorts by count, so that a position is a row. Nothing of this order leaves: the draws are in
        # theirs.
        chosen = self.selection.select(Histogram.of_leaders(exact, self.selection.k_bar), noise)
        return charge_and_draw_selection(chosen, self.price, groups=groups, delta=self.selection.delta, noise=noise)


@dataclass(frozen=True, slots=True)
class ChosenLimitedDomainPlan(LimitedDomainPlan):
    """The limited domain at a k_bar that is chosen in private; the selection is that at the largest candidate."""

    choice: ChooseKBar

    @property
    def release_identity(self) -> tuple[object, object]:
        return (self.selection, self.choice), self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        usual = LimitedDomainPlan.specify(self, query, bound)  # its threshold offset is the highest of all candidates
        charged = f"{usual.report.charged}, and for the choice of k_bar"
        return replace(usual, report=replace(usual.report, charged=charged, chooses="k_bar"))

    def describe(self, query: PrivateQuery) -> Facts:
        candidates, chosen = ", ".join(map(str, self.choice.candidates)), self.selection
        threshold = f"{describe_amount(query.measures[0], chosen.threshold_offset)} above the group after them, or less"
        if chosen.least_threshold:
            threshold += f", and at least {float(chosen.least_threshold):.1f} units, or less"
        return ("k_bar", f"chosen in private among {candidates}"), ("threshold", threshold)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        exact = tuple(groups.counts.tolist())
        k_bar = self.choice.choose(Histogram.of_leaders(exact, self.selection.k_bar), noise)
        leaders = LimitedDomainPlan(replace(self.selection, k_bar=k_bar), self.price)
        # What the limited domain sees depends on k_bar alone, which was drawn: the rows after group k_bar + 1 are
        # dropped.
        read = slice(k_bar + 1)
        first = replace(groups, counts=groups.counts[read], others=tuple(each[read] for each in groups.others))
        drawn = leaders.draw(first, noise)
        items = drawn.items + _K_BAR_CHOICE
        loss = self.price.loss(items, self.selection.delta)  # the candidates of k_bar depend on k
        return replace(drawn, loss=loss, items=items, chosen=k_bar, prefix=PrefixLaw.OTHER)


def _set_parameters(request: MechanismRequest, k_bar: int) -> LimitedDomain:
    return LimitedDomain(
        request.price.epsilon,
        request.delta,
        k=request.k,
        k_bar=k_bar,
        max_groups_contributed=request.max_groups_contributed,
        min_units=request.min_units,
        sensitivity=request.rank_width,
    )


def _price_leaders(request: MechanismRequest) -> ItemLoss:
    return replace(request.price, once=_K_BAR_CHOICE) if request.leaves_k_bar else request.price


def _predict_leaders(request: MechanismRequest) -> Need | None:
    """Return the need of a leader; None where k_bar is chosen in private."""
    if request.leaves_k_bar:
        return None
    chosen = _set_parameters(request, request.k_bar)
    offset = max(chosen.threshold_offset, chosen.least_threshold)
    return Need.of_leaders(offset, chosen.k_bar, epsilon=float(chosen.epsilon) / chosen.sensitivity)


def _plan_leaders(request: MechanismRequest) -> LimitedDomainPlan:
    if not request.leaves_k_bar:
        return LimitedDomainPlan(_set_parameters(request, request.k_bar), request.price)
    k, most = request.k, request.max_k_bar
    candidates = tuple(k << doubled for doubled in range(most.bit_length()) if k << doubled <= most)  # k, 2 k, 4 k, ...
    chosen = _set_parameters(request, candidates[-1])
    bound, least = chosen.max_groups_contributed, chosen.min_units
    choice = ChooseKBar(chosen.epsilon, chosen.delta, candidates, bound, least, request.rank_width)
    return ChosenLimitedDomainPlan(chosen, _price_leaders(request), choice)


LIMITED_DOMAIN = Mechanism(
    name="limited_domain",
    kind=QueryKind.UNKNOWN,
    theorem=LimitedDomain,
    law="peeling of leaders",
    plan=_plan_leaders,
    price=_price_leaders,
    need=_predict_leaders,
    reads=Reads.LEADERS,
    per_partition=PerPartition.EACH,
    certificates=EVERY_CERTIFICATE,
    options=frozenset(["delta", "k_bar"]),
    auto=Auto.ALWAYS,
)


@dataclass(frozen=True, slots=True)
class LaplaceLimitedDomainPlan(MechanismPlan):
    """The limited domain with Laplace noise: the leading groups, keys and counts at once, paid for at once."""

    selection: LaplaceLimitedDomain

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        chosen, price, counted = self.selection, self.price, self.price.counts is not None
        return ReleaseSpec(
            k=chosen.k,
            worst_case=chosen.worst_case + ZCDP(price.rho(price.other_items(chosen.k)), Delta(0)),
            rows=read_leaders(query, bound, k_bar=chosen.k_bar),
            counts=CountNoise(2 * chosen.scale**2, chosen.scale) if counted else None,
            report=SpecReport(
                charged="paid at once, however many are returned"
                + ("; one for each value of a further measure" if price.others else ""),
                k_bar=chosen.k_bar,
                threshold_offset=Fraction(chosen.offset + chosen.sensitivity),
            ),
        )

    @property
    def loss_of_half(self) -> Loss:
        items = self.price.other_items(math.ceil(self.selection.k / 2))
        return self.selection.worst_case + ZCDP(self.price.rho(items), Delta(0))

    def describe(self, query: PrivateQuery) -> Facts:
        chosen = self.selection
        offset = describe_amount(query.measures[0], chosen.offset + chosen.sensitivity)
        above = f"{offset} above group number {chosen.k_bar + 1}"
        scale, what = describe_spread(query, float(chosen.scale))
        noise = f"Laplace of scale {scale} on every {what} and on the threshold"
        return ("k_bar", str(chosen.k_bar)), ("threshold", above), ("noise", noise)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        chosen = self.selection  # it puts equal noisy counts in a random order
        drawn = chosen.select(Histogram.of_leaders(tuple(groups.counts.tolist()), chosen.k_bar), noise)
        items = self.price.joint_items(chosen.k)
        first = MechanismOutput(
            drawn.positions,
            drawn.counts,
            chosen.loss(drawn),
            items,
            stopped_at_bottom=drawn.stopped_at_bottom,
            prefix=PrefixLaw.OTHER,
        )
        return charge_and_draw_others(first, groups, price=self.price, noise=noise)


@refuse_out_of_range
def _set_laplace_parameters(request: MechanismRequest) -> LaplaceLimitedDomain:
    """Return the mechanism of the leaders with Laplace noise, at the same price: pure epsilon of at most that rho."""
    price, k = request.price, request.k
    bound, delta, k_bar = request.require_bound(), request.delta, request.k_bar
    return LaplaceLimitedDomain(price.pure(price.joint_items(k)), delta, k, k_bar, bound, request.rank_width)


def _predict_laplace(request: MechanismRequest) -> Need:
    chosen = _set_laplace_parameters(request)
    return Need.of_leaders(chosen.offset + chosen.sensitivity, chosen.k_bar)


LAPLACE_LIMITED_DOMAIN = Mechanism(
    name="laplace_limited_domain",
    kind=QueryKind.UNKNOWN,
    theorem=LaplaceLimitedDomain,
    law="Laplace noise on leaders",
    plan=lambda request: LaplaceLimitedDomainPlan(_set_laplace_parameters(request), request.price),
    need=_predict_laplace,
    reads=Reads.LEADERS,
    draws_after=False,
    per_partition=PerPartition.EACH,
    options=frozenset(["delta", "k_bar"]),
)


BY_LABEL = ("order", "a set by label, then what was drawn one by one; all by noisy counts where these are asked for")
_K_CHOICE = 2  # items of ADAPTIVE: epsilon**2 / 8 for the choice of k, and as much for the test of its gap
_LEAST_RHO, _LEAST_RHO_ADAPTIVE = Fraction(1, 10**8), Fraction(1, 4 * 10**8)  # of the mechanisms
_WITHIN = Fraction(1, 5)  # of rho, for draws among more than k: with more the tests fail oftener, with none it is luck


def _rank(groups: Groups, k_bar: int) -> tuple[list[int], Histogram]:
    """Return the rows of the leaders in the order of their exact counts, ties by label, and the histogram of these."""
    counts = groups.counts.tolist()
    # The rows are in the order of labels, and sorted() is stable: ties fall to the label, which does not depend on
    # data.
    rows = sorted(range(len(counts)), key=lambda row: -counts[row])
    return rows, Histogram.of_leaders(tuple(counts[row] for row in rows), k_bar)


def _finish(
    loss: ZCDP, rows: Sequence[int], *, k: int, groups: Groups, price: ItemLoss, noise: Noise
) -> MechanismOutput:
    """Return rows that were paid for by a fixed loss, which is said in items, rounded up, and counts of them."""
    items = math.ceil(loss.rho.value / price.rho(1).value)
    keys = MechanismOutput(tuple(rows), None, loss, items, stopped_at_bottom=len(rows) < k)
    return _order_by_counts(keys, groups, price=price, noise=noise)


def _order_by_counts(keys: MechanismOutput, groups: Groups, *, price: ItemLoss, noise: Noise) -> MechanismOutput:
    """Return the draw with its noisy counts, if the query releases counts, and its rows sorted by these.

    Counts are compared in whole steps, as they are shown; equal ones come by the labels of their rows.
    """
    if price.counts is None:
        return keys
    counted = charge_and_draw_counts(keys, groups, price=price, noise=noise)
    counts, rows = counted.counts or (), counted.rows
    shown = list(map(round, counted.noises[0].read(counts)))
    order = sorted(range(len(rows)), key=lambda at: (-shown[at], rows[at]))
    return replace(
        counted,
        rows=tuple(rows[at] for at in order),
        counts=tuple(counts[at] for at in order),
        others=tuple(tuple(values[at] for at in order) for values in counted.others),
    )


def _specify_at_once(
    plan: StablePlan | TopStablePlan, query: PrivateQuery, *, bound: Bound | None, charged: str, offset: int
) -> ReleaseSpec:
    """Return the release of keys at the rho of k items, of which only draws that are not made can be saved."""
    chosen, price = plan.selection, plan.price
    return ReleaseSpec(
        k=chosen.k,
        worst_case=add_count_loss(chosen.worst_case, chosen.k, price=price),
        rows=read_leaders(query, bound, k_bar=chosen.k_bar, is_ordered=False),
        counts=CountNoise.of(price.counts),
        report=SpecReport(
            charged=f"{charged}; one for each count returned",
            k_bar=chosen.k_bar,
            threshold_offset=Fraction(offset + chosen.sensitivity),
        ),
    )


@dataclass(frozen=True, slots=True)
class StablePlan(MechanismPlan):
    """Fixed stable top-k: a set of about k leaders if its gap holds, and what makes it k."""

    selection: FixedStableTopK

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        charged, offset = "half of the keys' at once, the rest for draws that are made", self.selection.test.offset
        spec = _specify_at_once(self, query, bound=bound, charged=charged, offset=offset)
        return replace(spec, min_rho=_LEAST_RHO)

    @property
    def loss_of_half(self) -> Loss:
        """The loss of half of the keys, which save draws where no gap held: BOTTOM then ends the answer."""
        k, returned = self.selection.k, math.ceil(self.selection.k / 2)
        filled, is_short = tuple(range(returned)), returned < k
        unheld = FixedStableSelection(k, held=False, stable=frozenset(), filled=filled, stopped_at_bottom=is_short)
        return add_count_loss(self.selection.loss(unheld), returned, price=self.price)

    def describe(self, query: PrivateQuery) -> Facts:
        chosen = self.selection
        wide = describe_amount(query.measures[0], chosen.test.offset + chosen.sensitivity)
        in_units = query.measures[0].bounds is None
        penalty = f"{float(chosen.penalty):g} units" if in_units else describe_amount(query.measures[0], chosen.penalty)
        return (
            ("k_bar", str(chosen.k_bar)),
            ("threshold", f"the last key of the set {wide} above the next; for other keys as limited_domain"),
            ("penalty", f"{penalty} for each rank away from {chosen.k}"),
            BY_LABEL,
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        mechanism = self.selection
        ranked, histogram = _rank(groups, mechanism.k_bar)
        chosen = mechanism.select(histogram, noise)
        # A set is shown in the order of its labels, as its exact ranks are private; what was drawn follows in drawn
        # order (`maths.md` 7.2.1).
        rows = [*sorted(ranked[at] for at in chosen.stable), *(ranked[at] for at in chosen.filled)]
        loss = ZCDP(mechanism.loss(chosen).rho, mechanism.delta)
        return _finish(loss, rows, k=mechanism.k, groups=groups, price=self.price, noise=noise)


@refuse_out_of_range
def _plan_fixed(request: MechanismRequest) -> StablePlan:
    """Return the mechanism of a stable set of about k, at most at the rho of k items."""
    request.check_no_min_units()
    request.refuse(
        ("prefer",), reason="{name} is for TOP ADAPTIVE PRIVATE.", hint="Leave it out: k itself is preferred."
    )
    price, k, k_bar, delta = request.price, request.k, request.k_bar, request.delta
    rho = price.rho(price.keys(k))
    return StablePlan(
        FixedStableTopK(rho, delta, k, k_bar, request.penalty, request.max_groups_contributed, request.rank_width),
        price,
    )


STABLE = Mechanism(
    name="stable",
    kind=QueryKind.UNKNOWN,
    theorem=FixedStableTopK,
    law="a stable set and what makes it k",
    plan=_plan_fixed,
    reads=Reads.LEADERS,
    per_partition=PerPartition.EACH,
    options=frozenset(["delta", "k_bar", "prefer"]),
)


@dataclass(frozen=True, slots=True)
class AdaptivePlan(MechanismPlan):
    """Stable top-k with ADAPTIVE: the k at a wide gap, as a set, if the gap holds; the choice is paid at once."""

    selection: StableTopK

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        chosen, price, most = self.selection, self.price, self.selection.k_bar
        paid = "two for the choice of k and the test of its gap, also if nothing comes back"
        return ReleaseSpec(
            k=most,
            worst_case=ZCDP(price.rho(price.items(most)), chosen.delta),
            min_rho=_LEAST_RHO_ADAPTIVE,
            rows=read_leaders(query, bound, k_bar=most, is_ordered=False),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged=paid if price.counts is None else f"{paid}; one for each count returned",
                k_bar=most,
                threshold_offset=Fraction(chosen.offset + chosen.sensitivity),
                chooses="k",
            ),
        )

    @property
    def loss_of_half(self) -> Loss:
        price, chosen = self.price, self.selection
        return ZCDP(price.rho(price.items(math.ceil(chosen.k_bar / 2))), chosen.delta)

    def describe(self, query: PrivateQuery) -> Facts:
        chosen = self.selection
        gap = describe_amount(query.measures[0], chosen.offset + chosen.sensitivity)
        least = "1" if chosen.sensitivity == 1 else describe_amount(query.measures[0], chosen.sensitivity)
        threshold = f"the last key {gap} above the next; at {least} or less never, but for delta"
        return ("k_bar", str(chosen.k_bar)), ("threshold", threshold), BY_LABEL

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        mechanism = self.selection
        ranked, histogram = _rank(groups, mechanism.k_bar)
        chosen = mechanism.select(histogram, noise)
        rows, held = tuple(sorted(ranked[at] for at in chosen.positions or ())), chosen.positions is not None
        keys = MechanismOutput(rows, None, mechanism.loss, _K_CHOICE, stopped_at_bottom=not held, chosen=chosen.k)
        return _order_by_counts(keys, groups, price=self.price, noise=noise)


def _price_adaptive(request: MechanismRequest) -> ItemLoss:
    """Return the price of the choice, whatever comes back, and of counts by the item."""
    return replace(request.price, once=_K_CHOICE, each=0)


@refuse_out_of_range
def _plan_adaptive(request: MechanismRequest) -> AdaptivePlan:
    """Return the mechanism that chooses k, drawn to a public one where the query prefers it."""
    request.check_no_min_units()
    price, k_bar = _price_adaptive(request), request.k_bar
    prefer, delta = request.prefer, request.delta
    near = () if prefer is None else distance_regulariser(prefer, k_bar, penalty=request.penalty)
    return AdaptivePlan(StableTopK(price.epsilon, delta, k_bar, near, request.rank_width), price)


ADAPTIVE = Mechanism(
    name="stable",
    kind=QueryKind.ADAPTIVE,
    theorem=StableTopK,
    law="a stable set at a private k",
    plan=_plan_adaptive,
    price=_price_adaptive,
    reads=Reads.LEADERS,
    per_partition=PerPartition.EACH,
    options=frozenset(["delta", "k_bar", "prefer"]),
)


@dataclass(frozen=True, slots=True)
class TopStablePlan(MechanismPlan):
    """Top stable: the leaders down to the lowest gap that holds, k of them if they are more; paid at once."""

    selection: TopStable

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        charged = "the tests at once; draws among more than k"
        return _specify_at_once(self, query, bound=bound, charged=charged, offset=self.selection.offset)

    @property
    def loss_of_half(self) -> Loss:
        return add_count_loss(self.selection.worst_case, math.ceil(self.selection.k / 2), price=self.price)

    def describe(self, query: PrivateQuery) -> Facts:
        chosen = self.selection
        gap = describe_amount(query.measures[0], chosen.offset + chosen.sensitivity)
        return ("k_bar", str(chosen.k_bar)), ("threshold", f"the last of the leaders {gap} above the next"), BY_LABEL

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        mechanism = self.selection
        ranked, histogram = _rank(groups, mechanism.k_bar)
        chosen = mechanism.select(histogram, noise)
        # `members` by label, since they are a set; `ranked` in the order of the draws. One of them is empty.
        rows = [*sorted(ranked[at] for at in chosen.members), *(ranked[at] for at in chosen.ranked)]
        return _finish(mechanism.loss(chosen), rows, k=mechanism.k, groups=groups, price=self.price, noise=noise)


@refuse_out_of_range
def _plan_top_stable(request: MechanismRequest) -> TopStablePlan:
    """Return the mechanism at the rho of k items at most: a fifth for draws among more than k, if k_bar is more."""
    request.check_no_min_units()
    price, k, k_bar, delta = request.price, request.k, request.k_bar, request.delta
    rho = price.rho(price.keys(k)).value
    share = _WITHIN if k < k_bar else Fraction(0)
    # The tests are pure, of rho = epsilon**2 / 2 together, and each of k draws costs epsilon**2 / 8; both rounded down.
    tests = Epsilon(sqrt_rounded_down(2 * (1 - share) * rho))
    within = Epsilon(sqrt_rounded_down(8 * share * rho / k)) if share else None
    return TopStablePlan(TopStable(tests, delta, k, k_bar, within=within, sensitivity=request.rank_width), price)


TOP_STABLE = Mechanism(
    name="top_stable",
    kind=QueryKind.UNKNOWN,
    theorem=TopStable,
    law="leaders down to a gap",
    plan=_plan_top_stable,
    reads=Reads.LEADERS,
    per_partition=PerPartition.EACH,
    options=frozenset(["delta", "k_bar"]),
)
