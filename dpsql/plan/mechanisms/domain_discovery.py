"""Domain discovery: keys found by their weights, paid for at once; a top-k of them, paid for if there is a choice."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsql.accounting import Loss
from dpsql.errors import UsageError
from dpsql.mechanisms import DomainDiscovery, FullHistogram, Noise
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
    sqrt_rounded_down,
)
from dpsql.plan.mechanisms.counts_by_item import add_counts
from dpsql.plan.mechanisms.need import Need
from dpsql.plan.mechanisms.record import Domain, Mechanism, Reads
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.plan.mechanisms.rows_fetched import cut_rows, describe_cut
from dpsql.plan.mechanisms.stable import add_count_loss
from dpsql.plan.mechanisms.weighted_gaussian import (
    OWN,
    compute_threshold,
    describe_threshold,
    predict_weighted,
)
from dpsql.quantities import Epsilon, Rho
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_weighted, rewrite_weighted_of_all


@dataclass(frozen=True, slots=True)
class DomainDiscoveryPlan:
    """Domain discovery: keys found by their weights, paid for at once; a top-k of them, paid for if there is a choice.

    `own_cap` says that neither policy nor query bounds the groups of each unit, but the mechanism, and for weights
    alone: keys are then chosen by counts of all groups, and these are released.
    """

    selection: DomainDiscovery
    price: ItemLoss
    own_cap: bool

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, the items of its loss, and whether the counts are of all groups."""
        return self.selection, (self.price, self.own_cap)

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: all groups are read, and half of the price of the keys is paid at once."""
        chosen, counts, discovery = self.selection, self.price.counts, self.selection.discovery
        rewritten = rewrite_weighted_of_all if self.own_cap else rewrite_weighted
        cut_query, cut = cut_rows(query, discovery)
        return ReleaseSpec(
            k=chosen.k,
            worst_case=add_count_loss(chosen.worst_case, chosen.k, price=self.price),
            rows=RowsRead(
                counting=rewritten(cut_query, bound=bound, weights=list_weights(discovery.max_groups_contributed)),
                weighted=True,
                others=len(query.measures) - 1,
                cut=cut,
                left=describe_cut(query, cut, weighted=True),
            ),
            counts=CountNoise.of(counts),
            report=SpecReport(
                charged="half of the keys at once, the other half only if more than k are found"
                + ("" if counts is None else ", and one for each count returned"),
                threshold_offset=compute_threshold(discovery),
                cap=OWN if self.own_cap else "",
            ),
        )

    @property
    def half(self) -> Loss:
        """The loss of the domain, which has no more than half of the keys, and of their counts."""
        chosen = self.selection
        return add_count_loss(chosen.discovery.loss, math.ceil(chosen.k / 2), price=self.price)

    def describe(self, query: PrivateQuery) -> Facts:
        """Return what a key of the domain needs, and how keys are chosen among them."""
        peeling = f"epsilon {float(self.selection.epsilon):.4g} for each key, if more than k reach the threshold"
        return (*describe_threshold(self.selection.discovery, query), ("peeling", peeling))

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw the domain by the weights, keys of it by the counts, and then counts of these."""
        chosen = self.selection
        weights, counts = FullHistogram(groups.weights, groups.read), FullHistogram(groups.counts)
        drawn = chosen.select(weights, counts, noise=noise)
        rows = drawn.positions
        items = chosen.k if len(drawn.domain) > chosen.k else math.ceil(chosen.k / 2)
        keys = MechanismOutput(rows, None, chosen.loss(drawn), items, stopped_at_bottom=len(rows) < chosen.k)
        return add_counts(keys, groups, price=self.price, noise=noise)


def _choose(request: MechanismRequest) -> DomainDiscovery:
    """Return the mechanism of two stages: half of the rho of one item for each key goes to each.

    Under a bound of policy or query counts keep to it. Under the mechanism's own they need none: peeling has no use
    for one, and counts of all groups of a unit cost one item each.
    """
    k, bound, delta = request.k, request.bound(), request.delta
    half = Rho(request.price.rho(k).value / 2)
    try:
        peeling = Epsilon(sqrt_rounded_down(8 * half.value / k))
        return DomainDiscovery(half, delta, bound, peeling, k, request.most)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal


def _predict(request: MechanismRequest) -> Need:
    return predict_weighted(_choose(request).discovery, request)


def _plan(request: MechanismRequest) -> DomainDiscoveryPlan:
    return DomainDiscoveryPlan(_choose(request), request.price, request.own_cap)


DOMAIN_DISCOVERY = Mechanism(
    name="domain_discovery",
    domain=Domain.UNKNOWN,
    theorem=DomainDiscovery,
    law="Gaussian noise on weights, and peeling",
    plan=_plan,
    need=_predict,
    reads=Reads.GROUPS,
    weighs=True,
    options=frozenset(["delta"]),
)
