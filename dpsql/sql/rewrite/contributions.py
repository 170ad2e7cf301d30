"""What each unit adds to each group, in whole steps between public bounds; then groups and their sums.

    rows: keys, unit, steps of each row ──▶ keys, unit: added and clamped ──▶ bounded per unit ──▶ keys: added

Every row becomes whole steps before anything is added, so that no sum depends on the order of rows. A row's steps are
a function of that row alone, and a unit's contribution one of its own rows. So adding or removing a unit changes each
group by at most the sensitivity of the measure, and the contribution of no other unit. NULL and NaN add 0.

What a unit adds to coupled measures is all of them times one weight, so that they can be divided by each other:

    c_i       sums over the rows of the unit in the group, in steps, not clamped
    B_i       high_i where c_i > 0, -low_i where it is below
    part_i    sign(c_i) min(|c_i| 2^shift_i, min over k of (|c_i| 2^shift_i B_k) // |c_k|)

The weight is the least B_k / |c_k|, at most 1. With k = i the quotient is B_i 2^shift_i, so no part is beyond its
bound whatever the rows are. A part is a function of the unit's own rows. Most units are within all bounds, and divide
nothing. Rows are at most MOST_STEPS, so products of the sums of 2**33 rows stay below 2**74: they need more than 64
bits, and are exact in all engines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import Call, Case, Cast, Expression, Literal
from dpsql.sql.ir.types import BIGINT, BOOLEAN, DOUBLE, Family
from dpsql.sql.ir.visitor import canonicalize
from dpsql.sql.render.duckdb import Writer, compose
from dpsql.sql.rewrite.contribution_bounding import GROUPS, RANK, UNIT
from dpsql.sql.rewrite.passes import make_total, widen, widen_presence
from dpsql.sql.rewrite.use_materialized import Form

_ONE, _ZERO = Literal(1, BIGINT), Literal(0, BIGINT)


def build_row_steps(measure: Measure) -> Expression | None:
    """Return the steps of one row, a whole number that never fails; None where each row adds 1.

    A value is rounded down to whole steps; beyond a bound it counts as the bound, and NULL and NaN as 0.
    """
    argument, bounds = measure.argument, measure.row_bounds
    if argument is None:
        condition = widen_presence(measure.condition)
        return None if condition is None else Case(((condition, _ONE),), _ZERO, BIGINT)
    value = widen(argument)
    number, centre = value, None if measure.weight is None else measure.weight.centre
    if centre is not None:  # the distance from it, rounded to the nearest step
        number = Call("-", (value, Literal(float(centre), DOUBLE)), DOUBLE)
    scaled = Call("*", (number, Literal(float(1 / bounds.step), DOUBLE)), DOUBLE)
    is_exact = argument.type.family is not Family.DOUBLE and bounds.step == Fraction(
        1, 10 ** argument.type.precision[1]
    )
    if is_exact or centre is not None:
        scaled = Call("+", (scaled, Literal(0.5, DOUBLE)), DOUBLE)  # a whole number but for the rounding of the product
    steps: Expression = Cast(Call("floor", (scaled,), DOUBLE), BIGINT)
    (low, least), (high, most) = _find_ends(measure)

    def compare(operator: str, bound: Fraction) -> Expression:
        return Call(operator, (value, Literal(float(bound), DOUBLE)), BOOLEAN)

    steps = Case(
        (  # most rows are within, so that an engine looks no further; NaN is below no bound, or above each
            (Call("and", (compare(">", low), compare("<", high)), BOOLEAN), steps),
            (Call("isnan", (value,), BOOLEAN), _ZERO),
            (compare(">=", high), Literal(most, BIGINT)),
            (compare("<=", low), Literal(least, BIGINT)),
        ),
        _ZERO,
        BIGINT,
    )
    return steps if measure.condition is None else Case(((measure.condition, steps),), _ZERO, BIGINT)


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

    SELECT city, SUM(amount) FROM visits GROUP BY city TOP 5 PRIVATE                                      becomes

    SELECT dpsql_key_1, dpsql_unit, least(greatest(sum(dpsql_row_1), 0), 500) AS dpsql_part_1
    FROM (SELECT t1.city AS dpsql_key_1, t1.user_id AS dpsql_unit, floor(t1.amount + 0.5) AS dpsql_row_1
          FROM visits AS t1 WHERE t1.user_id IS NOT NULL)
    GROUP BY dpsql_key_1, dpsql_unit
    """
    keys = [f"{writer.expression(key)} AS {name}" for key, name in zip(query.keys, names, strict=True)]
    unit = writer.expression(canonicalize(query.unit))
    steps: Sequence[Expression | None] = stored or [build_row_steps(measure) for measure in query.measures]
    rows = ["" if each is None else f"dpsql_row_{at}" for at, each in enumerate(steps, start=1)]
    read = [
        f"{writer.expression(make_total(each))} AS {row}"
        for each, row in zip(steps, rows, strict=True)
        if each is not None
    ]
    ranks = [RANK, GROUPS] if form is Form.RANKS else []
    body, present = writer.adapt_joins(query.body), f"({unit} IS NOT NULL)"
    base = writer.select([*keys, f"{unit} AS {UNIT}", *ranks, *read], body, where=present)
    is_alone, parts = form is not Form.ROWS, name_parts(query)
    added = [
        f"{_add_rows(measure, row, alone=is_alone)} AS {part}"
        for measure, row, part in zip(query.measures, rows, parts, strict=True)
        if measure.weight is None
    ]
    coupled = {at: measure.weight for at, measure in enumerate(query.measures) if measure.weight is not None}
    sums = {at: f"dpsql_added_{at + 1}" for at in coupled}
    numbers = {at: f"dpsql_number_{at + 1}" for at, weight in coupled.items() if weight.centre is not None}
    # an average around the middle of a range is divided by the measure that counts its rows
    divisors = {output.measure: output.divisor for output in query.outputs if output.divisor is not None}
    for at, name in [*sums.items(), *((divisors[at], name) for at, name in numbers.items())]:
        added.append(f"{writer.wide(_sum_rows(rows[at], alone=is_alone))} AS {name}")
    pairs = compose(
        """
        SELECT {columns}
        FROM ({base})
        GROUP BY {pair}
        """,
        columns=[*names, UNIT, *ranks, *added],
        base=base,
        pair=[] if is_alone else [*names, UNIT],
    )
    if not sums:
        return pairs
    weights = UnitWeights(writer, query.measures, sums, numbers)
    weighed = [
        name if measure.weight is None else f"{weights.build_part(at)} AS {name}"
        for at, (measure, name) in enumerate(zip(query.measures, parts, strict=True))
    ]
    return compose("SELECT {columns} FROM ({pairs})", columns=[*names, UNIT, *ranks, *weighed], pairs=pairs)


def build_stored_sums(
    writer: Writer, query: PrivateQuery, *, names: Sequence[str], stored: Sequence[Expression]
) -> str:
    """Return the SQL for the groups whose counts are stored: the keys `names`, and the sums of the measures."""
    expressions = zip((*query.keys, *stored), (*names, *name_sums(query)), strict=True)
    return writer.select([f"{writer.expression(each)} AS {name}" for each, name in expressions], query.body)


def name_sums(query: PrivateQuery) -> list[str]:
    """Return the names of the columns of the measures of groups: the first is the count that ranks."""
    return [f"dpsql_measure_{at + 1}" for at in range(len(query.measures))]


def name_parts(query: PrivateQuery) -> list[str]:
    """Return the names of the columns of what each unit adds to the measures."""
    return [f"dpsql_part_{at + 1}" for at in range(len(query.measures))]


def sum_contributions(query: PrivateQuery) -> list[str]:
    """Return the sums of the contributions of units to each measure, 0 without any."""
    pairs = zip(name_parts(query), name_sums(query), strict=True)
    return [f"COALESCE(CAST(system.main.sum({part}) AS BIGINT), 0) AS {name}" for part, name in pairs]


def _add_rows(measure: Measure, row: str, *, alone: bool) -> str:
    """Return what a unit adds to a group: its rows' steps added up and clamped, or 1 for each unit that counts.

    With `alone` there is one row, which needs no aggregate.
    """
    if measure.aggregate is Aggregate.UNITS:
        return f"CAST({(row if alone else f'system.main.max({row})') if row else '1'} AS BIGINT)"
    return f"CAST({clamp(_sum_rows(row, alone=alone), measure.bounds or ContributionRange(0, 1))} AS BIGINT)"


def _sum_rows(row: str, *, alone: bool) -> str:
    """Return the steps of the rows of a unit, added up."""
    return row if alone else f"system.main.sum({row})" if row else "system.main.count()"


def clamp(number: str, bounds: ContributionRange) -> str:
    """Return a number between bounds: the nearer bound where it is beyond."""
    return f"system.main.least(system.main.greatest({number}, {bounds.low:d}), {bounds.high:d})"


@dataclass(frozen=True, slots=True)
class UnitWeights:
    """Columns of what is worked out from: the `sums` of coupled measures, by the places of these in the query.

    `numbers` are those of the rows that count, for sums of distances from the middle of a range. All are `wide`.
    """

    writer: Writer
    measures: Sequence[Measure]
    sums: Mapping[int, str]
    numbers: Mapping[int, str]

    def build_part(self, at: int) -> str:
        """Return what a unit adds to coupled measure number `at`."""
        weight, column, divide = self.measures[at].weight, self.sums[at], self.writer.divide_wide
        if at in self.numbers and weight is not None:
            number, bounds = self.numbers[at], self.measures[at].row_bounds
            share = self._sign(at, divide(f"({self._size(at)} * {weight.rows})", f"system.main.greatest({number}, 1)"))
            weighed = f"CASE WHEN {number} <= {weight.rows:d} THEN {column} ELSE {share} END"
            return f"CAST({clamp(weighed, bounds)} AS BIGINT)"  # of rows that a DOUBLE rounded
        scale = 1 if weight is None else 1 << weight.shift
        coupled = {each: self.measures[each].weight for each in self.sums if each not in self.numbers}
        coupled_by = 0 if weight is None else weight.number
        others = [each for each, other in coupled.items() if other is not None and other.number == coupled_by]
        ranges = ((self.sums[each], self.measures[each].row_bounds) for each in others)
        is_within = " AND ".join(f"{each} >= {bounds.low:d} AND {each} <= {bounds.high:d}" for each, bounds in ranges)
        size = self._size(at) if scale == 1 else f"({self._size(at)} * {scale:d})"
        shares = [divide(f"({size} * {self._bound(each)})", self._size(each, least=1)) for each in others if each != at]
        most = self._bound(at, scale=scale)
        whole = column if scale == 1 else f"({column} * {scale:d})"
        part = self._sign(at, f"system.main.least({', '.join([most, *shares])})" if shares else most)
        return f"CAST(CASE WHEN {is_within} THEN {whole} ELSE {part} END AS BIGINT)"

    def _size(self, at: int, *, least: int = 0) -> str:
        """Return the distance of a sum from 0, or `least` if that is greater."""
        bounds, column = self.measures[at].row_bounds, self.sums[at]
        sides = [column] * (bounds.high > 0) + [f"-{column}"] * (bounds.low < 0) + [f"{least:d}"] * (least > 0)
        return f"system.main.greatest({', '.join(sides)})" if len(sides) > 1 else sides[0]

    def _bound(self, at: int, *, scale: int = 1) -> str:
        """Return the bound on the side of a sum, in steps of which `scale` are one of the rows."""
        bounds = self.measures[at].row_bounds
        low, high = f"{-bounds.low * scale:d}", f"{bounds.high * scale:d}"
        if bounds.low < 0 < bounds.high:
            return f"CASE WHEN {self.sums[at]} < 0 THEN {low} ELSE {high} END"
        return low if bounds.low < 0 else high

    def _sign(self, at: int, size: str) -> str:
        """Return a size on the side of a sum."""
        bounds = self.measures[at].row_bounds
        if bounds.low < 0 < bounds.high:
            return f"({size} * CASE WHEN {self.sums[at]} < 0 THEN -1 ELSE 1 END)"
        return f"-{size}" if bounds.low < 0 else size
