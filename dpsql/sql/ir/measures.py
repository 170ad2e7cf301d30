"""Measures: how much one privacy unit adds to one group, as a whole number of steps between public bounds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from dpsql.sql.ir.tree import Expression
from dpsql.sql.ir.types import BIGINT, DOUBLE, WIDEST_DECIMAL, Family, Type, decimal

__all__ = ["DISTINCT_UNITS", "Aggregate", "ContributionRange", "Measure"]


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
        """Return the type of the released value: that of SUM follows its argument."""
        family = Family.INTEGER if self.argument is None else self.argument.type.family
        if self.argument is not None and family is Family.DECIMAL:
            return decimal(WIDEST_DECIMAL, self.argument.type.precision[1])
        return BIGINT if family is Family.INTEGER else DOUBLE

    @property
    def sensitivity(self) -> int:
        """Return the most steps by which adding or removing one unit changes a group; 1 where units are counted."""
        return 1 if self.bounds is None else self.bounds.sensitivity

    @property
    def width(self) -> int:
        """Return the most steps by which the changes of two groups differ; 1 where units are counted."""
        return 1 if self.bounds is None else self.bounds.width


DISTINCT_UNITS = Measure(Aggregate.UNITS)
