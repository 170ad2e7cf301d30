"""From a question and the session's terms to a plan: options and ceilings, and which mechanism answers.

Only public numbers decide here: the statement, the policy and earlier answers.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from dpsql.errors import Refusal, Unsupported
from dpsql.mechanisms import LimitedDomain, NoisyCounts, Peeling
from dpsql.plan.plan import Plan, rows_of
from dpsql.plan.replay import in_canonical_order
from dpsql.plan.terms import Terms
from dpsql.policy import PrivateTable
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.query import Listed, Option, PrivateQuery
from dpsql.sql.rewrite import Bound, rewrite

__all__ = ["LEAST_DELTA", "MECHANISMS", "draw"]

MECHANISMS = ("auto", "limited_domain", "peeling")
LATER_MECHANISMS = frozenset(
    "laplace_limited_domain joint stable top_stable gaussian_histogram weighted_gaussian domain_discovery".split()
)
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
    _check_mechanism(options.get("mechanism"), "limited_domain" if query.domain is None else "peeling")
    _check_fresh(options.get("fresh"))
    table = terms.tables[query.table]
    groups = _groups(options.get("max_groups_contributed"), table)
    selection = _limited_domain(query, terms, groups=groups) if query.domain is None else _peeling(query, terms)
    return Plan(
        query=query,
        counting=rewrite(query, rows_of(selection), bound=None if groups is None else Bound(groups, salts)),
        selection=selection,
        counts=NoisyCounts(selection.epsilon, groups) if query.releases_counts else None,
        max_groups_contributed=groups,
    )


def _limited_domain(query: PrivateQuery, terms: Terms, *, groups: int | None) -> LimitedDomain:
    options, k = query.clause.options, query.clause.k
    most = terms.limits.max_k_bar
    k_bar = _whole(options.get("k_bar"), "k_bar", bounds=(k, most)) or max(k, min(K_BAR_PER_K * k, most))
    return LimitedDomain(
        _epsilon(options.get("epsilon"), terms),
        _delta(options.get("delta"), terms),
        k=k,
        k_bar=k_bar,
        max_groups_contributed=groups,
        min_units=terms.tables[query.table].min_units or 1,
    )


def _peeling(query: PrivateQuery, terms: Terms) -> Peeling:
    """Return the mechanism of a known domain, which reads every candidate and spends no delta."""
    options, k = query.clause.options, query.clause.k
    for name in ("delta", "k_bar"):
        if (option := options.get(name)) is not None:
            hint = "Leave it out: every candidate of the domain is read, and no delta is spent."
            raise Refusal("option", f"{name} has no meaning with a domain.", hint=hint, place=option.place)
    if (terms.tables[query.table].min_units or 1) > 1:
        hint = "Leave the domain out: then a threshold sees to it."
        reason = "The policy wants groups of at least so many units here, which a known domain cannot promise."
        raise Refusal("min-units", reason, hint=hint, place=options["domain"].place)
    known = len(query.domain.values) if isinstance(query.domain, Listed) else k
    return Peeling(_epsilon(options.get("epsilon"), terms), min(k, known))


def _groups(option: Option | None, table: PrivateTable) -> int | None:
    """Return how many groups of each unit count: what the query asks for, at most what the policy says."""
    most = table.max_groups_contributed
    asked = _whole(option, "max_groups_contributed", bounds=(1, most or MOST_GROUPS))
    return most if asked is None else asked


def _check_mechanism(option: Option | None, fitting: str) -> None:
    """Refuse a mechanism that is unknown, not built, or not the one that fits: a domain is known, or it is not."""
    if option is None or option.value in {"auto", fitting}:
        return
    if option.value in MECHANISMS:
        reason = "peeling needs a known domain." if fitting != "peeling" else "A known domain is for peeling."
        hint = "Write domain = 'countries.country'." if fitting != "peeling" else "Leave the mechanism out."
        raise Refusal("option", reason, hint=hint, place=option.place)
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
