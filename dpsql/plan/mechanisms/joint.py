"""The joint exponential mechanism: all keys of a known domain in one draw, paid for at once; counts by the item."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.accounting import ZCDP
from dpsql.errors import UsageError
from dpsql.mechanisms import JointExponential, Noise
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Groups,
    ItemLoss,
    MechanismOutput,
    ReleaseSpec,
    SpecReport,
    sqrt_rounded_down,
)
from dpsql.plan.mechanisms.counts_by_item import add_counts
from dpsql.plan.mechanisms.evidence import leave_out_below_line
from dpsql.plan.mechanisms.known_domain import count_candidates, read_candidates, read_domain
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound

__all__ = ["JointPlan", "joint"]


@dataclass(frozen=True, slots=True)
class JointPlan:
    """The joint exponential mechanism: all keys of a known domain in one draw, paid for at once; counts by the item.

    With `known` the domain is so many names that earlier answers released. If they are to be `evident`, those whose
    counts are below a line are left out; without counts there is none.
    """

    selection: JointExponential
    price: ItemLoss
    known: int = 0
    evident: bool = False

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, and the items of its loss."""
        return self.selection, self.price

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: every candidate is read, and no delta is spent."""
        chosen, counts = self.selection, self.price.counts
        worst_case = chosen.worst_case
        if counts is not None:
            worst_case += ZCDP(self.price.rho(self.price.count_items(chosen.k)), Delta(0))
        return ReleaseSpec(
            k=chosen.k,
            worst_case=worst_case,
            half=worst_case,
            rows=read_domain(query, bound, known=self.known, evident=self.evident and counts is not None),
            counts=CountNoise.of(counts),
            report=SpecReport(
                charged=f"the keys at once{'' if counts is None else ', and one for each count returned'}",
                facts=(
                    ("domain", count_candidates(query, self.known)),
                    ("draw", f"all keys in one, of epsilon {float(chosen.epsilon):.4g}"),
                ),
            ),
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw all keys, and then counts of them; an empty domain is no draw, and costs nothing."""
        candidates, order = read_candidates(groups)
        chosen = self.selection.select(candidates, noise)
        loss, items = self.selection.loss(chosen), self.selection.k if candidates.leaders else 0
        rows = tuple(order[position] for position in chosen.positions)
        keys = MechanismOutput(rows, None, loss, items, stopped_at_bottom=False)
        drawn = add_counts(keys, groups, price=self.price, noise=noise)
        return leave_out_below_line(drawn, self.selection.k) if self.evident else drawn


def joint(request: MechanismRequest) -> JointPlan:
    """Return the mechanism of one draw, at no more than the rho of one item for each key."""
    k, price = min(request.k, request.candidates()), request.price
    try:
        epsilon = Epsilon(sqrt_rounded_down(8 * price.rho(k).value))
        mechanism = JointExponential(epsilon, k, request.most)
        return JointPlan(mechanism, price, request.known, request.evident)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal
