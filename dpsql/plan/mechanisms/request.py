"""Parameters of a mechanism: the options of the query within the limits of the policy, the price and the bound.

Certificates other than `zcdp` cover few mechanisms, options and noises of counts; what they do not cover is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

from dpsql.accounting import BoundedRange, BudgetVector, Certificate, Loss, Steps
from dpsql.errors import Place, Refusal, UsageError
from dpsql.mechanisms import CountRelease, LaplaceCounts, NoisyCounts
from dpsql.plan.mechanisms.base import Contribution, ItemLoss, sqrt_rounded_down
from dpsql.plan.terms import Terms
from dpsql.policy import PrivateTable
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.measures import Measure
from dpsql.sql.ir.statements import Clause, Option, Partitions, PrivateQuery, ReleasedDomain, count_groups

K_BAR_PER_K = 20  # few leaders make a high threshold; reading more costs little more
MOST_CHOSEN = 50  # with counts, half of what a budget holds by default
MOST_GROUPS = 1_000_000
OWN_CAP = 100  # groups of each unit that are weighed: more raise the threshold, fewer lose what heavy units add
LEAST_DELTA = Fraction(1, 10**30)  # beyond any use, and short enough for the ledger to keep sums of it exactly


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
    groups: int | None
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
        asked = read_whole_number(self._k_bar, "k_bar", bounds=(1, most))
        return asked or min(max(MOST_CHOSEN, 2 * (self.prefer or 0)), most)

    @property
    def delta(self) -> Delta:
        """Delta of one run: that of the query or the default of the session, spread over the runs."""
        terms, option = self.terms, self.query.clause.options.get("delta")
        most = terms.pool.value if terms.limits.max_delta is None else terms.limits.max_delta.value
        default = min(terms.delta.value, most)
        if option is None:
            return Delta(default / self.runs)
        value = _real(option, "delta", bounds=(min(LEAST_DELTA, default), most))
        check_delta(value, option, terms=terms)
        return Delta(value / self.runs)

    @property
    def k_bar(self) -> int:
        """Number of exact leaders to read: that of the query, or 20 k, within the limit."""
        if self.query.clause.k is None:
            return self.k
        most = self.max_k_bar
        asked = read_whole_number(self._k_bar, "k_bar", bounds=(self.k, most))
        return asked or max(self.k, min(K_BAR_PER_K * self.k, most))

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

    @property
    def leaves_k_bar(self) -> bool:
        """Whether the query leaves k_bar to a private choice."""
        return _is_auto(self.query.clause.options.get("k_bar"))

    @property
    def prefer(self) -> int | None:
        """The k that a private choice of k is drawn to; None where the query says nothing."""
        option = self.query.clause.options.get("prefer")
        return read_whole_number(option, "prefer", bounds=(1, self.terms.limits.max_k))

    @property
    def penalty(self) -> Fraction:
        """Penalty, in units of a gap, for each rank away from the preferred k: `most` / epsilon."""
        return self.most / self.price.epsilon.value

    @property
    def most(self) -> int:
        """Most steps by which one unit changes the measure that ranks, or by which its changes of two groups differ."""
        return self.query.measures[0].width

    def refuse(self, names: tuple[str, ...], *, reason: str, hint: str) -> None:
        """Refuse the first of the options that was given; `reason` speaks of it as {name}."""
        for name in names:
            if (option := self.query.clause.options.get(name)) is not None:
                raise Refusal("option", reason.format(name=name), hint=hint, place=option.place)

    @property
    def known(self) -> int:
        """Number of names that are known from earlier answers and take part without threshold; 0 with min_units."""
        return 0 if self.query.names is None or self.min_units > 1 else self.query.names.count

    @property
    def evident(self) -> bool:
        """Whether the known names that take part need evidence that some row has them."""
        return self.known > 0 and self.query.names is not None and self.query.names.evident

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

    def bound(self) -> int:
        """Return the bound; refuse a mechanism that needs one where there is none, or that has no min_units."""
        self.check_no_min_units()
        if self.groups is None:
            hint = "Add max_groups_contributed = 5, or another number, or let the policy set it for the table."
            reason = "This mechanism needs a bound on the groups of each unit."
            raise Refusal("bound", reason, hint=hint, place=self.place)
        return self.groups

    def check_no_min_units(self) -> None:
        """Refuse a mechanism that does not see to min_units where the policy wants them."""
        if self.min_units > 1:
            fix = "Give a number: TOP 10 PRIVATE" if self.query.clause.is_adaptive else "Leave the mechanism out"
            hint = f"{fix}: limited_domain sees to it."
            reason = "The policy wants groups of at least so many units here, which this mechanism does not promise."
            raise Refusal("min-units", reason, hint=hint, place=self.place)

    def out_of_range(self, error: UsageError) -> Refusal:
        """Return the refusal of parameters that the mechanism does not take."""
        hint = "Ask for another k, epsilon or max_groups_contributed."
        return Refusal("option-range", error.reason, hint=hint, place=self.place)

    @property
    def _k_bar(self) -> Option | None:
        """The option k_bar, which is to be a number here."""
        option = self.query.clause.options.get("k_bar")
        if option is not None and _is_auto(option):
            hint = "Write a number, or leave it out."
            raise Refusal("option", "k_bar = AUTO is for limited_domain.", hint=hint, place=option.place)
        return option

    @property
    def place(self) -> Place:
        """Place of the mechanism in the statement, or else of the clause."""
        clause = self.query.clause
        option = clause.options.get("mechanism")
        return clause.place if option is None else option.place


def find_min_units(query: PrivateQuery, terms: Terms) -> int:
    """Return how many units the policy wants in a group."""
    return max(terms.tables[name].min_units or 1 for name in query.tables)


def read_epsilon(option: Option | None, terms: Terms) -> Epsilon:
    """Return the epsilon of one item: that of the query, or the default of the session."""
    if option is None:
        return terms.epsilon
    value = _real(option, "epsilon", bounds=(terms.limits.min_epsilon.value, terms.limits.max_epsilon.value))
    check_epsilon(value, option, terms=terms)
    return Epsilon(value)


def read_groups(option: Option | None, tables: Iterable[PrivateTable]) -> int | None:
    """Return the number of groups in which a unit counts: that of the query, at most the bound of any table in it."""
    bounds = [table.max_groups_contributed for table in tables if table.max_groups_contributed is not None]
    most = min(bounds) if bounds else None
    asked = read_whole_number(option, "max_groups_contributed", bounds=(1, most or MOST_GROUPS))
    return most if asked is None else asked


def _is_auto(option: Option | None) -> bool:
    return option is not None and option.word and option.value == "auto"


def _real(option: Option, name: str, *, bounds: tuple[Fraction, Fraction]) -> Fraction:
    """Return the option's exact value, within bounds."""
    low, high = bounds
    if isinstance(option.value, Decimal) and low <= (value := Fraction(option.value)) <= high:
        return value
    reason = f"{name} must be a number, at least {float(low):g} and at most {float(high):g}."
    raise Refusal("option-range", reason, hint="The policy sets the ceilings.", place=option.place)


def read_whole_number(option: Option | None, name: str, *, bounds: tuple[int, int]) -> int | None:
    """Return the option's value as a whole number within bounds, or None when it is not given."""
    if option is None:
        return None
    low, high = bounds
    if isinstance(option.value, Decimal) and option.value.as_tuple().exponent == 0 and low <= option.value <= high:
        return int(option.value)
    reason = f"{name} must be a whole number from {low} to {high}."
    raise Refusal("option-range", reason, hint="The policy sets the ceilings.", place=option.place)


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
