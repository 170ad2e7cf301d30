"""What each unit adds to each group, in whole steps between public bounds; then groups and their sums.

    rows: keys, unit, steps of each row ──▶ keys, unit: added and clamped ──▶ bounded per unit ──▶ keys: added

Every row becomes whole steps before anything is added, so that no sum depends on the order of rows. A row's steps are
a function of that row alone, and a unit's contribution one of its own rows. So adding or removing a unit changes each
group by at most the sensitivity of the measure, and the contribution of no other unit. NULL and NaN add 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import Call, Case, Cast, Expression, Literal
from dpsql.sql.ir.types import BIGINT, BOOLEAN, DOUBLE, Family
from dpsql.sql.render.clauses import (
    alias,
    at_most,
    bigint,
    clamp,
    count,
    divide,
    least,
    list_parts,
    maximum,
    not_null,
    number_rows,
    or_zero,
    select,
    sort_nulls_last,
    subquery,
    sum_column,
    zero_unless,
)
from dpsql.sql.render.duckdb import Writer
from dpsql.sql.rewrite.contribution_bounding import DRAW, GROUPS, RANK, UNIT, WEIGHT, Bound, rank_in_lists
from dpsql.sql.rewrite.total import make_total
from dpsql.sql.rewrite.unit_weights import UnitWeights
from dpsql.sql.rewrite.use_materialized import Form
from dpsql.sql.rewrite.wide_arithmetic import widen, widen_presence

__all__ = [
    "bound_pairs",
    "build_contributions",
    "build_row_steps",
    "build_stored_sums",
    "name_parts",
    "name_sums",
    "rank_pairs",
    "sum_contributions",
    "weigh_pairs",
]

_ONE, _ZERO = Literal(1, BIGINT), Literal(0, BIGINT)


def build_row_steps(measure: Measure) -> Expression | None:
    """Return the steps of one row, a whole number that never fails; None where each row adds 1."""
    if measure.argument is None:
        condition = widen_presence(measure.condition)
        return None if condition is None else Case(((condition, _ONE),), _ZERO, BIGINT)
    steps = _count_steps(measure.argument, measure)
    return steps if measure.condition is None else Case(((measure.condition, steps),), _ZERO, BIGINT)


def _count_steps(argument: Expression, measure: Measure) -> Expression:
    """Return a value in whole steps between bounds, rounded down; beyond a bound the bound, and 0 for NULL and NaN.

    With a centre it is the distance from that, rounded to the nearest step.
    """
    bounds, ends = measure.row_bounds, _find_ends(measure)
    value = widen(argument)
    number, centre = value, None if measure.weight is None else measure.weight.centre
    if centre is not None:
        number = Call("-", (value, Literal(float(centre), DOUBLE)), DOUBLE)
    scaled = Call("*", (number, Literal(float(1 / bounds.step), DOUBLE)), DOUBLE)
    is_exact = argument.type.family is not Family.DOUBLE and bounds.step == Fraction(
        1, 10 ** argument.type.precision[1]
    )
    if is_exact or centre is not None:
        scaled = Call("+", (scaled, Literal(0.5, DOUBLE)), DOUBLE)  # a whole number but for the rounding of the product
    steps: Expression = Cast(Call("floor", (scaled,), DOUBLE), BIGINT)
    (low, least), (high, most) = ends
    within = Call("and", (_compare(value, ">", bound=low), _compare(value, "<", bound=high)), BOOLEAN)
    branches = [
        (within, steps),  # most rows, so that an engine looks no further; NaN is below no bound, or above each
        (Call("isnan", (value,), BOOLEAN), _ZERO),
        (_compare(value, ">=", bound=high), Literal(most, BIGINT)),
        (_compare(value, "<=", bound=low), Literal(least, BIGINT)),
    ]
    return Case(tuple[tuple[Expression, Expression], ...](branches), _ZERO, BIGINT)


def _find_ends(measure: Measure) -> tuple[tuple[Fraction, int], tuple[Fraction, int]]:
    """Return the least and the greatest value that a row counts with, each with its steps."""
    bounds, weight = measure.row_bounds, measure.weight
    low, high = bounds.low * bounds.step, bounds.high * bounds.step
    if measure.row_range is None:
        return (low, bounds.low), (high, bounds.high)
    if weight is not None and weight.centre is not None:
        least, most = measure.row_range
        return (least, bounds.low // weight.rows), (most, bounds.high // weight.rows)
    least, most = (min(max(each, low), high) for each in measure.row_range)
    return (least, math.floor(least / bounds.step)), (most, math.floor(most / bounds.step))


def _compare(value: Expression, operator: str, *, bound: Fraction) -> Expression:
    return Call(operator, (value, Literal(float(bound), DOUBLE)), BOOLEAN)


def build_contributions(
    writer: Writer,
    query: PrivateQuery,
    *,
    names: Sequence[str],
    form: Form = Form.ROWS,
    stored: Sequence[Expression] = (),
) -> str:
    """Return the SQL for one row per group and unit: the keys `names`, UNIT, and what the unit adds to each measure.

    `stored` has the steps of each measure in a materialized table, in place of those of a row. In a short `form` each
    of its rows is one unit of a group; where it is RANKS, they have their RANK and GROUPS.
    """
    keys = [alias(writer.expression(key), name) for key, name in zip(query.keys, names, strict=True)]
    unit = writer.expression(canonicalize(query.unit))
    steps: Sequence[Expression | None] = stored or [build_row_steps(measure) for measure in query.measures]
    rows = [
        alias(writer.expression(make_total(each)), _name_row(at)) for at, each in enumerate(steps) if each is not None
    ]
    ranks = [RANK, GROUPS] if form is Form.RANKS else []
    body = writer.adapt_joins(query.body)
    base = writer.select([*keys, alias(unit, UNIT), *ranks, *rows], body, where=subquery(not_null(unit)))
    is_alone, parts = form is not Form.ROWS, name_parts(query)
    added = [
        alias(_add_rows(measure, "" if steps[at] is None else _name_row(at), alone=is_alone), parts[at])
        for at, measure in enumerate(query.measures)
        if measure.weight is None
    ]
    weights = _open_weights(writer, query)
    for at, name in [*weights.sums.items(), *((_find_number(query, at), name) for at, name in weights.numbers.items())]:
        added.append(alias(writer.wide(_sum_rows("" if steps[at] is None else _name_row(at), alone=is_alone)), name))
    group_by = list_parts([*names, UNIT]) if form is Form.ROWS else ""
    found = select([*names, UNIT, *ranks, *added], subquery(base), group_by=group_by)
    if not weights.sums:
        return found
    weighed = [
        name if measure.weight is None else alias(weights.build_part(at), name)
        for at, (measure, name) in enumerate(zip(query.measures, parts, strict=True))
    ]
    return select([*names, UNIT, *ranks, *weighed], subquery(found))


def _open_weights(writer: Writer, query: PrivateQuery) -> UnitWeights:
    """Return the names of the sums from which the coupled measures of a query are worked out."""
    coupled = {at: measure.weight for at, measure in enumerate(query.measures) if measure.weight is not None}
    sums = {at: f"dpsql_added_{at + 1}" for at in coupled}
    numbers = {at: f"dpsql_number_{at + 1}" for at, weight in coupled.items() if weight.centre is not None}
    return UnitWeights(writer, query.measures, sums, numbers)


def _find_number(query: PrivateQuery, at: int) -> int:
    """Return the place of the measure that counts the rows of an average around the middle of a range."""
    return next(output.divisor for output in query.outputs if output.measure == at and output.divisor is not None)


def build_stored_sums(
    writer: Writer, query: PrivateQuery, *, names: Sequence[str], stored: Sequence[Expression]
) -> str:
    """Return the SQL for the groups whose counts are stored: the keys `names`, and the sums of the measures."""
    keys = [alias(writer.expression(key), name) for key, name in zip(query.keys, names, strict=True)]
    sums = [alias(writer.expression(each), name) for each, name in zip(stored, name_sums(query), strict=True)]
    return writer.select([*keys, *sums], query.body)


def _name_row(at: int) -> str:
    return f"dpsql_row_{at + 1}"


def name_sums(query: PrivateQuery) -> list[str]:
    """Return the names of the columns of the measures of groups: the first is the count that ranks."""
    return [f"dpsql_measure_{at + 1}" for at in range(len(query.measures))]


def name_parts(query: PrivateQuery) -> list[str]:
    """Return the names of the columns of what each unit adds to the measures."""
    return [f"dpsql_part_{at + 1}" for at in range(len(query.measures))]


def _add_rows(measure: Measure, row: str, *, alone: bool) -> str:
    """Return what a unit adds to a group: its rows' steps added up and clamped, or 1 for each unit that counts.

    With `alone` there is one row, which needs no aggregate.
    """
    if measure.aggregate is Aggregate.UNITS:
        return bigint((row if alone else maximum(row)) if row else "1")
    bounds = measure.bounds or ContributionRange(0, 1)
    return bigint(clamp(_sum_rows(row, alone=alone), bounds.low, high=bounds.high))


def _sum_rows(row: str, *, alone: bool) -> str:
    """Return the steps of the rows of a unit, added up."""
    return row if alone else sum_column(row) if row else count()


def bound_pairs(
    writer: Writer, pairs: str, *, query: PrivateQuery, names: Sequence[str], bound: Bound, is_ranked: bool
) -> str:
    """Return the SQL for the pairs of group and unit that a bound leaves, in the order of `bound_contributions`.

    Where `is_ranked`, they have their RANK.
    """
    numbered = pairs if is_ranked else _rank(writer, pairs, query=query, names=names, bound=bound)
    return select(["*"], subquery(numbered), where=at_most(RANK, bound.groups))


def _rank(writer: Writer, pairs: str, *, query: PrivateQuery, names: Sequence[str], bound: Bound) -> str:
    draw = writer.draw(names, UNIT, salts=bound.salts)
    if writer.lists:
        return rank_in_lists(writer, subquery(pairs), names=names, by=(draw,), parts=name_parts(query))
    if not writer.native:  # as for the pairs of `contribution_bounding`
        pairs, draw = select(["*", alias(draw, DRAW)], subquery(pairs)), DRAW
    rank = number_rows(UNIT, list_parts([draw, sort_nulls_last(names)]))
    return select(["*", alias(rank, RANK)], subquery(pairs))


def rank_pairs(writer: Writer, pairs: str, *, query: PrivateQuery, names: Sequence[str], bound: Bound) -> str:
    """Return the SQL for all pairs with the RANK of each within its unit and GROUPS, the number of those."""
    ranked = _rank(writer, pairs, query=query, names=names, bound=bound)
    if writer.lists:
        return ranked
    return select(["*", alias(count(partition_by=UNIT), GROUPS)], subquery(ranked))


def weigh_pairs(writer: Writer, ranked: str, *, bound: Bound, weights: Sequence[int], most: int) -> str:
    """Return the SQL for ranked pairs with the WEIGHT of each, 0 beyond the bound.

    A unit with t groups left adds weights[t - 1] * c / most to each, rounded down, c being what it adds to the first
    measure, `most` at the most. The product is below 2**41 and the quotient at most weights[t - 1] < 2**21, so that
    engines which divide in doubles find the same whole number.
    """
    weight = writer.looked_up(writer.listed(weights), least(GROUPS, str(bound.groups)))
    share = divide(bigint(weight), "dpsql_part_1", by=most)
    return select(["*", alias(zero_unless(at_most(RANK, bound.groups), share), WEIGHT)], subquery(ranked))


def sum_contributions(query: PrivateQuery) -> list[str]:
    """Return the sums of the contributions of units to each measure, 0 without any."""
    pairs = zip(name_parts(query), name_sums(query), strict=True)
    return [alias(or_zero(bigint(sum_column(part))), name) for part, name in pairs]
