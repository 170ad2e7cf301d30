"""From a question and the session's terms to a plan: which mechanism answers, within the policy's ceilings.

Only public numbers decide here: the statement, the policy and earlier answers. What a mechanism can do stands in its
record (`mechanisms/record.py`), and only the mechanism that answers is planned.

Terms of a whole query, which SELECT WITH DIFFERENTIAL_PRIVACY states, become options of one item. A query that has loss
rho and a delta of its own, d, is (epsilon, delta)-differentially private if rho implies (epsilon, delta - d)-
differential privacy. Where the mechanism needs a delta, d is half of the delta that is stated, and 0 elsewhere. Of the
items that the query may return at worst, each then has the largest epsilon, rounded down to five digits, with which all
of them cost at most rho.

How many groups there are is a function of the rows of each unit, so a statement is never stopped or shortened because
there are more than expected: with max_rows_fetched a mechanism may answer only if a number that is public beforehand
bounds its rows. Those of the candidates in a public table are not limited: their number is public, and the curator's
own choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from types import MappingProxyType

from dpsql.accounting import ApproximateDP, Certificate, rho_of_total
from dpsql.errors import Refusal, Unsupported
from dpsql.mechanisms.sampling.race import LEAST_EPSILON
from dpsql.plan.cache.readings import find_changed_readings
from dpsql.plan.cache.replay_key import compute_keys, order_canonically
from dpsql.plan.measures.bounds import bound_measures
from dpsql.plan.mechanisms import RowsRead
from dpsql.plan.mechanisms.auto import Candidate, Fit, choose, choose_over_names, compare
from dpsql.plan.mechanisms.base import MechanismPlan, ReleaseSpec, sqrt_rounded_down
from dpsql.plan.mechanisms.counts_by_item import pays_total
from dpsql.plan.mechanisms.per_partition import plan_request
from dpsql.plan.mechanisms.record import Auto, Domain, Mechanism, PerPartition
from dpsql.plan.mechanisms.records import list_names, list_records
from dpsql.plan.mechanisms.request import (
    OWN_CAP,
    MechanismRequest,
    check_partitions,
    find_min_units,
    price_items,
    read_epsilon,
    read_groups,
    refuse_mechanism,
)
from dpsql.plan.plan import Plan
from dpsql.plan.terms import Terms
from dpsql.policy import PrivateTable
from dpsql.policy.validation import fold
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.scope import propose_name
from dpsql.sql.ir.statements import LiteralDomain, Option, PrivateQuery, QueryTerms, ReleasedDomain, count_groups
from dpsql.sql.rewrite.engine_query import Bound
from dpsql.sql.rewrite.passes import confine_to_values

_OF_SOME = ("prefer",)  # options of a mechanism that is named where another is asked for them
_NO_MEANING = {  # where a mechanism does not take delta or k_bar, and what to do
    Domain.UNKNOWN: ("with this mechanism", "Leave it out: all groups are read."),
    Domain.KNOWN: ("with a domain", "Leave it out: every candidate of the domain is read, and no delta is spent."),
    Domain.ALL: ("where nothing is selected", "Leave it out."),
}
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
    options, k = query.clause.options, query.clause.k
    if k is not None and k > terms.limits.max_k:
        hint = f"Ask for at most {terms.limits.max_k}."
        raise Refusal("k", f"k may be at most {terms.limits.max_k} here.", hint=hint, place=query.clause.place)
    fitting, named = _read_mechanism(options.get("mechanism"), query)
    _check_words(query)
    min_units = find_min_units(query, terms)
    if query.names is not None and min_units > 1:
        query = replace(query, names=None)  # a known name does not promise so many units
    request = _read_request(query, terms, first=named or fitting[0], min_units=min_units)

    def fit(mechanism: Mechanism) -> MechanismRequest:
        return _fit(mechanism, request, salts=salts)

    considered: tuple[Candidate, ...] = ()
    if query.explained and k is not None:
        considered = compare(_list_compared(fitting, query, explained=True), fit)
    mechanism = named or _choose(fitting, query, fit=fit)
    fitted = fit(mechanism)
    try:
        mechanism_plan, spec = _plan(mechanism, fitted, salts=salts)
    except Unsupported:  # an engine that cannot look up weights
        if named is not None or not mechanism.weighs:
            raise
        mechanism = fitting[0]
        fitted = fit(mechanism)
        mechanism_plan, spec = _plan(mechanism, fitted, salts=salts)
    check_rows(mechanism_plan, spec.rows, query=query, limit=terms.limits.max_rows_fetched)
    plan = Plan(
        query=_share_total(fitted.query, mechanism_plan, k=fitted.k),
        record=mechanism,
        request=fitted,
        mechanism_plan=mechanism_plan,
        spec=spec,
        max_groups_contributed=fitted.groups,
        rule=terms.rule,
        considered=considered,
        population=_read_population(request),
    )
    keys = compute_keys(
        plan,
        bound=request.groups,
        min_units=min_units,
        uses_names=terms.uses_known_names,
        reread=None if query.counts_units_alone else find_changed_readings(query, terms),
    )
    return replace(
        _note_list(plan, terms),
        key=keys.question,
        release_key=keys.release,
        similar_keys=(*keys.similar, keys.release),
        named_keys=keys.named,
        earlier_key=keys.earlier,
    )


def _read_request(query: PrivateQuery, terms: Terms, *, first: Mechanism, min_units: int) -> MechanismRequest:
    """Return what a query asks of any mechanism; refuse an epsilon that is too small for its measures.

    A certificate that does not cover the `first` of them refuses before.
    """
    options, clause = query.clause.options, query.clause
    _check_certificate(first, query, terms=terms)
    groups = read_groups(options.get("max_groups_contributed"), [terms.tables[name] for name in query.tables])
    epsilon = read_epsilon(options.get("epsilon"), terms)
    measures = query.measures if query.releases_counts else ()
    least = max(LEAST_EPSILON * each for each in (1, *(measure.width for measure in query.measures)))
    if epsilon.value < least:
        reason = f"With these bounds epsilon must be at least {float(least):.2g}."
        hint = "Raise epsilon, or ask the curator for smaller bounds."
        raise Refusal("option-range", reason, hint=hint, place=clause.place)
    price = price_items(epsilon, groups, measures=measures, certificate=terms.certificate)
    return MechanismRequest(query, terms, price, groups, min_units)


def _check_certificate(mechanism: Mechanism, query: PrivateQuery, *, terms: Terms) -> None:
    """Refuse a mechanism, or partitions, whose loss is not known under the certificate of the session."""
    certificate = terms.certificate
    if certificate not in mechanism.certificates:
        raise refuse_mechanism(mechanism.name, query.clause, certificate=certificate)
    check_partitions(query.partitions, certificate=certificate)


def _fit(mechanism: Mechanism, request: MechanismRequest, *, salts: tuple[int, int]) -> MechanismRequest:
    """Return the request as a mechanism has it: with its bound and its price, and the partitions that it charges.

    Raises `Refusal` for a certificate or an option that is not for the mechanism.
    """
    query, terms, partitions = request.query, request.terms, request.query.partitions
    _check_certificate(mechanism, query, terms=terms)
    _check_options(mechanism, request)
    if partitions is not None and not partitions.values:
        hint = "List them: partitions = ['DE', 'FR']."
        raise Refusal("partitions", "There is no partition.", hint=hint, place=partitions.place)
    groups, price = request.groups, request.price
    if mechanism.domain is Domain.ALL:
        groups = _bound_known_groups(request)
        if groups != request.groups:
            measures = query.measures if query.releases_counts else ()
            price = price_items(price.epsilon, groups, measures=measures, certificate=terms.certificate)
    if price.contributions and (partitions is not None or not mechanism.draws_after):
        price = replace(price, contributions=())
    own_cap = groups is None and mechanism.weighs
    fitted = replace(request, price=price, groups=OWN_CAP if own_cap else groups, own_cap=own_cap)
    if partitions is None or mechanism.per_partition is not PerPartition.EACH:
        return fitted
    # the query's delta is that of the runs that add up; with min_units of all, since in each a small group may pass
    if _has_one_value(partitions.column, terms.tables):  # each unit then counts in one partition alone
        query = replace(query, partitions=replace(partitions, salts=salts))
    count = len(partitions.values)
    charged = 1 if query.partitions is not partitions or partitions.salts is not None else min(count, groups or count)
    return replace(fitted, query=query, runs=charged if request.min_units == 1 else count, charged=charged)


def _check_options(mechanism: Mechanism, request: MechanismRequest) -> None:
    """Refuse an option that has no meaning with the mechanism."""
    options = request.query.clause.options
    for name in _OF_SOME:
        if name in options and name not in mechanism.options:
            takes = dict.fromkeys(each.name for each in list_records() if name in each.options)
            reason = f"{name} is for mechanism = {' or '.join(takes)}."
            raise Refusal("option", reason, hint="Leave it out.", place=options[name].place)
    for name in ("delta", "k_bar"):
        if name in options and name not in mechanism.options:
            where, hint = _NO_MEANING[mechanism.domain]
            raise Refusal("option", f"{name} has no meaning {where}.", hint=hint, place=options[name].place)


def _bound_known_groups(request: MechanismRequest) -> int | None:
    """Return the bound of the groups of each unit where all of them are known; None if no unit can be in more."""
    query = request.query
    groups = 1 if _has_one_value(query.key_column, request.terms.tables) else request.groups  # as the engine keeps it
    return None if groups is not None and _count_known_groups(query) <= groups else groups


def _list_compared(fitting: Sequence[Mechanism], query: PrivateQuery, *, explained: bool = False) -> list[Mechanism]:
    """Return the mechanisms that AUTO chooses among, in EXPLAIN with those that it shows beside them."""
    allowed = {Auto.ALWAYS, *([Auto.UNITS] if query.counts_units_alone else []), *([Auto.NEVER] if explained else [])}
    return [each for each in fitting if each.auto in allowed]


def _choose(fitting: Sequence[Mechanism], query: PrivateQuery, *, fit: Fit) -> Mechanism:
    """Return the mechanism that AUTO chooses for a query; the first if none can answer, which then says why."""
    names, k, domain, chosen = query.names, query.clause.k, query.domain, None
    if names is not None and k is not None and domain is None and names.count >= k:
        over_names = [*fitting, *list_records(Domain.KNOWN)]
        chosen = choose_over_names(over_names, fit, k=k, known=names.count)
    among = _list_compared(fitting, query)
    if chosen is None and k is not None and len(among) > 1:
        chosen = choose(among, fit)
    chosen = chosen or fitting[0]
    if isinstance(domain, LiteralDomain) and k is not None and query.releases_counts:
        # all counts of a listed domain can cost fewer items than a choice and the counts of k
        items = min(k, len(domain.values))
        for each in list_records(Domain.ALL):
            with suppress(Refusal):
                if each.price(fit(each)).items(items) < chosen.price(fit(chosen)).items(items):
                    return each
    return chosen


def _plan(
    mechanism: Mechanism, request: MechanismRequest, *, salts: tuple[int, int]
) -> tuple[MechanismPlan, ReleaseSpec]:
    """Return the plan of a mechanism, and what is known of its release before a row is read."""
    plan = plan_request(mechanism, request)
    bound = None if request.groups is None else Bound(request.groups, salts)
    return plan, plan.specify(_share_total(request.query, plan, k=request.k), bound)


def _share_total(query: PrivateQuery, plan: MechanismPlan, *, k: int) -> PrivateQuery:
    """Return the query that reads the number of units where counts of some rows have less noise with it."""
    return replace(query, reads_total=True) if pays_total(plan.price, k) else query


def _note_list(plan: Plan, terms: Terms) -> Plan:
    """Return the plan of a list that is cut with its note: it proposes what the whole budget of the policy buys."""
    cut = plan.query.cut_list
    if cut is None:
        return plan
    limit = terms.budget if terms.account is None else terms.account.budget
    price, items = plan.price(plan.worst_case).refundable, plan.worst_items
    note = cut.describe(lambda k: price * plan.items(k) <= limit.refundable * items)
    return replace(plan, query=replace(plan.query, list_note=note))


def _read_population(request: MechanismRequest) -> int | None:
    """Return about how many units there are, in public, for messages: the least that a table read says.

    It says nothing about sums of rows and values, nor about units that a bound keeps out of groups.
    """
    query, tables = request.query, request.terms.tables
    if (
        request.groups is not None
        or query.partitions is not None
        or query.domain is not None
        or query.measures[0].bounds is not None
    ):
        return None
    return min((most for name in query.tables if (most := tables[name].population) is not None), default=None)


def _count_known_groups(query: PrivateQuery) -> int:
    """Return how many known groups a query has, 1 for a total."""
    if isinstance(query.domain, ReleasedDomain):
        return 1 if query.names is None else query.names.count
    return count_groups(query.domain) or 1


def _has_one_value(column: tuple[str, str] | None, tables: Mapping[str, PrivateTable]) -> bool:
    """Return whether the policy says that each unit has one value of a column, as (table, column)."""
    return column is not None and fold(column[1]) in map(fold, tables[column[0]].one_value_per_unit)


def _read_mechanism(option: Option | None, query: PrivateQuery) -> tuple[list[Mechanism], Mechanism | None]:
    """Return the mechanisms for such a query, and the one that is asked for; refuse what is unknown or for another."""
    known = query.domain is not None
    if query.clause.shape != "top":
        _check_no_mechanism(option)
        return list_records(Domain.ALL), None
    domain = Domain.KNOWN if known else Domain.UNKNOWN
    if query.clause.is_adaptive:
        _check_adaptive(query)
        domain = Domain.ADAPTIVE
    fitting = list_records(domain)
    if option is None or option.value == "auto":
        return fitting, None
    for mechanism in fitting:
        if option.value == mechanism.name:
            return fitting, mechanism
    places, name = {each.domain for each in list_records() if each.name == option.value} - {Domain.ALL}, option.value
    if not places:
        near = propose_name(str(name), list_names())
        hint = f"{near}Leave it out, or write one of {', '.join(list_names())}."
        raise Refusal("option", "There is no such mechanism.", hint=hint, place=option.place)
    reason, hint = f"{name} needs a known domain.", "Write domain = 'countries.country'."
    if query.clause.is_adaptive:
        reason = f"TOP ADAPTIVE PRIVATE is for {_list_or(fitting)}."
        hint = "Leave the mechanism out, or give a number: TOP 10 PRIVATE."
    elif known:
        reason, hint = f"A known domain is for {_list_or(fitting)}.", "Leave the mechanism out."
    raise Refusal("option", reason, hint=hint, place=option.place)


def _list_or(mechanisms: Sequence[Mechanism]) -> str:
    return " or ".join(each.name for each in mechanisms)


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


_ROUNDS = 8  # the planner may choose another mechanism, with other items, at another epsilon
_DIGITS = Context(prec=5, rounding=ROUND_DOWN)
_HALF = Context(prec=20, rounding=ROUND_DOWN)


def plan_within_terms(
    query: PrivateQuery, stated: QueryTerms, *, terms: Terms, build: Callable[[PrivateQuery], Plan]
) -> Plan:
    """Return the plan of a query whose worst case is within the terms that it states; refuse what does not convert."""
    query = replace(query, clause=replace(query.clause, terms=None))
    _check_stated_min_units(query, stated, terms=terms)
    if stated.epsilon is None:
        if stated.delta is not None:
            hint = "Add epsilon = 1 to OPTIONS, or leave delta out."
            reason = "The delta of a whole query means nothing without its epsilon."
            raise Refusal("option", reason, hint=hint, place=stated.delta.place)
        return build(query)
    epsilon, delta = _read_stated_epsilon(stated.epsilon), _read_stated_delta(stated, terms=terms)
    plan = build(query)
    for _ in range(_ROUNDS):
        worst = plan.price(plan.worst_case)
        own = _HALF.divide(delta, Decimal(2)) if worst.permanent else Decimal(0)
        rho = rho_of_total(ApproximateDP(Epsilon(epsilon), Delta(Fraction(delta) - Fraction(own)))).value
        item = _round_down(sqrt_rounded_down(plan.epsilon.value**2 * rho / worst.refundable))
        options = {**query.clause.options, "epsilon": Option(item, stated.epsilon.place)}
        if own and stated.delta is not None:
            options["delta"] = Option(own, stated.delta.place)
        _check_item(item, stated.epsilon, terms=terms)
        plan = build(replace(query, clause=replace(query.clause, options=MappingProxyType(options))))
        worst = plan.price(plan.worst_case)
        if worst.refundable <= rho and worst.permanent <= Fraction(own):
            return plan
    hint = "Leave epsilon and delta out of OPTIONS: the query then costs what the policy says."
    raise Refusal("option", "These terms do not convert to those of an item.", hint=hint, place=stated.place)


def _read_stated_epsilon(option: Option) -> Fraction:
    if not isinstance(option.value, Decimal) or not option.value:
        hint = "Write epsilon = 1."
        raise Refusal("option-range", "epsilon must be a number above 0.", hint=hint, place=option.place)
    return Fraction(option.value)


def _read_stated_delta(stated: QueryTerms, *, terms: Terms) -> Decimal:
    """Return the delta of the whole query; refuse a session or a statement that has none to convert with."""
    if terms.certificate is not Certificate.zcdp:
        hint = "Leave epsilon and delta out of OPTIONS: the query then costs what the policy says."
        reason = f"Under the certificate {terms.certificate.value} the terms of a whole query are not converted."
        raise Refusal("certificate", reason, hint=hint, place=stated.place)
    if stated.delta is None:
        hint = "Add delta = 1e-8 to OPTIONS."
        reason = "The epsilon of a whole query converts to items only with a delta."
        raise Refusal("option", reason, hint=hint, place=stated.place)
    value = stated.delta.value
    if not isinstance(value, Decimal) or not 0 < value < 1:
        hint = "Write delta = 1e-8."
        raise Refusal("option-range", "delta must be above 0 and below 1.", hint=hint, place=stated.delta.place)
    return value


def _check_item(item: Decimal, option: Option, *, terms: Terms) -> None:
    """Refuse an epsilon that leaves an item more or less than the policy allows."""
    low, high = terms.limits.min_epsilon.value, terms.limits.max_epsilon.value
    if low <= Fraction(item) <= high:
        return
    change, than = ("Lower", "at most") if Fraction(item) > high else ("Raise", "at least")
    limit = high if Fraction(item) > high else low
    hint = f"{change} epsilon, or leave epsilon and delta out of OPTIONS."
    reason = f"This leaves {item} for each item, and the policy wants {than} {float(limit):g}."
    raise Refusal("option-range", reason, hint=hint, place=option.place)


def _check_stated_min_units(query: PrivateQuery, stated: QueryTerms, *, terms: Terms) -> None:
    """Refuse more units of a group than the policy's min_units sees to."""
    option = stated.min_units
    if option is None:
        return
    most = max(terms.tables[name].min_units or 1 for name in query.tables)
    if isinstance(option.value, Decimal) and option.value.as_tuple().exponent == 0 and 1 <= option.value <= most:
        return
    hint = "Leave it out." if most == 1 else f"Write min_privacy_units_per_group = {most}, or leave it out."
    reason = f"The smallest number of units of a group is the policy's min_units, {most} here."
    raise Refusal("min-units", reason, hint=hint, place=option.place)


def _round_down(value: Fraction) -> Decimal:
    return _DIGITS.create_decimal(Decimal(int(value * 10**12)).scaleb(-12))


def check_rows(mechanism_plan: MechanismPlan, rows: RowsRead, *, query: PrivateQuery, limit: int | None) -> None:
    """Raise `Refusal` where the engine may return more rows than `limit`; None is no limit."""
    if limit is None or (rows.most is not None and rows.most <= limit):
        return
    clause, domain = query.clause, query.domain
    if rows.most is None and domain is not None and not rows.known:
        return
    option = clause.options.get("domain" if domain is not None else "mechanism")
    reason = (
        f"This may fetch {rows.most:,} rows from the engine" if rows.most else _describe_all(mechanism_plan, domain)
    )
    reason = f"{reason}, and the policy allows {limit:,} (max_rows_fetched)."
    place = clause.place if option is None else option.place
    raise Refusal("rows-fetched", reason, hint=_propose(query, limit=limit), place=place)


def _describe_all(mechanism_plan: MechanismPlan, domain: object) -> str:
    name = "domain = released" if isinstance(domain, ReleasedDomain) else mechanism_plan.selection.name
    return f"{name} may fetch a row for each group from the engine"


def _propose(query: PrivateQuery, *, limit: int) -> str:
    if isinstance(query.domain, ReleasedDomain):
        return "List the names: domain = ['a', 'b']."
    if query.domain is not None:
        return f"List at most {limit:,} candidates, or narrow the time in WHERE."
    if query.partitions is not None:
        k = query.clause.k or 1
        return f"List at most {limit // (k + 1):,} partitions, and write mechanism = limited_domain if one is named."
    return "Leave the mechanism out, or write mechanism = limited_domain."
