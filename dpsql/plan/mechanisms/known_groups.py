"""Counts of all known groups, or of the one total of a query without keys; nothing is selected, and delta is 0.

For TOP k over a known domain the counts of all candidates can cost less than a private choice of k and their counts:
a unit that is in few groups changes few counts. The first k of the noisy counts are then post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsql.accounting import Loss
from dpsql.errors import Refusal
from dpsql.mechanisms import CountRelease, KnownGroups, Noise
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Facts,
    Groups,
    ItemLoss,
    MechanismOutput,
    MechanismPlan,
    ReleaseSpec,
    RowsRead,
    SpecReport,
)
from dpsql.plan.mechanisms.counts_by_item import draw_others
from dpsql.plan.mechanisms.record import EVERY_CERTIFICATE, Mechanism, QueryKind, Reads
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.plan.mechanisms.rows_fetched import find_min, keep_known
from dpsql.quantities import Delta
from dpsql.sql.ir.statements import PrivateQuery, ReleasedDomain
from dpsql.sql.rewrite.engine_query import Bound, rewrite_all, rewrite_total


@dataclass(frozen=True, slots=True)
class KnownGroupsPlan(MechanismPlan):
    """Release of the counts of all known groups, at one item for each group that a unit can be in.

    Without `k` all are returned, and else the first `k` of all that were drawn. With `known` these are so many names
    that earlier answers released.
    """

    selection: KnownGroups
    k: int | None = None
    known: int = 0

    @property
    def release_identity(self) -> tuple[object, object]:
        return (self.selection if self.k is None else (self.selection, self.k)), self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        groups, k = self.selection.groups, self.k
        is_total = query.clause.shape == "total"
        least, listed = find_min(query), False
        if self.known:
            query, listed = keep_known(replace(query, domain=None))
        counting = rewrite_total(query) if is_total else rewrite_all(query, bound=bound, every=self.known > 0)
        what = "one for each total" if is_total else "one for each group that a unit can be in, and for each measure"
        return ReleaseSpec(
            k=k or groups,
            worst_case=self.loss_of_half,
            rows=RowsRead(
                counting=counting,
                max_rows=None if self.known else groups,
                min_count=least,
                others=len(query.measures) - 1,
                known=self.known,
                alone=self.known > 0,
                listed=listed,
            ),
            counts=CountNoise.of(self.price.counts),
            report=SpecReport(charged=f"charged: {what}"),
        )

    @property
    def loss_of_half(self) -> Loss:  # all counts always come back: half costs what all do
        return self.price.loss(self.price.items(self.k or self.selection.groups), Delta(0))

    def describe(self, query: PrivateQuery) -> Facts:
        returned = "all are counted, for fewer items than a choice among them" if self.k else "every one is returned"
        domain = ("domain", f"{self.selection.groups:,} known groups; {returned}")
        cut = [("cut", query.bucket_note)] if query.bucket_note else []
        return (*([] if query.clause.shape == "total" else [domain]), *cut)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        counts = self.selection.release(groups.counts.tolist(), noise)
        rows = tuple(range(len(counts)))
        if self.k is not None:  # equal counts in the order of the labels, which is public
            rows = tuple(sorted(rows, key=lambda row: (-counts[row], row))[: self.k])
        items = self.price.items(self.k or self.selection.groups)
        return MechanismOutput(
            rows,
            tuple(counts[row] for row in rows),
            self.price.loss(items, Delta(0)),
            items,
            stopped_at_bottom=False,
            others=draw_others(rows, self.price, groups=groups, noise=noise),
        )


def count_known(request: MechanismRequest) -> int:
    """Return the number of groups; raise `Refusal` for a query whose groups are not known."""
    clause = request.query.clause
    if clause.shape != "top":
        reason = "{name} has no meaning where nothing is selected."
        request.refuse(("monotone",), reason=reason, hint="Leave it out.")
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
    return 1 if clause.shape == "total" else request.candidates()


def _read(request: MechanismRequest) -> tuple[CountRelease, int, int | None]:
    """Return the release of counts, the number of groups, and how many are returned, None for all of them.

    Raises `Refusal` for a query whose groups are not known, or that asks for no counts.
    """
    groups, clause, counts = count_known(request), request.query.clause, request.price.counts
    if counts is None:
        hint = f"Select COUNT(DISTINCT {request.query.unit_name}) too."
        raise Refusal("counts", "Known groups are released for their counts.", hint=hint, place=clause.place)
    return counts, groups, None if clause.k is None else min(clause.k, groups)


def _price(request: MechanismRequest) -> ItemLoss:
    """Return the price of the counts of all groups; the other measures are of the first k alone."""
    counts, groups, k = _read(request)
    return replace(request.price, each=0, once=0 if k is None else counts.items(groups) - counts.items(k))


def _plan(request: MechanismRequest) -> KnownGroupsPlan:
    counts, groups, k = _read(request)
    known = request.known if isinstance(request.query.domain, ReleasedDomain) else 0
    return KnownGroupsPlan(KnownGroups(counts, groups), _price(request), k, known)


KNOWN_GROUPS = Mechanism(
    name="known_groups",
    kind=QueryKind.ALL,
    theorem=KnownGroups,
    law="noise on known groups",
    plan=_plan,
    price=_price,
    reads=Reads.CANDIDATES,
    draws_after=False,
    certificates=EVERY_CERTIFICATE,
    why="the counts of all candidates cost fewer items than a choice among them",
)
