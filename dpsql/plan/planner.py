"""From a question and the session's terms to a plan: which mechanism answers, within the policy's ceilings.

Only public numbers decide here: the statement, the policy and earlier answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from dpsql.errors import Refusal, Unsupported
from dpsql.mechanisms.sampling.race import LEAST_EPSILON
from dpsql.plan.auto import CHOSEN, Candidate, choose_candidate, compare_candidates
from dpsql.plan.auto_names import choose_over_names
from dpsql.plan.cache.readings import find_changed_readings
from dpsql.plan.cache.replay_key import compute_question_keys, compute_replay_key, order_canonically
from dpsql.plan.measures import bound_measures
from dpsql.plan.mechanisms import MechanismPlan, MechanismRequest
from dpsql.plan.mechanisms.adaptive import adaptive
from dpsql.plan.mechanisms.certificate_rules import check_mechanism, check_partitions, price_items
from dpsql.plan.mechanisms.counts_by_item import pays_total
from dpsql.plan.mechanisms.domain_discovery import domain_discovery
from dpsql.plan.mechanisms.gaussian_histogram import gaussian_histogram
from dpsql.plan.mechanisms.joint import joint
from dpsql.plan.mechanisms.known_groups import known_groups
from dpsql.plan.mechanisms.laplace_limited_domain import laplace_limited_domain
from dpsql.plan.mechanisms.limited_domain import limited_domain
from dpsql.plan.mechanisms.peeling import peeling
from dpsql.plan.mechanisms.per_partition import all_partitions, each_partition
from dpsql.plan.mechanisms.relay import relay
from dpsql.plan.mechanisms.request import OWN_CAP, read_epsilon, read_groups
from dpsql.plan.mechanisms.stable import stable
from dpsql.plan.mechanisms.top_stable import top_stable
from dpsql.plan.mechanisms.weighted_gaussian import weighted_gaussian
from dpsql.plan.plan import Plan
from dpsql.plan.query_terms import plan_within_terms
from dpsql.plan.rows_limit import check_rows
from dpsql.plan.terms import Terms
from dpsql.policy import PrivateTable
from dpsql.policy.validation import fold
from dpsql.sql.ir.scope import propose_name
from dpsql.sql.ir.statements import LiteralDomain, Option, PrivateQuery, ReleasedDomain, count_groups
from dpsql.sql.rewrite.engine_query import Bound
from dpsql.sql.rewrite.passes import confine_to_values

__all__ = ["MECHANISMS", "build_plan"]

_Builder = Callable[[MechanismRequest], MechanismPlan]
_UNKNOWN_DOMAIN: dict[str, _Builder] = {
    "limited_domain": limited_domain,
    "relay": relay,
    "gaussian_histogram": gaussian_histogram,
    "laplace_limited_domain": laplace_limited_domain,
    "weighted_gaussian": weighted_gaussian,
    "domain_discovery": domain_discovery,
    "stable": stable,
    "top_stable": top_stable,
}
_KNOWN_DOMAIN: dict[str, _Builder] = {"peeling": peeling, "joint": joint}
_ADAPTIVE: dict[str, _Builder] = {"stable": adaptive}
_ALL_GROUPS: dict[str, _Builder] = {"known_groups": known_groups}
_OVER_NAMES: dict[str, _Builder] = {**_UNKNOWN_DOMAIN, "peeling": peeling}  # where names are known
_LEANING = frozenset([stable, adaptive])  # those that take a k to be near to
_COMPARED = CHOSEN | frozenset("laplace_limited_domain domain_discovery joint".split())  # hardly ever better
_OF_WEIGHTS = frozenset([relay, weighted_gaussian, domain_discovery])  # those with a cap of their own
_WITHOUT_TOTAL = frozenset([known_groups, gaussian_histogram, laplace_limited_domain])  # counts are not drawn after
_OF_EACH = frozenset([limited_domain, laplace_limited_domain, stable, top_stable, adaptive])  # partitions: one run each
MECHANISMS = ("auto", *_UNKNOWN_DOMAIN, *_KNOWN_DOMAIN)
_WORDS = {
    "fresh": "Write fresh = true for new noise, charged again, or leave it out.",
    "monotone": "Write monotone = true for counts that never rise along the ranking, or leave it out.",
}


def build_plan(query: PrivateQuery, terms: Terms, *, salts: tuple[int, int]) -> Plan:
    """Return the plan for a query; refuse options outside the policy's ceilings. `salts` are the session's own."""
    stated = query.clause.terms
    if stated is not None:
        return plan_within_terms(query, stated, terms=terms, build=lambda each: build_plan(each, terms, salts=salts))
    query = bound_measures(order_canonically(confine_to_values(query)), terms)
    options, limits, k = query.clause.options, terms.limits, query.clause.k
    if k is not None and k > limits.max_k:
        hint = f"Ask for at most {limits.max_k}."
        raise Refusal("k", f"k may be at most {limits.max_k} here.", hint=hint, place=query.clause.place)
    fitting, name = _read_mechanism(options.get("mechanism"), query)
    _check_words(query)
    if query.names is not None and _find_min_units(query, terms) > 1:
        query = replace(query, names=None)  # a known name does not promise so many units
    considered: tuple[Candidate, ...] = ()
    if k is not None and (name is None or query.explained):
        considered = compare_candidates(
            query,
            [each for each in fitting if each in _find_compared(query)],
            build=lambda each: _consider(fitting[each], query, terms=terms, salts=salts),
        )
    chosen = choose_candidate(considered)
    if name is None:
        name = choose_over_names(
            query, build=lambda each: _consider(_OVER_NAMES[each], query, terms=terms, salts=salts)
        )
    if name is None:
        name = next(iter(fitting)) if chosen is None else chosen.name
    builder = fitting[name] if name in fitting else _OVER_NAMES[name]
    mechanism_plan, query, groups = _build(builder, query, terms=terms, salts=salts)
    if name == "peeling" and query.domain is not None and _is_auto(options.get("mechanism")):
        mechanism_plan, query, groups = _choose_known_groups((mechanism_plan, query, groups), terms=terms, salts=salts)
        name = mechanism_plan.selection.name
    try:
        spec = mechanism_plan.specify(query, None if groups is None else Bound(groups, salts))
    except Unsupported:  # an engine that cannot look up weights
        if not (_is_auto(options.get("mechanism")) and "limited_domain" in fitting):
            raise
        name = "limited_domain"
        mechanism_plan, query, groups = _build(fitting[name], query, terms=terms, salts=salts)
        spec = mechanism_plan.specify(query, None if groups is None else Bound(groups, salts))
    check_rows(mechanism_plan, spec.rows, query=query, limit=limits.max_rows_fetched)
    plan = Plan(
        query=query,
        mechanism_plan=mechanism_plan,
        spec=spec,
        max_groups_contributed=groups,
        rule=terms.rule,
        considered=considered,
        population=_read_population(query, terms),
    )
    tables = [terms.tables[name] for name in query.tables]
    bound = read_groups(options.get("max_groups_contributed"), tables)
    min_units = _find_min_units(query, terms)
    keys = compute_question_keys(
        query,
        mechanism=name,
        bound=bound,
        min_units=min_units,
        uses_names=terms.uses_known_names,
        reread=None if query.counts_units_alone else find_changed_readings(query, terms),
    )
    release_key = compute_replay_key(plan)  # once: it walks over the whole of the query
    return replace(
        _note_list(plan, terms),
        key=keys.key,
        release_key=release_key,
        similar_keys=(*keys.similar, release_key),
        named_keys=keys.named,
        earlier_key=keys.earlier,
    )


def _note_list(plan: Plan, terms: Terms) -> Plan:
    """Return the plan of a list that is cut with its note: it proposes what the whole budget of the policy buys."""
    cut = plan.query.cut_list
    if cut is None:
        return plan
    limit = terms.budget if terms.account is None else terms.account.budget
    price, items = plan.price(plan.worst_case).refundable, plan.worst_items
    note = cut.describe(lambda k: price * plan.items(k) <= limit.refundable * items)
    return replace(plan, query=replace(plan.query, list_note=note))


def _find_compared(query: PrivateQuery) -> frozenset[str]:
    """Return the mechanisms that are weighed against each other."""
    wanted = _COMPARED if query.explained else CHOSEN
    # to weigh rows and sums takes about three times as long as to count users
    return wanted if query.counts_units_alone else wanted - {"relay"}


def _choose_known_groups(
    peeled: tuple[MechanismPlan, PrivateQuery, int | None], *, terms: Terms, salts: tuple[int, int]
) -> tuple[MechanismPlan, PrivateQuery, int | None]:
    """Return the release of all counts of a listed domain if it costs fewer items than peeling and the counts of k."""
    mechanism_plan, query, _ = peeled
    if not query.releases_counts or not isinstance(query.domain, LiteralDomain):
        return peeled
    every = _build(known_groups, query, terms=terms, salts=salts)
    k = min(query.clause.k or 1, len(query.domain.values))
    return every if every[0].price.items(k) < mechanism_plan.price.items(k) else peeled


def _find_min_units(query: PrivateQuery, terms: Terms) -> int:
    """Return how many units the policy wants in a group."""
    return max(terms.tables[name].min_units or 1 for name in query.tables)


def _is_auto(option: Option | None) -> bool:
    """Return whether the planner may choose the mechanism."""
    return option is None or option.value == "auto"


def _read_population(query: PrivateQuery, terms: Terms) -> int | None:
    """Return about how many units there are, in public, for messages: the least that a table read says.

    It says nothing about sums of rows and values, nor about units that a bound keeps out of groups.
    """
    tables = [terms.tables[name] for name in query.tables]
    bounded = read_groups(query.clause.options.get("max_groups_contributed"), tables) is not None
    if bounded or query.partitions is not None or query.domain is not None or query.measures[0].bounds is not None:
        return None
    return min((table.population for table in tables if table.population is not None), default=None)


def _build(
    build: _Builder, query: PrivateQuery, *, terms: Terms, salts: tuple[int, int]
) -> tuple[MechanismPlan, PrivateQuery, int | None]:
    """Return how a mechanism would answer, with the query and the bound as it has them."""
    options = query.clause.options
    check_mechanism(build.__name__, query.clause, certificate=terms.certificate)
    check_partitions(query.partitions, certificate=terms.certificate)
    groups = read_groups(options.get("max_groups_contributed"), [terms.tables[name] for name in query.tables])
    own_cap = groups is None and build in _OF_WEIGHTS
    groups = OWN_CAP if own_cap else groups
    if build is known_groups and _has_one_value(query.key_column, terms.tables):
        groups = 1  # the engine keeps each unit to one
    if build is known_groups and groups is not None and _count_known_groups(query) <= groups:
        groups = None  # no unit can be in more
    epsilon = read_epsilon(options.get("epsilon"), terms)
    measures = query.measures if query.releases_counts else ()
    price = price_items(epsilon, groups, measures=measures, certificate=terms.certificate)
    if build in _WITHOUT_TOTAL or query.partitions is not None:
        price = replace(price, contributions=())
    least = max(LEAST_EPSILON * each for each in (1, *(measure.width for measure in query.measures)))
    if epsilon.value < least:
        reason = f"With these bounds epsilon must be at least {float(least):.2g}."
        hint = "Raise epsilon, or ask the curator for smaller bounds."
        raise Refusal("option-range", reason, hint=hint, place=query.clause.place)
    if build in _OF_EACH:
        query = _keep_one_partition(query, terms.tables, salts=salts)
    asked = MechanismRequest(query, terms, price, groups, own_cap)
    if build not in _LEANING:
        asked.refuse(("prefer", "penalty"), reason="{name} is for mechanism = stable.", hint="Leave it out.")
    mechanism_plan = _build_mechanism(build, asked)
    return mechanism_plan, replace(query, reads_total=pays_total(mechanism_plan.price, asked.k)), groups


def _consider(build: _Builder, query: PrivateQuery, *, terms: Terms, salts: tuple[int, int]) -> MechanismPlan:
    """Return the plan of a mechanism; refuse one of which more rows may cross than the policy allows."""
    mechanism_plan, query, groups = _build(build, query, terms=terms, salts=salts)
    limit = terms.limits.max_rows_fetched
    if limit is not None:
        with suppress(Unsupported):  # which is found out again if it is chosen
            rows = mechanism_plan.specify(query, None if groups is None else Bound(groups, salts)).rows
            check_rows(mechanism_plan, rows, query=query, limit=limit)
    return mechanism_plan


def _count_known_groups(query: PrivateQuery) -> int:
    """Return how many known groups a query has, 1 for a total."""
    if isinstance(query.domain, ReleasedDomain):
        return 1 if query.names is None else query.names.count
    return count_groups(query.domain) or 1


def _keep_one_partition(
    query: PrivateQuery, tables: Mapping[str, PrivateTable], *, salts: tuple[int, int]
) -> PrivateQuery:
    """Return the query so that each unit counts in one partition alone, where the policy says that it is in one."""
    partitions = query.partitions
    if partitions is None or not _has_one_value(partitions.column, tables):
        return query
    return replace(query, partitions=replace(partitions, salts=salts))


def _has_one_value(column: tuple[str, str] | None, tables: Mapping[str, PrivateTable]) -> bool:
    """Return whether the policy says that each unit has one value of a column, as (table, column)."""
    return column is not None and fold(column[1]) in map(fold, tables[column[0]].one_value_per_unit)


def _build_mechanism(build: _Builder, request: MechanismRequest) -> MechanismPlan:
    """Return the plan of a mechanism or, with partitions, of the mechanism in each of them."""
    partitions = request.query.partitions
    if partitions is None:
        return build(request)
    if not partitions.values:
        hint = "List them: partitions = ['DE', 'FR']."
        raise Refusal("partitions", "There is no partition.", hint=hint, place=partitions.place)
    build_partitions = each_partition if build in _OF_EACH else all_partitions
    return build_partitions(build, request, partitions=partitions)


def _read_mechanism(option: Option | None, query: PrivateQuery) -> tuple[Mapping[str, _Builder], str | None]:
    """Return the mechanisms for such a query, and the one that is asked for; refuse what is unknown or for another."""
    known = query.domain is not None
    fitting, others = (_KNOWN_DOMAIN, _UNKNOWN_DOMAIN) if known else (_UNKNOWN_DOMAIN, _KNOWN_DOMAIN)
    if query.clause.shape != "top":
        _check_no_mechanism(option)
        return _ALL_GROUPS, None
    if query.clause.is_adaptive:
        _check_adaptive(query)
        fitting, others = _ADAPTIVE, {**_UNKNOWN_DOMAIN, **_KNOWN_DOMAIN}
    name = "auto" if option is None else option.value
    if _is_auto(option):
        return fitting, None
    if option is None:
        return fitting, None
    if isinstance(name, str) and name in fitting:
        return fitting, name
    if name in others and query.clause.is_adaptive:
        hint = "Leave the mechanism out, or give a number: TOP 10 PRIVATE."
        raise Refusal("option", "TOP ADAPTIVE PRIVATE is for stable.", hint=hint, place=option.place)
    if name in others and known:
        reason, hint = f"A known domain is for {' or '.join(_KNOWN_DOMAIN)}.", "Leave the mechanism out."
        raise Refusal("option", reason, hint=hint, place=option.place)
    if name in others:
        hint = "Write domain = 'countries.country'."
        raise Refusal("option", f"{name} needs a known domain.", hint=hint, place=option.place)
    near = propose_name(str(name), MECHANISMS)
    hint = f"{near}Leave it out, or write one of {', '.join(MECHANISMS)}."
    raise Refusal("option", "There is no such mechanism.", hint=hint, place=option.place)


def _check_no_mechanism(option: Option | None) -> None:
    """Refuse a mechanism for all known groups or a total, which have one alone."""
    if option is not None and option.value != "auto":
        hint, reason = "Leave the mechanism out.", "All known groups, and totals, are released without selection."
        raise Refusal("option", reason, hint=hint, place=option.place)


def _check_words(query: PrivateQuery) -> None:
    """Refuse what is neither true nor false where a word must be, and counts to be shown otherwise where none are."""
    options = query.clause.options
    known = options.get("known")
    if known is not None and not (known.word and known.value in {"true", "false", "all"}):
        hint = "Write known = false for a threshold for all names, known = all for names without rows, or leave it out."
        raise Refusal("option", "known is true, false or all.", hint=hint, place=known.place)
    if known is not None and known.value == "false" and isinstance(query.domain, ReleasedDomain):
        reason = "known = false ignores the names to which domain = released restricts the query."
        raise Refusal("option", reason, hint="Leave known out.", place=known.place)
    for name, hint in _WORDS.items():
        option = options.get(name)
        if option is not None and not (option.word and option.value in {"true", "false"}):
            raise Refusal("option", f"{name} is true or false.", hint=hint, place=option.place)
    if "monotone" in options and not query.releases_counts:
        hint = f"Select COUNT(DISTINCT {query.unit_name}) too, or leave it out."
        place = options["monotone"].place
        raise Refusal("option", "monotone is for released counts, and none are selected.", hint=hint, place=place)


def _check_adaptive(query: PrivateQuery) -> None:
    if query.domain is not None:
        hint, place = "Leave the domain out, or give a number: TOP 3 PRIVATE.", query.clause.options["domain"].place
        raise Refusal("option", "TOP ADAPTIVE PRIVATE has no domain.", hint=hint, place=place)
