"""Stable top-k with ADAPTIVE: the k at a wide gap, as a set, if the gap holds; the choice is paid at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.accounting import ZCDP, Loss
from dpsql.errors import UsageError
from dpsql.mechanisms import Noise, StableTopK, distance_regulariser
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
from dpsql.plan.mechanisms.measure_text import describe_amount
from dpsql.plan.mechanisms.record import Domain, Mechanism, PerPartition, Reads
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.plan.mechanisms.unordered import BY_LABEL, describe_order, rank
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_unordered

__all__ = ["ADAPTIVE", "AdaptivePlan"]

_CHOICE = 2  # items: epsilon**2 / 8 for the choice of k, and as much for the test of its gap
_LEAST_RHO = Fraction(1, 4 * 10**8)  # of the mechanism


@dataclass(frozen=True, slots=True)
class AdaptivePlan:
    """Stable top-k with ADAPTIVE: the k at a wide gap, as a set, if the gap holds; the choice is paid at once."""

    selection: StableTopK
    price: ItemLoss

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, and the items of its loss."""
        return self.selection, self.price

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: it reads k_bar + 1 groups, and the choice has a fixed price."""
        chosen, price = self.selection, self.price
        most = chosen.k_bar
        paid = "two for the choice of k and the test of its gap, also if nothing comes back"
        return ReleaseSpec(
            k=most,
            worst_case=ZCDP(price.rho(price.items(most)), chosen.delta),
            min_rho=_LEAST_RHO,
            rows=RowsRead(
                counting=rewrite_unordered(query, most + 1, bound=bound),
                max_rows=most + 1,
                others=len(query.measures) - 1,
            ),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged=paid if price.counts is None else f"{paid}; one for each count returned",
                k_bar=most,
                threshold_offset=Fraction(chosen.offset + chosen.sensitivity),
                chooses="k",
            ),
        )

    @property
    def half(self) -> Loss:
        """The loss of the choice, and of the counts of half of the keys."""
        price, chosen = self.price, self.selection
        return ZCDP(price.rho(price.items(math.ceil(chosen.k_bar / 2))), chosen.delta)

    def describe(self, query: PrivateQuery) -> Facts:
        """Return the leaders and the gap."""
        chosen = self.selection
        gap = describe_amount(query, chosen.offset + chosen.sensitivity)
        least = "1" if chosen.sensitivity == 1 else describe_amount(query, chosen.sensitivity)
        threshold = f"the last key {gap} above the next; at {least} or less never, but for delta"
        return ("k_bar", str(chosen.k_bar)), ("threshold", threshold), BY_LABEL

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw k and test its gap, and then draw counts of what is returned."""
        leaders = rank(groups, self.selection.k_bar)
        chosen = self.selection.select(leaders.histogram, noise)
        rows = leaders.in_label_order(chosen.positions or ())
        held = chosen.positions is not None
        keys = MechanismOutput(rows, None, self.selection.loss, _CHOICE, stopped_at_bottom=not held, chosen=chosen.k)
        return describe_order(keys, groups, price=self.price, noise=noise)


def _price(request: MechanismRequest) -> ItemLoss:
    """Return the price of the choice, whatever comes back, and of counts by the item."""
    return replace(request.price, once=_CHOICE, each=0)


def _plan(request: MechanismRequest) -> AdaptivePlan:
    """Return the mechanism that chooses k, drawn to a public one where the query prefers it."""
    request.check_no_min_units()
    price, k_bar = _price(request), request.k_bar
    prefer, delta = request.prefer, request.delta
    try:
        near = () if prefer is None else distance_regulariser(prefer, k_bar, penalty=request.penalty)
        return AdaptivePlan(StableTopK(price.epsilon, delta, k_bar, near, request.most), price)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal


ADAPTIVE = Mechanism(
    name="stable",
    domain=Domain.ADAPTIVE,
    theorem=StableTopK,
    law="a stable set at a private k",
    plan=_plan,
    price=_price,
    reads=Reads.LEADERS,
    per_partition=PerPartition.EACH,
    options=frozenset(["delta", "k_bar", "prefer"]),
)
