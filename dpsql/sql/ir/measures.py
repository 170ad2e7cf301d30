"""Measures: how much one privacy unit adds to one group, as a whole number of steps between public bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Self

from dpsql.sql.ir.tree import Expression
from dpsql.sql.ir.types import BIGINT, Family, Type, sum_type

__all__ = ["DISTINCT_UNITS", "MOST_STEPS", "Aggregate", "ContributionRange", "Measure"]

MOST_STEPS = 2**20  # of one unit in one group, so that the sums of 2**33 units stay below 2**53


class Aggregate(Enum):
    """Aggregate of a private query that is released with noise."""

    UNITS = "COUNT(DISTINCT unit)"
    ROWS = "COUNT"
    SUM = "SUM"


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


@dataclass(frozen=True, slots=True)
class Measure:
    """Aggregate of the rows of a group where `condition` holds, every row without one.

    `argument` is what SUM adds up. `columns` are the stored columns of private tables that it is worked out from, as
    (table, column), by which the policy bounds it. `bounds` are those of one unit in one group, None until the query
    is planned.
    """

    aggregate: Aggregate
    argument: Expression | None = None
    condition: Expression | None = None
    columns: tuple[tuple[str, str], ...] = ()
    bounds: ContributionRange | None = None

    @property
    def type(self) -> Type:
        """Return the type of the released value: a count is a BIGINT, and that of SUM follows its argument."""
        return BIGINT if self.argument is None else sum_type(self.argument.type)

    @property
    def sensitivity(self) -> int:
        """Return the most steps by which adding or removing one unit changes a group; 1 where units are counted."""
        return 1 if self.bounds is None else self.bounds.sensitivity

    @property
    def width(self) -> int:
        """Return the most steps by which the changes of two groups differ; 1 where units are counted."""
        return 1 if self.bounds is None else self.bounds.width


DISTINCT_UNITS = Measure(Aggregate.UNITS)
