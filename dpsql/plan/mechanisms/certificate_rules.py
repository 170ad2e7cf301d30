"""Requirements of certificates other than `zcdp`: the mechanisms, options and noise of counts that they cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dpsql.accounting import BoundedRange, BudgetVector, Certificate, Loss, Steps
from dpsql.errors import Refusal
from dpsql.mechanisms import CountRelease, LaplaceCounts, NoisyCounts
from dpsql.plan.mechanisms.base import Contribution, ItemLoss, sqrt_rounded_down
from dpsql.plan.terms import Terms
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.measures import Measure
from dpsql.sql.ir.statements import Clause, Option, Partitions

__all__ = [
    "CertifiedPrice",
    "check_delta",
    "check_epsilon",
    "check_partitions",
    "find_epsilon_within",
    "price_items",
    "refuse_mechanism",
]


@dataclass(frozen=True, slots=True)
class CertifiedPrice(ItemLoss):
    """The price in items under a certificate that counts no rho."""

    certificate: Certificate = field(kw_only=True)

    def loss(self, items: int, delta: Delta) -> Loss:
        """Return the loss of a query of so many items."""
        steps = Steps(items, BoundedRange(self.epsilon), delta)
        return steps.pure if self.certificate is Certificate.pure else steps


def price_items(
    epsilon: Epsilon, groups: int | None, *, measures: Sequence[Measure], certificate: Certificate
) -> ItemLoss:
    """Return what keys cost, with these measures: Laplace noise, and no shared total, where no rho is counted."""
    share = 1 if certificate is Certificate.pure else 2
    releases: list[CountRelease] = [
        NoisyCounts(epsilon, groups, each.sensitivity)
        if certificate is Certificate.zcdp
        else LaplaceCounts(epsilon, share, groups, each.sensitivity)
        for each in measures
    ]
    first, others = (releases[0], tuple(releases[1:])) if releases else (None, ())
    if certificate is Certificate.zcdp:
        return ItemLoss(epsilon, first, others=others, contributions=tuple(map(_describe_contribution, measures)))
    return CertifiedPrice(epsilon, first, others=others, certificate=certificate)


def _describe_contribution(measure: Measure) -> Contribution:
    """Return what one unit adds to one group; a unit that is in none of its rows adds 0."""
    bounds = measure.bounds
    return Contribution() if bounds is None else Contribution(min(bounds.low, 0), max(bounds.high, 0), units=False)


def find_epsilon_within(left: BudgetVector, items: int) -> Fraction:
    """Return an epsilon at which all items fit into what is left; 0 where an item's price does not depend on it."""
    match left.certificate:
        case Certificate.zcdp:
            return sqrt_rounded_down(8 * left.refundable / items)
        case Certificate.pure:
            return left.refundable / items
        case Certificate.theorem2 | Certificate.optimal:
            return Fraction(0)


def refuse_mechanism(name: str, clause: Clause, *, certificate: Certificate) -> Refusal:
    """Return the refusal of a mechanism whose loss is not known under the certificate."""
    option, asked, hint = clause.options.get("mechanism"), name, "Leave the mechanism out."
    if clause.is_adaptive:
        asked, hint = "TOP ADAPTIVE PRIVATE", "Give a number, and leave the mechanism out: TOP 10 PRIVATE."
    reason = (
        f"{asked} has no loss under the certificate {certificate.value}, which is for items of bounded range alone."
    )
    place = clause.place if option is None or clause.is_adaptive else option.place
    return Refusal("certificate", reason, hint=hint, place=place)


def check_partitions(partitions: Partitions | None, *, certificate: Certificate) -> None:
    """Refuse PER, whose runs are added up in rho."""
    if certificate is not Certificate.zcdp and partitions is not None:
        reason = f"PER has no loss under the certificate {certificate.value}."
        raise Refusal("certificate", reason, hint="Ask once for each.", place=partitions.place)


def check_epsilon(value: Fraction, option: Option, *, terms: Terms) -> None:
    """Refuse an epsilon of an item that the certificate does not cover."""
    each = terms.certified.epsilon
    if each is None or value == each.value:
        return
    if terms.certificate is Certificate.theorem2:
        reason = f"Under the certificate theorem2 every item has the epsilon {each}."
        raise Refusal("certificate", reason, hint="Leave epsilon out.", place=option.place)
    if value > each.value:
        reason = f"Under the certificate {terms.certificate.value} no item has an epsilon above {each}."
        raise Refusal("certificate", reason, hint="Leave epsilon out, or ask for less.", place=option.place)


def check_delta(value: Fraction, option: Option, *, terms: Terms) -> None:
    """Refuse a delta of a query that the certificate does not cover."""
    delta = terms.certified.delta
    if delta is not None and value != delta.value:
        reason = f"Under the certificate {terms.certificate.value} every query of an unknown domain has delta {delta}."
        raise Refusal("certificate", reason, hint="Leave delta out.", place=option.place)
