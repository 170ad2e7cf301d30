"""Warnings about private queries whose charge is likely wasted, from the statement and public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dpsql.display import plural, shorten, unit_noun
from dpsql.plan.plan import Plan
from dpsql.report.short_answer import describe_key, groups_by_unit
from dpsql.sql.ir.tree import Call, Column, Derived, Expression, FromWhere, In, Literal, strip_casts
from dpsql.sql.ir.unit_equality import split_conjuncts

__all__ = ["find_waste"]


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
    if isinstance(source, Derived) and isinstance(unit, Column) and unit.relation == source.number:
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
