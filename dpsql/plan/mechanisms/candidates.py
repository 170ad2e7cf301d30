"""Mechanisms of known groups: those that choose k of the candidates of a domain, and those that return all of them.

* Peeling is charged by the item. Of a domain in the query or in a public table all k keys come back. Of names that
  earlier answers released, those come back that are above an evidence line; below it a gate decides whether to go on.
* The joint exponential mechanism draws all keys at once, and they are paid for at once; counts go by the item.
* Known groups are all counted, as is the one total of a query without keys; nothing is selected, and delta is 0. For
  TOP k the counts of all candidates can cost less than a private choice of k and their counts: a unit that is in few
  groups changes few counts. The first k of the noisy counts are then post-processing.
* The keys of known groups cost nothing where no count is released, but quantiles of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.accounting import ZCDP, Certificate, Loss
from dpsql.errors import Refusal
from dpsql.mechanisms import (
    CountRelease,
    EvidenceGate,
    EvidentPeeling,
    EvidentSelection,
    JointExponential,
    KnownGroups,
    Noise,
    Peeling,
)
from dpsql.mechanisms.base import FALSE_ALARM
from dpsql.mechanisms.peeling import GATE_SHARE
from dpsql.mechanisms.quantiles import ExponentialQuantile
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Facts,
    Groups,
    ItemLoss,
    MechanismOutput,
    MechanismPlan,
    PrefixLaw,
    ReleaseSpec,
    RowsRead,
    SpecReport,
    sqrt_rounded_down,
)
from dpsql.plan.mechanisms.draws import (
    GATE_CLOSED,
    GATE_OPEN,
    charge_and_draw_counts,
    charge_and_draw_selection,
    draw_measures,
    draw_others,
    leave_out_below_line,
)
from dpsql.plan.mechanisms.record import (
    EVERY_CERTIFICATE,
    Auto,
    Mechanism,
    MechanismRequest,
    Need,
    QueryKind,
    Reads,
    describe_amount,
    refuse_out_of_range,
)
from dpsql.plan.mechanisms.rows_fetched import (
    NO_ROW,
    count_candidates,
    describe_noisy,
    find_min,
    keep_known,
    read_candidates,
    read_domain,
)
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.sql.ir.measures import Aggregate
from dpsql.sql.ir.statements import PrivateQuery, ReleasedDomain
from dpsql.sql.rewrite.bins import rewrite_candidates
from dpsql.sql.rewrite.engine_query import Bound, rewrite_all, rewrite_total

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
        # The mechanism chose among counts in descending order; `order` turns its positions back to rows of the engine's
        # result.
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
        # Half of the names above BOTTOM, then BOTTOM, and a gate that stays closed.
        stopped = EvidentSelection((), returned, returned < chosen.k, False if chosen.left(returned) > 0 else None)
        return self._price(stopped, returned)

    def describe(self, query: PrivateQuery) -> Facts:
        chosen = self.selection
        ended = f"BOTTOM stands at {describe_amount(query.measures[0], chosen.find_bottom(self.known))}"
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
            # the gate, and the line for counts, depend on k
            prefix=PrefixLaw.OTHER if self.selection.has_gate or self.price.counts else PrefixLaw.EXACT,
        )
        return leave_out_below_line(draw_measures(keys, groups, price=self.price, noise=noise), self.selection.k)

    def _price(self, chosen: EvidentSelection, rows: int) -> Loss:
        """Return the loss of a selection and of the counts of so many rows."""
        price, items = self.price, self.selection.items(chosen) + self.price.count_items(rows)
        if items.denominator == 1:
            return price.loss(int(items), Delta(0))
        return ZCDP(Rho(price.rho(1).value * items), Delta(0))


def _choose_peeling(request: MechanismRequest) -> Peeling | EvidentPeeling:
    """Return the mechanism of a known domain or, over known names that need evidence, that with a line.

    Its gate has no loss under a certificate without rho, and says nothing of each of the names behind it.
    """
    k, has_gate = min(request.k, request.candidates()), request.terms.certificate is Certificate.zcdp
    if request.evident:
        has_gate = has_gate and not request.is_strict
        return EvidentPeeling(request.price.epsilon, k, request.rank_width, has_gate)
    return Peeling(request.price.epsilon, k, request.rank_width)


def _plan_peeling(request: MechanismRequest) -> PeelingPlan | EvidentPeelingPlan:
    chosen = _choose_peeling(request)
    if isinstance(chosen, EvidentPeeling):
        return EvidentPeelingPlan(chosen, request.price, request.known)
    return PeelingPlan(chosen, request.price, request.known)


def _find_peeling_evidence(request: MechanismRequest) -> float | None:
    """Return the need of the most frequent of evident names: at BOTTOM, or at the gate, it has an even chance."""
    chosen = _choose_peeling(request) if request.evident else None
    if not isinstance(chosen, EvidentPeeling):
        return None
    bottom = float(chosen.find_bottom(request.known))
    return min(bottom, float(chosen.gate(0).height)) if chosen.left(0) else bottom


def _predict_peeling(request: MechanismRequest) -> Need:
    """Return how far behind its rank a key is in one of two draws at most; of evident names, where BOTTOM stands."""
    evidence = _find_peeling_evidence(request)
    if evidence is not None:
        return Need(evidence)
    chosen = _choose_peeling(request)
    candidates, word = request.assume_candidates(chosen.k)
    epsilon = float(chosen.epsilon.value / chosen.sensitivity)
    reach = math.log(2 * max(candidates - chosen.k, 1) * (1 + math.log(chosen.k))) / epsilon
    return Need(reach, f" more than others, {word} {candidates:,} candidates")


def _find_peeling_spread(request: MechanismRequest) -> float:
    """Return the standard deviation of the Gumbel noise on each name."""
    chosen = _choose_peeling(request)
    return _GUMBEL_DEVIATION * chosen.sensitivity / float(chosen.epsilon.value)


PEELING = Mechanism(
    name="peeling",
    kind=QueryKind.KNOWN,
    theorem=Peeling,
    law="peeling of candidates",
    plan=_plan_peeling,
    need=_predict_peeling,
    spread=_find_peeling_spread,
    evidence=_find_peeling_evidence,
    takes_names=5,  # so long a list is likely to hold the first k of another filter
    reads=Reads.CANDIDATES,
    certificates=EVERY_CERTIFICATE,
    auto=Auto.ALWAYS,
)


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
def _plan_joint(request: MechanismRequest) -> JointPlan:
    """Return the mechanism of one draw, at no more than the rho of one item for each key."""
    k, price = min(request.k, request.candidates()), request.price
    rho = price.rho(k).value
    gate = _find_joint_gate(request, Rho(rho * GATE_SHARE))
    # The gate takes its rho from that of the keys: with or without it, both together cost the same at worst.
    rho -= 0 if gate is None else gate.rho.value
    # A draw of bounded range epsilon costs rho = epsilon**2 / 8; rounded down, it costs no more than there is.
    epsilon = Epsilon(sqrt_rounded_down(8 * rho))
    return JointPlan(JointExponential(epsilon, k, request.rank_width), price, request.known, gate)


def _find_joint_gate(request: MechanismRequest, rho: Rho) -> EvidenceGate | None:
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


def _predict_joint(request: MechanismRequest) -> Need:
    """Return how far behind its rank a key is in one of two draws at most, or where the gate opens for it."""
    planned = _plan_joint(request)
    chosen, gate = planned.selection, planned.gate
    candidates, word = request.assume_candidates(chosen.k)
    epsilon = float(chosen.epsilon.value / chosen.sensitivity)
    sequences = math.lgamma(candidates + 1) - math.lgamma(candidates - chosen.k + 1)
    ahead = 2 * (sequences + math.log(2)) / epsilon
    if gate is not None:  # a standard deviation above its height it opens in five of six draws
        ahead = max(ahead, gate.height + math.sqrt(gate.variance))
    return Need(ahead, f" more than others, {word} {candidates:,} candidates")


def _find_joint_evidence(request: MechanismRequest) -> float | None:
    """Return where the gate of known names stands."""
    gate = _plan_joint(request).gate if request.known else None
    return None if gate is None else float(gate.height)


JOINT = Mechanism(
    name="joint",
    kind=QueryKind.KNOWN,
    theorem=JointExponential,
    law="all keys in one draw",
    plan=_plan_joint,
    need=_predict_joint,
    evidence=_find_joint_evidence,
    reads=Reads.CANDIDATES,
    options=frozenset(["gate"]),
    most_simulated=1_000_000,
)


@dataclass(frozen=True, slots=True)
class KnownGroupsPlan(MechanismPlan):
    """Release of the counts of all known groups, at one item for each group that a unit can be in.

    Without `k` all are returned, and else the first `k` of all that were drawn. With `known` these are so many names
    that earlier answers released.
    """

    selection: KnownGroups
    k: int | None = None
    known: int = 0

    @property
    def release_identity(self) -> tuple[object, object]:
        return (self.selection if self.k is None else (self.selection, self.k)), self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        groups, k = self.selection.groups, self.k
        is_total = query.clause.shape == "total"
        least, listed = find_min(query), False
        if self.known:
            query, listed = keep_known(replace(query, domain=None))
        counting = rewrite_total(query) if is_total else rewrite_all(query, bound=bound, every=self.known > 0)
        what = "one for each total" if is_total else "one for each group that a unit can be in, and for each measure"
        return ReleaseSpec(
            k=k or groups,
            worst_case=self.loss_of_half,
            rows=RowsRead(
                counting=counting,
                max_rows=None if self.known else groups,
                min_count=least,
                others=len(query.measures) - 1,
                known=self.known,
                alone=self.known > 0,
                listed=listed,
            ),
            counts=CountNoise.of(self.price.counts),
            report=SpecReport(charged=f"charged: {what}"),
        )

    @property
    def loss_of_half(self) -> Loss:  # all counts always come back: half costs what all do
        return self.price.loss(self.price.items(self.k or self.selection.groups), Delta(0))

    def describe(self, query: PrivateQuery) -> Facts:
        returned = "all are counted, for fewer items than a choice among them" if self.k else "every one is returned"
        domain = ("domain", f"{self.selection.groups:,} known groups; {returned}")
        cut = [("cut", query.bucket_note)] if query.bucket_note else []
        return (*([] if query.clause.shape == "total" else [domain]), *cut)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        counts = self.selection.release(groups.counts.tolist(), noise)
        rows = tuple(range(len(counts)))
        if self.k is not None:  # equal counts in the order of the labels, which is public
            rows = tuple(sorted(rows, key=lambda row: (-counts[row], row))[: self.k])
        items = self.price.items(self.k or self.selection.groups)
        return MechanismOutput(
            rows,
            tuple(counts[row] for row in rows),
            self.price.loss(items, Delta(0)),
            items,
            stopped_at_bottom=False,
            others=draw_others(rows, self.price, groups=groups, noise=noise),
            prefix=PrefixLaw.OTHER,  # fewer of them might be chosen by another mechanism
        )


def count_known(request: MechanismRequest) -> int:
    """Return the number of groups; raise `Refusal` for a query whose groups are not known."""
    clause = request.query.clause
    if clause.shape != "top":
        reason = "{name} has no meaning where nothing is selected."
        request.refuse(("monotone",), reason=reason, hint="Leave it out.")
    if clause.shape == "total":
        request.refuse(
            ("domain", "max_groups_contributed"), reason="{name} has no meaning with a total.", hint="Leave it out."
        )
    elif request.query.domain is None:
        hint = "Name them: WITH (domain = ['DE', 'FR']). Days, weeks and months need bounds in WHERE alone."
        raise Refusal("domain", "ALL PRIVATE returns groups that are known.", hint=hint, place=clause.place)
    if request.min_units > 1:
        hint = "Ask for the most frequent groups with TOP 10 PRIVATE, where a threshold ensures it."
        reason = "The policy wants groups of at least so many units here, which a known group cannot promise."
        raise Refusal("min-units", reason, hint=hint, place=clause.place)
    return 1 if clause.shape == "total" else request.candidates()


def _read_known_groups(request: MechanismRequest) -> tuple[CountRelease, int, int | None]:
    """Return the release of counts, the number of groups, and how many are returned, None for all of them.

    Raises `Refusal` for a query whose groups are not known, or that asks for no counts.
    """
    groups, clause, counts = count_known(request), request.query.clause, request.price.counts
    if counts is None:
        hint = f"Select COUNT(DISTINCT {request.query.unit_name}) too."
        raise Refusal("counts", "Known groups are released for their counts.", hint=hint, place=clause.place)
    return counts, groups, None if clause.k is None else min(clause.k, groups)


def _price_known_groups(request: MechanismRequest) -> ItemLoss:
    """Return the price of the counts of all groups; the other measures are of the first k alone."""
    counts, groups, k = _read_known_groups(request)
    # `once` and the counts of k keys add up to the counts of all groups: all are drawn, and k are shown.
    return replace(request.price, each=0, once=0 if k is None else counts.items(groups) - counts.items(k))


def _plan_known_groups(request: MechanismRequest) -> KnownGroupsPlan:
    counts, groups, k = _read_known_groups(request)
    known = request.known if isinstance(request.query.domain, ReleasedDomain) else 0
    return KnownGroupsPlan(KnownGroups(counts, groups), _price_known_groups(request), k, known)


KNOWN_GROUPS = Mechanism(
    name="known_groups",
    kind=QueryKind.ALL,
    theorem=KnownGroups,
    law="noise on known groups",
    plan=_plan_known_groups,
    price=_price_known_groups,
    reads=Reads.CANDIDATES,
    draws_after=False,
    certificates=EVERY_CERTIFICATE,
    why="the counts of all candidates cost fewer items than a choice among them",
)


@dataclass(frozen=True, slots=True)
class KnownKeysPlan(MechanismPlan):
    """Return all of so many known groups, or the one total, and no count; it reads no private row and costs nothing."""

    groups: int

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:  # noqa: ARG002 - as the base has it
        of = "the total" if query.clause.shape == "total" else "the groups"
        return ReleaseSpec(
            k=self.groups,
            worst_case=self.loss_of_half,
            rows=RowsRead(counting=rewrite_candidates(query), max_rows=self.groups, min_count=0),
            report=SpecReport(charged=f"charged: nothing for {of}"),
        )

    @property
    def loss_of_half(self) -> Loss:
        return self.price.loss(0, Delta(0))

    def describe(self, query: PrivateQuery) -> Facts:
        domain = ("domain", f"{self.groups:,} known groups; every one is returned")
        cut = [("cut", query.bucket_note)] if query.bucket_note else []
        return (*([] if query.clause.shape == "total" else [domain]), *cut)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:  # noqa: ARG002 - nothing is drawn
        rows = tuple(range(len(groups.counts)))
        return MechanismOutput(rows, None, self.loss_of_half, 0, stopped_at_bottom=False)


def _plan_known_keys(request: MechanismRequest) -> KnownKeysPlan:
    groups, query = count_known(request), request.query
    if isinstance(query.domain, ReleasedDomain):
        hint = f"Select COUNT(DISTINCT {query.unit_name}) too."
        raise Refusal("counts", "Released names are returned with their counts.", hint=hint, place=query.clause.place)
    return KnownKeysPlan(_SELECTION, _price_known_keys(request), groups)


def _price_known_keys(request: MechanismRequest) -> ItemLoss:
    return replace(request.price, each=0, once=0)


_SELECTION = ExponentialQuantile(Epsilon(1), Fraction(1, 2), bins=1, rows=1, shift=0)  # for the name of the mechanism
KNOWN_KEYS = Mechanism(
    name=ExponentialQuantile.name,
    kind=QueryKind.ALL,
    theorem=ExponentialQuantile,
    law="exponential mechanism over bins",
    plan=_plan_known_keys,
    price=_price_known_keys,
    reads=Reads.CANDIDATES,
    draws_after=False,
    certificates=EVERY_CERTIFICATE,
)
