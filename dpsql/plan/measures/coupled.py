"""Measures that are released together, with one weight for each unit: averages around a middle, ratios, and spreads.

Their steps are as fine as the largest number of them allows, so that what is lost by rounding is far below the noise
(`maths.md` 10.4). An average is around the middle of the range of its rows, where that has less noise.

A variance or covariance is computed from distances from the middle of a range, and from their products.
Each argument has a public range of the value of one row, [a, b]: the policy's `each`, or what the query states. With
mid = (a + b) / 2, h = (b - a) / 2 and y = x - mid, and with at most C rows of one unit that count, a unit adds

    rows        min(n, C)                      0 to C
    distances   w sum of y                     C h on either side of 0
    squares     w sum of (y^2 - h^2 / 2)       C h^2 / 2 on either side
    products    w sum of y z                   C h_x h_z on either side

with the one weight w = min(1, C / n) for its n rows: no bound cuts further. The middle of the squares is public, and is
added again when the variance is computed (`maths.md` 10.6). COUNT(x), and AVG(x) where it is around the middle, are
computed from the same rows and distances, which are released once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, isfinite

from dpsql.errors import Refusal
from dpsql.intervals import SpreadLaw, ValueNoise
from dpsql.plan.measures.expression_bounds import (
    ColumnTotals,
    ExpressionBounds,
    Totals,
    bound_expression,
    has_times,
    is_signed,
)
from dpsql.plan.measures.rows import TableRows
from dpsql.policy import PrivateTable
from dpsql.policy.toml import spell
from dpsql.sql.ir.measures import MOST_STEPS, ContributionRange, Measure, Statistic
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import Expression
from dpsql.sql.rewrite.row_steps import count_own, find_grid

FEWEST_STEPS = 256  # from the middle of a range to its end, for values that are no whole steps
_ASSUMED = ColumnTotals(inf, inf, Fraction(0), Fraction(500))  # of a column without a range, in hints
_SMALLEST = Fraction(1, 10**18)  # width of a range
MOST_ROWS = MOST_STEPS // 2 // FEWEST_STEPS  # of one unit that count
_Range = tuple[Fraction, Fraction]
_Find = Callable[[tuple[str, ...], str], ColumnTotals | None]


def refine_coupled(query: PrivateQuery) -> PrivateQuery:
    """Return a query, whose measures are bounded, with the steps of its coupled measures."""
    if all(measure.weight is None for measure in query.measures):
        return query
    changed = dict(_center_averages(query))
    if any(output.statistic is not None for output in query.outputs):
        changed |= refine_spread(query, changed)
    refined = [changed.get(measure) or _refine(measure) for measure in query.measures]
    measures = tuple(dict.fromkeys(refined))
    places = [measures.index(measure) for measure in refined]
    outputs = tuple(
        output if not output.is_measure else output.place([places[at] for at in output.places])
        for output in query.outputs
    )
    return replace(query, measures=measures, outputs=outputs)


def _refine(measure: Measure) -> Measure:
    """Return a measure in the finest steps such that one unit adds at most MOST_STEPS."""
    if measure.weight is None or measure.bounds is None:
        return measure
    # The largest power of two by which the steps can be divided: widths stay exact, and so do values that were whole
    # steps.
    shift = max(0, (MOST_STEPS // measure.bounds.width).bit_length() - 1)
    return replace(measure, bounds=measure.bounds.refine(shift), weight=replace(measure.weight, shift=shift))


def _center_averages(query: PrivateQuery) -> Iterator[tuple[Measure, Measure]]:
    """Yield sums and counts of averages with those that replace them: of the distances from the middle, and alone.

    Those of a set that is shown as it is have to stay.
    """
    undivided = (output for output in query.outputs if output.quantile is None and output.divisor is None)
    shown = {query.measures[output.measure] for output in undivided}
    for output in query.outputs:
        if not output.is_measure or output.divisor is None or output.statistic is not None:
            continue
        total, rows = query.measures[output.measure], query.measures[output.divisor]
        if total not in shown and rows not in shown and (centred := _center_average(total, rows)) is not None:
            yield total, centred
            yield rows, replace(rows, weight=None)


def _center_average(total: Measure, rows: Measure) -> Measure | None:
    """Return the sum of the distances from the middle of the range of a row; None where that has more noise."""
    if total.row_range is None or total.bounds is None or rows.bounds is None or total.weight is None:
        return None
    (least, most), most_rows = total.row_range, rows.bounds.high
    half = (most - least) / 2
    # Around the middle a unit adds C h at most on either side. Where the policy bounds its sum more tightly, as by 800
    # for 3 rows from 0 to 500, the plain sum has less noise.
    if half <= 0 or most_rows * half > total.bounds.sensitivity * total.bounds.step:
        return None
    # AVG(x) with x from 0 to 10 is 5 + SUM(x - 5) / COUNT(x), to whose sum a row adds at most 5 in place of 10
    steps = count_half(total, half, most=MOST_STEPS // 2 // most_rows)
    if steps is None:
        return None
    bounds = ContributionRange(-most_rows * steps, most_rows * steps, half / steps)
    weight = replace(total.weight, centre=(least + most) / 2, rows=most_rows)
    return replace(total, bounds=bounds, weight=weight)


def count_half(total: Measure, half: Fraction, *, most: int) -> int | None:
    """Return the steps from the middle of a range to its end, at most `most`; None where they would be too coarse.

    Values of an exact type are whole numbers of steps where these are few enough.
    """
    own = count_own(total.argument, half)
    if own and own <= most:
        # The largest own * 2**n up to `most`: values of an exact type stay whole numbers of steps.
        return own << ((most // own).bit_length() - 1)
    return most if most >= FEWEST_STEPS else None


@dataclass(frozen=True, slots=True)
class RowRanges:
    """Ranges of the values of one row of the arguments in a query, by the policy, or as the query states them.

    `policy` has the private tables by name, and `tables` those that the query names, by path; `table_rows` are the rows
    of one unit in each. `find_totals` returns the bounds of a column.
    """

    query: PrivateQuery
    policy: Mapping[str, PrivateTable]
    tables: Mapping[tuple[str, ...], Sequence[tuple[str, PrivateTable]]]
    table_rows: Mapping[tuple[str, ...], TableRows]
    find_totals: _Find

    def put(self, measure: Measure) -> Measure:
        """Return a sum of distances, or of products of two, with the ranges of the values; refuse one without."""
        assert measure.argument is not None  # noqa: S101 - of every sum
        factor = measure.factor
        if factor is not None:
            factor = replace(factor, row_range=self._find(measure, factor.argument))
        return replace(measure, row_range=self._find(measure, measure.argument), factor=factor, stated=None)

    def _find(self, measure: Measure, argument: Expression) -> _Range:
        if measure.stated is not None:
            return measure.stated.low, measure.stated.high
        found = self._bound(argument, self._find_column)
        low, high = found.low, found.high
        if not (isinstance(low, Fraction) and isinstance(high, Fraction)):
            raise self._refuse(measure, argument)
        if high - low < _SMALLEST:
            reason = "By its bounds this has the same value in every row, so there is no spread."
            raise Refusal("no-bounds", reason, hint=_propose_range(measure), place=measure.words)
        return low, high

    def _bound(self, argument: Expression, find: _Find) -> ExpressionBounds:
        return bound_expression(argument, self.query.body, totals=Totals(self.table_rows, find))

    def _find_column(self, path: tuple[str, ...], column: str) -> ColumnTotals | None:
        """Return the range of one row of a column, None where the policy has no `each` for it."""
        bounds = [table.bounds.find(column) for _, table in self.tables.get(path, ())]
        has_range = all(each is not None and each.each is not None for each in bounds)
        return self.find_totals(path, column) if bounds and has_range else None

    def _refuse(self, measure: Measure, argument: Expression) -> Refusal:
        """Return the refusal of values without a range, with the statement and the line of a policy that give it."""
        missing = list[tuple[str, str]]()  # columns whose ranges would be enough, if these are there

        def find(path: tuple[str, ...], column: str) -> ColumnTotals | None:
            known = self._find_column(path, column)
            if known is None and path in self.tables:
                missing.append((self.table_rows[path].name, column))
                known = _ASSUMED
            return known

        low = -500 if is_signed(argument) else 0
        found, hint = self._bound(argument, find), _propose_range(measure, low=low)
        reason = "The range of one row of this does not follow from the bounds of the policy."
        if isfinite(found.low) and isfinite(found.high) and missing and not has_times(argument):
            table, column = missing[0]
            reason = f"The policy has no range of the value of one row of {spell(column)}, which a spread needs."
            known, each = self.policy[table].bounds.find(column), f"each = {{min = {low}, max = 500}}"
            line = f"{spell(column)} = {{{each}}}" if known is None else f"{each} to {spell(column)}"
            hint = f"{hint} Or ask the curator to add {line}, or another range, under [tables.{spell(table)}.bounds]."
        return Refusal("no-bounds", reason, hint=hint, place=measure.words)


def _propose_range(measure: Measure, *, low: int = 0) -> str:
    """Return a hint with the measure as the query has it, and with a range of one row."""
    words = "VAR_POP(x)" if measure.words is None else " ".join(measure.words.fragment.split())
    written = words.partition(", contribution_bounds_per_row")[0].removesuffix(")")
    bounds = f"contribution_bounds_per_row => ({low}, 500)"
    return f"Write {written}, {bounds}), with your own bounds of the value of one row."


def refine_spread(query: PrivateQuery, averages: Mapping[Measure, Measure]) -> dict[Measure, Measure]:
    """Return what replaces the measures of each spread: distances from the middle, and the number of rows alone.

    `averages` are the replaced measures of averages around the middle. A sum of distances that one of these has is
    not released again.
    """
    outputs = [output for output in query.outputs if output.key is None and output.statistic is not None]
    known = {_leave_out_set(each): each for each in averages.values()}
    found = dict[Measure, Measure]()
    for output in sorted(outputs, key=lambda each: _find_set(query.measures[each.measure])):
        rows = query.measures[output.places[1]]
        found[rows] = replace(rows, weight=None)
        for at in (output.measure, *output.others):
            centred = _center(query.measures[at], rows)
            found[query.measures[at]] = known.setdefault(_leave_out_set(centred), centred)
    return found


def _find_set(measure: Measure) -> int:
    return 0 if measure.weight is None else measure.weight.number


def _leave_out_set(measure: Measure) -> Measure:
    """Return a measure that is the same in any set: the weight of distances is that of their number of rows."""
    return measure if measure.weight is None else replace(measure, weight=replace(measure.weight, number=0))


def _center(measure: Measure, rows: Measure) -> Measure:
    """Return the bounded sum of distances from the middle of a range, or of products of two of them."""
    assert measure.row_range is not None and measure.weight is not None and rows.bounds is not None  # noqa: S101, PT018
    most_rows, half, factor = rows.bounds.high, _halve(measure.row_range), measure.factor
    if most_rows > MOST_ROWS:
        reason = f"One unit can have {most_rows:,} rows here, and a spread counts at most {MOST_ROWS:,} of them."
        hint = f"Write WITH (max_rows_contributed = {MOST_ROWS}), or fewer, behind PRIVATE."
        raise Refusal("no-bounds", reason, hint=hint, place=measure.words)
    most = MOST_STEPS // 2 // most_rows
    if factor is None or factor.row_range is None:
        size, steps = half, count_half(measure, half, most=most) or most
    else:
        size, steps = find_size(measure), find_grid(measure, most_rows).most
    bounds = ContributionRange(-most_rows * steps, most_rows * steps, size / steps)
    weight = replace(measure.weight, centre=sum(measure.row_range, Fraction(0)) / 2, rows=most_rows)
    return replace(measure, bounds=bounds, weight=weight)


def describe_law(statistic: Statistic, measures: Sequence[Measure], *, noises: Sequence[ValueNoise]) -> SpreadLaw:
    """Return the law of a statistic: of its number of rows, sums of distances, and products, in this order."""
    *_, products = measures
    halves = tuple(_halve(each.row_range) for each in measures[1:-1] if each.row_range is not None)
    middle = find_size(products) if products.is_of_squares else Fraction(0)
    return SpreadLaw(statistic, tuple(noises), halves, middle)


def find_size(measure: Measure) -> Fraction:
    """Return the largest product of two distances of one row; of squares the half of it, around which they are."""
    assert measure.row_range is not None and measure.factor is not None and measure.factor.row_range is not None  # noqa: S101, PT018
    size = _halve(measure.row_range) * _halve(measure.factor.row_range)
    return size / 2 if measure.is_of_squares else size


def _halve(ends: _Range) -> Fraction:
    return (ends[1] - ends[0]) / 2
