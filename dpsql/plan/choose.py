"""From a question and the session's terms to a plan: options and ceilings, and which mechanism answers.

Only public numbers decide here: the statement, the policy and earlier answers.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from dpsql.errors import Refusal, Unsupported, UsageError
from dpsql.mechanisms import GaussianHistogram, LaplaceLimitedDomain, LimitedDomain, NoisyCounts, Peeling
from dpsql.plan.answering import AllGroups, Answering, Candidates, Leaders, LeadersAtOnce, Price
from dpsql.plan.plan import Plan
from dpsql.plan.replay import in_canonical_order
from dpsql.plan.terms import Terms
from dpsql.policy import PrivateTable
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.query import Listed, Option, PrivateQuery
from dpsql.sql.rewrite import Bound

__all__ = ["LEAST_DELTA", "MECHANISMS", "draw"]

MECHANISMS = ("auto", "limited_domain", "peeling", "gaussian_histogram", "laplace_limited_domain")
LATER_MECHANISMS = frozenset("joint stable top_stable weighted_gaussian domain_discovery".split())
K_BAR_PER_K = 20  # few leaders make a high threshold; reading more costs little more
MOST_GROUPS = 1_000_000
LEAST_DELTA = Fraction(1, 10**30)  # beyond any use, and short enough for the ledger to keep sums of it exactly


def draw(query: PrivateQuery, terms: Terms, *, salts: tuple[int, int]) -> Plan:
    """Return the plan for a query; refuse options outside the policy's ceilings. `salts` are the session's own."""
    query = in_canonical_order(query)
    options, limits, k = query.clause.options, terms.limits, query.clause.k
    if k > limits.max_k:
        hint = f"Ask for at most {limits.max_k}."
        raise Refusal("k", f"k may be at most {limits.max_k} here.", hint=hint, place=query.clause.place)
    build = _BUILDERS[_mechanism(options.get("mechanism"), "limited_domain" if query.domain is None else "peeling")]
    _check_fresh(options.get("fresh"))
    groups = _groups(options.get("max_groups_contributed"), terms.tables[query.table])
    epsilon = _epsilon(options.get("epsilon"), terms)
    price = Price(epsilon, NoisyCounts(epsilon, groups) if query.releases_counts else None)
    answering = build(query, terms, price=price, groups=groups)
    offer = answering.offer(query, None if groups is None else Bound(groups, salts))
    return Plan(query=query, answering=answering, offer=offer, max_groups_contributed=groups)


def _limited_domain(query: PrivateQuery, terms: Terms, *, price: Price, groups: int | None) -> Leaders:
    selection = LimitedDomain(
        price.epsilon,
        _delta(query.clause.options.get("delta"), terms),
        k=query.clause.k,
        k_bar=_k_bar(query, terms),
        max_groups_contributed=groups,
        min_units=_min_units(query, terms),
    )
    return Leaders(selection, price)


def _peeling(query: PrivateQuery, terms: Terms, *, price: Price, groups: int | None) -> Candidates:  # noqa: ARG001 - a bound changes what is counted, and not this mechanism
    """Return the mechanism of a known domain, which reads every candidate and spends no delta."""
    options, k = query.clause.options, query.clause.k
    for name in ("delta", "k_bar"):
        if (option := options.get(name)) is not None:
            hint = "Leave it out: every candidate of the domain is read, and no delta is spent."
            raise Refusal("option", f"{name} has no meaning with a domain.", hint=hint, place=option.place)
    if _min_units(query, terms) > 1:
        hint = "Leave the domain out: then a threshold sees to it."
        reason = "The policy wants groups of at least so many units here, which a known domain cannot promise."
        raise Refusal("min-units", reason, hint=hint, place=options["domain"].place)
    known = len(query.domain.values) if isinstance(query.domain, Listed) else k
    return Candidates(Peeling(price.epsilon, min(k, known)), price)


def _gaussian_histogram(query: PrivateQuery, terms: Terms, *, price: Price, groups: int | None) -> AllGroups:
    """Return the mechanism of all groups, at the rho that the items of a limited domain would cost at worst."""
    options, k = query.clause.options, query.clause.k
    if (option := options.get("k_bar")) is not None:
        hint = "Leave it out: all groups are read."
        raise Refusal("option", "k_bar has no meaning with this mechanism.", hint=hint, place=option.place)
    bound = _needed(groups, options["mechanism"], min_units=_min_units(query, terms))
    delta = _delta(options.get("delta"), terms)
    try:
        return AllGroups(GaussianHistogram(price.rho(price.items(k)), delta, k, bound), price)
    except UsageError as error:
        refusal = _out_of_range(error, options["mechanism"])
    raise refusal


def _laplace_limited_domain(query: PrivateQuery, terms: Terms, *, price: Price, groups: int | None) -> LeadersAtOnce:
    """Return the mechanism of the leaders with Laplace noise, at the same price: pure epsilon of at most that rho."""
    options, k = query.clause.options, query.clause.k
    bound = _needed(groups, options["mechanism"], min_units=_min_units(query, terms))
    delta, k_bar = _delta(options.get("delta"), terms), _k_bar(query, terms)
    try:
        pure = price.pure(price.items(k))
        return LeadersAtOnce(LaplaceLimitedDomain(pure, delta, k, k_bar, bound), price)
    except UsageError as error:
        refusal = _out_of_range(error, options["mechanism"])
    raise refusal


def _out_of_range(error: UsageError, mechanism: Option) -> Refusal:
    """Return the refusal of parameters that a mechanism does not take."""
    hint = "Ask for another k, epsilon or max_groups_contributed."
    return Refusal("option-range", error.reason, hint=hint, place=mechanism.place)


_BUILDERS: dict[str, Callable[..., Answering]] = {
    "limited_domain": _limited_domain,
    "peeling": _peeling,
    "gaussian_histogram": _gaussian_histogram,
    "laplace_limited_domain": _laplace_limited_domain,
}


def _needed(groups: int | None, mechanism: Option, *, min_units: int) -> int:
    """Return the bound; refuse a mechanism that is paid at once without one, and where groups must have min_units."""
    place = mechanism.place
    if min_units > 1:
        hint = "Leave the mechanism out: limited_domain sees to it."
        reason = "The policy wants groups of at least so many units here, which this mechanism does not promise."
        raise Refusal("min-units", reason, hint=hint, place=place)
    if groups is None:
        hint = "Add max_groups_contributed = 5, or another number, or let the policy set it for the table."
        raise Refusal("bound", "This mechanism needs a bound on the groups of each unit.", hint=hint, place=place)
    return groups


def _min_units(query: PrivateQuery, terms: Terms) -> int:
    return terms.tables[query.table].min_units or 1


def _k_bar(query: PrivateQuery, terms: Terms) -> int:
    k, most = query.clause.k, terms.limits.max_k_bar
    return _whole(query.clause.options.get("k_bar"), "k_bar", bounds=(k, most)) or max(k, min(K_BAR_PER_K * k, most))


def _groups(option: Option | None, table: PrivateTable) -> int | None:
    """Return how many groups of each unit count: what the query asks for, at most what the policy says."""
    most = table.max_groups_contributed
    asked = _whole(option, "max_groups_contributed", bounds=(1, most or MOST_GROUPS))
    return most if asked is None else asked


def _mechanism(option: Option | None, fitting: str) -> str:
    """Return the mechanism asked for; refuse one that is unknown, not built, or for the other kind of domain."""
    if option is None or option.value in {"auto", fitting}:
        return fitting
    if fitting == "peeling" and option.value in MECHANISMS:
        hint = "Leave the mechanism out."
        raise Refusal("option", "A known domain is for peeling.", hint=hint, place=option.place)
    if option.value == "peeling":
        hint = "Write domain = 'countries.country'."
        raise Refusal("option", "peeling needs a known domain.", hint=hint, place=option.place)
    if isinstance(option.value, str) and option.value in MECHANISMS:
        return option.value
    hint = f"Leave it out, or write one of {', '.join(MECHANISMS)}."
    if isinstance(option.value, str) and option.value in LATER_MECHANISMS:
        raise Unsupported("mechanism", "This mechanism is not built yet.", hint=hint, place=option.place)
    raise Refusal("option", "There is no such mechanism.", hint=hint, place=option.place)


def _check_fresh(option: Option | None) -> None:
    if option is not None and not (option.word and option.value in {"true", "false"}):
        hint = "Write fresh = true for new noise, charged anew, or leave it out."
        raise Refusal("option", "fresh is true or false.", hint=hint, place=option.place)


def _epsilon(option: Option | None, terms: Terms) -> Epsilon:
    if option is None:
        return terms.epsilon
    return Epsilon(_real(option, "epsilon", bounds=(terms.limits.min_epsilon.value, terms.limits.max_epsilon.value)))


def _delta(option: Option | None, terms: Terms) -> Delta:
    most = terms.budget.delta.value if terms.limits.max_delta is None else terms.limits.max_delta.value
    default = min(terms.delta.value, most)
    return Delta(default if option is None else _real(option, "delta", bounds=(min(LEAST_DELTA, default), most)))


def _real(option: Option, name: str, *, bounds: tuple[Fraction, Fraction]) -> Fraction:
    """Return the option's exact value, within bounds."""
    low, high = bounds
    if isinstance(option.value, Decimal) and low <= (value := Fraction(option.value)) <= high:
        return value
    reason = f"{name} must be a number, at least {float(low):g} and at most {float(high):g}."
    raise Refusal("option-range", reason, hint="The policy sets the ceilings.", place=option.place)


def _whole(option: Option | None, name: str, *, bounds: tuple[int, int]) -> int | None:
    """Return the option's value as a whole number within bounds, or None when it is not given."""
    if option is None:
        return None
    low, high = bounds
    if option.word and option.value == "auto" and name == "k_bar":
        hint = f"Leave it out: {K_BAR_PER_K} k is the default."
        raise Unsupported("k-bar-auto", "A private choice of k_bar is not built yet.", hint=hint, place=option.place)
    if isinstance(option.value, Decimal) and option.value.as_tuple().exponent == 0 and low <= option.value <= high:
        return int(option.value)
    reason = f"{name} must be a whole number from {low} to {high}."
    raise Refusal("option-range", reason, hint="The policy sets the ceilings.", place=option.place)
