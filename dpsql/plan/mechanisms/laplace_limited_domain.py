"""The limited domain with Laplace noise: the leading groups, keys and counts at once, paid for at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP
from dpsql.errors import UsageError
from dpsql.mechanisms import Histogram, LaplaceLimitedDomain, Noise
from dpsql.plan.mechanisms.base import CountNoise, Groups, ItemLoss, MechanismOutput, ReleaseSpec, RowsRead, SpecReport
from dpsql.plan.mechanisms.counts_by_item import add_others
from dpsql.plan.mechanisms.measure_text import describe_amount, describe_spread, name_value
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.quantities import Delta
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite

__all__ = ["LaplaceLimitedDomainPlan", "laplace_limited_domain"]


@dataclass(frozen=True, slots=True)
class LaplaceLimitedDomainPlan:
    """The limited domain with Laplace noise: the leading groups, keys and counts at once, paid for at once."""

    selection: LaplaceLimitedDomain
    price: ItemLoss

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, and the items of its loss."""
        return self.selection, self.price

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: it reads k_bar + 1 groups, at a fixed price."""
        chosen, price, counted = self.selection, self.price, self.price.counts is not None
        offset = chosen.offset + chosen.sensitivity
        threshold = f"{describe_amount(query, offset)} above group number {chosen.k_bar + 1}"
        scale = describe_spread(query, float(chosen.scale))
        return ReleaseSpec(
            k=chosen.k,
            worst_case=chosen.worst_case + ZCDP(price.rho(price.other_items(chosen.k)), Delta(0)),
            half=chosen.worst_case + ZCDP(price.rho(price.other_items(math.ceil(chosen.k / 2))), Delta(0)),
            rows=RowsRead(
                counting=rewrite(query, chosen.k_bar + 1, bound=bound),
                max_rows=chosen.k_bar + 1,
                others=len(query.measures) - 1,
            ),
            counts=CountNoise(2 * chosen.scale**2, chosen.scale) if counted else None,
            report=SpecReport(
                charged="paid at once, however many are returned"
                + ("; one for each value of a further measure" if price.others else ""),
                facts=(
                    ("k_bar", str(chosen.k_bar)),
                    ("threshold", threshold),
                    ("noise", f"Laplace of scale {scale} on every {name_value(query)} and on the threshold"),
                ),
                k_bar=chosen.k_bar,
                threshold_offset=Fraction(offset),
            ),
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw keys and counts together; the mechanism puts equal noisy counts in a random order."""
        chosen = self.selection
        drawn = chosen.select(Histogram.of_leaders(tuple(groups.counts.tolist()), chosen.k_bar), noise)
        items = self.price.joint_items(chosen.k)
        first = MechanismOutput(
            drawn.positions, drawn.counts, chosen.loss(drawn), items, stopped_at_bottom=drawn.stopped_at_bottom
        )
        return add_others(first, groups, price=self.price, noise=noise)


def laplace_limited_domain(request: MechanismRequest) -> LaplaceLimitedDomainPlan:
    """Return the mechanism of the leaders with Laplace noise, at the same price: pure epsilon of at most that rho."""
    price, k = request.price, request.k
    bound, delta, k_bar = request.bound(), request.delta, request.k_bar
    try:
        pure = price.pure(price.joint_items(k))
        return LaplaceLimitedDomainPlan(LaplaceLimitedDomain(pure, delta, k, k_bar, bound, request.most), price)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal
