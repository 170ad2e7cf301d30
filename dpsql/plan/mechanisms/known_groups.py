"""Counts of all known groups, or of the one total of a query without keys; nothing is selected, and delta is 0."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsql.errors import Refusal
from dpsql.mechanisms import KnownGroups, Noise
from dpsql.plan.mechanisms.base import CountNoise, Groups, ItemLoss, MechanismOutput, ReleaseSpec, RowsRead, SpecReport
from dpsql.plan.mechanisms.counts_by_item import draw_others
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.quantities import Delta
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_all, rewrite_total

__all__ = ["KnownGroupsPlan", "known_groups"]


@dataclass(frozen=True, slots=True)
class KnownGroupsPlan:
    """Release of the counts of all known groups, at one item for each group that a unit can be in."""

    selection: KnownGroups
    price: ItemLoss

    @property
    def release_identity(self) -> tuple[object, object]:
        """The groups, and how their counts are drawn."""
        return self.selection, self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: every group is read, in the order of the keys, and no delta is spent."""
        groups = self.selection.groups
        loss = self.price.loss(self.price.count_items(groups), Delta(0))
        is_total = query.clause.shape == "total"
        counting = rewrite_total(query) if is_total else rewrite_all(query, bound=bound)
        what = "one for each total" if is_total else "one for each group that a unit can be in, and for each measure"
        facts = () if is_total else (("domain", f"{groups:,} known groups; every one is returned"),)
        return ReleaseSpec(
            k=groups,
            worst_case=loss,
            half=loss,
            rows=RowsRead(
                counting=counting, max_rows=groups, min_count=_find_min(query), others=len(query.measures) - 1
            ),
            counts=CountNoise.of(self.price.counts),
            report=SpecReport(charged=f"charged: {what}", facts=facts),
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw the counts of all groups that were read, which are the public ones."""
        counts, items = (
            self.selection.release(groups.counts.tolist(), noise),
            self.price.count_items(self.selection.groups),
        )
        rows = tuple(range(len(counts)))
        return MechanismOutput(
            rows,
            counts,
            self.price.loss(items, Delta(0)),
            items,
            stopped_at_bottom=False,
            others=draw_others(rows, self.price, groups=groups, noise=noise),
        )


def _find_min(query: PrivateQuery) -> int | None:
    """Return what the first measure of a group is at least; None where it may be below 0."""
    bounds = query.measures[0].bounds
    return None if bounds is not None and bounds.low < 0 else 0


def known_groups(request: MechanismRequest) -> KnownGroupsPlan:
    """Return the release of all groups of a known domain, or of the total of a query without keys."""
    clause, counts = request.query.clause, request.price.counts
    request.refuse(
        ("delta", "k_bar", "monotone"), reason="{name} has no meaning where nothing is selected.", hint="Leave it out."
    )
    if clause.shape == "total":
        request.refuse(
            ("domain", "max_groups_contributed"), reason="{name} has no meaning with a total.", hint="Leave it out."
        )
    elif request.query.domain is None:
        hint = "Name them: WITH (domain = ['DE', 'FR']). Days, weeks and months need bounds in WHERE alone."
        raise Refusal("domain", "ALL PRIVATE returns groups that are known.", hint=hint, place=clause.place)
    if request.min_units > 1:
        hint = "Ask for the most frequent groups with TOP 10 PRIVATE, where a threshold ensures it."
        reason = "The policy wants groups of at least so many units here, which a known group cannot promise."
        raise Refusal("min-units", reason, hint=hint, place=clause.place)
    if counts is None:
        hint = f"Select COUNT(DISTINCT {request.query.unit_name}) too."
        raise Refusal("counts", "Known groups are released for their counts.", hint=hint, place=clause.place)
    groups = 1 if clause.shape == "total" else request.candidates()
    return KnownGroupsPlan(KnownGroups(counts, groups), replace(request.price, each=0))
