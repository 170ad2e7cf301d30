"""Quantiles of a private query, and the public bins in which their rows are counted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

from dpsql.errors import Place
from dpsql.sql.ir.tree import BIGINT, DOUBLE, Expression, Family, Type

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
