"""The relay: a limited domain, and a weighted Gaussian for what it leaves unspent, if a gate opens."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsql.accounting import ZCDP
from dpsql.errors import Refusal, UsageError
from dpsql.mechanisms import FullHistogram, Noise, Relay, RelaySelection, Selection, unit_weight
from dpsql.mechanisms.lower_cut import LowerCut
from dpsql.plan.mechanisms.base import CountNoise, Groups, ItemLoss, MechanismOutput, ReleaseSpec, RowsRead, SpecReport
from dpsql.plan.mechanisms.counts_by_item import add_counts
from dpsql.plan.mechanisms.measure_text import describe_amount
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.plan.mechanisms.rows_fetched import cut_rows, describe_cut
from dpsql.plan.mechanisms.weighted_gaussian import OWN, compute_threshold, price_keys_at_once
from dpsql.quantities import Delta
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_counts_and_weights

__all__ = ["NOTHING_FOUND", "RelayPlan", "relay"]

NOTHING_FOUND = Selection((), stopped_at_bottom=True)


@dataclass(frozen=True, slots=True)
class RelayPlan:
    """The relay: keys by the item, the rest of the items for a second leg, and then counts by the item.

    `own_cap` says that neither policy nor query bounds the groups of each unit, but the second leg, and for weights
    alone.
    """

    selection: Relay
    price: ItemLoss
    own_cap: bool

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, the items of its loss, and whether the counts are of all groups."""
        return self.selection, (self.price, self.own_cap)

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: all groups are read, with counts and weights.

        Half of the keys save the others but for BOTTOM and the gate, and nothing where the gate opens.
        """
        chosen, price = self.selection, self.price
        first, weights = chosen.first_leg, [unit_weight(groups) for groups in range(1, chosen.weighed_groups + 1)]
        returned = math.ceil(chosen.k / 2)
        stopped = Selection(tuple(range(returned)), stopped_at_bottom=returned < chosen.k)
        half = chosen.loss(RelaySelection((), stopped)) + ZCDP(price.rho(price.count_items(returned)), Delta(0))
        cut_query, cut = cut_rows(query, chosen, leaders=chosen.k_bar + 1, heaviest=chosen.k + 1)
        threshold = f"{describe_amount(query, first.threshold_offset)} above group number {chosen.k_bar + 1}"
        return ReleaseSpec(
            k=chosen.k,
            worst_case=price.loss(price.items(chosen.k), chosen.delta),
            half=half,
            rows=RowsRead(
                counting=rewrite_counts_and_weights(cut_query, bound=bound, weights=weights, of_all=self.own_cap),
                weighted=True,
                min_weight=0,
                others=len(query.measures) - 1,
                cut=cut,
                left=_describe_cut(query, cut, k_bar=chosen.k_bar),
            ),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged="charged: one for each key and count returned, for BOTTOM, and what the second leg uses",
                facts=(
                    ("legs", "limited domain; what it leaves buys a weighted Gaussian"),
                    ("k_bar", str(chosen.k_bar)),
                    ("threshold", threshold),
                    ("second leg", _describe_second_leg(chosen)),
                ),
                k_bar=chosen.k_bar,
                threshold_offset=first.threshold_offset,
                cap=OWN if self.own_cap else "",
            ),
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw both legs, and then counts of the keys."""
        chosen = self.selection
        drawn = chosen.select(FullHistogram(groups.counts), groups.weights, noise=noise, read=groups.read)
        keys = MechanismOutput(
            drawn.positions,
            None,
            chosen.loss(drawn),
            math.ceil(chosen.items(drawn)),
            stopped_at_bottom=len(drawn.positions) < chosen.k,
            legs=_describe_legs(drawn),
        )
        return add_counts(keys, groups, price=self.price, noise=noise)


def _describe_second_leg(chosen: Relay) -> str:
    """Return what the second leg needs of a group if the first returns nothing."""
    second, gate = chosen.second_leg(NOTHING_FOUND), chosen.gate_items(NOTHING_FOUND)
    needs = f"a noisy weight of {float(compute_threshold(second)):.1f}"
    return f"if the first returns nothing, a gate costs {float(gate):g} items; behind it a group needs {needs}"


def _describe_cut(query: PrivateQuery, cut: LowerCut | None, *, k_bar: int) -> str:
    """Return in words which groups the engine returns; "" for all of them."""
    left = describe_cut(query, cut, weighted=True)
    return f"the first {k_bar + 1:,} groups, {left}" if left else ""


def _describe_legs(drawn: RelaySelection) -> str:
    """Return what each leg did, in words, from what was released."""
    first, added = len(drawn.first.positions), len(drawn.positions) - len(drawn.first.positions)
    match drawn.gate_opened:
        case None:
            return f"limited domain: {first}; nothing was left for a second leg"
        case False:
            return f"limited domain: {first}; gate closed: the rest of the items was not charged"
    return f"limited domain: {first}; gate open, weighted Gaussian: {added}"


def relay(request: MechanismRequest) -> RelayPlan:
    """Return the mechanism of two legs."""
    partitions = request.query.partitions
    if partitions is not None:
        hint = "Write mechanism = limited_domain, or leave the mechanism out."
        raise Refusal("partitions", "The mechanism relay does not go with PER.", hint=hint, place=request.place)
    if request.k == 1:
        reason = "The mechanism relay needs a k of 2 or more: of one item nothing can be left."
        raise Refusal("option-range", reason, hint="Write mechanism = limited_domain.", place=request.place)
    price, bound = price_keys_at_once(request), request.bound()
    try:
        mechanism = Relay(
            price.epsilon,
            request.delta,
            k=request.k,
            k_bar=request.k_bar,
            weighed_groups=bound,
            max_groups_contributed=None if request.own_cap else bound,
            sensitivity=request.most,
        )
    except UsageError as error:
        refusal = request.out_of_range(error)
    else:
        return RelayPlan(mechanism, price, request.own_cap)
    raise refusal
