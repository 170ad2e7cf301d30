"""The limited domain with Laplace noise: the leading groups, keys and counts at once, paid for at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, Loss
from dpsql.errors import UsageError
from dpsql.mechanisms import Histogram, LaplaceLimitedDomain, Noise
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
from dpsql.plan.mechanisms.counts_by_item import add_others
from dpsql.plan.mechanisms.measure_text import describe_amount, describe_spread, name_value
from dpsql.plan.mechanisms.need import Need, need_of_leaders
from dpsql.plan.mechanisms.record import Domain, Mechanism, PerPartition, Reads
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.quantities import Delta
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite


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
        return ReleaseSpec(
            k=chosen.k,
            worst_case=chosen.worst_case + ZCDP(price.rho(price.other_items(chosen.k)), Delta(0)),
            rows=RowsRead(
                counting=rewrite(query, chosen.k_bar + 1, bound=bound),
                max_rows=chosen.k_bar + 1,
                others=len(query.measures) - 1,
            ),
            counts=CountNoise(2 * chosen.scale**2, chosen.scale) if counted else None,
            report=SpecReport(
                charged="paid at once, however many are returned"
                + ("; one for each value of a further measure" if price.others else ""),
                k_bar=chosen.k_bar,
                threshold_offset=Fraction(chosen.offset + chosen.sensitivity),
            ),
        )

    @property
    def half(self) -> Loss:
        """The loss of all keys, and of further measures of half of them."""
        items = self.price.other_items(math.ceil(self.selection.k / 2))
        return self.selection.worst_case + ZCDP(self.price.rho(items), Delta(0))

    def describe(self, query: PrivateQuery) -> Facts:
        """Return the leaders, the threshold and the noise."""
        chosen = self.selection
        above = f"{describe_amount(query, chosen.offset + chosen.sensitivity)} above group number {chosen.k_bar + 1}"
        noise = f"Laplace of scale {describe_spread(query, float(chosen.scale))} on every {name_value(query)}"
        return ("k_bar", str(chosen.k_bar)), ("threshold", above), ("noise", f"{noise} and on the threshold")

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw keys and counts together; the mechanism puts equal noisy counts in a random order."""
        chosen = self.selection
        drawn = chosen.select(Histogram.of_leaders(tuple(groups.counts.tolist()), chosen.k_bar), noise)
        items = self.price.joint_items(chosen.k)
        first = MechanismOutput(
            drawn.positions, drawn.counts, chosen.loss(drawn), items, stopped_at_bottom=drawn.stopped_at_bottom
        )
        return add_others(first, groups, price=self.price, noise=noise)


def _choose(request: MechanismRequest) -> LaplaceLimitedDomain:
    """Return the mechanism of the leaders with Laplace noise, at the same price: pure epsilon of at most that rho."""
    price, k = request.price, request.k
    bound, delta, k_bar = request.bound(), request.delta, request.k_bar
    try:
        pure = price.pure(price.joint_items(k))
        return LaplaceLimitedDomain(pure, delta, k, k_bar, bound, request.most)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal


def _predict(request: MechanismRequest) -> Need:
    chosen = _choose(request)
    return need_of_leaders(chosen.offset + chosen.sensitivity, chosen.k_bar)


def _plan(request: MechanismRequest) -> LaplaceLimitedDomainPlan:
    return LaplaceLimitedDomainPlan(_choose(request), request.price)


LAPLACE_LIMITED_DOMAIN = Mechanism(
    name="laplace_limited_domain",
    domain=Domain.UNKNOWN,
    theorem=LaplaceLimitedDomain,
    law="Laplace noise on leaders",
    plan=_plan,
    need=_predict,
    reads=Reads.LEADERS,
    draws_after=False,
    per_partition=PerPartition.EACH,
    options=frozenset(["delta", "k_bar"]),
)
