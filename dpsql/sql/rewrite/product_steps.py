"""Steps of sums of products of two distances, each from the middle of the range of its values.

A value beyond an end of its public range counts as the end. Every row becomes whole distances, as in a sum around the
middle, and all else is computed in whole numbers, which are exact in every engine:

    a, b            distances of one row, at most 2**19 steps; 0 where an argument is NULL or NaN
    a * a // 2**j   squares, in the steps of the measure; half of the largest is subtracted for each row that counts
    (a * b + K * 2**j) // 2**j - K      products, where K is the largest in these steps: nothing below 0 is divided

What a unit adds is clamped after that (`CoupledParts`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.sql.ir.measures import MOST_STEPS, ContributionRange, Measure, is_present
from dpsql.sql.ir.tree import Expression, Family, join_conjuncts, split_conjuncts

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


def write_sum(measure: Measure, rows: list[str], *, number: str) -> str:
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
