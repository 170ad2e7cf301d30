"""Steps of one row of a sum of products of two distances, each from the middle of the range of its values.

The range of a value is public, and a value beyond an end counts as the end. Squares are from 0 to h^2: half of that is
subtracted, in whole steps. Products are computed in DOUBLE by the engine; what a unit adds is clamped after that, in
whole numbers (`CoupledParts`), so that no rounding takes it beyond its bound.

    (x - mid) * (z - mid_z) becomes, with x and z cut to their ranges

    CASE WHEN x IS NOT NULL AND z IS NOT NULL THEN CAST(floor(y * v / step + 0.5) AS BIGINT) ELSE 0 END
    y is CASE WHEN x > 0 AND x < 10 THEN x - 5 WHEN x >= 10 THEN 5 ELSE -5 END, and v likewise

    (x - mid) * (x - mid) less the half of the greatest, in 1,000 steps each, becomes

    CASE WHEN x IS NOT NULL THEN CASE WHEN x > 0 AND x < 10
        THEN CAST(floor((x - 5) * (x - 5) / step - 999.5) AS BIGINT) ELSE 1000 END ELSE 0 END
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.sql.ir.measures import Measure, is_present
from dpsql.sql.ir.scope import join_conjuncts
from dpsql.sql.ir.tree import Call, Case, Cast, Expression, Literal
from dpsql.sql.ir.types import BIGINT, BOOLEAN, DOUBLE
from dpsql.sql.rewrite.passes import widen


def build_product_steps(measure: Measure) -> Expression:
    """Return the steps of one row, a whole number that never fails; 0 where an argument is NULL or NaN."""
    factor, weight, argument = measure.factor, measure.weight, measure.argument
    assert factor is not None and weight is not None and argument is not None  # noqa: S101, PT018 - of the caller
    assert measure.row_range is not None and factor.row_range is not None  # noqa: S101, PT018 - of the plan
    step, most = measure.row_bounds.step, measure.row_bounds.high // weight.rows
    if measure.is_of_squares:
        distance = _Distance(argument, measure.row_range)
        steps = _count_steps(distance.inside, distance.inside, step=step, less=most)
        steps = Case(((distance.is_inside, steps),), Literal(most, BIGINT), BIGINT)
    else:
        one, other = _Distance(argument, measure.row_range), _Distance(factor.argument, factor.row_range)
        steps = _count_steps(one.cut, other.cut, step=step)
    every = dict.fromkeys([argument, factor.argument])
    conditions = [] if measure.condition is None else [measure.condition]
    present = join_conjuncts([*conditions, *(each for value in every for each in is_present(value))])
    assert present is not None  # noqa: S101 - of one argument at least
    return Case(((present, steps),), Literal(0, BIGINT), BIGINT)


def _count_steps(one: Expression, other: Expression, *, step: Fraction, less: int = 0) -> Expression:
    """Return the steps of a product of two distances, rounded to the nearest, `less` a whole number of them."""
    scaled = Call("*", (Call("*", (one, other), DOUBLE), _write(1 / step)), DOUBLE)
    rounded = Call("floor", (Call("+", (scaled, _write(Fraction(1, 2) - less)), DOUBLE),), DOUBLE)
    return Cast(rounded, BIGINT)


@dataclass(frozen=True, slots=True)
class _Distance:
    """Distance of a value that is neither NULL nor NaN from the middle of its range."""

    argument: Expression
    ends: tuple[Fraction, Fraction]

    @property
    def is_inside(self) -> Expression:
        """Whether the value is between the ends."""
        return Call("and", (self._compare(">", self.ends[0]), self._compare("<", self.ends[1])), BOOLEAN)

    @property
    def inside(self) -> Expression:
        """The distance of a value between the ends."""
        return Call("-", (widen(self.argument), _write(sum(self.ends, Fraction(0)) / 2)), DOUBLE)

    @property
    def cut(self) -> Expression:
        """The distance of any value, that of an end where it is beyond."""
        low, high = self.ends
        half = (high - low) / 2
        branches = ((self.is_inside, self.inside), (self._compare(">=", high), _write(half)))
        return Case(branches, _write(-half), DOUBLE)

    def _compare(self, operator: str, bound: Fraction) -> Expression:
        return Call(operator, (widen(self.argument), _write(bound)), BOOLEAN)


def _write(number: Fraction) -> Expression:
    return Literal(float(number), DOUBLE)
