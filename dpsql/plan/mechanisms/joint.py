"""The joint exponential mechanism: all keys of a known domain in one draw, paid for at once; counts by the item."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpsql.accounting import ZCDP, Loss
from dpsql.errors import Refusal
from dpsql.mechanisms import EvidenceGate, JointExponential, Noise
from dpsql.mechanisms.known_names import FALSE_ALARM
from dpsql.mechanisms.peeling import GATE_SHARE
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Facts,
    Groups,
    MechanismOutput,
    MechanismPlan,
    ReleaseSpec,
    SpecReport,
    sqrt_rounded_down,
)
from dpsql.plan.mechanisms.counts_by_item import GATE_CLOSED, GATE_OPEN, charge_and_draw_counts, leave_out_below_line
from dpsql.plan.mechanisms.record import Mechanism, Need, QueryKind, Reads
from dpsql.plan.mechanisms.request import MechanismRequest, refuse_out_of_range
from dpsql.plan.mechanisms.rows_fetched import NO_ROW, count_candidates, describe_noisy, read_candidates, read_domain
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound


@dataclass(frozen=True, slots=True)
class JointPlan(MechanismPlan):
    """The joint exponential mechanism: all keys of a known domain in one draw, paid for at once; counts by the item.

    With `known` the domain is so many names that earlier answers released. Behind a `gate` on their largest count they
    are drawn only if it opens, and those whose counts are released must reach a line by these, too.
    """

    selection: JointExponential
    known: int = 0
    gate: EvidenceGate | None = None

    @property
    def release_identity(self) -> tuple[object, object]:
        return (self.selection if self.gate is None else (self.selection, self.gate)), self.price

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        chosen, counts, gate = self.selection, self.price.counts, self.gate
        return ReleaseSpec(
            k=chosen.k,
            worst_case=self.loss_of_half,
            rows=read_domain(query, bound, known=self.known, evident=gate is not None),
            counts=CountNoise.of(counts),
            report=SpecReport(
                charged=f"the keys at once{'' if gate is None else ' if a gate opens, else a tenth of them'}"
                f"{'' if counts is None else ', and one for each count returned'}",
            ),
        )

    @property
    def loss_of_half(self) -> Loss:  # all keys come back together: half costs what all do
        chosen, price, gate = self.selection, self.price, self.gate
        keys = chosen.worst_case if gate is None else chosen.worst_case + ZCDP(gate.rho, Delta(0))
        return keys if price.counts is None else keys + ZCDP(price.rho(price.count_items(chosen.k)), Delta(0))

    def describe(self, query: PrivateQuery) -> Facts:
        evidence: Facts = ()
        if self.gate is not None:
            asked = f"a gate asks for one name of {describe_noisy(query, self.gate.height)}"
            evidence = (("evidence", f"{asked}, and if it opens others follow; {NO_ROW}"),)
        return (
            ("domain", count_candidates(query, self.known)),
            ("draw", f"all keys in one, of epsilon {float(self.selection.epsilon):.4g}"),
            *evidence,
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        if self.gate is not None and not self.gate.opens(int(groups.counts.max(initial=0)), noise):
            loss, items = ZCDP(self.gate.rho, Delta(0)), math.ceil(self.selection.k * GATE_SHARE)
            shut = MechanismOutput((), None, loss, items, stopped_at_bottom=True, legs=GATE_CLOSED)
            return charge_and_draw_counts(shut, groups, price=self.price, noise=noise)
        candidates, order = read_candidates(groups)
        chosen = self.selection.select(candidates, noise)
        # an empty domain is no draw, and costs nothing
        loss, items = self.selection.loss(chosen), self.selection.k if candidates.leaders else 0
        rows = tuple(order[position] for position in chosen.positions)
        keys = MechanismOutput(rows, None, loss, items, stopped_at_bottom=False)
        if self.gate is None:
            return charge_and_draw_counts(keys, groups, price=self.price, noise=noise)
        keys = replace(keys, loss=loss + ZCDP(self.gate.rho, Delta(0)), legs=GATE_OPEN)
        return leave_out_below_line(
            charge_and_draw_counts(keys, groups, price=self.price, noise=noise), self.selection.k
        )


@refuse_out_of_range
def _plan(request: MechanismRequest) -> JointPlan:
    """Return the mechanism of one draw, at no more than the rho of one item for each key."""
    k, price = min(request.k, request.candidates()), request.price
    rho, gate = price.rho(k).value, None
    if request.is_strict:
        hint = "Write mechanism = peeling, or leave evidence out."
        reason = "joint draws all names at once, and has no line for each."
        raise Refusal("option", reason, hint=hint, place=request.query.clause.options["evidence"].place)
    if request.evident:
        gate = EvidenceGate(Rho(rho * GATE_SHARE), FALSE_ALARM, request.rank_width)
        rho -= gate.rho.value
    epsilon = Epsilon(sqrt_rounded_down(8 * rho))
    return JointPlan(JointExponential(epsilon, k, request.rank_width), price, request.known, gate)


def _predict(request: MechanismRequest) -> Need:
    """Return how far behind its rank a key is in one of two draws at most."""
    chosen = _plan(request).selection
    candidates, word = request.assume_candidates(chosen.k)
    epsilon = float(chosen.epsilon.value / chosen.sensitivity)
    sequences = math.lgamma(candidates + 1) - math.lgamma(candidates - chosen.k + 1)
    return Need(2 * (sequences + math.log(2)) / epsilon, f" more than others, {word} {candidates:,} candidates")


def _find_evidence(request: MechanismRequest) -> float | None:
    """Return where the gate of known names stands."""
    gate = _plan(request).gate
    return None if gate is None else float(gate.height)


JOINT = Mechanism(
    name="joint",
    kind=QueryKind.KNOWN,
    theorem=JointExponential,
    law="all keys in one draw",
    plan=_plan,
    need=_predict,
    evidence=_find_evidence,
    reads=Reads.CANDIDATES,
    most_simulated=1_000_000,
)
