"""The request that a mechanism reads: a query's options within the policy's limits, the price of items, and the bound.

Certificates other than `zcdp` cover few mechanisms, options and noises of counts; what they do not cover is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import wraps
from typing import TypeVar

from dpsql.accounting import BoundedRange, Certificate, Loss, Steps
from dpsql.errors import Place, Refusal, UsageError
from dpsql.mechanisms import CountRelease, LaplaceCounts, NoisyCounts
from dpsql.plan.mechanisms.base import Contribution, ItemLoss
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.measures import Aggregate, Measure
from dpsql.sql.ir.statements import LiteralDomain, PrivateQuery, ReleasedDomain, count_groups
from dpsql.terms import Terms, read_number, read_whole_number

K_BAR_PER_K = 20  # few leaders make a high threshold; reading more costs little more
MOST_CHOSEN = 50  # with counts, half of what a budget holds by default
MOST_GROUPS = 1_000_000
OWN_CAP = 100  # groups of each unit that are weighed: more raise the threshold, fewer lose what heavy units add
LEAST_DELTA = Fraction(1, 10**30)  # beyond any use, and short enough for the ledger to keep sums of it exactly
_CANDIDATES = 1_000  # of a domain whose size only the database knows
Chosen = TypeVar("Chosen")


@dataclass(frozen=True, slots=True)
class MechanismRequest:
    """A query, the session's terms, the price of items, and the bound on the groups of each unit, None without one.

    The policy wants at least `min_units` units in a group, the most of any table in the query, 1 without any.
    `own_cap` says that the bound is the mechanism's own, OWN_CAP, since neither policy nor query has one; it limits
    weights alone, and the price is without it. The query's delta is spread over `runs` runs of the mechanism, and the
    losses of the `charged` of them that cost most add up. Terms and query are public, and no row is read for any of it.
    """

    query: PrivateQuery
    terms: Terms
    price: ItemLoss
    max_groups_contributed: int | None
    min_units: int
    own_cap: bool = False
    runs: int = 1
    charged: int = 1

    @property
    def k(self) -> int:
        """Number of keys; with ADAPTIVE, the largest number that can be returned: k_bar, or 50, within the limits."""
        if self.query.clause.k is not None:
            return self.query.clause.k
        most = min(self.terms.limits.max_k, self.max_k_bar)
        return self._read_k_bar(1, most) or min(max(MOST_CHOSEN, 2 * (self.prefer or 0)), most)

    @property
    def delta(self) -> Delta:
        """Delta of one run: that of the query or the default of the session, spread over the runs."""
        terms, option = self.terms, self.query.clause.options.get("delta")
        most = terms.pool.value if terms.limits.max_delta is None else terms.limits.max_delta.value
        default = min(terms.delta.value, most)
        if option is None:
            return Delta(default / self.runs)
        value = read_number(option, "delta", bounds=(min(LEAST_DELTA, default), most))
        fixed = terms.certified.delta
        if fixed is not None and value != fixed.value:
            name = terms.certificate.value
            reason = f"Under the certificate {name} every query of an unknown domain has delta {fixed}."
            raise Refusal("certificate", reason, hint="Leave delta out.", place=option.place)
        return Delta(value / self.runs)

    @property
    def k_bar(self) -> int:
        """Number of exact leaders to read: that of the query, or 20 k, within the limit."""
        k = self.k
        if self.query.clause.k is None:
            return k
        most = self.max_k_bar
        return self._read_k_bar(k, most) or max(k, min(K_BAR_PER_K * k, most))

    @property
    def max_k_bar(self) -> int:
        """Largest k_bar within the limits; with partitions, such that the rows of all of them are within.

        At least k: what is too much even so is refused with the number of rows.
        """
        limits, partitions = self.terms.limits, self.query.partitions
        if limits.max_rows_fetched is None or partitions is None:
            return limits.most_k_bar
        each = limits.max_rows_fetched // len(partitions.values) - 1
        return min(limits.max_k_bar, max(each, self.query.clause.k or 1))

    def _read_k_bar(self, least: int, most: int) -> int | None:
        """Return the option k_bar, which is to be a number here."""
        option = self.query.clause.options.get("k_bar")
        if option is not None and self.leaves_k_bar:
            hint = "Write a number, or leave it out."
            raise Refusal("option", "k_bar = AUTO is for limited_domain.", hint=hint, place=option.place)
        return read_whole_number(option, "k_bar", bounds=(least, most))

    @property
    def leaves_k_bar(self) -> bool:
        """Whether the query leaves k_bar to a private choice."""
        option = self.query.clause.options.get("k_bar")
        return option is not None and option.word and option.value == "auto"

    @property
    def prefer(self) -> int | None:
        """The k that a private choice of k is drawn to; None where the query says nothing."""
        option = self.query.clause.options.get("prefer")
        return read_whole_number(option, "prefer", bounds=(1, self.terms.limits.max_k))

    @property
    def penalty(self) -> Fraction:
        """Penalty, in units of a gap, for each rank away from the preferred k: `rank_width` / epsilon."""
        return self.rank_width / self.price.epsilon.value

    @property
    def rank_width(self) -> int:
        """Most steps by which one unit changes the measure that ranks, or by which its changes of two groups differ.

        Mechanisms call it their `sensitivity`.
        """
        return self.query.measures[0].width

    @property
    def known(self) -> int:
        """Number of names that are known from earlier answers and take part without threshold; 0 with min_units."""
        return 0 if self.query.names is None or self.min_units > 1 else self.query.names.count

    @property
    def evident(self) -> bool:
        """Whether the known names that take part need evidence that some row has them."""
        return self.known > 0 and self.query.names is not None and self.query.names.evident

    @property
    def is_strict(self) -> bool:
        """Whether each known name needs evidence of its own (evidence = strict)."""
        option = self.query.clause.options.get("evidence")
        return option is not None and option.value == "strict"

    @property
    def place(self) -> Place:
        """Place of the mechanism in the statement, or else of the clause."""
        option = self.query.clause.options.get("mechanism")
        return self.query.clause.place if option is None else option.place

    def refuse(self, names: tuple[str, ...], *, reason: str, hint: str) -> None:
        """Refuse the first of the options that was given; `reason` speaks of it as {name}."""
        for name in names:
            if (option := self.query.clause.options.get(name)) is not None:
                raise Refusal("option", reason.format(name=name), hint=hint, place=option.place)

    def candidates(self) -> int:
        """Return how many candidates the known domain has at most, k where only the database knows; refuse the rest.

        No threshold sees to min_units there.
        """
        if self.min_units > 1:
            hint = "Leave the domain out: then a threshold sees to it."
            reason = "The policy wants groups of at least so many units here, which a known domain cannot promise."
            place = self.query.clause.options["domain"].place
            raise Refusal("min-units", reason, hint=hint, place=place)
        if self.query.domain is None or isinstance(self.query.domain, ReleasedDomain):
            if not self.known:
                hint = "Leave the domain out: the names that the query returns are known to later ones."
                reason = "No stored answer of yours has names of these keys."
                raise Refusal("domain", reason, hint=hint, place=self.place)
            return self.known
        known = count_groups(self.query.domain)
        return self.k if known is None else known

    def assume_candidates(self, k: int) -> tuple[int, str]:
        """Return how many candidates the known domain is taken to have, and the word before this number."""
        domain = self.query.domain
        if self.known:
            return self.known, "of"
        return (
            (len(domain.values), "of") if isinstance(domain, LiteralDomain) else (max(_CANDIDATES, k), "if there are")
        )

    def require_bound(self) -> int:
        """Return the bound; refuse a mechanism that needs one where there is none, or that has no min_units."""
        self.check_no_min_units()
        if self.max_groups_contributed is None:
            hint = "Add max_groups_contributed = 5, or another number, or let the policy set it for the table."
            reason = "This mechanism needs a bound on the groups of each unit."
            raise Refusal("bound", reason, hint=hint, place=self.place)
        return self.max_groups_contributed

    def check_adds_up(self) -> None:
        """Refuse a mechanism of weights where what ranks is no sum over units, as a number of different values."""
        if self.query.measures[0].aggregate is Aggregate.ITEMS:
            reason = "This mechanism weighs what each unit adds, and units can have the same values."
            hint = "Write mechanism = limited_domain, or leave the mechanism out."
            raise Refusal("option", reason, hint=hint, place=self.place)

    def check_no_min_units(self) -> None:
        """Refuse a mechanism that does not see to min_units where the policy wants them."""
        if self.min_units > 1:
            fix = "Give a number: TOP 10 PRIVATE" if self.query.clause.is_adaptive else "Leave the mechanism out"
            hint = f"{fix}: limited_domain sees to it."
            reason = "The policy wants groups of at least so many units here, which this mechanism does not promise."
            raise Refusal("min-units", reason, hint=hint, place=self.place)


def refuse_out_of_range(choose: Callable[[MechanismRequest], Chosen]) -> Callable[[MechanismRequest], Chosen]:
    """Return the function with a `Refusal` for parameters that the mechanism does not take."""

    @wraps(choose)
    def choose_within(request: MechanismRequest) -> Chosen:
        try:
            return choose(request)
        except UsageError as error:
            reason = error.reason
        hint = "Ask for another k, epsilon or max_groups_contributed."
        raise Refusal("option-range", reason, hint=hint, place=request.place)

    return choose_within


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
    if certificate is not Certificate.zcdp:
        return CertifiedPrice(epsilon, first, others=others, certificate=certificate)
    contributions = tuple(  # a unit that is in none of a measure's rows adds 0
        Contribution()
        if each.bounds is None
        else Contribution(min(each.bounds.low, 0), max(each.bounds.high, 0), units=False)
        for each in measures
    )
    return ItemLoss(epsilon, first, others=others, contributions=contributions)
