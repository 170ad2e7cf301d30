"""Peeling over all candidates of a known domain, charged by the item; it always returns all k keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpsql.mechanisms import Histogram, Noise, Peeling
from dpsql.plan.mechanisms.base import CountNoise, Groups, ItemLoss, MechanismOutput, ReleaseSpec, RowsRead, SpecReport
from dpsql.plan.mechanisms.counts_by_item import charge_by_item
from dpsql.plan.mechanisms.known_groups import find_min
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.plan.mechanisms.rows_fetched import keep_known
from dpsql.quantities import Delta
from dpsql.sql.ir.statements import LiteralDomain, PrivateQuery, count_groups
from dpsql.sql.rewrite.engine_query import Bound, rewrite, rewrite_all

__all__ = ["PeelingPlan", "count_candidates", "peeling", "read_candidates", "read_domain"]


@dataclass(frozen=True, slots=True)
class PeelingPlan:
    """Peeling over all candidates of a known domain, charged by the item; it always returns all k keys.

    With `known` these are so many names that earlier answers released.
    """

    selection: Peeling
    price: ItemLoss
    known: int = 0

    @property
    def release_identity(self) -> tuple[object, object]:
        """The mechanism, and how the counts are drawn."""
        return self.selection, self.price.counts

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return the release: every candidate is read, and no delta is spent."""
        chosen, price = self.selection, self.price
        worst_case = price.loss(price.items(chosen.k), Delta(0))
        return ReleaseSpec(
            k=chosen.k,
            worst_case=worst_case,
            half=worst_case,
            rows=read_domain(query, bound, known=self.known),
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged="charged: one for each key and count returned",
                facts=(("domain", count_candidates(query, self.known)),),
            ),
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw keys, and then counts of them."""
        candidates, order = read_candidates(groups)
        chosen = self.selection.select(candidates, noise)
        chosen = replace(chosen, positions=tuple(order[position] for position in chosen.positions))
        return charge_by_item(chosen, self.price, groups=groups, delta=Delta(0), noise=noise)


def read_candidates(groups: Groups) -> tuple[Histogram, list[int]]:
    """Return the scores of all candidates, in descending order, and the row of each.

    They are raised alike to at least 0: a race depends on their differences alone.
    """
    order = np.argsort(-groups.counts, kind="stable")
    exact = groups.counts[order].tolist()
    lowest = min(0, min(exact, default=0))
    return Histogram.of_leaders(tuple(each - lowest for each in exact), len(exact)), order.tolist()


def read_domain(query: PrivateQuery, bound: Bound | None, *, known: int) -> RowsRead:
    """Return the rows that have all candidates: joined to the domain, or to `known` names after they are read."""
    others, least = len(query.measures) - 1, find_min(query)
    if not known:
        most = count_groups(query.domain)
        return RowsRead(counting=rewrite(query, None, bound=bound), max_rows=most, min_count=least, others=others)
    query, listed = keep_known(replace(query, domain=None))
    counting = rewrite_all(query, bound=bound, every=True)
    return RowsRead(counting=counting, min_count=least, others=others, known=known, alone=True, listed=listed)


def count_candidates(query: PrivateQuery, known: int = 0) -> str:
    """Say in words who the candidates of a known domain are."""
    domain = query.domain
    if known:
        return f"{known:,} names that earlier answers released; every one takes part, also with no unit at all"
    listed = f"{len(domain.values)} values of the query" if isinstance(domain, LiteralDomain) else "a public column"
    return f"{listed}; every one takes part, also with no unit at all"


def peeling(request: MechanismRequest) -> PeelingPlan:
    """Return the mechanism of a known domain, which reads every candidate and spends no delta."""
    known = request.candidates()
    chosen = Peeling(request.price.epsilon, min(request.k, known), request.most)
    return PeelingPlan(chosen, request.price, request.known)
