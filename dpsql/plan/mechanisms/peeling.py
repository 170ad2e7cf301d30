"""Peeling over all candidates of a known domain, charged by the item; it always returns all k keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsql.mechanisms import Noise, Peeling
from dpsql.plan.mechanisms.base import CountNoise, Groups, ItemLoss, MechanismOutput, ReleaseSpec, SpecReport
from dpsql.plan.mechanisms.counts_by_item import charge_by_item
from dpsql.plan.mechanisms.evident_peeling import EvidentPeelingPlan, evident_peeling
from dpsql.plan.mechanisms.known_domain import count_candidates, read_candidates, read_domain
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.quantities import Delta
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound

__all__ = ["PeelingPlan", "peeling"]


@dataclass(frozen=True, slots=True)
class PeelingPlan:
    """Peeling over all candidates of a known domain, charged by the item; it always returns all k keys.

    With `known` these are so many names that earlier answers released.
    """

    selection: Peeling
    price: ItemLoss
    known: int = 0

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, and how the counts are drawn."""
        return self.selection, self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: every candidate is read, and no delta is spent."""
        chosen, price = self.selection, self.price
        worst_case = price.loss(price.items(chosen.k), Delta(0))
        return ReleaseSpec(
            k=chosen.k,
            worst_case=worst_case,
            half=worst_case,
            rows=read_domain(query, bound, known=self.known),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged="charged: one for each key and count returned",
                facts=(("domain", count_candidates(query, self.known)),),
            ),
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw keys, and then counts of them."""
        candidates, order = read_candidates(groups)
        chosen = self.selection.select(candidates, noise)
        chosen = replace(chosen, positions=tuple(order[position] for position in chosen.positions))
        return charge_by_item(chosen, self.price, groups=groups, delta=Delta(0), noise=noise)


def peeling(request: MechanismRequest) -> PeelingPlan | EvidentPeelingPlan:
    """Return the mechanism of a known domain, which reads every candidate and spends no delta."""
    k = min(request.k, request.candidates())
    if request.evident:
        return evident_peeling(request, k)
    return PeelingPlan(Peeling(request.price.epsilon, k, request.most), request.price, request.known)
