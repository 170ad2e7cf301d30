"""Peeling over the candidates of a known domain, charged by the item.

Of a domain in the query or in a public table all k keys come back. Of names that earlier answers released, those come
back that are above an evidence line; below it a gate decides whether to go on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpsql.accounting import ZCDP, Certificate, Loss
from dpsql.mechanisms import EvidentPeeling, EvidentSelection, Noise, Peeling
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Facts,
    Groups,
    MechanismOutput,
    MechanismPlan,
    ReleaseSpec,
    SpecReport,
)
from dpsql.plan.mechanisms.counts_by_item import (
    GATE_CLOSED,
    GATE_OPEN,
    charge_and_draw_selection,
    draw_measures,
    leave_out_below_line,
)
from dpsql.plan.mechanisms.record import EVERY_CERTIFICATE, Auto, Mechanism, Need, QueryKind, Reads
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.plan.mechanisms.rows_fetched import (
    NO_ROW,
    count_candidates,
    describe_amount,
    describe_noisy,
    read_candidates,
    read_domain,
)
from dpsql.quantities import Delta, Rho
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound

_GUMBEL_DEVIATION = math.pi / math.sqrt(6)


@dataclass(frozen=True, slots=True)
class PeelingPlan(MechanismPlan):
    """Peeling over all candidates of a known domain, charged by the item; it always returns all k keys.

    With `known` these are so many names that earlier answers released. No delta is spent.
    """

    selection: Peeling
    known: int = 0

    @property
    def release_identity(self) -> tuple[object, object]:
        return self.selection, self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        return ReleaseSpec(
            k=self.selection.k,
            worst_case=self.loss_of_half,
            rows=read_domain(query, bound, known=self.known),
            counts=CountNoise.of(self.price.counts),
            report=SpecReport(charged="charged: one for each key and count returned"),
        )

    @property
    def loss_of_half(self) -> Loss:  # all keys always come back: half costs what all do
        return self.price.loss(self.price.items(self.selection.k), Delta(0))

    def describe(self, query: PrivateQuery) -> Facts:
        return (("domain", count_candidates(query, self.known)),)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        candidates, order = read_candidates(groups)
        chosen = self.selection.select(candidates, noise)
        chosen = replace(chosen, positions=tuple(order[position] for position in chosen.positions))
        return charge_and_draw_selection(chosen, self.price, groups=groups, delta=Delta(0), noise=noise)


@dataclass(frozen=True, slots=True)
class EvidentPeelingPlan(MechanismPlan):
    """Peeling over so many `known` names above an evidence line, charged by the item; no delta is spent.

    Names whose counts are released must reach a line by these, too.
    """

    selection: EvidentPeeling
    known: int

    @property
    def release_identity(self) -> tuple[object, object]:
        return self.selection, self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        chosen, price = self.selection, self.price
        behind = ", and what the gate and the names behind it use" if chosen.left(0) else ""
        return ReleaseSpec(
            k=chosen.k,
            worst_case=price.loss(price.items(chosen.k), Delta(0)),
            rows=read_domain(query, bound, known=self.known, evident=True),
            counts=CountNoise.of(price.counts),
            report=SpecReport(charged=f"charged: one for each key and count returned, for BOTTOM{behind}"),
        )

    @property
    def loss_of_half(self) -> Loss:  # of BOTTOM and the gate, too
        chosen, returned = self.selection, math.ceil(self.selection.k / 2)
        stopped = EvidentSelection((), returned, returned < chosen.k, False if chosen.left(returned) > 0 else None)
        return self._price(stopped, returned)

    def describe(self, query: PrivateQuery) -> Facts:
        chosen = self.selection
        ended = f"BOTTOM stands at {describe_amount(query, chosen.find_bottom(self.known))}"
        if chosen.left(0):
            gate = describe_noisy(query, chosen.gate(0).height)
            ended += f"; if it comes first, a gate asks for one name of {gate}, and if it opens others follow"
        return ("domain", count_candidates(query, self.known)), ("evidence", f"{ended}; {NO_ROW}")

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        chosen = self.selection.select(groups.counts.tolist(), noise)
        rows = chosen.positions
        legs = f"above the evidence line: {chosen.above}"
        if chosen.gate_opened is None:
            legs = legs if chosen.stopped_at_bottom else ""
        elif chosen.gate_opened:
            legs = f"{legs}; {GATE_OPEN}: {len(rows) - chosen.above} more"
        else:
            legs = f"{legs}; {GATE_CLOSED}"
        keys = MechanismOutput(
            rows,
            None,
            self._price(chosen, len(rows)),
            math.ceil(self.selection.items(chosen)) + self.price.count_items(len(rows)),
            stopped_at_bottom=len(rows) < self.selection.k,
            legs=legs,
        )
        return leave_out_below_line(draw_measures(keys, groups, price=self.price, noise=noise), self.selection.k)

    def _price(self, chosen: EvidentSelection, rows: int) -> Loss:
        """Return the loss of a selection and of the counts of so many rows."""
        price, items = self.price, self.selection.items(chosen) + self.price.count_items(rows)
        if items.denominator == 1:
            return price.loss(int(items), Delta(0))
        return ZCDP(Rho(price.rho(1).value * items), Delta(0))


def _choose(request: MechanismRequest) -> Peeling | EvidentPeeling:
    """Return the mechanism of a known domain or, over known names that need evidence, that with a line.

    Its gate has no loss under a certificate without rho, and says nothing of each of the names behind it.
    """
    k, has_gate = min(request.k, request.candidates()), request.terms.certificate is Certificate.zcdp
    if request.evident:
        has_gate = has_gate and not request.is_strict
        return EvidentPeeling(request.price.epsilon, k, request.rank_width, has_gate)
    return Peeling(request.price.epsilon, k, request.rank_width)


def _plan(request: MechanismRequest) -> PeelingPlan | EvidentPeelingPlan:
    chosen = _choose(request)
    if isinstance(chosen, EvidentPeeling):
        return EvidentPeelingPlan(chosen, request.price, request.known)
    return PeelingPlan(chosen, request.price, request.known)


def _find_evidence(request: MechanismRequest) -> float | None:
    """Return the need of the most frequent of evident names: at BOTTOM, or at the gate, it has an even chance."""
    chosen = _choose(request) if request.evident else None
    if not isinstance(chosen, EvidentPeeling):
        return None
    bottom = float(chosen.find_bottom(request.known))
    return min(bottom, float(chosen.gate(0).height)) if chosen.left(0) else bottom


def _predict(request: MechanismRequest) -> Need:
    """Return how far behind its rank a key is in one of two draws at most; of evident names, where BOTTOM stands."""
    evidence = _find_evidence(request)
    if evidence is not None:
        return Need(evidence)
    chosen = _choose(request)
    candidates, word = request.assume_candidates(chosen.k)
    epsilon = float(chosen.epsilon.value / chosen.sensitivity)
    reach = math.log(2 * max(candidates - chosen.k, 1) * (1 + math.log(chosen.k))) / epsilon
    return Need(reach, f" more than others, {word} {candidates:,} candidates")


def _find_spread(request: MechanismRequest) -> float:
    """Return the standard deviation of the Gumbel noise on each name."""
    chosen = _choose(request)
    return _GUMBEL_DEVIATION * chosen.sensitivity / float(chosen.epsilon.value)


PEELING = Mechanism(
    name="peeling",
    kind=QueryKind.KNOWN,
    theorem=Peeling,
    law="peeling of candidates",
    plan=_plan,
    need=_predict,
    spread=_find_spread,
    evidence=_find_evidence,
    takes_names=5,  # so long a list is likely to hold the first k of another filter
    reads=Reads.CANDIDATES,
    certificates=EVERY_CERTIFICATE,
    auto=Auto.ALWAYS,
)
