"""Top stable: the leaders down to the lowest gap that holds, k of them if they are more; paid at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import Loss
from dpsql.errors import UsageError
from dpsql.mechanisms import Noise, TopStable
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
from dpsql.plan.mechanisms.measure_text import describe_amount
from dpsql.plan.mechanisms.record import Domain, Mechanism, PerPartition, Reads
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.plan.mechanisms.unordered import BY_LABEL, add_count_loss, count_items, describe_order, rank
from dpsql.quantities import Epsilon
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_unordered

__all__ = ["TOP_STABLE", "TopStablePlan"]

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


def _plan(request: MechanismRequest) -> TopStablePlan:
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
    plan=_plan,
    reads=Reads.LEADERS,
    per_partition=PerPartition.EACH,
    options=frozenset(["delta", "k_bar"]),
)
