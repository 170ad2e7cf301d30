"""Peeling: every candidate of a known domain, paid for by what comes back, which is all that was asked for."""

from __future__ import annotations

from dpsql.mechanisms import Histogram, Noise, Peeling
from dpsql.plan.answering.asked import Asked
from dpsql.plan.answering.base import Drawn, Groups, Offer, Price
from dpsql.plan.answering.by_item import paid_by_item
from dpsql.quantities import Delta
from dpsql.sql.query import Listed, PrivateQuery
from dpsql.sql.rewrite import Bound, rewrite
from dpsql.values import dataclass

__all__ = ["Candidates", "candidates_of", "peeling"]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Peeling: every candidate of a known domain, paid for by what comes back, which is all that was asked for."""

    selection: Peeling
    price: Price

    @property
    def law(self) -> tuple[object, object]:
        """The mechanism, and how the counts are drawn."""
        return self.selection, self.price.counts

    def offer(self, query: PrivateQuery, bound: Bound | None) -> Offer:
        """Return the offer: every candidate is read, and no delta is spent."""
        chosen, price = self.selection, self.price
        worst_case = price.loss(price.items(chosen.k), Delta(0))
        return Offer(
            counting=rewrite(query, None, bound=bound),
            k=chosen.k,
            worst_case=worst_case,
            half=worst_case,
            charged="charged: one for each key and count returned",
            facts=(("domain", candidates_of(query)),),
            count_variance=None if price.counts is None else price.counts.variance,
            count_scale=None if price.counts is None else price.counts.scale,
            least_count=0,
        )

    def draw(self, groups: Groups, noise: Noise) -> Drawn:
        """Draw keys, and then counts of them."""
        exact = tuple(groups.counts.tolist())
        chosen = self.selection.select(Histogram.of_leaders(exact, len(exact)), noise)
        return paid_by_item(chosen, self.price, exact=exact, delta=Delta(0), noise=noise)


def candidates_of(query: PrivateQuery) -> str:
    """Say in words who the candidates of a known domain are."""
    domain = query.domain
    listed = f"{len(domain.values)} values of the query" if isinstance(domain, Listed) else "a public column"
    return f"{listed}; every one takes part, also with no unit at all"


def peeling(asked: Asked) -> Candidates:
    """Return the mechanism of a known domain, which reads every candidate and spends no delta."""
    known = asked.candidates()
    return Candidates(Peeling(asked.price.epsilon, min(asked.k, known)), asked.price)
