"""The weighted Gaussian mechanism: every unit spreads one weight over its groups; keys at once, counts by the item."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, Loss
from dpsql.errors import UsageError
from dpsql.mechanisms import (
    WEIGHT_STEPS,
    FullHistogram,
    Noise,
    WeightedGaussian,
)
from dpsql.mechanisms.known_names import find_line, keep_evident
from dpsql.mechanisms.weighted_gaussian import list_weights
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Facts,
    Groups,
    ItemLoss,
    MechanismOutput,
    ReleaseSpec,
    RowsRead,
    SpecReport,
)
from dpsql.plan.mechanisms.counts_by_item import add_counts
from dpsql.plan.mechanisms.measure_text import describe_amount, describe_known
from dpsql.plan.mechanisms.need import Need, assume_groups_per_unit, need_of_weight, units_of_weight
from dpsql.plan.mechanisms.record import Auto, Domain, Mechanism, PerPartition, Reads
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.plan.mechanisms.rows_fetched import cut_rows, describe_cut
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_weighted, rewrite_weighted_of_all

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

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: all groups are read, with the weights that the mechanism's threshold is made for."""
        chosen, price = self.selection, self.price
        rewritten = rewrite_weighted_of_all if self.own_cap else rewrite_weighted
        cut_query, cut = cut_rows(query, chosen, known=self.known)
        return ReleaseSpec(
            k=chosen.k,
            worst_case=ZCDP(price.rho(price.items(chosen.k)), chosen.delta),
            rows=RowsRead(
                counting=rewritten(
                    cut_query, bound=bound, weights=list_weights(chosen.max_groups_contributed), every=self.known > 0
                ),
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
                threshold_offset=compute_threshold(chosen),
                cap=OWN if self.own_cap else "",
            ),
        )

    @property
    def half(self) -> Loss:
        """The loss of all keys, and of the counts of half of them."""
        chosen, price, returned = self.selection, self.price, math.ceil(self.selection.k / 2)
        return ZCDP(price.rho(price.items(returned) + chosen.k - returned), chosen.delta)

    def describe(self, query: PrivateQuery) -> Facts:
        """Return what known names need, and what others do."""
        line = ""
        if self.evident:
            least = Fraction(find_line(self.selection.variance, self.known), WEIGHT_STEPS)
            line = f"a noisy weight of {float(least):.1f}"
        return (*describe_known(self.known, line=line), *describe_threshold(self.selection, query))

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


def _choose(request: MechanismRequest) -> WeightedGaussian:
    """Return the mechanism of weights, whose keys cost the rho of one item each, at a fixed price."""
    k, bound, delta = request.k, request.bound(), request.delta
    try:
        return WeightedGaussian(request.price.rho(k), delta, k, bound)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal


def _plan(request: MechanismRequest) -> WeightedGaussianPlan:
    return WeightedGaussianPlan(_choose(request), request.price, request.own_cap, request.known, request.evident)


def predict_weighted(chosen: WeightedGaussian, request: MechanismRequest) -> Need:
    """Return the need of a group whose units are in as many groups as is typical."""
    return need_of_weight(chosen.threshold, chosen.max_groups_contributed, request=request)


def _predict(request: MechanismRequest) -> Need:
    return predict_weighted(_choose(request), request)


def _reach(request: MechanismRequest) -> tuple[float, float]:
    """Return between which numbers the need is, without a search for the threshold."""
    chosen = _choose(request)
    return units_of_weight(chosen.least_threshold, chosen.max_groups_contributed, request=request), math.inf


def _spread(request: MechanismRequest) -> float:
    """Return the standard deviation of the noise, in units of a name that are in as many groups as is typical."""
    chosen = _choose(request)
    groups = assume_groups_per_unit(chosen.max_groups_contributed)
    return request.most * math.sqrt(chosen.variance * groups) / WEIGHT_STEPS


def _find_evidence(request: MechanismRequest) -> float | None:
    """Return what a known name needs of the line that these must reach; None where they need none."""
    if not request.evident:
        return None
    chosen = _choose(request)
    groups = assume_groups_per_unit(chosen.max_groups_contributed)
    weight = find_line(chosen.variance, request.known) / WEIGHT_STEPS
    return request.most * weight * math.sqrt(groups)


WEIGHTED_GAUSSIAN = Mechanism(
    name="weighted_gaussian",
    domain=Domain.UNKNOWN,
    theorem=WeightedGaussian,
    law="Gaussian noise on weights",
    plan=_plan,
    need=_predict,
    reach=_reach,
    spread=_spread,
    evidence=_find_evidence,
    reads=Reads.GROUPS,
    weighs=True,
    per_partition=PerPartition.CUT,
    options=frozenset(["delta"]),
    auto=Auto.ALWAYS,
)
