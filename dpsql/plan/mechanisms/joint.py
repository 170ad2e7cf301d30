"""The joint exponential mechanism: all keys of a known domain in one draw, paid for at once; counts by the item."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpsql.accounting import ZCDP, Loss
from dpsql.errors import Refusal
from dpsql.mechanisms import EvidenceGate, JointExponential, Noise
from dpsql.mechanisms.base import FALSE_ALARM
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
from dpsql.sql.ir.measures import Aggregate
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound


@dataclass(frozen=True, slots=True)
class JointPlan(MechanismPlan):
    """The joint exponential mechanism: all keys of a known domain in one draw, paid for at once; counts by the item.

    Behind a `gate` on their largest count they are drawn only if it opens. With `known` the domain is so many names
    that earlier answers released, and those whose counts are released must reach a line by these, too.
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
            rows=read_domain(query, bound, known=self.known, evident=self.is_evident),
            counts=CountNoise.of(counts),
            report=SpecReport(
                charged=f"the keys at once{'' if gate is None else ' if a gate opens, else a tenth of them'}"
                f"{'' if counts is None else ', and one for each count returned'}",
            ),
        )

    @property
    def is_evident(self) -> bool:
        """Whether the names were released before, and need evidence that some row has them."""
        return self.known > 0 and self.gate is not None

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
        candidates, order = read_candidates(groups)
        gate = self.gate if candidates.leaders else None  # an empty domain is no draw, and costs nothing
        if gate is not None and not gate.opens(int(groups.counts.max(initial=0)), noise):
            loss, items = ZCDP(gate.rho, Delta(0)), math.ceil(self.selection.k * GATE_SHARE)
            shut = MechanismOutput((), None, loss, items, stopped_at_bottom=True, legs=GATE_CLOSED)
            return charge_and_draw_counts(shut, groups, price=self.price, noise=noise)
        chosen = self.selection.select(candidates, noise)
        loss, items = self.selection.loss(chosen), self.selection.k if candidates.leaders else 0
        rows = tuple(order[position] for position in chosen.positions)
        keys = MechanismOutput(rows, None, loss, items, stopped_at_bottom=False)
        if gate is not None:
            keys = replace(keys, loss=loss + ZCDP(gate.rho, Delta(0)), legs=GATE_OPEN)
        drawn = charge_and_draw_counts(keys, groups, price=self.price, noise=noise)
        return leave_out_below_line(drawn, self.selection.k) if self.is_evident else drawn


@refuse_out_of_range
def _plan(request: MechanismRequest) -> JointPlan:
    """Return the mechanism of one draw, at no more than the rho of one item for each key."""
    k, price = min(request.k, request.candidates()), request.price
    rho = price.rho(k).value
    gate = _find_gate(request, Rho(rho * GATE_SHARE))
    rho -= 0 if gate is None else gate.rho.value
    epsilon = Epsilon(sqrt_rounded_down(8 * rho))
    return JointPlan(JointExponential(epsilon, k, request.rank_width), price, request.known, gate)


def _find_gate(request: MechanismRequest, rho: Rho) -> EvidenceGate | None:
    """Return the gate in front of the draw; None with gate = false, or for names that are returned in any case.

    Before a listed domain there is one if it is ranked by numbers of users.
    """
    options = request.query.clause.options
    if request.is_strict:
        hint = "Write mechanism = peeling, or leave evidence out."
        reason = "joint draws all names at once, and has no line for each."
        raise Refusal("option", reason, hint=hint, place=options["evidence"].place)
    option = options.get("gate")
    if request.known and option is not None:
        hint = "Leave gate out, or write known = all in its place."
        raise Refusal("option", "Known names have a gate of their own.", hint=hint, place=option.place)
    if request.known > 0 and not request.evident:
        return None
    counts_units = request.query.measures[0].aggregate is Aggregate.UNITS  # a sum of 0 may be the largest of all
    if not counts_units and option is not None and option.value == "true":
        reason = "joint has a gate only where numbers of users rank."
        raise Refusal("option", reason, hint="Leave gate out.", place=option.place)
    if not request.known and not (counts_units and (option is None or option.value == "true")):
        return None
    return EvidenceGate(rho, FALSE_ALARM, request.rank_width)


def _predict(request: MechanismRequest) -> Need:
    """Return how far behind its rank a key is in one of two draws at most, or where the gate opens for it."""
    planned = _plan(request)
    chosen, gate = planned.selection, planned.gate
    candidates, word = request.assume_candidates(chosen.k)
    epsilon = float(chosen.epsilon.value / chosen.sensitivity)
    sequences = math.lgamma(candidates + 1) - math.lgamma(candidates - chosen.k + 1)
    ahead = 2 * (sequences + math.log(2)) / epsilon
    if gate is not None:  # a standard deviation above its height it opens in five of six draws
        ahead = max(ahead, gate.height + math.sqrt(gate.variance))
    return Need(ahead, f" more than others, {word} {candidates:,} candidates")


def _find_evidence(request: MechanismRequest) -> float | None:
    """Return where the gate of known names stands."""
    gate = _plan(request).gate if request.known else None
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
    options=frozenset(["gate"]),
    most_simulated=1_000_000,
)
