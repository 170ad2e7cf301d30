"""TOP k PRIVATE PER a key: one mechanism for each partition, or one for all of them whose answer is cut in each.

With one run per partition, the price is the sum over as many partitions as one unit can be in, the
`charged_partitions`, of which the most expensive are charged: all partitions, at most `max_groups_contributed`, or one
where the engine counts each unit in only one partition (`maths.md` 4.2). One release of all groups, cut to the first k
of each partition, costs what it costs without partitions: the cut is post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain

import numpy as np
import numpy.typing as npt

from dpsql.accounting import ZCDP, Loss
from dpsql.errors import Refusal
from dpsql.mechanisms import Noise
from dpsql.plan.mechanisms.base import Facts, Groups, MechanismOutput, MechanismPlan, ReleaseSpec, require_zcdp
from dpsql.plan.mechanisms.record import Mechanism, MechanismRequest, PerPartition, check_partitions
from dpsql.quantities import Delta, Rho
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound

MOST_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class EachPartitionPlan(MechanismPlan):
    """A run of a mechanism of leaders for each partition; the `charged_partitions` dearest losses are charged.

    Selection and price are those of `each` partition.
    """

    each: MechanismPlan
    partitions: int
    charged_partitions: int

    @property
    def release_identity(self) -> tuple[object, object]:
        return self.each.release_identity, self.charged_partitions

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        one = self.each.specify(query, bound)
        if query.partitions is not None and self.partitions * (one.rows.max_rows or 0) > MOST_ROWS:
            reason = f"The partitions times k_bar + 1 may be at most {MOST_ROWS}, the groups that are read."
            hint = f"List fewer partitions, or add k_bar = {MOST_ROWS // self.partitions - 1} and as many keys at most."
            raise Refusal("option-range", reason, hint=hint, place=query.partitions.place)
        charged = one.report.charged
        if self.partitions > 1:
            added = f"the dearest {self.charged_partitions} added up, for a unit counts in no more of them"
            if self.charged_partitions == self.partitions:
                added = "added up"
            elif self.charged_partitions == 1:
                added = "the dearest alone, for a unit counts in one"
            charged = f"{charged}; in each partition, {added}"
        return replace(
            one,
            worst_case=_times(require_zcdp(one.worst_case), self.charged_partitions),
            charged_partitions=self.charged_partitions,
            rows=replace(one.rows, partitions=self.partitions),
            report=replace(
                one.report,
                charged=charged,
                chooses=f"{one.report.chooses} of each" if one.report.chooses else "",
            ),
        )

    @property
    def loss_of_half(self) -> Loss:
        return _times(require_zcdp(self.each.loss_of_half), self.charged_partitions)

    def describe(self, query: PrivateQuery) -> Facts:
        return ("partitions", f"{self.partitions}, each answered"), *self.each.describe(query)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        # also in a partition without groups, so that its emptiness is not revealed
        rows = _rows_of(groups, self.partitions)
        drawn = [self.each.draw(_part(groups, part), noise) for part in rows]
        losses = [require_zcdp(one.loss) for one in drawn]
        # Apart for rho and for delta: in whichever partitions a unit is, the losses of these add up to no more.
        rho = _dearest([loss.rho.value for loss in losses], self.charged_partitions)
        delta = _dearest([loss.delta.value for loss in losses], self.charged_partitions)
        counts = [one.counts for one in drawn if one.counts is not None]
        others = zip(*(one.others for one in drawn), strict=True)  # of each measure, those of each partition
        return MechanismOutput(
            rows=tuple(int(part[row]) for part, one in zip(rows, drawn, strict=True) for row in one.rows),
            counts=tuple(chain.from_iterable(counts)) if len(counts) == len(drawn) else None,
            others=tuple(tuple(chain.from_iterable(values)) for values in others),
            loss=ZCDP(Rho(rho), Delta(delta)),
            items=int(_dearest([Fraction(one.items) for one in drawn], self.charged_partitions)),
            stopped_at_bottom=any(one.stopped_at_bottom for one in drawn),
        )


@dataclass(frozen=True, slots=True)
class AllPartitionsPlan(MechanismPlan):
    """One release of the groups of all partitions, `every` one, cut to the first k of each."""

    every: MechanismPlan
    partitions: int

    @property
    def release_identity(self) -> tuple[object, ...]:
        return self.every.release_identity

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        whole = self.every.specify(query, bound)
        return replace(whole, rows=replace(whole.rows, partitions=self.partitions))

    @property
    def loss_of_half(self) -> Loss:
        return self.every.loss_of_half

    def describe(self, query: PrivateQuery) -> Facts:
        fact = ("partitions", f"{self.partitions}, each answered from one release of all groups")
        return fact, *self.every.describe(query)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        # all groups that pass, of which the first of each partition are taken in the order in which they came
        k = self.selection.k
        # The threshold does not depend on k here, so that every group that passes comes back and k is applied in each
        # partition.
        uncut = replace(self.every, selection=replace(self.selection, k=max(1, len(groups.counts))))
        drawn = uncut.draw(groups, noise)
        private = None if drawn.counts is None else dict(zip(drawn.rows, drawn.counts, strict=True))
        came = np.array(drawn.rows, np.int64)
        firsts = [came[part][:k].tolist() for part in _rows_of(_part(groups, came), self.partitions)]
        rows = tuple(row for first in firsts for row in first)
        return MechanismOutput(
            rows=rows,
            counts=None if private is None else tuple(private[row] for row in rows),
            loss=drawn.loss,
            items=self.price.items(k),
            stopped_at_bottom=any(len(first) < k for first in firsts),
        )


def plan_partitions(mechanism: Mechanism, request: MechanismRequest) -> MechanismPlan:
    """Return the plan of a mechanism in each of the partitions that a query has.

    Raises `Refusal` where the mechanism cannot answer, or does not go with PER.
    """
    partitions, plan = request.query.partitions, mechanism.plan(request)
    count = 0 if partitions is None else len(partitions.values)
    check_partitions(mechanism, request)
    if mechanism.per_partition is PerPartition.EACH:
        return EachPartitionPlan(plan.selection, plan.price, plan, count, request.charged)
    return AllPartitionsPlan(plan.selection, plan.price, plan, count)


def _times(loss: ZCDP, runs: int) -> ZCDP:
    return ZCDP(loss.rho * runs, loss.delta * runs)


def _dearest(losses: Sequence[Fraction], runs: int) -> Fraction:
    """Return what the dearest so many runs add up to."""
    return sum(sorted(losses, reverse=True)[:runs], Fraction(0))


def _rows_of(groups: Groups, partitions: int) -> list[npt.NDArray[np.int64]]:
    """Return the rows of each partition, in their order."""
    of = np.zeros(len(groups.counts), np.int64) if groups.partitions is None else groups.partitions
    order = np.argsort(of, kind="stable")
    # An empty partition is an empty slice between two equal places.
    return np.split(order, np.searchsorted(of[order], np.arange(1, partitions)))


def _part(groups: Groups, rows: npt.NDArray[np.int64]) -> Groups:
    """Return what was read of some of the rows."""
    weights = groups.weights[rows] if len(groups.weights) else groups.weights
    partitions = None if groups.partitions is None else groups.partitions[rows]
    return Groups(groups.counts[rows], weights, partitions, tuple(each[rows] for each in groups.others))
