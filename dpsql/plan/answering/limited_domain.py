"""The limited domain: the leading groups, paid for by what comes back, BOTTOM included."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsql.accounting import ZCDP
from dpsql.mechanisms import Histogram, LimitedDomain, Noise
from dpsql.plan.answering.asked import Asked
from dpsql.plan.answering.base import Drawn, Groups, Offer, Price
from dpsql.plan.answering.by_item import paid_by_item
from dpsql.sql.query import PrivateQuery
from dpsql.sql.rewrite import Bound, rewrite

__all__ = ["Leaders", "limited_domain"]


@dataclass(frozen=True, slots=True)
class Leaders:
    """The limited domain: the leading groups, paid for by what comes back, BOTTOM included."""

    selection: LimitedDomain
    price: Price

    @property
    def law(self) -> tuple[object, object]:
        """The mechanism, and how the counts are drawn."""
        return self.selection, self.price.counts

    def offer(self, query: PrivateQuery, bound: Bound | None) -> Offer:
        """Return the offer: k_bar + 1 groups are read, and half of the keys save the others but for BOTTOM."""
        chosen, price = self.selection, self.price
        returned = math.ceil(chosen.k / 2)
        threshold = f"{float(chosen.threshold_offset):.1f} units above group number {chosen.k_bar + 1}"
        if chosen.least_threshold:
            threshold += f", and at least {float(chosen.least_threshold):.1f} units"
            threshold += f" (the policy's min_units = {chosen.min_units})"
        return Offer(
            counting=rewrite(query, chosen.k_bar + 1, bound=bound),
            k=chosen.k,
            worst_case=ZCDP(price.rho(price.items(chosen.k)), chosen.delta),
            half=ZCDP(price.rho(price.items(returned) + (returned < chosen.k)), chosen.delta),
            charged="charged: one for each key and count returned, and for BOTTOM",
            facts=(("k_bar", str(chosen.k_bar)), ("threshold", threshold)),
            count_variance=None if price.counts is None else price.counts.variance,
            k_bar=chosen.k_bar,
            threshold_offset=chosen.threshold_offset,
            least_threshold=chosen.least_threshold,
            most_rows=chosen.k_bar + 1,
        )

    def draw(self, groups: Groups, noise: Noise) -> Drawn:
        """Draw keys, and then counts of them."""
        exact = tuple(groups.counts.tolist())
        chosen = self.selection.select(Histogram.of_leaders(exact, self.selection.k_bar), noise)
        return paid_by_item(chosen, self.selection.loss(chosen), exact=exact, counts=self.price.counts, noise=noise)


def limited_domain(asked: Asked) -> Leaders:
    """Return the mechanism of an unknown domain."""
    selection = LimitedDomain(
        asked.price.epsilon,
        asked.delta,
        k=asked.k,
        k_bar=asked.k_bar,
        max_groups_contributed=asked.groups,
        min_units=asked.min_units,
    )
    return Leaders(selection, asked.price)
