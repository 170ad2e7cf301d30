"""Measures: how much one privacy unit adds to one group, as a whole number of steps between public bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from typing import Self

from dpsql.errors import Place
from dpsql.sql.ir.tree import BIGINT, BOOLEAN, DOUBLE, Call, Cast, Expression, Family, Type, sum_type

MOST_STEPS = 2**20  # of one unit in one group, so that the sums of 2**33 units stay below 2**53


class Aggregate(Enum):
    """Aggregate of a private query that is released with noise."""

    UNITS = "COUNT(DISTINCT unit)"
    ROWS = "COUNT"
    SUM = "SUM"
    ITEMS = "COUNT(DISTINCT item)"


@dataclass(frozen=True, slots=True)
class ContributionRange:
    """What one unit adds to one group: `low` to `high` whole steps, each worth `step`; low <= 0 < high - low."""

    low: int
    high: int
    step: Fraction = Fraction(1)

    @property
    def sensitivity(self) -> int:
        """Return the most steps by which adding or removing one unit changes a group."""
        return max(self.high, -self.low)

    @property
    def width(self) -> int:
        """Return the most steps by which the changes of two groups differ, from none to all that one unit can make."""
        return self.high - self.low

    @classmethod
    def of_values(cls, least: Fraction, most: Fraction, *, type_: Type | None) -> Self:
        """Return bounds in whole steps: those of the type where they are few enough, else 2**20 over the range."""
        own = Fraction(1, 10 ** type_.precision[1]) if type_ is not None and type_.family is not Family.DOUBLE else None
        width = most - least
        if own is not None and width / own <= MOST_STEPS:
            low, high = math.ceil(least / own), math.floor(most / own)
            if low < high:  # else the bounds are narrower than a step of the type, as those of a column that is cast
                return cls(low, high, own)
        step = width / MOST_STEPS
        low = math.ceil(least / step)
        return cls(low, low + MOST_STEPS if least else MOST_STEPS, step)

    def refine(self, shift: int) -> Self:
        """Return the same range in steps that are finer by 2**shift."""
        return replace(self, low=self.low << shift, high=self.high << shift, step=self.step / 2**shift)


@dataclass(frozen=True, slots=True)
class Weight:
    """Set of measures for which each unit has one weight in each group, so that they can be divided by each other.

    The sets of a query are numbered from 1, in `number`. Steps of a released measure are finer than those of its rows,
    by 2**shift. A `centre` is subtracted from each row of a sum that is bounded by the number of its `rows` alone: it
    then has the weight of the count of these, at most `rows`, which is a measure of its own. No kin of the column
    WEIGHT in `rewrite/contributions.py`, by which mechanisms rank groups.
    """

    number: int
    shift: int = 0
    centre: Fraction | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True)
class StatedBounds:
    """Bounds of what one unit adds to one group, as a query states them; those of AVG are of the unit's own mean.

    Those of a variance or covariance are of the value of one row.
    """

    low: Fraction
    high: Fraction
    of_mean: bool = False


@dataclass(frozen=True, slots=True)
class Factor:
    """What the distance of an argument from the middle of its range is multiplied with: another one's, or its own.

    `row_range` is the public range of one row, None until the query is planned.
    """

    argument: Expression
    columns: tuple[tuple[str, str], ...] = ()
    row_range: tuple[Fraction, Fraction] | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """Aggregate of the rows of a group where `condition` holds, every row without one.

    `argument` is what SUM adds up, or of what ITEMS counts the distinct values: those of a few kept for each unit, so
    that these are no sum over units (`rewrite/distinct_items.py`). `columns` are the stored columns of private tables
    that it is worked out from, as (table, column). `stated` are the bounds that the query itself has for it. `bounds`
    are those of one unit in one group, None until the query is planned. `row_range` is the public range of one row's
    value, to which every row is clamped, where it is narrower than the bounds; None where nothing more is known.
    Measures of one `weight` count each unit alike. With a `factor` products of two distances are added up and, of
    squares, half of the greatest one is subtracted from each. `words` are what the analyst wrote, with their place.
    `former` is the measure that 0.11 read in these words, where it is another one.
    """

    aggregate: Aggregate
    argument: Expression | None = None
    condition: Expression | None = None
    columns: tuple[tuple[str, str], ...] = ()
    bounds: ContributionRange | None = None
    row_range: tuple[Fraction, Fraction] | None = None
    stated: StatedBounds | None = None
    weight: Weight | None = None
    factor: Factor | None = None
    words: Place | None = field(default=None, compare=False, repr=False)
    former: Measure | None = field(default=None, compare=False, repr=False)

    @property
    def type(self) -> Type:
        """Return the type of the released value: a count is a BIGINT, and that of SUM follows its argument."""
        if self.argument is None or self.aggregate is Aggregate.ITEMS:
            return BIGINT
        return sum_type(self.argument.type)

    @property
    def is_of_squares(self) -> bool:
        """Whether squares are added up, of distances from the middle of a range."""
        return self.factor is not None and self.factor.argument == self.argument

    @property
    def row_bounds(self) -> ContributionRange:
        """Return the bounds of one unit in the steps of its rows."""
        bounds, shift = self.bounds or ContributionRange(0, 1), 0 if self.weight is None else self.weight.shift
        return ContributionRange(bounds.low >> shift, bounds.high >> shift, bounds.step * 2**shift)

    @property
    def sensitivity(self) -> int:
        """Return the most steps by which adding or removing one unit changes a group; 1 where units are counted."""
        return 1 if self.bounds is None else self.bounds.sensitivity

    @property
    def width(self) -> int:
        """Return the most steps by which the changes of two groups differ; 1 where units are counted."""
        return 1 if self.bounds is None else self.bounds.width


DISTINCT_UNITS = Measure(Aggregate.UNITS)


def is_present(argument: Expression) -> tuple[Expression, ...]:
    """Return the conditions of a row that has a value: neither NULL nor, of DOUBLE, NaN."""
    absent = [Call("is_null", (argument,), BOOLEAN)]
    if argument.type.family is Family.DOUBLE:
        absent.append(Call("isnan", (argument if argument.type == DOUBLE else Cast(argument, DOUBLE),), BOOLEAN))
    return tuple(Call("not", (each,), BOOLEAN) for each in absent)


def is_presence(condition: Expression) -> bool:
    """Say whether a condition is one of those that a row with some value meets."""
    inner = condition.arguments[0] if isinstance(condition, Call) and condition.function == "not" else None
    return isinstance(inner, Call) and inner.function in {"is_null", "isnan"}
