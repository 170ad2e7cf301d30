"""The weighted Gaussian mechanism: every unit spreads one weight over its groups; keys at once, counts by the item."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.accounting import ZCDP
from dpsql.errors import UsageError
from dpsql.mechanisms import (
    WEIGHT_STEPS,
    CountRelease,
    FullHistogram,
    Noise,
    NoisyCounts,
    WeightedGaussian,
    unit_weight,
)
from dpsql.mechanisms.known_names import find_line, keep_evident
from dpsql.plan.mechanisms.base import CountNoise, Groups, ItemLoss, MechanismOutput, ReleaseSpec, RowsRead, SpecReport
from dpsql.plan.mechanisms.counts_by_item import add_counts
from dpsql.plan.mechanisms.measure_text import describe_amount, describe_known
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.plan.mechanisms.rows_fetched import cut_rows, describe_cut
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_weighted, rewrite_weighted_of_all

__all__ = [
    "OWN",
    "WeightedGaussianPlan",
    "compute_threshold",
    "describe_threshold",
    "price_keys_at_once",
    "weighted_gaussian",
    "weights_within",
]

OWN = "the mechanism's own cap on weights; counts are of all groups"


@dataclass(frozen=True, slots=True)
class WeightedGaussianPlan:
    """The weighted Gaussian mechanism: every unit spreads one weight over its groups; keys at once, counts by the item.

    `own_cap` says that neither policy nor query bounds the groups of each unit, but the mechanism, and for weights
    alone: the counts that are released are then of all groups. So many names are `known`, and need no threshold, but a
    lower line if they are to be `evident`.
    """

    selection: WeightedGaussian
    price: ItemLoss
    own_cap: bool
    known: int = 0
    evident: bool = False

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, the items of its loss, and whether the counts are of all groups."""
        return self.selection, (self.price, self.own_cap)

    def uncut(self, most: int) -> WeightedGaussianPlan:
        """Return the same release with so many keys at most."""
        return replace(self, selection=replace(self.selection, k=most))

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: all groups are read, with the weights that the mechanism's threshold is made for."""
        chosen, price = self.selection, self.price
        returned = math.ceil(chosen.k / 2)
        rewritten = rewrite_weighted_of_all if self.own_cap else rewrite_weighted
        cut_query, cut = cut_rows(query, chosen, known=self.known)
        return ReleaseSpec(
            k=chosen.k,
            worst_case=ZCDP(price.rho(price.items(chosen.k)), chosen.delta),
            half=ZCDP(price.rho(price.items(returned) + chosen.k - returned), chosen.delta),
            rows=RowsRead(
                counting=rewritten(cut_query, bound=bound, weights=weights_within(chosen), every=self.known > 0),
                min_count=0 if self.known else 1,
                weighted=True,
                min_weight=0 if self.known else 1,
                others=len(query.measures) - 1,
                known=self.known,
                evident=self.evident,
                cut=cut,
                left=describe_cut(query, cut, weighted=True, known=self.known),
            ),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged=f"the keys at once{'' if price.counts is None else ', and one for each count returned'}",
                facts=(*self._describe_known(), *describe_threshold(chosen, query)),
                threshold_offset=compute_threshold(chosen),
                cap=OWN if self.own_cap else "",
            ),
        )

    def _describe_known(self) -> tuple[tuple[str, str], ...]:
        """Return what the known names need."""
        if not self.evident:
            return describe_known(self.known)
        line = Fraction(find_line(self.selection.variance, self.known), WEIGHT_STEPS)
        return describe_known(self.known, line=f"a noisy weight of {float(line):.1f}")

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw keys, in the order of their noisy weights, and then counts of them; equal weights come by position."""
        chosen, price = self.selection, self.price
        known, others = groups.weights[: groups.known], FullHistogram(groups.weights[groups.known :], groups.read)
        released = chosen.release(others, noise, known=known)
        if self.evident:
            released = keep_evident(released, groups.known, variance=chosen.variance)
        drawn = released.positions
        keys = MechanismOutput(drawn, None, chosen.loss, chosen.k, stopped_at_bottom=len(drawn) < chosen.k)
        return add_counts(keys, groups, price=price, noise=noise)


def price_keys_at_once(request: MechanismRequest) -> ItemLoss:
    """Return the price; with a cap on weights alone that of counts without a bound, an item each."""
    price = request.price
    if not request.own_cap or price.counts is None:
        return price
    return replace(price, counts=_lift_bound(price.counts), others=tuple(map(_lift_bound, price.others)))


def _lift_bound(counts: CountRelease) -> CountRelease:
    return replace(counts, max_groups_contributed=None) if isinstance(counts, NoisyCounts) else counts


def weights_within(mechanism: WeightedGaussian) -> list[int]:
    """Return what a unit adds to each of its groups if it is in 1, 2, ... of them, up to the bound."""
    return [unit_weight(groups) for groups in range(1, mechanism.max_groups_contributed + 1)]


def compute_threshold(mechanism: WeightedGaussian) -> Fraction:
    """Return the noisy weight that a group needs, where a unit in one group alone has the weight 1."""
    return Fraction(mechanism.threshold, WEIGHT_STEPS)


def describe_threshold(mechanism: WeightedGaussian, query: PrivateQuery) -> tuple[tuple[str, str], ...]:
    """Return what a weight is and how much of it a group needs, as lines of name and value."""
    sigma = math.sqrt(mechanism.variance) / WEIGHT_STEPS
    most, share = query.measures[0].width, ""
    if most > 1:
        share = f", in proportion to what it adds there: all of it for {describe_amount(query, most)}"
    return (
        ("weights", f"1/sqrt(t) of each unit in each of its t groups{share}"),
        ("threshold", f"a noisy weight of {float(compute_threshold(mechanism)):.1f}, independent of the other groups"),
        ("noise", f"sigma {sigma:.1f} on the weight of every group; all groups are read"),
    )


def weighted_gaussian(request: MechanismRequest) -> WeightedGaussianPlan:
    """Return the mechanism of weights, whose keys cost the rho of one item each, at a fixed price."""
    request.refuse(
        ("k_bar",), reason="{name} has no meaning with this mechanism.", hint="Leave it out: all groups are read."
    )
    price, k = price_keys_at_once(request), request.k
    bound, delta = request.bound(), request.delta
    try:
        mechanism = WeightedGaussian(price.rho(k), delta, k, bound)
        return WeightedGaussianPlan(mechanism, price, request.own_cap, request.known, request.evident)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal
