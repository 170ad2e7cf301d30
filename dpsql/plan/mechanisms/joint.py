"""The joint exponential mechanism: all keys of a known domain in one draw, paid for at once; counts by the item."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpsql.accounting import ZCDP
from dpsql.errors import UsageError
from dpsql.mechanisms import EvidenceGate, JointExponential, Noise
from dpsql.mechanisms.evident_peeling import GATE_SHARE
from dpsql.mechanisms.known_names import FALSE_ALARM
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Groups,
    ItemLoss,
    MechanismOutput,
    ReleaseSpec,
    SpecReport,
    sqrt_rounded_down,
)
from dpsql.plan.mechanisms.counts_by_item import add_counts
from dpsql.plan.mechanisms.evidence import GATE_CLOSED, GATE_OPEN, leave_out_below_line
from dpsql.plan.mechanisms.known_domain import count_candidates, read_candidates, read_domain
from dpsql.plan.mechanisms.measure_text import NO_ROW, describe_noisy
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound

__all__ = ["JointPlan", "joint"]


@dataclass(frozen=True, slots=True)
class JointPlan:
    """The joint exponential mechanism: all keys of a known domain in one draw, paid for at once; counts by the item.

    With `known` the domain is so many names that earlier answers released. Behind a `gate` on their largest count they
    are drawn only if it opens, and those whose counts are released must reach a line by these, too.
    """

    selection: JointExponential
    price: ItemLoss
    known: int = 0
    gate: EvidenceGate | None = None

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, and the items of its loss."""
        return (self.selection if self.gate is None else (self.selection, self.gate)), self.price

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: every candidate is read, and no delta is spent."""
        chosen, counts, gate = self.selection, self.price.counts, self.gate
        worst_case = chosen.worst_case if gate is None else chosen.worst_case + ZCDP(gate.rho, Delta(0))
        if counts is not None:
            worst_case += ZCDP(self.price.rho(self.price.count_items(chosen.k)), Delta(0))
        return ReleaseSpec(
            k=chosen.k,
            worst_case=worst_case,
            half=worst_case,
            rows=read_domain(query, bound, known=self.known, evident=gate is not None),
            counts=CountNoise.of(counts),
            report=SpecReport(
                charged=f"the keys at once{'' if gate is None else ' if a gate opens, else a tenth of them'}"
                f"{'' if counts is None else ', and one for each count returned'}",
                facts=(
                    ("domain", count_candidates(query, self.known)),
                    ("draw", f"all keys in one, of epsilon {float(chosen.epsilon):.4g}"),
                    *([] if gate is None else [("evidence", _describe_gate(gate, query))]),
                ),
            ),
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw all keys, and then counts of them; an empty domain is no draw, and costs nothing."""
        if self.gate is not None and not self.gate.opens(int(groups.counts.max(initial=0)), noise):
            loss, items = ZCDP(self.gate.rho, Delta(0)), math.ceil(self.selection.k * GATE_SHARE)
            shut = MechanismOutput((), None, loss, items, stopped_at_bottom=True, legs=GATE_CLOSED)
            return add_counts(shut, groups, price=self.price, noise=noise)
        candidates, order = read_candidates(groups)
        chosen = self.selection.select(candidates, noise)
        loss, items = self.selection.loss(chosen), self.selection.k if candidates.leaders else 0
        rows = tuple(order[position] for position in chosen.positions)
        keys = MechanismOutput(rows, None, loss, items, stopped_at_bottom=False)
        if self.gate is None:
            return add_counts(keys, groups, price=self.price, noise=noise)
        keys = replace(keys, loss=loss + ZCDP(self.gate.rho, Delta(0)), legs=GATE_OPEN)
        return leave_out_below_line(add_counts(keys, groups, price=self.price, noise=noise), self.selection.k)


def _describe_gate(gate: EvidenceGate, query: PrivateQuery) -> str:
    """Return in words what the gate asks for."""
    return f"a gate asks for one name of {describe_noisy(query, gate.height)}, and if it opens others follow; {NO_ROW}"


def joint(request: MechanismRequest) -> JointPlan:
    """Return the mechanism of one draw, at no more than the rho of one item for each key."""
    k, price = min(request.k, request.candidates()), request.price
    rho, gate = price.rho(k).value, None
    if request.evident:
        gate = EvidenceGate(Rho(rho * GATE_SHARE), FALSE_ALARM, request.most)
        rho -= gate.rho.value
    try:
        epsilon = Epsilon(sqrt_rounded_down(8 * rho))
        return JointPlan(JointExponential(epsilon, k, request.most), price, request.known, gate)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal
