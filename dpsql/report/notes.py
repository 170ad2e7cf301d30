"""What is said beside an answer: why rows are missing, why a charge is likely wasted, and by what groups are ranked.

All of it comes from public numbers: how many units a key needs at this price by the planner.
Each option that is proposed was planned, and fits the policy and the remaining budget.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from math import inf

from dpsql.accounting import BudgetVector
from dpsql.dialects import write_name
from dpsql.display import plural, shorten, unit_noun, with_article
from dpsql.errors import Error
from dpsql.plan.mechanisms.record import Need, describe_amount
from dpsql.plan.plan import Plan
from dpsql.plan.planner import plan_unkeyed
from dpsql.plan.release import Release, ReleaseTerms
from dpsql.report.bound_notes import name_call
from dpsql.report.consent import (
    Reach,
    describe_key,
    describe_single,
    groups_by_unit,
    has_consent,
    is_admitted,
    warn_of_reach,
)
from dpsql.sql.analysis.known_values import is_time_bucket
from dpsql.sql.ir.measures import DISTINCT_UNITS, Aggregate, Measure, StatedBounds
from dpsql.sql.ir.statements import Explained, Option, Output, PrivateQuery
from dpsql.sql.ir.tree import Call, ColumnRef, Derived, In, Joined, Literal, split_conjuncts, strip_casts
from dpsql.terms import Terms

_TRIED_BOUND = 3
_ROUNDED_DOWN = Context(prec=3, rounding=ROUND_DOWN)
_WORTH_SAYING = 0.8  # of the present need; a smaller difference is no advice


def explain_short_answer(
    plan: Plan, released: Release, *, terms: Terms, remaining: BudgetVector, salts: tuple[int, int]
) -> str:
    """Return why a released answer is not longer, and what would make it so.

    Where a stored answer was drawn on other terms than those of `plan`, the numbers are those of a new answer.
    """
    returned, need = released.canonical.num_rows, plan.need
    is_drawn_now = released.terms.without_noise == ReleaseTerms.of(plan).choose(released.chosen).without_noise
    price = "At this price" if is_drawn_now else "Asked again with fresh = true, which is charged,"
    singular, many = describe_key(plan.query)
    noun = unit_noun(plan.query.unit_name)
    units = plural(noun)
    if plan.spec.report.chooses == "k":
        gap = describe_amount(plan.query.measures[0], float(plan.threshold_offset), about="about ", units=units)
        return (
            f"No list of {many} ended in a wide gap. {price} the last {singular} must have {gap} more than the next. "
            "To see more: write TOP 10 PRIVATE in place of TOP ADAPTIVE PRIVATE, or raise epsilon."
        )
    # Which it is, depends on rows.
    lead = f"No {singular} stood out, or there is none."
    if returned:
        lead = f"Only {returned} of {plan.k} {many} stood out, or there are no more."
    if plan.query.partitions is not None and returned:
        lead = f"In some partitions fewer than {plan.k} {many} stood out, or there are no more."
    if groups_by_unit(plan.query):
        return f"No {singular} stood out. Each is a single {noun}: group by a column that many {units} share."
    if plan.spec.rows.known:
        least = None if plan.record.evidence is None else plan.record.evidence(plan.request)
        about = "" if least is None else describe_amount(plan.query.measures[0], least, about="about ", units=units)
        return (
            f"{lead} {plan.spec.rows.known:,} {many} are known from earlier answers."
            f"{about and f' {price} they need {about}.'} To see more: raise epsilon, or write known = all for noisy "
            "ones that perhaps no row has."
        )
    if need is None:
        return f"{lead} To see more: raise epsilon, or leave the mechanism out."
    variants = _find_variants(plan, need, terms=terms, remaining=remaining, salts=salts)
    instead = ", ".join(f"with {changed} about {_write_range(other)}" for changed, other in variants.values())
    ways = list(_list_ways(plan, variants, singular=singular))
    listed = " or ".join(filter(None, [", ".join(ways[:-1]), ways[-1]]))
    ranked, of_all = "", ""
    if need.measure.aggregate is not Aggregate.UNITS:
        ranked = _describe_need_of_units(plan, terms=terms, salts=salts)
    elif plan.population and need.units > plan.population:
        of_all = f"; there are about {plan.population:,} in all"
    return f"{lead} {price} {describe_need(plan)}{of_all}{instead and f' ({instead})'}.{ranked} To see more: {listed}."


def _propose_coarser(singular: str) -> str:
    """Return the advice to group by fewer keys: coarser than decade, where one key is a value of decade."""
    return f"group by something coarser than {re.sub('^(?:value|combination) of ', '', singular)}"


def describe_need(plan: Plan) -> str:
    """Return how many units, or how much of a measure, a key needs for an even chance to be returned.

    It is "" with a known domain or known names, or without a prediction.
    """
    need = plan.need
    if need is None or plan.query.domain is not None or plan.spec.rows.known:
        return ""
    singular, noun = describe_key(plan.query)[0], unit_noun(plan.query.unit_name)
    alone, most, rank = need.span or (need.units, need.units, need.rank)
    compared = f" more than the {_write_ordinal(rank)} largest {singular}, if there is one" if rank else ""
    amount = describe_amount(need.measure, alone, about="about ", units=plural(noun))
    if need.span is not None:
        others = f" if each {noun} is in no other {singular}, and at most "
        amount += others + describe_amount(need.measure, most, about="about ", units="").rstrip()
    return f"{with_article(singular)} needs {amount}{compared}"


def _write_range(need: Need) -> str:
    """Return between which numbers a need is, or the number that it is."""
    ends = (need.units, need.units) if need.span is None else need.span[:2]
    return " to ".join(dict.fromkeys(f"{_value(replace(need, units=end)):,.0f}" for end in ends))


def _write_ordinal(number: int) -> str:
    """Return a number as 1st, 2nd, 101st, 112th."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{'th' if number % 100 in {11, 12, 13} else ending}"


def _describe_need_of_units(plan: Plan, *, terms: Terms, salts: tuple[int, int]) -> str:
    """Return how many units a key would need if units ranked in place of rows or values, and how; "" if unknown."""
    query = plan.query
    # the need depends on how many measures there are, and not on which
    others = [StatedBounds(Fraction(0), Fraction(at)) for at, _ in enumerate(set(query.measures) - {DISTINCT_UNITS}, 1)]
    measures = DISTINCT_UNITS, *(Measure(Aggregate.ROWS, stated=each) for each in others)
    outputs = [each for each in query.outputs if each.key is not None]
    outputs += [Output(f"n{at}", None, measure=at) for at in range(len(measures))]
    counting = replace(query, measures=measures, outputs=tuple(outputs), quantiles=(), explained=Explained.NO)
    try:
        other = plan_unkeyed(counting, terms, salts=salts)
    except Error:  # an option of the query is for rows alone
        return ""
    is_hopeless = other.need is not None and other.need.units > (other.population or inf)
    need = "" if is_hopeless else describe_need(other)
    by = f"COUNT(DISTINCT {write_name(query.unit_name)})"
    # in a join the name alone may be that of two columns
    order = (
        ""
        if isinstance(query.body.source, Joined)
        else f": end the query with ORDER BY {by} DESC TOP {query.clause.k} PRIVATE"
    )
    return f" Ranked by {by}, {need}{order}." if need else ""


def _find_variants(
    plan: Plan, need: Need, *, terms: Terms, remaining: BudgetVector, salts: tuple[int, int]
) -> dict[str, tuple[str, Need]]:
    """Return what can be written with which keys would need clearly less than `need`, and what they would need."""
    variants = dict[str, tuple[str, Need]]()
    for name, words, query in _list_changes(plan, terms):
        try:
            other = plan_unkeyed(replace(query, explained=Explained.NO), terms, salts=salts)
        except Error:  # the policy, or another option of the query, excludes it
            continue
        least = _WORTH_SAYING * _value(need)
        if plan.population is not None and need.measure.bounds is None:  # no group can have more
            least = min(least, plan.population)
        fits = is_admitted(other, remaining, consents=has_consent(other))
        if fits and other.need is not None and _value(other.need) <= least:
            variants[name] = words, other.need
    return variants


def _list_changes(plan: Plan, terms: Terms) -> Iterator[tuple[str, str, PrivateQuery]]:
    """Yield options and bounds with which keys may need less: what it is, its words, and the query with it."""
    options, clause, (ranking, *others) = dict[str, Decimal](), plan.query.clause, plan.query.measures
    bound = plan.max_groups_contributed
    if bound is None or plan.spec.report.cap or bound > _TRIED_BOUND:
        options["max_groups_contributed"] = Decimal(_TRIED_BOUND)
    elif bound > 1:
        options["max_groups_contributed"] = Decimal(1)
    larger = min(2 * plan.epsilon.value, terms.limits.max_epsilon.value)
    if larger > plan.epsilon.value:
        # Rounded up, it could be above max_epsilon, and a query that follows the advice would be refused.
        options["epsilon"] = _ROUNDED_DOWN.divide(*map(Decimal, larger.as_integer_ratio()))
    if ranking.bounds is not None:  # bounded as before, also where the query said so
        most = ranking.bounds.high * ranking.bounds.step
        less = most / 4
        if ranking.aggregate is not Aggregate.SUM:
            less = Fraction(_TRIED_BOUND if most > _TRIED_BOUND else 1)
        if less < most:
            narrow = replace(ranking, stated=StatedBounds(Fraction(0), less))
            yield "bound", _name_bound(ranking, less), replace(plan.query, measures=(narrow, *others))
        ranking = replace(ranking, stated=StatedBounds(Fraction(0), Fraction(most)))
    for name, value in options.items():
        changed = replace(clause, options={**clause.options, name: Option(value, clause.place)})
        yield name, f"{name} = {value:f}", replace(plan.query, clause=changed, measures=(ranking, *others))


def _value(need: Need) -> float:
    """Return a need in units, rows or values, not in steps."""
    return need.units * float(1 if need.measure.bounds is None else need.measure.bounds.step)


def _name_bound(measure: Measure, most: Fraction) -> str:
    """Return how a query bounds by so much what each unit adds: an option, or words in the call of the measure."""
    name = {Aggregate.ROWS: "max_rows_contributed", Aggregate.ITEMS: "max_items_contributed"}.get(measure.aggregate)
    is_stated = measure.words is not None and "contribution_bounds" in measure.words.fragment.lower()
    if name and not is_stated:
        return f"{name} = {most}"
    call = name_call(replace(measure, condition=None)).removesuffix(")")
    return f"{call}, contribution_bounds_per_group => (0, {float(most):.6g}))"


def _list_ways(plan: Plan, helpful: Iterable[str], *, singular: str) -> Iterator[str]:
    """Yield ways to a longer answer that exist for this query."""
    if "bound" in helpful:
        yield f"count less of each {unit_noun(plan.query.unit_name)}"
    if "epsilon" in helpful:
        yield "raise epsilon"
        if plan.k > 1:
            yield "ask for fewer keys at a higher epsilon"
    if "max_groups_contributed" in helpful:
        bounded = plan.max_groups_contributed is not None and not plan.spec.report.cap
        yield "lower the bound" if bounded else "set a bound"
    if len(plan.query.keys) == 1 and plan.query.domain is None and not plan.least_threshold:
        is_dated = is_time_bucket(plan.query.keys[0])
        yield "write ALL PRIVATE with the first and last date in WHERE" if is_dated else "name a domain"
    yield _propose_coarser(singular)


def find_waste(plan: Plan, reach: Reach | None) -> tuple[str, ...]:
    """Return one sentence or two for each reason why the charge of this query may be wasted.

    `reach` is that of the plan.
    """
    query, rows, listed = plan.query, plan.spec.rows, _count_listed(plan.query)
    need = None if listed is None else plan.need  # it takes longer to predict than the rest of the plan
    warnings = []
    if groups_by_unit(query):
        warnings.append(describe_single(query))
    # One unit alone never stands out. A need is an amount of its measure, to which each unit adds at most the width.
    if listed is not None and listed < (2 if need is None else need.units / need.measure.width):
        noun = unit_noun(query.unit_name)
        whom = f"one {noun}" if listed == 1 else f"{listed} {plural(noun)}"
        is_noise = rows.known and not rows.evident
        shown = "what is returned is noise on known names" if is_noise else "nothing about so few is returned"
        condition = f"The condition on {shorten(query.unit_name)}"
        warnings.append(f"{condition} leaves at most {whom}, and {shown}. Leave the condition out.")
    if query.reads_seconds:
        warnings.append(
            "The query reads the clock to the second, so running it again is a new query with a new charge. With "
            "current_date, or date_trunc('hour', now()), it stays the same query and is free again."
        )
    if plan.fresh:
        warnings.append("fresh = true is charged each time it is run. Without it, running the query again is free.")
    if reach is not None or plan.population is not None:
        warnings += warn_of_reach(plan, reach)
    return tuple(warnings)


def _count_listed(query: PrivateQuery) -> int | None:
    """Return how many units a condition of the query, or of its subqueries, leaves at most; None if none lists them."""
    body, unit, counts = query.body, strip_casts(query.unit), list[int]()
    while True:
        for condition in split_conjuncts(body.where):
            match condition:
                case Call(function="=", arguments=(left, right)):
                    sides = {strip_casts(left): right, strip_casts(right): left}
                    counts += [1] if unit in sides and isinstance(strip_casts(sides[unit]), Literal) else []
                case In(argument=argument, choices=choices) if strip_casts(argument) == unit:
                    is_listed = all(isinstance(strip_casts(choice), Literal) for choice in choices)
                    counts += [len(choices)] if is_listed else []
        source = body.source
        if not (isinstance(source, Derived) and isinstance(unit, ColumnRef) and unit.relation == source.number):
            return min(counts, default=None)
        # the unit is output "c2" of the subquery: go on with the second output, and its WHERE
        body, unit = source.body, strip_casts(source.outputs[int(unit.name[1:]) - 1])


def note_ranking(plan: Plan) -> Plan:
    """Return the plan with a note on the measure that ranks its groups, where no column of the answer is that."""
    query = plan.query
    shown = any(each.key is None and each.divisor is None and each.measure == 0 for each in query.outputs)
    if shown or query.clause.shape != "top":
        return plan
    divided = [each for each in query.outputs if each.divisor is not None]
    names = list(dict.fromkeys(each.divided_name for each in divided))
    is_of_pairs = any(each.divisor == 0 and each.statistic and each.statistic.is_of_pairs for each in divided)
    ranks = "the number of rows with both values" if is_of_pairs else name_call(query.measures[0])
    verb = "do" if names[1:] else "does"
    note = f"the groups are ranked by {ranks}, as {' and '.join(names)} alone {verb} not rank"
    return replace(plan, query=replace(query, list_note="; ".join(filter(None, [note, query.list_note]))))
