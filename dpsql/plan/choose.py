"""From a question and the session's terms to a plan: options and ceilings, and which mechanism answers.

Only public numbers decide here: the statement, the policy and earlier answers.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from dpsql.errors import Refusal, Unsupported
from dpsql.mechanisms import LimitedDomain, NoisyCounts
from dpsql.plan.plan import Plan
from dpsql.plan.terms import Terms
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.query import Option, PrivateQuery
from dpsql.sql.rewrite import Bound, rewrite

__all__ = ["LEAST_DELTA", "MECHANISMS", "draw"]

MECHANISMS = ("auto", "limited_domain")
LATER_MECHANISMS = frozenset(
    "laplace_limited_domain peeling joint stable top_stable gaussian_histogram weighted_gaussian "
    "domain_discovery".split()
)
K_BAR_PER_K = 20  # few leaders make a high threshold; reading more costs little more
MOST_GROUPS = 1_000_000
LEAST_DELTA = Fraction(1, 10**30)  # beyond any use, and short enough for the ledger to keep sums of it exactly


def draw(query: PrivateQuery, terms: Terms, *, salts: tuple[int, int]) -> Plan:
    """Return the plan for a query; refuse options outside the policy's ceilings. `salts` are the session's own."""
    options = query.clause.options
    limits = terms.limits
    k = query.clause.k
    if k > limits.max_k:
        hint = f"Ask for at most {limits.max_k}."
        raise Refusal("k", f"k may be at most {limits.max_k} here.", hint=hint, place=query.clause.place)
    _check_mechanism(options.get("mechanism"))
    _check_others(options.get("domain"), options.get("fresh"))
    epsilon, delta = _epsilon(options.get("epsilon"), terms), _delta(options.get("delta"), terms)
    k_bar = _whole(options.get("k_bar"), "k_bar", bounds=(k, limits.max_k_bar)) or min(
        K_BAR_PER_K * k, limits.max_k_bar
    )
    groups = _whole(options.get("max_groups_contributed"), "max_groups_contributed", bounds=(1, MOST_GROUPS))
    return Plan(
        query=query,
        counting=rewrite(query, k_bar + 1, bound=None if groups is None else Bound(groups, salts)),
        selection=LimitedDomain(epsilon, delta, k=k, k_bar=max(k, k_bar), max_groups_contributed=groups),
        counts=NoisyCounts(epsilon, groups) if query.releases_counts else None,
    )


def _check_mechanism(option: Option | None) -> None:
    if option is None or option.value in MECHANISMS:
        return
    hint = f"Leave it out, or write one of {', '.join(MECHANISMS)}."
    if isinstance(option.value, str) and option.value in LATER_MECHANISMS:
        raise Unsupported("mechanism", "This mechanism is not built yet.", hint=hint, place=option.place)
    raise Refusal("option", "There is no such mechanism.", hint=hint, place=option.place)


def _check_others(domain: Option | None, fresh: Option | None) -> None:
    if domain is not None:
        hint = "Leave it out: limited_domain needs no list of candidates."
        raise Unsupported("domain", "Known domains are not built yet.", hint=hint, place=domain.place)
    if fresh is not None and not (fresh.word and fresh.value in {"true", "false"}):
        raise Refusal(
            "option", "fresh is true or false.", hint="Leave it out: every answer is fresh.", place=fresh.place
        )


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
