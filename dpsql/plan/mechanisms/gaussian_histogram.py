"""The Gaussian histogram: all groups in the order of their labels, keys and counts at once, paid for at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.accounting import ZCDP
from dpsql.errors import UsageError
from dpsql.mechanisms import FullHistogram, GaussianHistogram, Noise
from dpsql.mechanisms.known_names import find_line, keep_evident
from dpsql.plan.mechanisms.base import CountNoise, Groups, ItemLoss, MechanismOutput, ReleaseSpec, RowsRead, SpecReport
from dpsql.plan.mechanisms.counts_by_item import add_others
from dpsql.plan.mechanisms.measure_text import describe_known, describe_noisy, describe_spread, name_value
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.plan.mechanisms.rows_fetched import cut_rows, describe_cut
from dpsql.quantities import Delta
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_all

__all__ = ["GaussianHistogramPlan", "gaussian_histogram"]


@dataclass(frozen=True, slots=True)
class GaussianHistogramPlan:
    """The Gaussian histogram: all groups in the order of their labels, keys and counts at once, paid for at once.

    So many names are `known`, and need no threshold, but a lower line if they are to be `evident`.
    """

    selection: GaussianHistogram
    price: ItemLoss
    known: int = 0
    evident: bool = False

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, and the items of its loss."""
        return self.selection, self.price

    def uncut(self, most: int) -> GaussianHistogramPlan:
        """Return the same release with so many keys at most."""
        return replace(self, selection=replace(self.selection, k=most))

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: it reads all groups, at a fixed price."""
        chosen, price, threshold = self.selection, self.price, self.selection.threshold
        sigma = describe_spread(query, math.sqrt(chosen.variance))
        cut_query, cut = cut_rows(query, chosen, known=self.known)
        return ReleaseSpec(
            k=chosen.k,
            worst_case=chosen.loss + ZCDP(price.rho(price.other_items(chosen.k)), Delta(0)),
            half=chosen.loss + ZCDP(price.rho(price.other_items(math.ceil(chosen.k / 2))), Delta(0)),
            rows=RowsRead(
                counting=rewrite_all(cut_query, bound=bound, every=self.known > 0),
                min_count=0 if self.known else 1,
                others=len(query.measures) - 1,
                known=self.known,
                evident=self.evident,
                cut=cut,
                left=describe_cut(query, cut, weighted=False, known=self.known),
            ),
            counts=None if self.price.counts is None else CountNoise(chosen.variance),
            report=SpecReport(
                charged="paid at once, however many are returned"
                + ("; one for each value of a further measure" if price.others else ""),
                facts=(
                    *self._describe_known(query),
                    ("threshold", f"{describe_noisy(query, threshold)}, independent of the other groups"),
                    ("noise", f"sigma {sigma} on the {name_value(query)} of every group; all groups are read"),
                ),
                threshold_offset=Fraction(threshold),
            ),
        )

    def _describe_known(self, query: PrivateQuery) -> tuple[tuple[str, str], ...]:
        """Return what the known names need."""
        if not self.evident:
            return describe_known(self.known)
        return describe_known(self.known, line=describe_noisy(query, find_line(self.selection.variance, self.known)))

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw keys and counts together; rows are in the order of labels, so positions may break ties."""
        chosen, price = self.selection, self.price
        known, others = groups.counts[: groups.known], FullHistogram(groups.counts[groups.known :], groups.read)
        drawn = chosen.release(others, noise, known=known)
        if self.evident:
            drawn = keep_evident(drawn, groups.known, variance=chosen.variance)
        stopped, items = len(drawn.positions) < chosen.k, price.joint_items(chosen.k)
        first = MechanismOutput(drawn.positions, drawn.counts, chosen.loss, items, stopped_at_bottom=stopped)
        return add_others(first, groups, price=price, noise=noise)


def gaussian_histogram(request: MechanismRequest) -> GaussianHistogramPlan:
    """Return the mechanism of all groups, at the rho that the items of a limited domain would cost at worst."""
    price, k = request.price, request.k
    request.refuse(
        ("k_bar",), reason="{name} has no meaning with this mechanism.", hint="Leave it out: all groups are read."
    )
    bound, delta = request.bound(), request.delta
    try:
        rho, most = price.rho(price.joint_items(k)), request.most
        mechanism = GaussianHistogram(rho, delta, k, bound, most)
        return GaussianHistogramPlan(mechanism, price, request.known, request.evident)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal
