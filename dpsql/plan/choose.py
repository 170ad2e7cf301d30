"""From a question and the session's terms to a plan: which mechanism answers, within the policy's ceilings.

Only public numbers decide here: the statement, the policy and earlier answers.
"""

from __future__ import annotations

from collections.abc import Callable

from dpsql.errors import Refusal, Unsupported
from dpsql.mechanisms import NoisyCounts
from dpsql.plan.answering import Answering, Asked, Price
from dpsql.plan.answering.asked import epsilon_of, groups_of
from dpsql.plan.answering.gaussian_histogram import gaussian_histogram
from dpsql.plan.answering.laplace_limited_domain import laplace_limited_domain
from dpsql.plan.answering.limited_domain import limited_domain
from dpsql.plan.answering.peeling import peeling
from dpsql.plan.plan import Plan
from dpsql.plan.replay import in_canonical_order
from dpsql.plan.terms import Terms
from dpsql.sql.query import Option, PrivateQuery
from dpsql.sql.rewrite import Bound

__all__ = ["MECHANISMS", "draw"]

_UNKNOWN_DOMAIN: dict[str, Callable[[Asked], Answering]] = {
    "limited_domain": limited_domain,
    "gaussian_histogram": gaussian_histogram,
    "laplace_limited_domain": laplace_limited_domain,
}
_KNOWN_DOMAIN: dict[str, Callable[[Asked], Answering]] = {"peeling": peeling}
MECHANISMS = ("auto", *_UNKNOWN_DOMAIN, *_KNOWN_DOMAIN)
_WORDS = {
    "fresh": "Write fresh = true for new noise, charged anew, or leave it out.",
    "monotone": "Write monotone = true for counts that never rise along the ranking, or leave it out.",
}
LATER_MECHANISMS = frozenset("joint stable top_stable weighted_gaussian domain_discovery".split())


def draw(query: PrivateQuery, terms: Terms, *, salts: tuple[int, int]) -> Plan:
    """Return the plan for a query; refuse options outside the policy's ceilings. `salts` are the session's own."""
    query = in_canonical_order(query)
    options, limits, k = query.clause.options, terms.limits, query.clause.k
    if k > limits.max_k:
        hint = f"Ask for at most {limits.max_k}."
        raise Refusal("k", f"k may be at most {limits.max_k} here.", hint=hint, place=query.clause.place)
    build = _mechanism(options.get("mechanism"), known=query.domain is not None)
    _check_words(query)
    groups = groups_of(options.get("max_groups_contributed"), terms.tables[query.table])
    epsilon = epsilon_of(options.get("epsilon"), terms)
    price = Price(epsilon, NoisyCounts(epsilon, groups) if query.releases_counts else None)
    answering = build(Asked(query, terms, price, groups))
    offer = answering.offer(query, None if groups is None else Bound(groups, salts))
    return Plan(query=query, answering=answering, offer=offer, max_groups_contributed=groups)


def _mechanism(option: Option | None, *, known: bool) -> Callable[[Asked], Answering]:
    """Return the mechanism asked for; refuse one that is unknown, not built, or for the other kind of domain."""
    fitting, others = (_KNOWN_DOMAIN, _UNKNOWN_DOMAIN) if known else (_UNKNOWN_DOMAIN, _KNOWN_DOMAIN)
    name = "auto" if option is None else option.value
    if option is None or name == "auto":
        return next(iter(fitting.values()))
    if isinstance(name, str) and name in fitting:
        return fitting[name]
    if name in others and known:
        reason, hint = f"A known domain is for {' or '.join(_KNOWN_DOMAIN)}.", "Leave the mechanism out."
        raise Refusal("option", reason, hint=hint, place=option.place)
    if name in others:
        hint = "Write domain = 'countries.country'."
        raise Refusal("option", f"{name} needs a known domain.", hint=hint, place=option.place)
    hint = f"Leave it out, or write one of {', '.join(MECHANISMS)}."
    if name in LATER_MECHANISMS:
        raise Unsupported("mechanism", "This mechanism is not built yet.", hint=hint, place=option.place)
    raise Refusal("option", "There is no such mechanism.", hint=hint, place=option.place)


def _check_words(query: PrivateQuery) -> None:
    """Refuse what is neither true nor false where a word must be, and counts to be shown otherwise where none are."""
    options = query.clause.options
    for name, hint in _WORDS.items():
        option = options.get(name)
        if option is not None and not (option.word and option.value in {"true", "false"}):
            raise Refusal("option", f"{name} is true or false.", hint=hint, place=option.place)
    if "monotone" in options and not query.releases_counts:
        hint = f"Select COUNT(DISTINCT {query.unit_name}) too, or leave it out."
        place = options["monotone"].place
        raise Refusal("option", "monotone is for released counts, and none are selected.", hint=hint, place=place)
