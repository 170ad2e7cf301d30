"""Fixed stable top-k: a set of about k leaders if its gap holds, and what makes it k; draws not made are refunded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, Loss
from dpsql.errors import UsageError
from dpsql.mechanisms import FixedStableSelection, FixedStableTopK, Noise
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
from dpsql.plan.mechanisms.unordered import BY_LABEL, add_count_loss, count_items, describe_order, rank
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_unordered

__all__ = ["STABLE", "StablePlan"]

_LEAST_RHO = Fraction(1, 10**8)  # of the mechanism


@dataclass(frozen=True, slots=True)
class StablePlan:
    """Fixed stable top-k: a set of about k leaders if its gap holds, and what makes it k."""

    selection: FixedStableTopK
    price: ItemLoss

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, and the items of its loss."""
        return self.selection, self.price

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: k_bar + 1 groups are read."""
        chosen, price = self.selection, self.price
        return ReleaseSpec(
            k=chosen.k,
            worst_case=add_count_loss(chosen.worst_case, chosen.k, price=price),
            min_rho=_LEAST_RHO,
            rows=RowsRead(
                counting=rewrite_unordered(query, chosen.k_bar + 1, bound=bound),
                max_rows=chosen.k_bar + 1,
                others=len(query.measures) - 1,
            ),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged="half of the keys' at once, the rest for draws that are made; one for each count returned",
                k_bar=chosen.k_bar,
                threshold_offset=Fraction(chosen.test.offset + chosen.sensitivity),
            ),
        )

    @property
    def half(self) -> Loss:
        """The loss of half of the keys, which save draws where no gap held."""
        chosen, half = self.selection, math.ceil(self.selection.k / 2)
        return add_count_loss(chosen.loss(_unheld(half, chosen.k)), half, price=self.price)

    def describe(self, query: PrivateQuery) -> Facts:
        """Return the leaders, the gap of the set, and the penalty."""
        chosen = self.selection
        wide = describe_amount(query, chosen.test.offset + chosen.sensitivity)
        return (
            ("k_bar", str(chosen.k_bar)),
            ("threshold", f"the last key of the set {wide} above the next; for other keys as limited_domain"),
            ("penalty", f"{_describe_penalty(chosen, query)} for each rank away from {chosen.k}"),
            BY_LABEL,
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw the set and what makes it k, and then counts of both."""
        mechanism = self.selection
        leaders = rank(groups, mechanism.k_bar)
        chosen = mechanism.select(leaders.histogram, noise)
        rows, loss = (*leaders.in_label_order(chosen.stable), *leaders.in_order(chosen.filled)), mechanism.loss(chosen)
        loss = ZCDP(loss.rho, mechanism.delta)
        keys = MechanismOutput(
            rows, None, loss, count_items(loss, self.price), stopped_at_bottom=len(rows) < mechanism.k
        )
        return describe_order(keys, groups, price=self.price, noise=noise)


def _describe_penalty(mechanism: FixedStableTopK, query: PrivateQuery) -> str:
    """Return the penalty as a number of units, or as an amount of another measure."""
    if query.measures[0].bounds is None:
        return f"{float(mechanism.penalty):g} units"
    return describe_amount(query, mechanism.penalty)


def _unheld(returned: int, k: int) -> FixedStableSelection:
    """Return an answer of so many keys where no gap was confirmed, ended by BOTTOM if they are fewer than k."""
    filled = tuple(range(returned))
    return FixedStableSelection(k, held=False, stable=frozenset(), filled=filled, stopped_at_bottom=returned < k)


def _plan(request: MechanismRequest) -> StablePlan:
    """Return the mechanism of a stable set of about k, at most at the rho of k items."""
    request.check_no_min_units()
    request.refuse(
        ("prefer",), reason="{name} is for TOP ADAPTIVE PRIVATE.", hint="Leave it out: k itself is preferred."
    )
    price, k, k_bar, delta = request.price, request.k, request.k_bar, request.delta
    try:
        rho = price.rho(price.keys(k))
        return StablePlan(FixedStableTopK(rho, delta, k, k_bar, request.penalty, request.groups, request.most), price)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal


STABLE = Mechanism(
    name="stable",
    domain=Domain.UNKNOWN,
    theorem=FixedStableTopK,
    law="a stable set and what makes it k",
    plan=_plan,
    reads=Reads.LEADERS,
    per_partition=PerPartition.EACH,
    options=frozenset(["delta", "k_bar", "prefer"]),
)
