"""The limited domain: the leading groups, paid for by what comes back, BOTTOM included.

With k_bar = AUTO one item more chooses k_bar in private, before anything else is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dpsql.accounting import Loss
from dpsql.mechanisms import ChooseKBar, Histogram, LimitedDomain, Noise
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Facts,
    Groups,
    ItemLoss,
    MechanismOutput,
    ReleaseSpec,
    RowsRead,
    SpecReport,
)
from dpsql.plan.mechanisms.counts_by_item import charge_by_item
from dpsql.plan.mechanisms.measure_text import describe_amount
from dpsql.plan.mechanisms.need import Need, need_of_leaders
from dpsql.plan.mechanisms.record import EVERY_CERTIFICATE, Auto, Domain, Mechanism, PerPartition, Reads
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite

_CHOICE = 1  # item


@dataclass(frozen=True, slots=True)
class LimitedDomainPlan:
    """The limited domain: the leading groups, paid for by what comes back, BOTTOM included."""

    selection: LimitedDomain
    price: ItemLoss

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, and how the counts are drawn."""
        return self.selection, self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: k_bar + 1 groups are read."""
        chosen, price = self.selection, self.price
        return ReleaseSpec(
            k=chosen.k,
            worst_case=price.loss(price.items(chosen.k), chosen.delta),
            rows=RowsRead(
                counting=rewrite(query, chosen.k_bar + 1, bound=bound),
                max_rows=chosen.k_bar + 1,
                others=len(query.measures) - 1,
            ),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged="charged: one for each key and count returned, and for BOTTOM",
                k_bar=chosen.k_bar,
                threshold_offset=chosen.threshold_offset,
                min_threshold=chosen.least_threshold,
            ),
        )

    @property
    def half(self) -> Loss:
        """The loss of half of the keys, and of BOTTOM."""
        chosen, returned = self.selection, math.ceil(self.selection.k / 2)
        return self.price.loss(self.price.items(returned) + (returned < chosen.k), chosen.delta)

    def describe(self, query: PrivateQuery) -> Facts:
        """Return the leaders and the threshold."""
        chosen = self.selection
        threshold = f"{describe_amount(query, chosen.threshold_offset)} above group number {chosen.k_bar + 1}"
        if chosen.least_threshold:
            threshold += f", and at least {float(chosen.least_threshold):.1f} units"
            threshold += f" (the policy's min_units = {chosen.min_units})"
        return ("k_bar", str(chosen.k_bar)), ("threshold", threshold)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw keys, and then counts of them."""
        exact = tuple(groups.counts.tolist())
        chosen = self.selection.select(Histogram.of_leaders(exact, self.selection.k_bar), noise)
        return charge_by_item(chosen, self.price, groups=groups, delta=self.selection.delta, noise=noise)


@dataclass(frozen=True, slots=True)
class ChosenLimitedDomainPlan:
    """The limited domain at a k_bar that is chosen in private; `largest` is that at the largest of the candidates."""

    largest: LimitedDomainPlan
    choice: ChooseKBar

    @property
    def selection(self) -> LimitedDomain:
        """The mechanism, at the largest k_bar."""
        return self.largest.selection

    @property
    def price(self) -> ItemLoss:
        """Price of the query in items, including the choice."""
        return self.largest.price

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism with the candidates, and how the counts are drawn."""
        return (self.selection, self.choice), self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release of the largest k_bar; its threshold offset is the highest of all."""
        usual = self.largest.specify(query, bound)
        charged = f"{usual.report.charged}, and for the choice of k_bar"
        return replace(usual, report=replace(usual.report, charged=charged, chooses="k_bar"))

    @property
    def half(self) -> Loss:
        """The loss of half of the keys, of BOTTOM and of the choice."""
        return self.largest.half

    def describe(self, query: PrivateQuery) -> Facts:
        """Return the candidates, and the highest threshold of all."""
        candidates, chosen = ", ".join(map(str, self.choice.candidates)), self.selection
        threshold = f"{describe_amount(query, chosen.threshold_offset)} above the group after them, or less"
        if chosen.least_threshold:
            threshold += f", and at least {float(chosen.least_threshold):.1f} units, or less"
        return ("k_bar", f"chosen in private among {candidates}"), ("threshold", threshold)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw k_bar, and then keys and counts of the leaders that it leaves."""
        exact = tuple(groups.counts.tolist())
        k_bar = self.choice.choose(Histogram.of_leaders(exact, self.selection.k_bar), noise)
        leaders = LimitedDomainPlan(replace(self.selection, k_bar=k_bar), self.price)
        read = slice(k_bar + 1)
        first = replace(groups, counts=groups.counts[read], others=tuple(each[read] for each in groups.others))
        drawn = leaders.draw(first, noise)
        items = drawn.items + _CHOICE
        return replace(drawn, loss=self.price.loss(items, self.selection.delta), items=items, chosen=k_bar)


def _price(request: MechanismRequest) -> ItemLoss:
    return replace(request.price, once=_CHOICE) if request.leaves_k_bar else request.price


def _predict(request: MechanismRequest) -> Need | None:
    """Return the need of a leader; None where k_bar is chosen in private."""
    if request.leaves_k_bar:
        return None
    chosen = _selection(request, request.k_bar)
    return need_of_leaders(max(chosen.threshold_offset, chosen.least_threshold), chosen.k_bar)


def _plan(request: MechanismRequest) -> LimitedDomainPlan | ChosenLimitedDomainPlan:
    if not request.leaves_k_bar:
        return LimitedDomainPlan(_selection(request, request.k_bar), request.price)
    candidates = tuple(_doubled(request.k, request.max_k_bar))
    largest = LimitedDomainPlan(_selection(request, candidates[-1]), _price(request))
    chosen = largest.selection
    bound, least = chosen.max_groups_contributed, chosen.min_units
    choice = ChooseKBar(chosen.epsilon, chosen.delta, candidates, bound, least, request.most)
    return ChosenLimitedDomainPlan(largest, choice)


def _doubled(k: int, most: int) -> Iterator[int]:
    """Yield k, 2 k, 4 k and so on, up to the most that may be read."""
    while k <= most:
        yield k
        k *= 2


def _selection(request: MechanismRequest, k_bar: int) -> LimitedDomain:
    return LimitedDomain(
        request.price.epsilon,
        request.delta,
        k=request.k,
        k_bar=k_bar,
        max_groups_contributed=request.groups,
        min_units=request.min_units,
        sensitivity=request.most,
    )


LIMITED_DOMAIN = Mechanism(
    name="limited_domain",
    domain=Domain.UNKNOWN,
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
