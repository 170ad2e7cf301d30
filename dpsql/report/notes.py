"""What is said beside an answer: why rows are missing, why a charge is likely wasted, and by what groups are ranked.

All of it comes from public numbers: how many units a key needs at this price by the planner.
Each option that is proposed was planned, and fits the policy and the remaining budget.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import ROUND_DOWN, Context, Decimal
from math import inf

from dpsql.accounting import BudgetVector
from dpsql.display import plural, shorten, unit_noun, with_article
from dpsql.errors import Error
from dpsql.plan.mechanisms.record import describe_amount
from dpsql.plan.plan import Plan
from dpsql.plan.planner import plan_unkeyed
from dpsql.plan.release import Release, ReleaseTerms
from dpsql.report.bound_notes import name_call
from dpsql.report.consent import Reach, describe_key, has_consent, is_admitted, warn_of_reach
from dpsql.sql.analysis.known_values import is_time_bucket
from dpsql.sql.ir.measures import DISTINCT_UNITS
from dpsql.sql.ir.statements import Explained, Option, PrivateQuery
from dpsql.sql.ir.tree import Call, ColumnRef, Derived, In, Literal, split_conjuncts, strip_casts
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
    if _groups_by_unit(plan.query):
        return f"No {singular} stood out. Each is a single {noun}: group by a column that many {units} share."
    if plan.spec.rows.known:
        least = None if plan.record.evidence is None else plan.record.evidence(plan.request)
        about = "" if least is None else describe_amount(plan.query.measures[0], least, about="about ", units=units)
        return (
            f"{lead} {plan.spec.rows.known:,} {many} are known from earlier answers."
            f"{about and f' {price} they need {about}.'} To see more: raise epsilon, or write known = all for noisy "
            "ones that perhaps no row has."
        )
    if plan.query.measures[0].bounds is not None:
        known = f" {price} {describe_need(plan)}." if need is not None else ""
        known += _describe_need_of_units(plan, terms=terms, salts=salts)
        return f"{lead}{known} To see more: raise epsilon, or {_propose_coarser(singular)}."
    if need is None:
        return f"{lead} To see more: raise epsilon, or leave the mechanism out."
    variants = _find_variants(plan, need.units, terms=terms, remaining=remaining, salts=salts)
    instead = ", ".join(f"with {name} = {value:f} about {needed:,.0f}" for name, (value, needed) in variants.items())
    ways = list(_list_ways(plan, variants, singular=singular))
    listed = " or ".join(filter(None, [", ".join(ways[:-1]), ways[-1]]))
    of_all = f"; there are about {plan.population:,} in all" if plan.population and need.units > plan.population else ""
    return f"{lead} {price} {describe_need(plan)}{of_all}{instead and f' ({instead})'}. To see more: {listed}."


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
    singular, units = describe_key(plan.query)[0], plural(unit_noun(plan.query.unit_name))
    compared = f" more than the {_write_ordinal(need.rank)} largest {singular}, if there is one" if need.rank else ""
    amount = describe_amount(need.measure, need.units, about="about ", units=units)
    return f"{with_article(singular)} needs {amount}{compared}"


def _write_ordinal(number: int) -> str:
    """Return a number as 1st, 2nd, 101st, 112th."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{'th' if number % 100 in {11, 12, 13} else ending}"


def _describe_need_of_units(plan: Plan, *, terms: Terms, salts: tuple[int, int]) -> str:
    """Return how many units a key would need if its units were counted in place of rows or values; "" if unknown."""
    keys = tuple(output for output in plan.query.outputs if output.key is not None)
    counting = replace(plan.query, measures=(DISTINCT_UNITS,), outputs=keys, quantiles=(), explained=Explained.NO)
    try:
        other = plan_unkeyed(counting, terms, salts=salts)
    except Error:  # an option of the query is for rows alone
        return ""
    is_hopeless = other.need is not None and other.need.units > (other.population or inf)
    need = "" if is_hopeless else describe_need(other)
    return f" Ranked by COUNT(DISTINCT {plan.query.unit_name}), {need}." if need else ""


def _groups_by_unit(query: PrivateQuery) -> bool:
    """Return whether a key is the privacy unit itself, cast or not, so that no group has two."""
    return strip_casts(query.unit) in map(strip_casts, query.keys)


def _find_variants(
    plan: Plan, needed: float, *, terms: Terms, remaining: BudgetVector, salts: tuple[int, int]
) -> dict[str, tuple[Decimal, float]]:
    """Return options of WITH with which keys would need clearly fewer units than `needed`, and how many."""
    options = dict[str, Decimal]()
    bound = plan.max_groups_contributed
    if bound is None or plan.spec.report.cap or bound > _TRIED_BOUND:
        options["max_groups_contributed"] = Decimal(_TRIED_BOUND)
    elif bound > 1:
        options["max_groups_contributed"] = Decimal(1)
    larger = min(2 * plan.epsilon.value, terms.limits.max_epsilon.value)
    if larger > plan.epsilon.value:
        # Rounded up, it could be above max_epsilon, and a query that follows the advice would be refused.
        options["epsilon"] = _ROUNDED_DOWN.divide(*map(Decimal, larger.as_integer_ratio()))
    variants = dict[str, tuple[Decimal, float]]()
    for name, value in options.items():
        option = Option(value, plan.query.clause.place)
        clause = replace(plan.query.clause, options={**plan.query.clause.options, name: option})
        try:
            other = plan_unkeyed(replace(plan.query, clause=clause, explained=Explained.NO), terms, salts=salts)
        except Error:  # the policy, or another option of the query, excludes it
            continue
        fits = is_admitted(other, remaining, consents=has_consent(other))
        most = _WORTH_SAYING * needed
        if plan.population is not None:  # no group can have more
            most = min(most, plan.population)
        if fits and other.need is not None and other.need.units <= most:
            variants[name] = value, other.need.units
    return variants


def _list_ways(plan: Plan, helpful: Iterable[str], *, singular: str) -> Iterator[str]:
    """Yield ways to a longer answer that exist for this query."""
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
    if _groups_by_unit(query):
        noun = unit_noun(query.unit_name)
        warnings.append(
            f"Each group is a single {noun}, and no single {noun} can stand out. Group by a column that many "
            f"{plural(noun)} share."
        )
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
