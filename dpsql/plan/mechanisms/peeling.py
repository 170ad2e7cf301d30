"""Peeling over the candidates of a known domain, charged by the item.

Of a domain in the query or in a public table all k keys come back. Of names that earlier answers released, those come
back that are above an evidence line; below it a gate decides whether to go on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpsql.accounting import ZCDP, Certificate, Loss
from dpsql.mechanisms import EvidentPeeling, EvidentSelection, Noise, Peeling
from dpsql.plan.mechanisms.base import CountNoise, Facts, Groups, ItemLoss, MechanismOutput, ReleaseSpec, SpecReport
from dpsql.plan.mechanisms.counts_by_item import (
    GATE_CLOSED,
    GATE_OPEN,
    charge_by_item,
    draw_measures,
    leave_out_below_line,
    put_measures,
)
from dpsql.plan.mechanisms.measure_text import NO_ROW, describe_amount, describe_noisy
from dpsql.plan.mechanisms.need import Need, count_assumed
from dpsql.plan.mechanisms.record import EVERY_CERTIFICATE, Auto, Domain, Mechanism, Reads
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.plan.mechanisms.rows_fetched import count_candidates, read_candidates, read_domain
from dpsql.quantities import Delta, Rho
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound


@dataclass(frozen=True, slots=True)
class EvidentPeelingPlan:
    """Peeling over so many `known` names above an evidence line, charged by the item.

    Names whose counts are released must reach a line by these, too.
    """

    selection: EvidentPeeling
    price: ItemLoss
    known: int

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, and how the counts are drawn."""
        return self.selection, self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: every known name is read, and no delta is spent."""
        chosen, price = self.selection, self.price
        behind = ", and what the gate and the names behind it use" if chosen.left(0) else ""
        return ReleaseSpec(
            k=chosen.k,
            worst_case=price.loss(price.items(chosen.k), Delta(0)),
            rows=read_domain(query, bound, known=self.known, evident=True),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged=f"charged: one for each key and count returned, for BOTTOM{behind}",
            ),
        )

    @property
    def half(self) -> Loss:
        """The loss of half of the keys, of BOTTOM, and of the gate."""
        chosen, returned = self.selection, math.ceil(self.selection.k / 2)
        stopped = EvidentSelection((), returned, returned < chosen.k, False if chosen.left(returned) > 0 else None)
        return self._price(stopped, returned)

    def describe(self, query: PrivateQuery) -> Facts:
        """Return who the candidates are, and which evidence they need."""
        return ("domain", count_candidates(query, self.known)), ("evidence", self._describe_line(query))

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw keys, and then counts of them, which must reach a line of their own."""
        chosen = self.selection.select(groups.counts.tolist(), noise)
        rows = chosen.positions
        keys = MechanismOutput(
            rows,
            None,
            self._price(chosen, len(rows)),
            math.ceil(self.selection.items(chosen)) + self.price.count_items(len(rows)),
            stopped_at_bottom=len(rows) < self.selection.k,
            legs=_describe_legs(chosen),
        )
        drawn = put_measures(keys, draw_measures(rows, self.price, groups=groups, noise=noise))
        return leave_out_below_line(drawn, self.selection.k)

    def _price(self, chosen: EvidentSelection, rows: int) -> Loss:
        """Return the loss of a selection and of the counts of so many rows."""
        price, items = self.price, self.selection.items(chosen) + self.price.count_items(rows)
        if items.denominator == 1:
            return price.loss(int(items), Delta(0))
        return ZCDP(Rho(price.rho(1).value * items), Delta(0))

    def _describe_line(self, query: PrivateQuery) -> str:
        """Return in words where BOTTOM and the gate stand."""
        chosen = self.selection
        ended = f"BOTTOM stands at {describe_amount(query, chosen.find_bottom(self.known))}"
        if chosen.left(0):
            gate = describe_noisy(query, chosen.gate(0).height)
            ended += f"; if it comes first, a gate asks for one name of {gate}, and if it opens others follow"
        return f"{ended}; {NO_ROW}"


def _describe_legs(chosen: EvidentSelection) -> str:
    """Return what each part did, in words, from what was released."""
    match chosen.gate_opened:
        case None:
            return f"above the evidence line: {chosen.above}" if chosen.stopped_at_bottom else ""
        case False:
            return f"above the evidence line: {chosen.above}; {GATE_CLOSED}"
    behind = len(chosen.positions) - chosen.above
    return f"above the evidence line: {chosen.above}; {GATE_OPEN}: {behind} more"


def choose_evident(request: MechanismRequest) -> EvidentPeeling:
    """Return the mechanism over known names; its gate has no loss under a certificate without rho."""
    has_gate = request.terms.certificate is Certificate.zcdp
    return EvidentPeeling(request.price.epsilon, min(request.k, request.candidates()), request.most, has_gate)


def need_of_evident(request: MechanismRequest) -> float:
    """Return the need of the most frequent of the known names: at BOTTOM, or at the gate, it has an even chance."""
    chosen = choose_evident(request)
    bottom = float(chosen.find_bottom(request.known))
    return min(bottom, float(chosen.gate(0).height)) if chosen.left(0) else bottom


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
