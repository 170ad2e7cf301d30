"""Steps: the whole number that each row adds to a measure, so that no sum depends on the order of rows.

A row's steps are a function of that row alone. A value is rounded down to whole steps; beyond an end of its public
range it counts as the end, and NULL and NaN as 0.

Sums of products are of two distances, each from the middle of the range of its values. Every row becomes whole
distances, as in a sum around the middle, and all else is computed in whole numbers, which are exact in every engine:

    a, b            distances of one row, at most 2**19 steps; 0 where an argument is NULL or NaN
    a * a // 2**j   squares, in the steps of the measure; half of the largest is subtracted for each row that counts
    (a * b + K * 2**j) // 2**j - K      products, where K is the largest in these steps: nothing below 0 is divided

What a unit adds is clamped after that (`CoupledParts` of `contributions.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.sql.ir.measures import MOST_STEPS, ContributionRange, Measure, is_present
from dpsql.sql.ir.transforms import widen, widen_presence
from dpsql.sql.ir.tree import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    Call,
    Case,
    Cast,
    Expression,
    Family,
    Literal,
    join_conjuncts,
    split_conjuncts,
)

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

    # amount between 0 and 500 in steps of 0.01 becomes
    # CASE WHEN amount > 0 AND amount < 500 THEN CAST(floor(amount * 100 + 0.5) AS BIGINT)
    #      WHEN isnan(amount) THEN 0 WHEN amount >= 500 THEN 50000 WHEN amount <= 0 THEN 0 ELSE 0 END
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
        # These bounds are of `rows` rows that are all at an end, and one row adds as much as each of them: no rest is
        # left.
        return (least, bounds.low // weight.rows), (most, bounds.high // weight.rows)
    least, most = (min(max(each, low), high) for each in measure.row_range)
    return (least, math.floor(least / bounds.step)), (most, math.floor(most / bounds.step))


_MOST_DISTANCE = MOST_STEPS // 2


@dataclass(frozen=True, slots=True)
class ProductGrid:
    """Whole steps of products: those of each distance from the middle to an end, and of the largest product.

    2**shift products of steps of distances are one step of a product; of squares the `most` is that of the half.
    """

    distances: tuple[int, int]
    shift: int
    most: int


def find_grid(measure: Measure, most_rows: int) -> ProductGrid:
    """Return the grid of a sum of products of which so many rows of one unit count.

    Steps of exact types are whole parts of their last digit where these are few enough: nothing is then rounded.
    """
    (first, half), (second, other) = _list_arguments(measure)
    own, most = (count_own(first, half), count_own(second, other)), _MOST_DISTANCE // most_rows
    is_exact = 0 < own[0] * own[1] <= most
    distances = tuple(_refine(each if is_exact else 1) for each in own)
    # Of squares half of the largest is subtracted from each, so that they reach as far below 0 as above it.
    total = distances[0] * distances[1] >> measure.is_of_squares
    shift = 0
    while total >> shift > most:
        shift += 1
    return ProductGrid((distances[0], distances[1]), shift, total >> shift)


def _refine(steps: int) -> int:
    """Return the largest multiple of some steps by a power of two that is a distance."""
    return steps << ((_MOST_DISTANCE // steps).bit_length() - 1)


def _list_arguments(measure: Measure) -> list[tuple[Expression, Fraction]]:
    """Return both arguments of a product, each with half of its range."""
    factor = measure.factor
    assert factor is not None and measure.argument is not None  # noqa: S101, PT018 - of the caller
    assert measure.row_range is not None and factor.row_range is not None  # noqa: S101, PT018 - of the plan
    pairs = (measure.argument, measure.row_range), (factor.argument, factor.row_range)
    return [(argument, (high - low) / 2) for argument, (low, high) in pairs]


def count_own(argument: Expression | None, half: Fraction) -> int:
    """Return how many halves of the last digit of its type are in half of a range; 0 where that is no whole number."""
    if argument is None or argument.type.family is Family.DOUBLE:
        return 0
    own = 2 * half * 10 ** argument.type.precision[1]
    return int(own) if own.denominator == 1 else 0


def list_distances(measure: Measure) -> list[Measure]:
    """Return the sums of distances whose rows are multiplied: one for squares, and two for other products."""
    factor, weight = measure.factor, measure.weight
    assert factor is not None and weight is not None  # noqa: S101, PT018 - of the caller
    grid, arguments = find_grid(measure, weight.rows), _list_arguments(measure)
    found, ranges = list[Measure](), (measure.row_range, factor.row_range)
    for (argument, half), steps, ends in zip(arguments, grid.distances, ranges, strict=True):
        others = [each for each, _ in arguments if each != argument]
        present = [part for each in others for part in is_present(each)]
        found.append(
            replace(
                measure,
                argument=argument,
                condition=join_conjuncts([*split_conjuncts(measure.condition), *present]),
                bounds=ContributionRange(-steps, steps, half / steps),
                row_range=ends,
                weight=replace(weight, centre=sum(ends or (), Fraction(0)) / 2, rows=1),
                factor=None,
            )
        )
    return found[: 1 if measure.is_of_squares else 2]


def write_product_sum(measure: Measure, rows: list[str], *, number: str) -> str:
    """Return the SQL for the products of a unit's rows, added up; `rows` are its distances, and `number` their number.

    SUM of x * x, for x between 0 and 10, becomes   sum((dpsql_row_2 * dpsql_row_2) // 262144) - 524288 * count()
    """
    assert measure.weight is not None  # noqa: S101 - of the caller
    grid = find_grid(measure, measure.weight.rows)
    product, size = f"({rows[0]} * {rows[-1]})", 1 << grid.shift
    if measure.is_of_squares:
        divided = f"({product} // {size:d})" if grid.shift else product
        return f"(system.main.sum({divided}) - ({grid.most:d} * {number}))"
    divided = f"(({product} + {grid.most * size:d}) // {size:d} - {grid.most:d})" if grid.shift else product
    return f"system.main.sum({divided})"


def clamp(number: str, bounds: ContributionRange) -> str:
    """Return a number between bounds: the nearer bound where it is beyond."""
    return f"system.main.least(system.main.greatest({number}, {bounds.low:d}), {bounds.high:d})"
