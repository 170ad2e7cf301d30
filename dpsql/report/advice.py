"""Advice from public numbers: why an answer is empty or short, and why a charge is likely wasted.

The numbers are predictions of the planner: how many units a key needs at this price, and how many it would need with
another epsilon or bound. Each option that is proposed was planned, and fits the policy and the remaining budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from decimal import ROUND_DOWN, Context, Decimal

from dpsql.accounting import BudgetVector
from dpsql.display import key_noun, plural, shorten, unit_noun, with_article
from dpsql.errors import Error
from dpsql.plan.mechanisms.record import Need, describe_about
from dpsql.plan.plan import Plan
from dpsql.plan.planner import plan_unkeyed
from dpsql.plan.release import Release, ReleaseTerms
from dpsql.sql.ir.scope import split_conjuncts
from dpsql.sql.ir.statements import Option, PrivateQuery
from dpsql.sql.ir.tree import Call, ColumnRef, Derived, Expression, FromWhere, In, Literal, strip_casts
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
    returned = released.canonical.num_rows
    is_drawn_now = released.terms.without_noise == ReleaseTerms.of(plan).choose(released.chosen).without_noise
    price = "At this price" if is_drawn_now else "Asked again with fresh = true, which is charged,"
    singular, many = describe_key(plan.query)
    units = plural(unit_noun(plan.query.unit_name))
    lead = f"No {singular} stood out." if not returned else f"Only {returned} of {plan.k} {many} stood out."
    if plan.query.partitions is not None and returned:
        lead = f"In some partitions fewer than {plan.k} {many} stood out."
    if plan.spec.report.chooses == "k":
        gap = describe_about(plan.query.measures[0], float(plan.threshold_offset), units=units)
        return (
            f"No list of {many} ended in a wide gap. {price} the last {singular} must have {gap} more than the next. "
            "To see more: write TOP 10 PRIVATE in place of TOP ADAPTIVE PRIVATE, or raise epsilon."
        )
    if groups_by_unit(plan.query):
        return f"{lead} Each is a single {unit_noun(plan.query.unit_name)}: group by a column that many {units} share."
    if plan.spec.rows.known:
        return f"{lead} {_explain_known(plan, price)}"
    need = plan.need
    if plan.query.measures[0].bounds is not None:
        known = f" {price} {describe_need(plan)}." if need is not None else ""
        return f"{lead}{known} To see more: raise epsilon, or group by something coarser than {singular}."
    if need is None:
        return f"{lead} To see more: raise epsilon, or leave the mechanism out."
    others = dict(_find_variants(plan, need, terms=terms, remaining=remaining, salts=salts))
    instead = ", ".join(f"with {option} about {needed:,.0f}" for option, needed in others.items())
    sentence = f"{price} {describe_need(plan)}"
    ways = list(_list_ways(plan, [option.split()[0] for option in others], singular=singular))
    listed = " or ".join(filter(None, [", ".join(ways[:-1]), ways[-1]]))
    return f"{lead} {sentence}{instead and f' ({instead})'}. To see more: {listed}."


def _explain_known(plan: Plan, price: str) -> str:
    """Return what known names need, and how to see more of them; the rest where only known names take part."""
    many = describe_key(plan.query)[1]
    least = None if plan.record.evidence is None else plan.record.evidence(plan.request)
    needs = ""
    if least is not None:
        units = plural(unit_noun(plan.query.unit_name))
        needs = f" {price} they need {describe_about(plan.query.measures[0], least, units=units)}."
    return (
        f"{plan.spec.rows.known:,} {many} are known from earlier answers.{needs} To see more: raise epsilon, or write "
        "known = all for noisy ones that perhaps no row has."
    )


def describe_need(plan: Plan) -> str:
    """Return how many units, or how much of a measure, a key needs for an even chance to be returned.

    It is "" with a known domain or known names, or without a prediction.
    """
    need = plan.need
    if need is None or plan.query.domain is not None or plan.spec.rows.known:
        return ""
    singular, units = describe_key(plan.query)[0], plural(unit_noun(plan.query.unit_name))
    compared = f" more than the {singular} at rank {need.rank:,}" if need.rank else ""
    return f"{with_article(singular)} needs {describe_about(need.measure, need.units, units=units)}{compared}"


def groups_by_unit(query: PrivateQuery) -> bool:
    """Return whether a key is the privacy unit itself, cast or not, so that no group has two."""
    return any(strip_casts(key) == strip_casts(query.unit) for key in query.keys)


def describe_key(query: PrivateQuery) -> tuple[str, str]:
    """Return what one key of the query is called, and several: by the names of the columns that show them."""
    names = dict.fromkeys(key_noun(output.name) for output in query.outputs if output.key is not None)
    if len(query.keys) == 1 and names:
        name = next(iter(names))
        is_column = isinstance(strip_casts(query.keys[0]), ColumnRef)  # the name of an expression may be any word
        is_noun = is_column and "::" not in name and "(" not in name  # nor that of a cast without AS
        if is_noun and not _is_word(name):  # "10 ns" says nothing
            return f'value of "{name}"', f'values of "{name}"'
        return (name, plural(name)) if is_noun else (f"value of {name}", f"values of {name}")
    listed = " and ".join(names)
    return ("combination", "combinations") if not listed else (f"combination of {listed}", f"combinations of {listed}")


def _is_word(name: str) -> bool:
    """Say whether a name can stand in a sentence: in ASCII it has a vowel, and more than one letter."""
    return not name.isascii() or (len(name) > 1 and not set("aeiouy").isdisjoint(name.lower()))


def _find_variants(
    plan: Plan, need: Need, *, terms: Terms, remaining: BudgetVector, salts: tuple[int, int]
) -> Iterator[tuple[str, float]]:
    """Yield options with which keys would need clearly fewer units, in the words of WITH, and how many."""
    for name, value in _list_options(plan, terms):
        option = Option(value, plan.query.clause.place)
        clause = replace(plan.query.clause, options={**plan.query.clause.options, name: option})
        try:
            other = plan_unkeyed(replace(plan.query, clause=clause, explained=False), terms, salts=salts)
        except Error:  # the policy, or another option of the query, excludes it
            continue
        needed = other.need
        worst = other.price(other.worst_case)
        fits = worst.refundable <= remaining.refundable and worst.permanent <= remaining.permanent
        if fits and needed is not None and needed.units <= _WORTH_SAYING * need.units:
            yield f"{name} = {value:f}", needed.units


def _list_options(plan: Plan, terms: Terms) -> Iterator[tuple[str, Decimal]]:
    bound, own = plan.max_groups_contributed, plan.spec.report.cap
    if bound is None or own or bound > _TRIED_BOUND:
        yield "max_groups_contributed", Decimal(_TRIED_BOUND)
    elif bound > 1:
        yield "max_groups_contributed", Decimal(1)
    larger = min(2 * plan.epsilon.value, terms.limits.max_epsilon.value)
    if larger > plan.epsilon.value:
        yield "epsilon", _ROUNDED_DOWN.divide(*map(Decimal, larger.as_integer_ratio()))


def _list_ways(plan: Plan, helpful: list[str], *, singular: str) -> Iterator[str]:
    """Yield ways to a longer answer that exist for this query."""
    if "epsilon" in helpful:
        yield "raise epsilon"
        if plan.k > 1:
            yield "ask for fewer keys at a higher epsilon"
    if "max_groups_contributed" in helpful:
        bounded = plan.max_groups_contributed is not None and not plan.spec.report.cap
        yield "lower the bound" if bounded else "set a bound"
    if len(plan.query.keys) == 1 and plan.query.domain is None and not plan.least_threshold:
        yield "name a domain"
    yield f"group by something coarser than {singular}"


def find_waste(plan: Plan) -> tuple[str, ...]:
    """Return one sentence or two for each reason why the charge of this query may be wasted."""
    return tuple(_find_waste(plan))


def _find_waste(plan: Plan) -> Iterator[str]:
    query = plan.query
    unit, noun = strip_casts(query.unit), unit_noun(query.unit_name)
    if groups_by_unit(query):
        yield (
            f"Each group is a single {noun}, and no single {noun} can stand out. Group by a column that many "
            f"{plural(noun)} share."
        )
    listed = _count_listed(query.body, unit)
    if listed is not None and listed < _find_need(plan):
        whom = f"one {noun}" if listed == 1 else f"{listed} {plural(noun)}"
        shown = (
            "what is returned is noise on known names"
            if plan.spec.rows.known and not plan.spec.rows.evident
            else "nothing about so few is returned"
        )
        condition = f"The condition on {shorten(query.unit_name)}"
        yield f"{condition} leaves at most {whom}, and {shown}. Leave the condition out."
    if query.reads_seconds:
        yield (
            "The query reads the clock to the second, so running it again is a new query with a new charge. With "
            "current_date, or date_trunc('hour', now()), it stays the same query and is free again."
        )
    if plan.fresh:
        yield "fresh = true is charged each time it is run. Without it, running the query again is free."
    yield from _find_excessive_k(plan)


def _find_excessive_k(plan: Plan) -> Iterator[str]:
    """Yield a warning where the policy's population shows that the last keys cannot stand out."""
    k, population = plan.query.clause.k, plan.population
    if population is None or k is None or plan.spec.rows.known:
        return
    need = plan.need
    if need is None or need.units * k <= population:
        return
    many, units = describe_key(plan.query)[1], plural(unit_noun(plan.query.unit_name))
    shown = max(1, math.floor(population / max(1.0, need.units)))
    yield (
        f"TOP {k} is more than is likely to stand out: each needs about {need.units:,.0f} {units}, which of about "
        f"{population:,} in all perhaps the first {shown:,} {many} have."
    )


def _find_need(plan: Plan) -> float:
    """Return about how many units a key needs at least; 2, more than a single one, where nothing is predicted."""
    need = plan.need
    return 2.0 if need is None else need.units / need.measure.width


def _count_listed(body: FromWhere, unit: Expression) -> int | None:
    """Return how many units a condition of the block, or of its subquery, leaves at most; None if none lists them."""
    found = [_count_choices(part, unit) for part in split_conjuncts(body.where)]
    source = body.source
    if isinstance(source, Derived) and isinstance(unit, ColumnRef) and unit.relation == source.number:
        found.append(_count_listed(source.body, strip_casts(source.outputs[int(unit.name[1:]) - 1])))
    return min((count for count in found if count is not None), default=None)


def _count_choices(condition: Expression, unit: Expression) -> int | None:
    match condition:
        case Call(function="=", arguments=(left, right)):
            sides = {strip_casts(left): right, strip_casts(right): left}
            return 1 if unit in sides and isinstance(strip_casts(sides[unit]), Literal) else None
        case In(argument=argument, choices=choices) if strip_casts(argument) == unit:
            return len(choices) if all(isinstance(strip_casts(choice), Literal) for choice in choices) else None
    return None
