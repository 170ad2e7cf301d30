"""Peeling over known names above an evidence line, charged by the item; below it a gate decides whether to go on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsql.accounting import ZCDP, Certificate, Loss
from dpsql.mechanisms import EvidentPeeling, EvidentSelection, Noise
from dpsql.plan.mechanisms.base import CountNoise, Facts, Groups, ItemLoss, MechanismOutput, ReleaseSpec, SpecReport
from dpsql.plan.mechanisms.counts_by_item import draw_measures, put_measures
from dpsql.plan.mechanisms.evidence import GATE_CLOSED, GATE_OPEN, leave_out_below_line
from dpsql.plan.mechanisms.known_domain import count_candidates, read_domain
from dpsql.plan.mechanisms.measure_text import NO_ROW, describe_amount, describe_noisy
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.quantities import Delta, Rho
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound

__all__ = ["EvidentPeelingPlan", "choose_evident", "need_of_evident"]


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
