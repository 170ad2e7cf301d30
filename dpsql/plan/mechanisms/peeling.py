"""Peeling over all candidates of a known domain, charged by the item; it always returns all k keys."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpsql.accounting import Loss
from dpsql.mechanisms import Noise, Peeling
from dpsql.plan.mechanisms.base import CountNoise, Facts, Groups, ItemLoss, MechanismOutput, ReleaseSpec, SpecReport
from dpsql.plan.mechanisms.counts_by_item import charge_by_item
from dpsql.plan.mechanisms.evident_peeling import EvidentPeelingPlan, choose_evident, need_of_evident
from dpsql.plan.mechanisms.known_domain import count_candidates, read_candidates, read_domain
from dpsql.plan.mechanisms.need import Need, count_assumed
from dpsql.plan.mechanisms.record import EVERY_CERTIFICATE, Auto, Domain, Mechanism, Reads
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.quantities import Delta
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound

__all__ = ["PEELING", "PeelingPlan"]

_GUMBEL_DEVIATION = math.pi / math.sqrt(6)


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
        return ReleaseSpec(
            k=chosen.k,
            worst_case=self.half,
            rows=read_domain(query, bound, known=self.known),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged="charged: one for each key and count returned",
            ),
        )

    @property
    def half(self) -> Loss:
        """The loss of all keys, which always come back."""
        return self.price.loss(self.price.items(self.selection.k), Delta(0))

    def describe(self, query: PrivateQuery) -> Facts:
        """Return who the candidates are."""
        return (("domain", count_candidates(query, self.known)),)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw keys, and then counts of them."""
        candidates, order = read_candidates(groups)
        chosen = self.selection.select(candidates, noise)
        chosen = replace(chosen, positions=tuple(order[position] for position in chosen.positions))
        return charge_by_item(chosen, self.price, groups=groups, delta=Delta(0), noise=noise)


def _choose(request: MechanismRequest) -> Peeling:
    """Return the mechanism of a known domain, which reads every candidate and spends no delta."""
    return Peeling(request.price.epsilon, min(request.k, request.candidates()), request.most)


def _plan(request: MechanismRequest) -> PeelingPlan | EvidentPeelingPlan:
    if request.evident:
        return EvidentPeelingPlan(choose_evident(request), request.price, request.known)
    return PeelingPlan(_choose(request), request.price, request.known)


def _predict(request: MechanismRequest) -> Need:
    """Return how far behind its rank a key is in one of two draws at most; of evident names, where BOTTOM stands."""
    if request.evident:
        return Need(need_of_evident(request))
    chosen = _choose(request)
    candidates, word = count_assumed(request, chosen.k)
    epsilon = float(chosen.epsilon.value / chosen.sensitivity)
    reach = math.log(2 * max(candidates - chosen.k, 1) * (1 + math.log(chosen.k))) / epsilon
    return Need(reach, f" more than others, {word} {candidates:,} candidates")


def _spread(request: MechanismRequest) -> float:
    """Return the standard deviation of the Gumbel noise on each name."""
    chosen = choose_evident(request) if request.evident else _choose(request)
    return _GUMBEL_DEVIATION * chosen.sensitivity / float(chosen.epsilon.value)


def _find_evidence(request: MechanismRequest) -> float | None:
    return need_of_evident(request) if request.evident else None


PEELING = Mechanism(
    name="peeling",
    domain=Domain.KNOWN,
    theorem=Peeling,
    law="peeling of candidates",
    plan=_plan,
    need=_predict,
    spread=_spread,
    evidence=_find_evidence,
    takes_names=5,  # so long a list is likely to hold the first k of another filter
    reads=Reads.CANDIDATES,
    certificates=EVERY_CERTIFICATE,
    auto=Auto.ALWAYS,
)
