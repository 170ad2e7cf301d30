"""Measures: what a private query releases of a group, and how much one privacy unit adds to it.

This file has three parts: (1) measures, to which a unit adds a whole number of steps between public bounds;
(2) `Statistic`, which is computed from several released measures; (3) from `Quantile` on, quantiles, and the public
bins in which their rows are counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from decimal import Decimal
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
            # Rounded inwards: what a unit adds stays within the bounds that the policy or the query has.
            low, high = math.ceil(least / own), math.floor(most / own)
            if low < high:  # else the bounds are narrower than a step of the type, as those of a column that is cast
                return cls(low, high, own)
        step = width / MOST_STEPS
        low = math.ceil(least / step)
        return cls(low, low + MOST_STEPS, step)

    def refine(self, shift: int) -> Self:
        """Return the same range in steps that are finer by 2**shift."""
        return replace(self, low=self.low << shift, high=self.high << shift, step=self.step / 2**shift)


@dataclass(frozen=True, slots=True)
class Weight:
    """Set of measures for which each unit has one weight in each group, so that they can be divided by each other.

    The sets of a query are numbered from 1, in `number`. Steps of a released measure are finer than those of its rows,
    by 2**shift. A `centre` is subtracted from each row of a sum that is bounded by the number of its `rows` alone: it
    then has the weight of the count of these, at most `rows`, which is a measure of its own. No kin of the column
    WEIGHT in `rewrite/bounding.py`, by which mechanisms rank groups.
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
    that these are no sum over units (`rewrite/contributions.py`). `columns` are the stored columns of private tables
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
        # The bounds of a released measure are those of its rows shifted to the left by `shift`, so that this shift is
        # exact.
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


# Part 2: statistics of spread.


class Statistic(Enum):
    """Statistic of the rows of a group that is computed from several released measures.

    All are of distances from the middle of the public range of a row. A sample's is N / (N - 1) times the population's.
    """

    VAR_POP = "VAR_POP"
    VAR_SAMP = "VAR_SAMP"
    STDDEV_POP = "STDDEV_POP"
    STDDEV_SAMP = "STDDEV_SAMP"
    COVAR_POP = "COVAR_POP"
    COVAR_SAMP = "COVAR_SAMP"

    @property
    def is_of_sample(self) -> bool:
        """Whether it estimates the spread of what the rows are a sample of: it needs two rows."""
        return self.value.endswith("_SAMP")

    @property
    def is_root(self) -> bool:
        """Whether it is the square root of a variance."""
        return self.value.startswith("STDDEV")

    @property
    def is_of_pairs(self) -> bool:
        """Whether it is of two arguments."""
        return self.value.startswith("COVAR")

    @property
    def fewest_rows(self) -> int:
        """Number of rows below which it is NULL."""
        return 2 if self.is_of_sample else 1


SPREADS = {
    **{each.value.lower(): each for each in Statistic},
    "variance": Statistic.VAR_SAMP,
    "var": Statistic.VAR_SAMP,
    "stddev": Statistic.STDDEV_SAMP,
}


# Part 3: quantiles.
_WIDE = 100  # ends of bins that are so many times apart, above 0, have bins that grow with the value


@dataclass(frozen=True, slots=True)
class Quantile:
    """The `wanted` quantile of the values of `argument` in the rows of a group where `condition` holds.

    The condition leaves out rows without a value: NULL, and NaN. `columns` are the stored columns of private tables
    that the argument is worked out from, as (table, column). `stated` is the range of one row's value that the query
    itself has for it, and `row_range` the one that it is counted with. A unit counts with at most `rows` rows in a
    group: one that has more has a weight below 1 for each. Both are None and 0 until the query is planned. `words` are
    what the analyst wrote, with their place.
    """

    argument: Expression
    wanted: Fraction
    condition: Expression | None = None
    columns: tuple[tuple[str, str], ...] = ()
    stated: tuple[Fraction, Fraction] | None = None
    row_range: tuple[Fraction, Fraction] | None = None
    rows: int = 0
    words: Place | None = field(default=None, compare=False, repr=False)

    @property
    def type(self) -> Type:
        """Return the type of the released value: BIGINT for whole numbers, else DOUBLE."""
        return BIGINT if self.argument.type.family is Family.INTEGER else DOUBLE

    @property
    def counted(self) -> tuple[object, ...]:
        """Return what decides which rows are counted in which bins: quantiles that share it read the same bins."""
        return self.argument, self.condition, self.row_range, self.rows


@dataclass(frozen=True, slots=True)
class Segment:
    """Bins of one width: so many from `start` on."""

    start: Fraction
    width: Fraction
    count: int

    @property
    def end(self) -> Fraction:
        """Return where the last bin ends."""
        return self.start + self.width * self.count


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of a range in ascending order: values below it are in the first, values above it in the last.

    Bins that are `whole` hold one whole number each.
    """

    segments: tuple[Segment, ...]
    whole: bool = False

    @property
    def count(self) -> int:
        """Return how many bins there are."""
        return sum(segment.count for segment in self.segments)

    def find_ends(self, number: int) -> tuple[Fraction, Fraction]:
        """Return the lower and the upper end of a bin, by its number from 0."""
        for segment in self.segments:
            if number < segment.count:
                low = segment.start + segment.width * number
                return (low, low) if self.whole else (low, low + segment.width)
            number -= segment.count
        raise IndexError(number)

    def describe_ends(self, type_: Type) -> tuple[int | float, int | float]:
        """Return what values in the first bin are at most, and those in the last at least, in few decimals.

        They are rounded away from the bins, but for whole numbers, which reach no further than the last one within.
        """
        (low, most), (least, high) = self.find_ends(0), self.find_ends(self.count - 1)
        if type_.family is Family.INTEGER:
            return math.floor(most), math.ceil(least)
        return (
            float(round_end(most, most - low, upwards=True)),
            float(round_end(least, high - least, upwards=False)),
        )

    def read_value(self, number: int, type_: Type) -> int | float:
        """Return the value of a bin: its whole number, or its middle, rounded to a tenth of its width."""
        low, high = self.find_ends(number)
        middle = (low + high) / 2
        if type_.family is Family.INTEGER:
            return math.floor(middle)
        return float(round_within(middle, high - low))


def build_bins(low: Fraction, high: Fraction, *, type_: Type, most: int) -> Bins:
    """Return at most so many bins of a range: of one whole number each, of one width, or that grow with the value.

    Whole numbers have bins of their own where these are few enough. In a range above 0 whose upper end is 100 times the
    lower, each doubling of the value has the same number of bins: so their width grows with the value as that of
    logarithmic bins does, and every engine finds the bin by a comparison and a product.

    >>> build_bins(Fraction(18), Fraction(90), type_=BIGINT, most=1024).count
    73
    """
    least, greatest = math.floor(low), math.ceil(high)
    if type_.family is Family.INTEGER and greatest - least < most:
        return Bins((Segment(Fraction(least), Fraction(1), greatest - least + 1),), whole=True)
    if low <= 0 or high < _WIDE * low:
        return Bins((Segment(low, (high - low) / most, most),))
    doublings = math.ceil(math.log2(high / low))
    # 0.01 to 10,000 is 20 doublings: of 1,024 bins each has 51, whose width doubles with it.
    each, segments, start = max(1, most // doublings), list[Segment](), low
    while start < high:
        end = min(2 * start, high)
        count = math.ceil(each * (end - start) / start)
        segments.append(Segment(start, (end - start) / count, count))
        start = end
    return Bins(tuple(segments))


def round_within(value: Fraction, width: Fraction) -> Decimal:
    """Return a value with as few decimals as a tenth of a width needs."""
    digits = _count_decimals(width)
    return Decimal(round(value * 10**digits)).scaleb(-digits)


def round_end(value: Fraction, width: Fraction, *, upwards: bool) -> Decimal:
    """Return the end of a bin of a width with as few decimals as a tenth of the width needs, rounded up or down."""
    digits = _count_decimals(width)
    return Decimal((math.ceil if upwards else math.floor)(value * 10**digits)).scaleb(-digits)


def _count_decimals(width: Fraction) -> int:
    digits = 0
    while width and Fraction(1, 10**digits) > width / 10 and digits < 15:  # noqa: PLR2004 - those of a DOUBLE
        digits += 1
    return digits
