"""The joint exponential mechanism: all keys of a known domain in one draw, paid for at once; counts by the item."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.accounting import ZCDP
from dpsql.errors import UsageError
from dpsql.mechanisms import Histogram, JointExponential, Noise
from dpsql.plan.mechanisms.base import Groups, ItemLoss, MechanismOutput, ReleaseSpec, sqrt_rounded_down
from dpsql.plan.mechanisms.counts_by_item import add_counts
from dpsql.plan.mechanisms.peeling import count_candidates
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite

__all__ = ["JointPlan", "joint"]


@dataclass(frozen=True, slots=True)
class JointPlan:
    """The joint exponential mechanism: all keys of a known domain in one draw, paid for at once; counts by the item."""

    selection: JointExponential
    price: ItemLoss

    @property
    def law(self) -> tuple[object, object]:
        """The mechanism, and the items that its loss is told in."""
        return self.selection, self.price

    def offer(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the offer: every candidate is read, and no delta is spent."""
        chosen, counts = self.selection, self.price.counts
        worst_case = chosen.worst_case
        if counts is not None:
            worst_case += ZCDP(self.price.rho(counts.items(chosen.k)), Delta(0))
        return ReleaseSpec(
            counting=rewrite(query, None, bound=bound),
            k=chosen.k,
            worst_case=worst_case,
            half=worst_case,
            charged=f"the keys at once{'' if counts is None else ', and one for each count returned'}",
            facts=(
                ("domain", count_candidates(query)),
                ("draw", f"all keys in one, of epsilon {float(chosen.epsilon):.4g}"),
            ),
            count_variance=None if counts is None else counts.variance,
            least_count=0,
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw all keys, and then counts of them; an empty domain is no draw, and costs nothing."""
        exact = tuple(groups.counts.tolist())
        chosen = self.selection.select(Histogram.of_leaders(exact, len(exact)), noise)
        loss = self.selection.loss(chosen)
        keys = MechanismOutput(chosen.positions, None, loss, self.selection.k if exact else 0, stopped_at_bottom=False)
        counts = [exact[row] for row in chosen.positions]
        return add_counts(keys, counts, price=self.price, noise=noise)


def joint(asked: MechanismRequest) -> JointPlan:
    """Return the mechanism of one draw, at no more than the rho of one item for each key."""
    k, price = min(asked.k, asked.candidates()), asked.price
    try:
        return JointPlan(JointExponential(Epsilon(sqrt_rounded_down(8 * price.rho(k).value)), k), price)
    except UsageError as error:
        refusal = asked.out_of_range(error)
    raise refusal
