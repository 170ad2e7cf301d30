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

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from functools import partial
from types import MappingProxyType

from dpsql.accounting import ApproximateDP, Certificate, rho_of_total
from dpsql.errors import Refusal, Unsupported
from dpsql.mechanisms.base import LEAST_EPSILON
from dpsql.plan.identity.replay_key import compute_keys, find_changed_readings, order_canonically
from dpsql.plan.measures.bounds import bound_measures, bound_quantiles
from dpsql.plan.mechanisms.base import MechanismPlan, RowsRead, price_items, sqrt_rounded_down
from dpsql.plan.mechanisms.candidates import KNOWN_KEYS
from dpsql.plan.mechanisms.choice import (
    Adapt,
    choose,
    choose_over_names,
    list_mechanism_names,
    list_records,
    predict_candidates,
)
from dpsql.plan.mechanisms.draws import pays_total
from dpsql.plan.mechanisms.per_partition import plan_partitions
from dpsql.plan.mechanisms.quantiles import plan_quantiles
from dpsql.plan.mechanisms.record import (
    MOST_GROUPS,
    OWN_CAP,
    Auto,
    Candidate,
    Mechanism,
    MechanismRequest,
    PerPartition,
    QueryKind,
)
from dpsql.plan.plan import Plan
from dpsql.policy.validation import fold
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.scope import propose_name
from dpsql.sql.ir.statements import LiteralDomain, Option, PrivateQuery, ReleasedDomain, StatedTotal, count_groups
from dpsql.sql.rewrite.engine_query import Bound, confine_to_values
from dpsql.terms import Terms, read_number, read_whole_number

_MOST_MIN_UNITS = 10**9
_ROUNDS = 8  # the planner may choose another mechanism, with other items, at another epsilon
_DIGITS = Context(prec=5, rounding=ROUND_DOWN)
_HALF = Context(prec=20, rounding=ROUND_DOWN)
RETIRED = frozenset(["relay"])
_NO_MEANING = {  # where a mechanism does not take delta or k_bar, and what to do
    QueryKind.UNKNOWN: ("with this mechanism", "Leave it out: all groups are read."),
    QueryKind.KNOWN: ("with a domain", "Leave it out: every candidate of the domain is read, and no delta is spent."),
    QueryKind.ALL: ("where nothing is selected", "Leave it out."),
}
_WORDS = {
    "consent": "Write consent = true to run the query even if it can hardly return a row, or leave it out.",
    "gate": "Write gate = false for no look before the price is paid, or leave it out.",
    "fresh": "Write fresh = true for new noise, charged again, or leave it out.",
    "monotone": "Write monotone = true for counts that never rise along the ranking, or leave it out.",
    "reuse": "Write reuse = true to take what follows from a stored answer, reuse = false for none, or leave it out.",
}


def build_plan(query: PrivateQuery, terms: Terms, *, salts: tuple[int, int]) -> Plan:
    """Return the plan for a query; refuse options outside the policy's ceilings. `salts` are the session's own."""
    stated = query.clause.stated
    if stated is not None:
        terms = _raise_min_units(query, stated, terms=terms)
        return plan_within_stated(query, stated, terms=terms, build=lambda each: build_plan(each, terms, salts=salts))
    plan = plan_unkeyed(query, terms, salts=salts)
    asked = plan.request.query  # with what its text says alone
    keys = compute_keys(
        plan,
        # the bound as written: that of the plan may be the mechanism's own (OWN_CAP), which no key depends on
        bound=_read_max_groups_contributed(asked, terms),
        min_units=plan.request.min_units,
        uses_names=terms.uses_known_names,
        reread=None if asked.counts_units_alone else find_changed_readings(asked, terms),
        k=query.clause.k,
    )
    cut = plan.query.cut_list
    if cut is not None:  # its note proposes what the whole budget of the policy buys
        limit = (terms.budget if terms.account is None else terms.account.budget).refundable
        price, items, whole = plan.price(plan.worst_case).refundable, plan.worst_items, plan
        note = cut.describe(lambda k: price * whole.items(k) <= limit * items)
        plan = replace(plan, query=replace(plan.query, list_note=note))
    return replace(
        plan,
        key=keys.question,
        release_key=keys.release,
        similar_keys=(*keys.similar, keys.release),
        named_keys=keys.named,
        earlier_key=keys.earlier,
        series=keys.series,
    )


def plan_unkeyed(query: PrivateQuery, terms: Terms, *, salts: tuple[int, int]) -> Plan:
    """Return the plan of a query that states no terms of its own, without the keys by which an answer is found."""
    # Keys get their canonical order first: a bound hashes them, and the cut breaks ties, in that order.
    query = bound_measures(order_canonically(confine_to_values(query)), terms)
    query = bound_quantiles(query, terms) if query.quantiles else query
    clause, k = query.clause, query.clause.k
    if k is not None and k > terms.limits.max_k:
        hint = f"Ask for at most {terms.limits.max_k}."
        raise Refusal("k", f"k may be at most {terms.limits.max_k} here.", hint=hint, place=clause.place)
    query = _lower_k(query)
    options, clause, k = query.clause.options, query.clause, query.clause.k
    # fitting: the mechanisms for such a query; the first is the one to fall back on (order of RECORDS)
    fitting, named = _read_mechanism(options.get("mechanism"), query)
    min_units = max(terms.min_units, *(terms.tables[name].min_units or 1 for name in query.tables))
    if query.names is not None and min_units > 1:
        query = replace(query, names=None)  # a known name does not promise so many units
    _check_words(query, terms, min_units=min_units)
    _check_certificate(named or fitting[0], query, terms=terms)
    groups, epsilon = _read_max_groups_contributed(query, terms), _read_epsilon(query, terms)
    measures = query.measures if query.releases_counts else ()
    price = price_items(epsilon, groups, measures=measures, certificate=terms.certificate)
    request = MechanismRequest(query, terms, price, groups, min_units)
    adapt = partial(_adapt_request, request=request, salts=salts)
    considered: tuple[Candidate, ...] = ()
    if query.explained and k is not None:
        considered = predict_candidates(_list_compared(fitting, query, explained=True), adapt)
    mechanism = named or _choose(fitting, query, adapt=adapt)
    while True:  # twice at most: where the engine cannot look up weights, the first one answers
        adapted = adapt(mechanism)
        planned = mechanism.plan(adapted) if query.partitions is None else plan_partitions(mechanism, adapted)
        planned = plan_quantiles(planned, adapted, salts=salts) if query.quantiles else planned
        # where counts of some rows have less noise with it, the number of units is read, too
        query_to_run = replace(adapted.query, reads_total=pays_total(planned.price, adapted.k), item_salts=salts)
        try:
            most = adapted.max_groups_contributed
            spec = planned.specify(query_to_run, None if most is None else Bound(most, salts))
        except Unsupported:  # an engine that cannot look up weights
            if named is not None or not mechanism.weighs or mechanism is fitting[0]:
                raise
            mechanism = fitting[0]
        else:
            break
    rows = spec.rows if spec.build_second is None else replace(spec.rows, max_rows=None)
    _check_rows(planned, rows, query=query, limit=terms.limits.max_rows_fetched)
    # about how many units there are, in public, for messages: it says nothing about sums of rows and values, nor about
    # units that a bound keeps out of groups
    population = None
    if groups is None and query.partitions is None and query.domain is None and query.measures[0].bounds is None:
        known = [most for name in query.tables if (most := terms.tables[name].population) is not None]
        population = min(known, default=None)
    return Plan(
        query=query_to_run,
        record=mechanism,
        request=adapted,
        mechanism_plan=planned,
        spec=spec,
        max_groups_contributed=adapted.max_groups_contributed,
        rule=terms.rule,
        considered=considered,
        population=population,
    )


def _lower_k(query: PrivateQuery) -> PrivateQuery:
    """Return the query with a k that is at most the number of values that its keys can have, by the text alone."""
    k = query.clause.k
    values = query.key_values if query.domain is None else count_groups(query.domain)
    if k is None or not values or values >= k:
        return query
    whose = "the key" if len(query.keys) == 1 + (query.partitions is not None) else "the keys"
    note = f"k = {values}: {whose} can have {values} {'value' if values == 1 else 'values'}"
    return replace(query, clause=replace(query.clause, k=values), k_note=note, cut_list=None)


def _read_max_groups_contributed(query: PrivateQuery, terms: Terms) -> int | None:
    """Return the number of groups in which a unit counts: that of the query, at most the bound of any table in it."""
    bounds = [most for name in query.tables if (most := terms.tables[name].max_groups_contributed) is not None]
    most = min(bounds, default=None)
    option = query.clause.options.get("max_groups_contributed")
    asked = read_whole_number(option, "max_groups_contributed", bounds=(1, most or MOST_GROUPS))
    return most if asked is None else asked


def _read_epsilon(query: PrivateQuery, terms: Terms) -> Epsilon:
    """Return the epsilon of one item: that of the query, which the certificate must cover, or that of the session.

    Refuse one that is too small for the measures.
    """
    option, epsilon, fixed = query.clause.options.get("epsilon"), terms.epsilon, terms.certified.epsilon
    if option is not None:
        limits = terms.limits.min_epsilon.value, terms.limits.max_epsilon.value
        epsilon = Epsilon(read_number(option, "epsilon", bounds=limits))
        if fixed is not None and epsilon != fixed and terms.certificate is Certificate.theorem2:
            reason = f"Under the certificate theorem2 every item has the epsilon {fixed}."
            raise Refusal("certificate", reason, hint="Leave epsilon out.", place=option.place)
        if fixed is not None and epsilon.value > fixed.value:
            reason = f"Under the certificate {terms.certificate.value} no item has an epsilon above {fixed}."
            raise Refusal("certificate", reason, hint="Leave epsilon out, or ask for less.", place=option.place)
    least = max(LEAST_EPSILON * each for each in (1, *(measure.width for measure in query.measures)))
    if epsilon.value < least:
        reason = f"With these bounds epsilon must be at least {float(least):.2g}."
        hint = "Raise epsilon, or ask the curator for smaller bounds."
        raise Refusal("option-range", reason, hint=hint, place=query.clause.place)
    return epsilon


def _check_certificate(mechanism: Mechanism, query: PrivateQuery, *, terms: Terms) -> None:
    """Refuse a mechanism whose loss is not known under the session's certificate, and PER, which is added up in rho."""
    certificate, clause = terms.certificate, query.clause
    if certificate not in mechanism.certificates:
        option, asked, hint = clause.options.get("mechanism"), mechanism.name, "Leave the mechanism out."
        place = clause.place if option is None or clause.is_adaptive else option.place
        if clause.is_adaptive:
            asked, hint = "TOP ADAPTIVE PRIVATE", "Give a number, and leave the mechanism out: TOP 10 PRIVATE."
        reason = f"{asked} has no loss under the certificate {certificate.value}, which is for items of bounded range"
        raise Refusal("certificate", f"{reason} alone.", hint=hint, place=place)
    if certificate is not Certificate.zcdp and query.partitions is not None:
        reason = f"PER has no loss under the certificate {certificate.value}."
        raise Refusal("certificate", reason, hint="Ask once for each.", place=query.partitions.place)


def _adapt_request(mechanism: Mechanism, *, request: MechanismRequest, salts: tuple[int, int]) -> MechanismRequest:
    """Return the request as a mechanism has it: with its bound and its price, and the partitions that it charges.

    Raises `Refusal` for a certificate or an option that is not for the mechanism.
    """
    query, terms, partitions = request.query, request.terms, request.query.partitions
    _check_certificate(mechanism, query, terms=terms)
    _check_options(mechanism, query)
    if partitions is not None and not partitions.values:
        hint = "List them: partitions = ['DE', 'FR']."
        raise Refusal("partitions", "There is no partition.", hint=hint, place=partitions.place)
    groups, price = request.max_groups_contributed, request.price
    if mechanism.kind is QueryKind.ALL:  # all groups are known, and no unit may be in more of them than the bound
        known = count_groups(query.domain) or 1
        if isinstance(query.domain, ReleasedDomain):
            known = 1 if query.names is None else query.names.count
        groups = 1 if has_one_value(query.key_column, terms) else groups  # as the engine keeps it
        groups = None if groups is not None and known <= groups else groups
        if groups != request.max_groups_contributed:
            measures = query.measures if query.releases_counts else ()
            price = price_items(price.epsilon, groups, measures=measures, certificate=terms.certificate)
    # Without contributions no total is shared: counts that come with their keys, and PER, have noise of their own.
    if price.contributions and (partitions is not None or not mechanism.draws_after):
        price = replace(price, contributions=())
    own_cap = groups is None and mechanism.weighs
    adapted = replace(request, price=price, max_groups_contributed=OWN_CAP if own_cap else groups, own_cap=own_cap)
    if partitions is None or mechanism.per_partition is not PerPartition.EACH:
        return adapted
    # the query's delta is that of the runs that add up; with min_units of all, since in each a small group may pass
    if has_one_value(partitions.column, terms):  # each unit then counts in one partition alone
        query = replace(query, partitions=replace(partitions, salts=salts))
    count = len(partitions.values)
    charged = 1 if query.partitions is not partitions or partitions.salts is not None else min(count, groups or count)
    return replace(adapted, query=query, runs=charged if request.min_units == 1 else count, charged=charged)


def _check_options(mechanism: Mechanism, query: PrivateQuery) -> None:
    """Refuse an option that has no meaning with the mechanism."""
    for name in ("prefer", "gate", "delta", "k_bar"):
        option = query.clause.options.get(name)
        if option is not None and name not in mechanism.options:
            where, hint = _NO_MEANING[mechanism.kind]
            reason = f"{name} has no meaning {where}."
            if name in {"prefer", "gate"}:
                takes = dict.fromkeys(each.name for each in list_records() if name in each.options)
                reason, hint = f"{name} is for mechanism = {' or '.join(takes)}.", "Leave it out."
            raise Refusal("option", reason, hint=hint, place=option.place)


def has_one_value(column: tuple[str, str] | None, terms: Terms) -> bool:
    """Return whether the policy says that each unit has one value of a column, as (table, column)."""
    return column is not None and fold(column[1]) in map(fold, terms.tables[column[0]].one_value_per_unit)


def _list_compared(fitting: Sequence[Mechanism], query: PrivateQuery, *, explained: bool = False) -> list[Mechanism]:
    """Return the mechanisms that AUTO chooses among, in EXPLAIN with those that it shows beside them."""
    allowed = {Auto.ALWAYS, *([Auto.UNITS] if query.counts_units_alone else []), *([Auto.NEVER] if explained else [])}
    return [each for each in fitting if each.auto in allowed]


def _choose(fitting: Sequence[Mechanism], query: PrivateQuery, *, adapt: Adapt) -> Mechanism:
    """Return the mechanism that AUTO chooses for a query; the first if none can answer, which then says why.

    In this order: over known names; else the least price and need (`choose`); else the first for such a query; last,
    all counts of a listed domain if they cost fewer items. For TOP k of units this is two_looks, which
    `replaces` limited_domain.
    """
    names, k, domain, chosen = query.names, query.clause.k, query.domain, None
    if names is not None and k is not None and domain is None and names.count >= k:
        over_names = [*fitting, *list_records(QueryKind.KNOWN)]
        chosen = choose_over_names(over_names, adapt, k=k, known=names.count)
    among = _list_compared(fitting, query)
    if chosen is None and k is not None and len(among) > 1:
        chosen = choose(among, adapt)
    chosen = chosen or fitting[0]
    if isinstance(domain, LiteralDomain) and k is not None and query.releases_counts:
        # all counts of a listed domain can cost fewer items than a choice and the counts of k
        items = min(k, len(domain.values))
        for each in list_records(QueryKind.ALL):
            with suppress(Refusal):
                if each.price(adapt(each)).items(items) < chosen.price(adapt(chosen)).items(items):
                    return each
    return chosen


def _read_mechanism(option: Option | None, query: PrivateQuery) -> tuple[list[Mechanism], Mechanism | None]:
    """Return the mechanisms for such a query, and the one that is asked for; refuse what is unknown or for another."""
    clause, is_known = query.clause, query.domain is not None
    if clause.shape != "top":
        if option is not None and option.value != "auto":
            reason = "All known groups, and totals, are released without selection."
            raise Refusal("option", reason, hint="Leave the mechanism out.", place=option.place)
        return [KNOWN_KEYS] if query.quantiles and not query.releases_counts else list_records(QueryKind.ALL), None
    if clause.is_adaptive and is_known:
        hint, place = "Leave the domain out, or give a number: TOP 3 PRIVATE.", clause.options["domain"].place
        raise Refusal("option", "TOP ADAPTIVE PRIVATE has no domain.", hint=hint, place=place)
    unknown = QueryKind.ADAPTIVE if clause.is_adaptive else QueryKind.UNKNOWN
    fitting = list_records(QueryKind.KNOWN if is_known else unknown)
    if option is None or option.value == "auto":
        return fitting, None
    if option.value in RETIRED and not clause.is_adaptive and not is_known:  # only a stored answer is left of it
        return fitting, None
    for mechanism in fitting:
        if option.value == mechanism.name:
            return fitting, mechanism
    raise _refuse_mechanism(option, query, fitting=fitting)


def _refuse_mechanism(option: Option, query: PrivateQuery, *, fitting: Sequence[Mechanism]) -> Refusal:
    """Return the refusal of a name that is none of the mechanisms for such a query."""
    if option.value in RETIRED:
        return refuse_retired(option)
    if option.value not in {each.name for each in list_records() if each.kind is not QueryKind.ALL}:
        near = propose_name(str(option.value), list_mechanism_names())
        hint = f"{near}Leave it out, or write one of {', '.join(list_mechanism_names())}."
        return Refusal("option", "There is no such mechanism.", hint=hint, place=option.place)
    listed = " or ".join(each.name for each in fitting)
    reason, hint = f"{option.value} needs a known domain.", "Write domain = 'countries.country'."
    if query.clause.is_adaptive:
        reason = f"TOP ADAPTIVE PRIVATE is for {listed}."
        hint = "Leave the mechanism out, or give a number: TOP 10 PRIVATE."
    elif query.domain is not None:
        reason, hint = f"A known domain is for {listed}.", "Leave the mechanism out."
    return Refusal("option", reason, hint=hint, place=option.place)


def refuse_retired(option: Option) -> Refusal:
    """Return the refusal of a mechanism that is no more; answers of it that are stored stay free."""
    hint = "Leave the mechanism out, or write mechanism = auto, which looks twice before it pays for names."
    return Refusal("option", f"The mechanism {option.value} has left dpsql.", hint=hint, place=option.place)


def _check_words(query: PrivateQuery, terms: Terms, *, min_units: int) -> None:
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
    if (
        "reuse" in options
        and options["reuse"].value == "true"
        and "fresh" in options
        and options["fresh"].value == "true"
    ):
        reason = "reuse = true takes a stored answer, and fresh = true draws a new one."
        raise Refusal("option", reason, hint="Leave one of the two out.", place=options["reuse"].place)
    if "monotone" in options and not query.releases_counts:
        hint = f"Select COUNT(DISTINCT {query.unit_name}) too, or leave it out."
        place = options["monotone"].place
        raise Refusal("option", "monotone is for released counts, and none are selected.", hint=hint, place=place)
    if "evidence" in options:
        _check_evidence(query, terms, min_units=min_units)


def _check_evidence(query: PrivateQuery, terms: Terms, *, min_units: int) -> None:
    """Refuse evidence = strict where no known names take part, whatever was released, and words of another meaning."""
    clause, evidence = query.clause, query.clause.options["evidence"]
    if not (evidence.word and evidence.value in {"strict", "auto"}):
        hint = "Write evidence = strict for evidence of each known name, or leave it out."
        raise Refusal("option", "evidence is strict or auto.", hint=hint, place=evidence.place)
    if evidence.value == "auto":
        return
    option = clause.options.get("known")
    known = terms.uses_known_names if option is None else option.value
    where, hint = "", "Leave evidence out."
    if query.partitions is not None:
        where = "with PER"
    elif clause.shape != "top" or clause.is_adaptive:
        where, hint = "without TOP k", "Leave evidence out, or write TOP 10 PRIVATE."
    elif min_units > 1:
        where = "where the policy wants groups of at least so many units"
    elif query.domain is not None and not isinstance(query.domain, ReleasedDomain):
        where = "beside a listed domain"
    elif known == "all":
        where, hint = "with known = all", "Leave one of the two out."
    elif known in {False, "false"} and query.domain is None:
        where, hint = "here unless known is true", "Write known = true too, or leave evidence out."
    if where:
        reason = f"No known name needs evidence {where}."
        raise Refusal("option", reason, hint=hint, place=evidence.place)


def plan_within_stated(
    query: PrivateQuery, stated: StatedTotal, *, terms: Terms, build: Callable[[PrivateQuery], Plan]
) -> Plan:
    """Return the plan of a query whose worst case is within the terms that it states; refuse what does not convert."""
    query = replace(query, clause=replace(query.clause, stated=None))
    if stated.epsilon is None:
        if stated.delta is not None:
            hint = "Add epsilon = 1 to OPTIONS, or leave delta out."
            reason = "The delta of a whole query means nothing without its epsilon."
            raise Refusal("option", reason, hint=hint, place=stated.delta.place)
        return build(query)
    value = stated.epsilon.value
    if not isinstance(value, Decimal) or not value:
        hint = "Write epsilon = 1."
        raise Refusal("option-range", "epsilon must be a number above 0.", hint=hint, place=stated.epsilon.place)
    epsilon, delta = Fraction(value), _read_stated_delta(stated, terms=terms)
    plan = build(query)
    for _ in range(_ROUNDS):
        worst = plan.price(plan.worst_case)
        # Rounded down, as is the epsilon below: an item with less epsilon stays within the terms (`maths.md` 4.3).
        own = _HALF.divide(delta, Decimal(2)) if worst.permanent else Decimal(0)
        rho = rho_of_total(ApproximateDP(Epsilon(epsilon), Delta(Fraction(delta) - Fraction(own)))).value
        # The worst case is n items of epsilon**2 / 8: at this epsilon the same n cost rho.
        largest = sqrt_rounded_down(plan.epsilon.value**2 * rho / worst.refundable)
        item = _DIGITS.create_decimal(Decimal(int(largest * 10**12)).scaleb(-12))
        options = {**query.clause.options, "epsilon": Option(item, stated.epsilon.place)}
        if own and stated.delta is not None:
            options["delta"] = Option(own, stated.delta.place)
        _check_item(item, stated.epsilon, terms=terms)
        plan = build(replace(query, clause=replace(query.clause, options=MappingProxyType(options))))
        worst = plan.price(plan.worst_case)
        # Another epsilon may bring another mechanism, with other items: what counts is the plan that results.
        if worst.refundable <= rho and worst.permanent <= Fraction(own):
            return plan
    hint = "Leave epsilon and delta out of OPTIONS: the query then costs what the policy says."
    raise Refusal("option", "These terms do not convert to those of an item.", hint=hint, place=stated.place)


def _read_stated_delta(stated: StatedTotal, *, terms: Terms) -> Decimal:
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


def _raise_min_units(query: PrivateQuery, stated: StatedTotal, *, terms: Terms) -> Terms:
    """Return the terms with the fewest units of a group that a query states, where it wants more than the policy."""
    option = stated.min_units
    if option is None:
        return terms
    value, least = option.value, max(terms.tables[name].min_units or 1 for name in query.tables)
    if not isinstance(value, Decimal) or value.as_tuple().exponent != 0 or not 1 <= value <= _MOST_MIN_UNITS:
        reason = f"min_privacy_units_per_group is a whole number from 1 to {_MOST_MIN_UNITS:,}."
        hint = "Write min_privacy_units_per_group = 50, or leave it out."
        raise Refusal("option-range", reason, hint=hint, place=option.place)
    if value <= least:  # which the policy sees to
        return terms
    if query.clause.shape != "top" or query.domain is not None:
        reason = "A total and known groups are released whatever their number of units: no threshold sees to it."
        hint = "Leave it out." if least == 1 else f"Write min_privacy_units_per_group = {least}, or leave it out."
        raise Refusal("min-units", reason, hint=hint, place=option.place)
    return replace(terms, min_units=int(value))


def _check_rows(mechanism_plan: MechanismPlan, rows: RowsRead, *, query: PrivateQuery, limit: int | None) -> None:
    """Raise `Refusal` where the engine may return more rows than `limit`; None is no limit."""
    if limit is None or (rows.most is not None and rows.most <= limit):
        return
    clause, domain = query.clause, query.domain
    if rows.most is None and domain is not None and not rows.known:
        return
    option = clause.options.get("domain" if domain is not None else "mechanism")
    name = "domain = released" if isinstance(domain, ReleasedDomain) else mechanism_plan.selection.name
    reason = f"{name} may fetch a row for each group from the engine"
    if rows.most:
        reason = f"This may fetch {rows.most:,} rows from the engine"
    hint = "Leave the mechanism out, or write mechanism = limited_domain."
    if isinstance(domain, ReleasedDomain):
        hint = "List the names: domain = ['a', 'b']."
    elif domain is not None:
        hint = f"List at most {limit:,} candidates, or narrow the time in WHERE."
    elif query.partitions is not None:
        most = limit // ((clause.k or 1) + 1)
        hint = f"List at most {most:,} partitions, and write mechanism = limited_domain if one is named."
    place = clause.place if option is None else option.place
    raise Refusal(
        "rows-fetched", f"{reason}, and the policy allows {limit:,} (max_rows_fetched).", hint=hint, place=place
    )
