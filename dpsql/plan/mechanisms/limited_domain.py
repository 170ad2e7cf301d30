"""The limited domain: the first k_bar groups, and a threshold above the group after them.

Its keys are paid for by what comes back, BOTTOM included. With k_bar = AUTO one item more chooses k_bar in private,
before anything else is drawn. With Laplace noise keys and counts come at once, and are paid for at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.accounting import ZCDP, Loss
from dpsql.mechanisms import ChooseKBar, Histogram, LaplaceLimitedDomain, LimitedDomain, Noise
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Facts,
    Groups,
    ItemLoss,
    MechanismOutput,
    MechanismPlan,
    ReleaseSpec,
    SpecReport,
)
from dpsql.plan.mechanisms.counts_by_item import charge_and_draw_others, charge_and_draw_selection
from dpsql.plan.mechanisms.record import (
    EVERY_CERTIFICATE,
    Auto,
    Mechanism,
    Need,
    PerPartition,
    QueryKind,
    Reads,
)
from dpsql.plan.mechanisms.request import MechanismRequest, refuse_out_of_range
from dpsql.plan.mechanisms.rows_fetched import describe_amount, describe_spread, read_leaders
from dpsql.quantities import Delta
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_leaders

_CHOICE = 1  # item


@dataclass(frozen=True, slots=True)
class LimitedDomainPlan(MechanismPlan):
    """The limited domain: the leading groups, paid for by what comes back, BOTTOM included."""

    selection: LimitedDomain

    @property
    def release_identity(self) -> tuple[object, object]:
        return self.selection, self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        chosen, price = self.selection, self.price
        return ReleaseSpec(
            k=chosen.k,
            worst_case=price.loss(price.items(chosen.k), chosen.delta),
            rows=read_leaders(query, rewrite_leaders(query, chosen.k_bar + 1, bound=bound), k_bar=chosen.k_bar),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged="charged: one for each key and count returned, and for BOTTOM",
                k_bar=chosen.k_bar,
                threshold_offset=chosen.threshold_offset,
                min_threshold=chosen.least_threshold,
            ),
        )

    @property
    def loss_of_half(self) -> Loss:  # BOTTOM is one item more
        chosen, returned = self.selection, math.ceil(self.selection.k / 2)
        return self.price.loss(self.price.items(returned) + (returned < chosen.k), chosen.delta)

    def describe(self, query: PrivateQuery) -> Facts:
        chosen = self.selection
        threshold = f"{describe_amount(query, chosen.threshold_offset)} above group number {chosen.k_bar + 1}"
        if chosen.least_threshold:
            threshold += f", and at least {float(chosen.least_threshold):.1f} units"
            threshold += f" (the policy's min_units = {chosen.min_units})"
        return ("k_bar", str(chosen.k_bar)), ("threshold", threshold)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        exact = tuple(groups.counts.tolist())
        chosen = self.selection.select(Histogram.of_leaders(exact, self.selection.k_bar), noise)
        return charge_and_draw_selection(chosen, self.price, groups=groups, delta=self.selection.delta, noise=noise)


@dataclass(frozen=True, slots=True)
class ChosenLimitedDomainPlan(LimitedDomainPlan):
    """The limited domain at a k_bar that is chosen in private; the selection is that at the largest candidate."""

    choice: ChooseKBar

    @property
    def release_identity(self) -> tuple[object, object]:
        return (self.selection, self.choice), self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        usual = LimitedDomainPlan.specify(self, query, bound)  # its threshold offset is the highest of all candidates
        charged = f"{usual.report.charged}, and for the choice of k_bar"
        return replace(usual, report=replace(usual.report, charged=charged, chooses="k_bar"))

    def describe(self, query: PrivateQuery) -> Facts:
        candidates, chosen = ", ".join(map(str, self.choice.candidates)), self.selection
        threshold = f"{describe_amount(query, chosen.threshold_offset)} above the group after them, or less"
        if chosen.least_threshold:
            threshold += f", and at least {float(chosen.least_threshold):.1f} units, or less"
        return ("k_bar", f"chosen in private among {candidates}"), ("threshold", threshold)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        exact = tuple(groups.counts.tolist())
        k_bar = self.choice.choose(Histogram.of_leaders(exact, self.selection.k_bar), noise)
        leaders = LimitedDomainPlan(replace(self.selection, k_bar=k_bar), self.price)
        read = slice(k_bar + 1)
        first = replace(groups, counts=groups.counts[read], others=tuple(each[read] for each in groups.others))
        drawn = leaders.draw(first, noise)
        items = drawn.items + _CHOICE
        return replace(drawn, loss=self.price.loss(items, self.selection.delta), items=items, chosen=k_bar)


def _set_parameters(request: MechanismRequest, k_bar: int) -> LimitedDomain:
    return LimitedDomain(
        request.price.epsilon,
        request.delta,
        k=request.k,
        k_bar=k_bar,
        max_groups_contributed=request.max_groups_contributed,
        min_units=request.min_units,
        sensitivity=request.rank_width,
    )


def _price(request: MechanismRequest) -> ItemLoss:
    return replace(request.price, once=_CHOICE) if request.leaves_k_bar else request.price


def _predict(request: MechanismRequest) -> Need | None:
    """Return the need of a leader; None where k_bar is chosen in private."""
    if request.leaves_k_bar:
        return None
    chosen = _set_parameters(request, request.k_bar)
    offset = max(chosen.threshold_offset, chosen.least_threshold)
    return Need.of_leaders(offset, chosen.k_bar, epsilon=float(chosen.epsilon) / chosen.sensitivity)


def _plan(request: MechanismRequest) -> LimitedDomainPlan:
    if not request.leaves_k_bar:
        return LimitedDomainPlan(_set_parameters(request, request.k_bar), request.price)
    k, most = request.k, request.max_k_bar
    candidates = tuple(k << doubled for doubled in range(most.bit_length()) if k << doubled <= most)  # k, 2 k, 4 k, ...
    chosen = _set_parameters(request, candidates[-1])
    bound, least = chosen.max_groups_contributed, chosen.min_units
    choice = ChooseKBar(chosen.epsilon, chosen.delta, candidates, bound, least, request.rank_width)
    return ChosenLimitedDomainPlan(chosen, _price(request), choice)


LIMITED_DOMAIN = Mechanism(
    name="limited_domain",
    kind=QueryKind.UNKNOWN,
    theorem=LimitedDomain,
    law="peeling of leaders",
    plan=_plan,
    price=_price,
    need=_predict,
    reads=Reads.LEADERS,
    per_partition=PerPartition.EACH,
    certificates=EVERY_CERTIFICATE,
    options=frozenset(["delta", "k_bar"]),
    auto=Auto.ALWAYS,
)


@dataclass(frozen=True, slots=True)
class LaplaceLimitedDomainPlan(MechanismPlan):
    """The limited domain with Laplace noise: the leading groups, keys and counts at once, paid for at once."""

    selection: LaplaceLimitedDomain

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        chosen, price, counted = self.selection, self.price, self.price.counts is not None
        return ReleaseSpec(
            k=chosen.k,
            worst_case=chosen.worst_case + ZCDP(price.rho(price.other_items(chosen.k)), Delta(0)),
            rows=read_leaders(query, rewrite_leaders(query, chosen.k_bar + 1, bound=bound), k_bar=chosen.k_bar),
            counts=CountNoise(2 * chosen.scale**2, chosen.scale) if counted else None,
            report=SpecReport(
                charged="paid at once, however many are returned"
                + ("; one for each value of a further measure" if price.others else ""),
                k_bar=chosen.k_bar,
                threshold_offset=Fraction(chosen.offset + chosen.sensitivity),
            ),
        )

    @property
    def loss_of_half(self) -> Loss:
        items = self.price.other_items(math.ceil(self.selection.k / 2))
        return self.selection.worst_case + ZCDP(self.price.rho(items), Delta(0))

    def describe(self, query: PrivateQuery) -> Facts:
        chosen = self.selection
        above = f"{describe_amount(query, chosen.offset + chosen.sensitivity)} above group number {chosen.k_bar + 1}"
        scale, what = describe_spread(query, float(chosen.scale))
        noise = f"Laplace of scale {scale} on every {what} and on the threshold"
        return ("k_bar", str(chosen.k_bar)), ("threshold", above), ("noise", noise)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        chosen = self.selection  # it puts equal noisy counts in a random order
        drawn = chosen.select(Histogram.of_leaders(tuple(groups.counts.tolist()), chosen.k_bar), noise)
        items = self.price.joint_items(chosen.k)
        first = MechanismOutput(
            drawn.positions, drawn.counts, chosen.loss(drawn), items, stopped_at_bottom=drawn.stopped_at_bottom
        )
        return charge_and_draw_others(first, groups, price=self.price, noise=noise)


@refuse_out_of_range
def _set_laplace_parameters(request: MechanismRequest) -> LaplaceLimitedDomain:
    """Return the mechanism of the leaders with Laplace noise, at the same price: pure epsilon of at most that rho."""
    price, k = request.price, request.k
    bound, delta, k_bar = request.require_bound(), request.delta, request.k_bar
    return LaplaceLimitedDomain(price.pure(price.joint_items(k)), delta, k, k_bar, bound, request.rank_width)


def _predict_laplace(request: MechanismRequest) -> Need:
    chosen = _set_laplace_parameters(request)
    return Need.of_leaders(chosen.offset + chosen.sensitivity, chosen.k_bar)


LAPLACE_LIMITED_DOMAIN = Mechanism(
    name="laplace_limited_domain",
    kind=QueryKind.UNKNOWN,
    theorem=LaplaceLimitedDomain,
    law="Laplace noise on leaders",
    plan=lambda request: LaplaceLimitedDomainPlan(_set_laplace_parameters(request), request.price),
    need=_predict_laplace,
    reads=Reads.LEADERS,
    draws_after=False,
    per_partition=PerPartition.EACH,
    options=frozenset(["delta", "k_bar"]),
)
