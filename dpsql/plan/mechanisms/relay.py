"""The relay: a limited domain, and a weighted Gaussian for what it leaves unspent, if a gate opens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from dpsql.accounting import ZCDP, Loss
from dpsql.errors import Refusal
from dpsql.mechanisms import FullHistogram, Noise, Relay, RelaySelection, Selection
from dpsql.mechanisms.weighted_gaussian import list_weights
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Facts,
    Groups,
    MechanismOutput,
    MechanismPlan,
    ReleaseSpec,
    RowsRead,
    SpecReport,
)
from dpsql.plan.mechanisms.counts_by_item import charge_and_draw_counts
from dpsql.plan.mechanisms.gaussian_histogram import OWN, compute_threshold
from dpsql.plan.mechanisms.record import Auto, Mechanism, Need, QueryKind, Reads
from dpsql.plan.mechanisms.request import MechanismRequest, refuse_out_of_range
from dpsql.plan.mechanisms.rows_fetched import cut_rows, describe_amount, describe_rows_left
from dpsql.quantities import Delta
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_counts_and_weights

_NORMAL = NormalDist()
NOTHING_FOUND = Selection((), stopped_at_bottom=True)


@dataclass(frozen=True, slots=True)
class RelayPlan(MechanismPlan):
    """The relay: keys by the item, the rest of the items for a second leg, and then counts by the item.

    `own_cap` says that neither policy nor query bounds the groups of each unit, but the second leg, and for weights
    alone.
    """

    selection: Relay
    own_cap: bool

    @property
    def release_identity(self) -> tuple[object, object]:
        return self.selection, (self.price, self.own_cap)

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        chosen, price = self.selection, self.price
        weights = list_weights(chosen.weighed_groups)
        cut_query, cut = cut_rows(query, chosen, leaders=chosen.k_bar + 1, heaviest=chosen.k + 1)
        left = describe_rows_left(query, cut, weighted=True)
        return ReleaseSpec(
            k=chosen.k,
            worst_case=price.loss(price.items(chosen.k), chosen.delta),
            rows=RowsRead(
                counting=rewrite_counts_and_weights(cut_query, bound=bound, weights=weights, of_all=self.own_cap),
                weighted=True,
                min_weight=0,
                others=len(query.measures) - 1,
                cut=cut,
                rows_in_words=f"the first {chosen.k_bar + 1:,} groups, {left}" if left else "",
            ),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged="charged: one for each key and count returned, for BOTTOM, and what the second leg uses",
                k_bar=chosen.k_bar,
                threshold_offset=chosen.first_leg.threshold_offset,
                cap=OWN if self.own_cap else "",
            ),
        )

    @property
    def loss_of_half(self) -> Loss:  # it saves the other keys but for BOTTOM and the gate, nothing where that opens
        chosen, price, returned = self.selection, self.price, math.ceil(self.selection.k / 2)
        stopped = Selection(tuple(range(returned)), stopped_at_bottom=returned < chosen.k)
        return chosen.loss(RelaySelection((), stopped)) + ZCDP(price.rho(price.count_items(returned)), Delta(0))

    def describe(self, query: PrivateQuery) -> Facts:
        chosen, offset = self.selection, self.selection.first_leg.threshold_offset
        second, gate = chosen.second_leg(NOTHING_FOUND), chosen.gate_items(NOTHING_FOUND)
        needs = f"a noisy weight of {float(compute_threshold(second)):.1f}"
        last = f"if the first returns nothing, a gate costs {float(gate):g} items; behind it a group needs {needs}"
        return (
            ("legs", "limited domain; what it leaves buys a weighted Gaussian"),
            ("k_bar", str(chosen.k_bar)),
            ("threshold", f"{describe_amount(query, offset)} above group number {chosen.k_bar + 1}"),
            ("second leg", last),
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        chosen = self.selection
        drawn = chosen.select(FullHistogram(groups.counts), groups.weights, noise=noise, read=groups.read)
        first = len(drawn.first.positions)
        legs = {
            None: "nothing was left for a second leg",
            False: "gate closed: the rest of the items was not charged",
            True: f"gate open, weighted Gaussian: {len(drawn.positions) - first}",
        }
        keys = MechanismOutput(
            drawn.positions,
            None,
            chosen.loss(drawn),
            math.ceil(chosen.items(drawn)),
            stopped_at_bottom=len(drawn.positions) < chosen.k,
            legs=f"limited domain: {first}; {legs[drawn.gate_opened]}",
        )
        return charge_and_draw_counts(keys, groups, price=self.price, noise=noise)


@refuse_out_of_range
def _set_parameters(request: MechanismRequest) -> Relay:
    """Return the mechanism of two legs."""
    if request.query.partitions is not None:
        hint = "Write mechanism = limited_domain, or leave the mechanism out."
        raise Refusal("partitions", "The mechanism relay does not go with PER.", hint=hint, place=request.place)
    if request.k == 1:
        reason = "The mechanism relay needs a k of 2 or more: of one item nothing can be left."
        raise Refusal("option-range", reason, hint="Write mechanism = limited_domain.", place=request.place)
    bound = request.require_bound()
    return Relay(
        request.price.epsilon,
        request.delta,
        k=request.k,
        k_bar=request.k_bar,
        weighed_groups=bound,
        max_groups_contributed=None if request.own_cap else bound,
        sensitivity=request.rank_width,
    )


def _predict(request: MechanismRequest) -> Need:
    """Return the lesser need of the two legs.

    That of the second is the weight of a group that opens the gate and reaches the threshold behind it in one of two
    draws.
    """
    legs = _set_parameters(request)
    gate, second = legs.gate(NOTHING_FOUND), legs.second_leg(NOTHING_FOUND)
    looks = [(gate.height, math.sqrt(gate.variance)), (second.threshold, math.sqrt(second.variance))]
    low: float = max(height for height, _ in looks)
    high = low + 2 * max(deviation for _, deviation in looks)  # where each is passed in 97 of 100 draws at least
    for _ in range(40):
        middle = (low + high) / 2
        passes = math.prod(_NORMAL.cdf((middle - height) / deviation) for height, deviation in looks)
        low, high = (middle, high) if passes < 1 / 2 else (low, middle)
    first = Need.of_leaders(legs.first_leg.threshold_offset, legs.k_bar)
    return min(first, Need.of_weight(high, legs.weighed_groups, request=request), key=lambda each: each.units)


def _find_reach(request: MechanismRequest) -> tuple[float, float]:
    """Return between which numbers the need is: it is that of the first leg unless the second can need less."""
    legs = _set_parameters(request)
    first = float(legs.first_leg.threshold_offset)
    least = legs.second_leg(NOTHING_FOUND).least_threshold
    return min(first, Need.of_weight(least, legs.weighed_groups, request=request).units), first


RELAY = Mechanism(
    name="relay",
    kind=QueryKind.UNKNOWN,
    theorem=Relay,
    law="relay of two legs",
    plan=lambda request: RelayPlan(_set_parameters(request), request.price, request.own_cap),
    need=_predict,
    reach=_find_reach,
    reads=Reads.GROUPS,
    weighs=True,
    options=frozenset(["delta", "k_bar"]),
    auto=Auto.UNITS,  # to weigh rows and sums takes about three times as long as to count users
    replaces="limited_domain",
    why="its first leg is a limited domain, and its second finds groups that the first cannot see",
)
