"""Mechanisms that add Gaussian noise to every group, and return those above a threshold: keys are paid for at once.

* The Gaussian histogram adds it to counts, and returns keys and counts together.
* The weighted Gaussian adds it to weights, of which every unit spreads one over its groups; counts go by the item.
* Domain discovery finds keys by their weights, and chooses a top-k of them, paid for if there is a choice.

Where neither policy nor query bounds the groups of each unit, a mechanism of weights has a cap of its own (`own_cap`),
for weights alone: the counts that are released are then of all groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.accounting import ZCDP, Loss
from dpsql.mechanisms import (
    WEIGHT_STEPS,
    DomainDiscovery,
    FullHistogram,
    GaussianHistogram,
    Noise,
    NoisyRelease,
    WeightedGaussian,
)
from dpsql.mechanisms.gate import Gate, bound_weight_sum
from dpsql.mechanisms.gaussian_threshold import find_line, keep_evident
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Facts,
    Groups,
    MechanismOutput,
    MechanismPlan,
    PrefixLaw,
    ReleaseSpec,
    RowsRead,
    SpecReport,
    sqrt_rounded_down,
)
from dpsql.plan.mechanisms.draws import (
    add_count_loss,
    add_gate_loss,
    build_gate,
    charge_and_draw_counts,
    charge_and_draw_others,
    close,
    describe_gate,
    describe_opened,
    find_gate_rho,
    leave_behind,
)
from dpsql.plan.mechanisms.record import (
    Auto,
    Mechanism,
    MechanismRequest,
    Need,
    PerPartition,
    QueryKind,
    Reads,
    assume_groups_per_unit,
    describe_amount,
    refuse_out_of_range,
)
from dpsql.plan.mechanisms.rows_fetched import (
    OWN,
    compute_threshold,
    cut_rows,
    describe_known,
    describe_noisy,
    describe_rows_left,
    describe_spread,
    read_weights,
)
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_all


@dataclass(frozen=True, slots=True)
class GaussianHistogramPlan(MechanismPlan):
    """The Gaussian histogram: all groups in the order of their labels, keys and counts at once, paid for at once.

    So many names are `known`, and need no threshold, but a lower line if they are to be `evident`.
    """

    selection: GaussianHistogram
    known: int = 0
    evident: bool = False
    gate: Gate | None = None

    @property
    def release_identity(self) -> tuple[object, ...]:
        return self.selection, self.price, *filter(None, [self.gate])

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        chosen, price = self.selection, self.price
        cut_query, cut = cut_rows(query, chosen, known=self.known, gate=self.gate)
        others = ZCDP(price.rho(price.other_items(chosen.k)), Delta(0))
        return ReleaseSpec(
            k=chosen.k,
            worst_case=add_gate_loss(chosen.loss + others, self.gate),
            rows=RowsRead(
                counting=rewrite_all(cut_query, bound=bound, every=self.known > 0),
                min_count=0 if self.known else 1,
                others=len(query.measures) - 1,
                known=self.known,
                evident=self.evident,
                cut=cut,
                rows_in_words=describe_rows_left(query, cut, weighted=False, known=self.known),
            ),
            counts=None if price.counts is None else CountNoise(chosen.variance),
            report=SpecReport(
                charged="paid at once, however many are returned"
                + ("; one for each value of a further measure" if price.others else ""),
                threshold_offset=Fraction(chosen.threshold),
            ),
        )

    @property
    def loss_of_half(self) -> Loss:
        items = self.price.other_items(math.ceil(self.selection.k / 2))
        return add_gate_loss(self.selection.loss + ZCDP(self.price.rho(items), Delta(0)), self.gate)

    def describe(self, query: PrivateQuery) -> Facts:
        chosen = self.selection
        line = describe_noisy(query, find_line(chosen.variance, self.known)) if self.evident else ""
        sigma, what = describe_spread(query, math.sqrt(chosen.variance))
        return (
            *describe_known(self.known, line=line),
            ("threshold", f"{describe_noisy(query, chosen.threshold)}, independent of the other groups"),
            ("noise", f"sigma {sigma} on the {what} of every group; all groups are read"),
            *describe_gate(self.gate),
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        chosen, price = self.selection, self.price
        closed = close(self.gate, groups.counts, delta=chosen.delta, price=price, noise=noise)
        if closed is not None:
            # No row came back: the further measures are empty columns, and cost nothing.
            return charge_and_draw_others(closed, groups, price=price, noise=noise)
        known, others = groups.counts[: groups.known], FullHistogram(groups.counts[groups.known :], groups.read)
        drawn = chosen.release(others, noise, known=known)  # rows are in the order of labels: positions may break ties
        if self.evident:
            drawn = keep_evident(drawn, groups.known, variance=chosen.variance)
        stopped, items = len(drawn.positions) < chosen.k, price.joint_items(chosen.k)
        loss, legs = add_gate_loss(chosen.loss, self.gate), describe_opened(self.gate)
        first = MechanismOutput(
            drawn.positions,
            drawn.counts,
            loss,
            items,
            stopped_at_bottom=stopped,
            legs=legs,
            prefix=_read_prefix_law(is_evident=self.evident),
        )
        return charge_and_draw_others(first, groups, price=price, noise=noise)


def _read_prefix_law(*, is_evident: bool) -> PrefixLaw:
    """Return the law of the first rows: the threshold depends on the rho of all k rows, and on k in no other way.

    Names that must be evident are left out after the cut at k.
    """
    return PrefixLaw.OTHER if is_evident else PrefixLaw.LARGER


@refuse_out_of_range
def _choose_histogram(request: MechanismRequest) -> GaussianHistogram:
    """Return the mechanism of all groups, at the rho that the items of a limited domain would cost at worst."""
    price, k = request.price, request.k
    bound, delta = request.require_bound(), request.delta
    # Keys and counts come in one release, so that the rho of both goes into its noise.
    rho = leave_behind(price.rho(price.joint_items(k)), find_gate_rho(request))
    return GaussianHistogram(rho, delta, k, bound, request.rank_width)


def _plan_histogram(request: MechanismRequest) -> GaussianHistogramPlan:
    chosen = _choose_histogram(request)
    moved = chosen.sensitivity * min(chosen.k, chosen.max_groups_contributed)  # by one unit, of the k largest counts
    gate = build_gate(find_gate_rho(request), chosen.k, threshold=chosen.threshold, sensitivity=moved)
    return GaussianHistogramPlan(chosen, request.price, request.known, request.evident, gate)


def _find_histogram_evidence(request: MechanismRequest) -> float | None:
    """Return the line that known names must reach; None where they need none."""
    return float(find_line(_choose_histogram(request).variance, request.known)) if request.evident else None


def _predict(request: MechanismRequest) -> Need:
    chosen = _choose_histogram(request)
    return Need.of_count(chosen.threshold, variance=chosen.variance)


GAUSSIAN_HISTOGRAM = Mechanism(
    name="gaussian_histogram",
    kind=QueryKind.UNKNOWN,
    theorem=GaussianHistogram,
    law="Gaussian noise on counts",
    plan=_plan_histogram,
    need=_predict,
    spread=lambda request: math.sqrt(_choose_histogram(request).variance),
    evidence=_find_histogram_evidence,
    reads=Reads.GROUPS,
    draws_after=False,
    per_partition=PerPartition.CUT,
    options=frozenset(["delta", "gate"]),
    auto=Auto.ALWAYS,
)


@dataclass(frozen=True, slots=True)
class WeightedGaussianPlan(MechanismPlan):
    """The weighted Gaussian mechanism: keys at once, in the order of their noisy weights, and counts by the item.

    So many names are `known`, and need no threshold, but a lower line if they are to be `evident`.
    """

    selection: WeightedGaussian
    own_cap: bool
    known: int = 0
    evident: bool = False
    gate: Gate | None = None

    @property
    def release_identity(self) -> tuple[object, ...]:
        return self.selection, (self.price, self.own_cap), *filter(None, [self.gate])

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        chosen, price = self.selection, self.price
        return ReleaseSpec(
            k=chosen.k,
            worst_case=ZCDP(price.rho(price.items(chosen.k)), chosen.delta),
            rows=replace(
                read_weights(query, chosen, bound=bound, own_cap=self.own_cap, gate=self.gate, known=self.known),
                evident=self.evident,
            ),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged=f"the keys at once{'' if price.counts is None else ', and one for each count returned'}",
                threshold_offset=compute_threshold(chosen),
                cap=OWN if self.own_cap else "",
            ),
        )

    @property
    def loss_of_half(self) -> Loss:
        chosen, price, returned = self.selection, self.price, math.ceil(self.selection.k / 2)
        # The keys cost the same however many come back; counts are of those that do.
        return ZCDP(price.rho(price.items(returned) + chosen.k - returned), chosen.delta)

    def describe(self, query: PrivateQuery) -> Facts:
        line = ""
        if self.evident:
            least = Fraction(find_line(self.selection.variance, self.known), WEIGHT_STEPS)
            line = f"a noisy weight of {float(least):.1f}"
        known, threshold = describe_known(self.known, line=line), _describe_threshold(self.selection, query)
        return (*known, *threshold, *describe_gate(self.gate))

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        chosen = self.selection
        closed = close(self.gate, groups.weights, delta=chosen.delta, price=self.price, noise=noise)
        if closed is not None:
            return charge_and_draw_counts(replace(closed, counts=None), groups, price=self.price, noise=noise)
        known, others = groups.weights[: groups.known], FullHistogram(groups.weights[groups.known :], groups.read)
        released: NoisyRelease = chosen.release(others, noise, known=known)  # equal weights come by position
        if self.evident:
            released = keep_evident(released, groups.known, variance=chosen.variance)
        drawn = released.positions
        loss, legs = add_gate_loss(chosen.loss, self.gate), describe_opened(self.gate)
        keys = MechanismOutput(
            drawn,
            None,
            loss,
            chosen.k,
            stopped_at_bottom=len(drawn) < chosen.k,
            legs=legs,
            prefix=_read_prefix_law(is_evident=self.evident),
        )
        return charge_and_draw_counts(keys, groups, price=self.price, noise=noise)


def _describe_threshold(mechanism: WeightedGaussian, query: PrivateQuery) -> Facts:
    """Return what a weight is and how much of it a group needs, as lines of name and value."""
    sigma = math.sqrt(mechanism.variance) / WEIGHT_STEPS
    most, share = query.measures[0].width, ""
    if most > 1:
        share = f", in proportion to what it adds there: all of it for {describe_amount(query.measures[0], most)}"
    return (
        ("weights", f"1/sqrt(t) of each unit in each of its t groups{share}"),
        ("threshold", f"a noisy weight of {float(compute_threshold(mechanism)):.1f}, independent of the other groups"),
        ("noise", f"sigma {sigma:.1f} on the weight of every group; all groups are read"),
    )


@refuse_out_of_range
def _choose_weighted(request: MechanismRequest) -> WeightedGaussian:
    """Return the mechanism of weights, whose keys cost the rho of one item each, at a fixed price."""
    request.check_adds_up()
    k, bound, delta = request.k, request.require_bound(), request.delta
    return WeightedGaussian(leave_behind(request.price.rho(k), find_gate_rho(request)), delta, k, bound)


def _plan_weighted(request: MechanismRequest) -> WeightedGaussianPlan:
    chosen = _choose_weighted(request)
    gate = _build_weight_gate(chosen, request)
    return WeightedGaussianPlan(chosen, request.price, request.own_cap, request.known, request.evident, gate)


def _build_weight_gate(chosen: WeightedGaussian, request: MechanismRequest) -> Gate | None:
    """Return the gate in front of a mechanism of weights, if there is one."""
    moved = bound_weight_sum(min(request.k, chosen.max_groups_contributed), steps=WEIGHT_STEPS)
    return build_gate(find_gate_rho(request), request.k, threshold=chosen.threshold, sensitivity=moved)


def _predict_weighted(request: MechanismRequest) -> Need:
    chosen = _choose_weighted(request)
    return Need.of_weight(chosen.threshold, chosen.max_groups_contributed, request=request, variance=chosen.variance)


def _find_reach(request: MechanismRequest) -> tuple[float, float]:
    """Return between which numbers the need is, without a search for the threshold."""
    chosen = _choose_weighted(request)
    bound, variance = chosen.max_groups_contributed, chosen.variance
    return Need.of_weight(chosen.least_threshold, bound, request=request, variance=variance).units, math.inf


def _find_spread(request: MechanismRequest) -> float:
    """Return the standard deviation of the noise, in units of a name that are in as many groups as is typical."""
    chosen = _choose_weighted(request)
    groups = assume_groups_per_unit(chosen.max_groups_contributed)
    return request.rank_width * math.sqrt(chosen.variance * groups) / WEIGHT_STEPS


def _find_weighted_evidence(request: MechanismRequest) -> float | None:
    """Return what a known name needs of the line that these must reach; None where they need none."""
    if not request.evident:
        return None
    chosen = _choose_weighted(request)
    groups = assume_groups_per_unit(chosen.max_groups_contributed)
    weight = find_line(chosen.variance, request.known) / WEIGHT_STEPS
    return request.rank_width * weight * math.sqrt(groups)


WEIGHTED_GAUSSIAN = Mechanism(
    name="weighted_gaussian",
    kind=QueryKind.UNKNOWN,
    theorem=WeightedGaussian,
    law="Gaussian noise on weights",
    plan=_plan_weighted,
    need=_predict_weighted,
    reach=_find_reach,
    spread=_find_spread,
    evidence=_find_weighted_evidence,
    reads=Reads.GROUPS,
    weighs=True,
    per_partition=PerPartition.CUT,
    options=frozenset(["delta", "gate"]),
    auto=Auto.ALWAYS,
)


@dataclass(frozen=True, slots=True)
class DomainDiscoveryPlan(MechanismPlan):
    """Domain discovery: keys found by their weights, paid for at once; a top-k of them, paid for if there is a choice.

    With `own_cap` keys are chosen by counts of all groups, too.
    """

    selection: DomainDiscovery
    own_cap: bool
    gate: Gate | None = None

    @property
    def release_identity(self) -> tuple[object, ...]:
        return self.selection, (self.price, self.own_cap), *filter(None, [self.gate])

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        chosen, counts = self.selection, self.price.counts
        return ReleaseSpec(
            k=chosen.k,
            worst_case=add_gate_loss(add_count_loss(chosen.worst_case, chosen.k, price=self.price), self.gate),
            rows=read_weights(query, chosen.discovery, bound=bound, own_cap=self.own_cap, gate=self.gate),
            counts=CountNoise.of(counts),
            report=SpecReport(
                charged="half of the keys at once, the other half only if more than k are found"
                + ("" if counts is None else ", and one for each count returned"),
                threshold_offset=compute_threshold(chosen.discovery),
                cap=OWN if self.own_cap else "",
            ),
        )

    @property
    def loss_of_half(self) -> Loss:  # a domain of no more than half of the keys is no choice
        chosen = self.selection
        return add_gate_loss(
            add_count_loss(chosen.discovery.loss, math.ceil(chosen.k / 2), price=self.price), self.gate
        )

    def describe(self, query: PrivateQuery) -> Facts:
        peeling = f"epsilon {float(self.selection.epsilon):.4g} for each key, if more than k reach the threshold"
        return (*_describe_threshold(self.selection.discovery, query), ("peeling", peeling), *describe_gate(self.gate))

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        chosen = self.selection
        closed = close(self.gate, groups.weights, delta=chosen.delta, price=self.price, noise=noise)
        if closed is not None:
            return charge_and_draw_counts(replace(closed, counts=None), groups, price=self.price, noise=noise)
        weights, counts = FullHistogram(groups.weights, groups.read), FullHistogram(groups.counts)
        drawn = chosen.select(weights, counts, noise=noise)
        rows = drawn.positions
        loss, legs = add_gate_loss(chosen.loss(drawn), self.gate), describe_opened(self.gate)
        items = math.ceil(loss.rho.value / self.price.rho(1).value)
        # Without the second stage the rows are in the order of their weights, in which fewer would not have been.
        law = PrefixLaw.LARGER if len(drawn.domain) > chosen.k else PrefixLaw.OTHER
        stopped = len(rows) < chosen.k
        keys = MechanismOutput(rows, None, loss, items, stopped_at_bottom=stopped, legs=legs, prefix=law)
        return charge_and_draw_counts(keys, groups, price=self.price, noise=noise)


@refuse_out_of_range
def _choose_discovery(request: MechanismRequest) -> DomainDiscovery:
    """Return the mechanism of two stages: half of the rho of one item for each key goes to each.

    Under a bound of policy or query counts keep to it. Under the mechanism's own they need none: peeling has no use
    for one, and counts of all groups of a unit cost one item each.
    """
    request.check_adds_up()
    k, bound, delta = request.k, request.require_bound(), request.delta
    half = Rho(leave_behind(request.price.rho(k), find_gate_rho(request)).value / 2)
    # k draws of rho = epsilon**2 / 8 each; rounded down, so that they cost no more than this half.
    peeling = Epsilon(sqrt_rounded_down(8 * half.value / k))
    return DomainDiscovery(half, delta, bound, peeling, k, request.rank_width)


def _plan_discovery(request: MechanismRequest) -> DomainDiscoveryPlan:
    chosen = _choose_discovery(request)
    gate = _build_weight_gate(chosen.discovery, request)
    return DomainDiscoveryPlan(chosen, request.price, request.own_cap, gate)


def _predict_discovery(request: MechanismRequest) -> Need:
    chosen = _choose_discovery(request).discovery
    return Need.of_weight(chosen.threshold, chosen.max_groups_contributed, request=request, variance=chosen.variance)


DOMAIN_DISCOVERY = Mechanism(
    name="domain_discovery",
    kind=QueryKind.UNKNOWN,
    theorem=DomainDiscovery,
    law="Gaussian noise on weights, and peeling",
    plan=_plan_discovery,
    need=_predict_discovery,
    reads=Reads.GROUPS,
    weighs=True,
    options=frozenset(["delta", "gate"]),
)
