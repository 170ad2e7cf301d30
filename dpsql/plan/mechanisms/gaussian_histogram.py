"""The Gaussian histogram: all groups in the order of their labels, keys and counts at once, paid for at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, Loss
from dpsql.errors import UsageError
from dpsql.mechanisms import FullHistogram, GaussianHistogram, Noise
from dpsql.mechanisms.known_names import find_line, keep_evident
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
from dpsql.plan.mechanisms.measure_text import describe_known, describe_noisy, describe_spread, name_value
from dpsql.plan.mechanisms.need import Need
from dpsql.plan.mechanisms.record import Auto, Domain, Mechanism, PerPartition, Reads
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.plan.mechanisms.rows_fetched import cut_rows, describe_cut
from dpsql.quantities import Delta
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_all


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

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: it reads all groups, at a fixed price."""
        chosen, price, threshold = self.selection, self.price, self.selection.threshold
        cut_query, cut = cut_rows(query, chosen, known=self.known)
        return ReleaseSpec(
            k=chosen.k,
            worst_case=chosen.loss + ZCDP(price.rho(price.other_items(chosen.k)), Delta(0)),
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
                threshold_offset=Fraction(threshold),
            ),
        )

    @property
    def half(self) -> Loss:
        """The loss of all keys, and of further measures of half of them."""
        items = self.price.other_items(math.ceil(self.selection.k / 2))
        return self.selection.loss + ZCDP(self.price.rho(items), Delta(0))

    def describe(self, query: PrivateQuery) -> Facts:
        """Return what known names need, what others do, and the noise."""
        chosen = self.selection
        line = describe_noisy(query, find_line(chosen.variance, self.known)) if self.evident else ""
        sigma = describe_spread(query, math.sqrt(chosen.variance))
        return (
            *describe_known(self.known, line=line),
            ("threshold", f"{describe_noisy(query, chosen.threshold)}, independent of the other groups"),
            ("noise", f"sigma {sigma} on the {name_value(query)} of every group; all groups are read"),
        )

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


def _choose(request: MechanismRequest) -> GaussianHistogram:
    """Return the mechanism of all groups, at the rho that the items of a limited domain would cost at worst."""
    price, k = request.price, request.k
    bound, delta = request.bound(), request.delta
    try:
        return GaussianHistogram(price.rho(price.joint_items(k)), delta, k, bound, request.most)
    except UsageError as error:
        refusal = request.out_of_range(error)
    raise refusal


def _plan(request: MechanismRequest) -> GaussianHistogramPlan:
    return GaussianHistogramPlan(_choose(request), request.price, request.known, request.evident)


def _predict(request: MechanismRequest) -> Need:
    return Need(float(_choose(request).threshold))


def _spread(request: MechanismRequest) -> float:
    """Return the standard deviation of the noise on a known name."""
    return math.sqrt(_choose(request).variance)


def _find_evidence(request: MechanismRequest) -> float | None:
    """Return the line that known names must reach; None where they need none."""
    return float(find_line(_choose(request).variance, request.known)) if request.evident else None


GAUSSIAN_HISTOGRAM = Mechanism(
    name="gaussian_histogram",
    domain=Domain.UNKNOWN,
    theorem=GaussianHistogram,
    law="Gaussian noise on counts",
    plan=_plan,
    need=_predict,
    spread=_spread,
    evidence=_find_evidence,
    reads=Reads.GROUPS,
    draws_after=False,
    per_partition=PerPartition.CUT,
    options=frozenset(["delta"]),
    auto=Auto.ALWAYS,
)
