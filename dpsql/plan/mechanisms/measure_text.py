"""Amounts of the measure that ranks, in words."""

from __future__ import annotations

from fractions import Fraction

from dpsql.sql.ir.measures import Aggregate
from dpsql.sql.ir.statements import PrivateQuery

__all__ = ["describe_amount"]


def describe_amount(query: PrivateQuery, steps: Fraction) -> str:
    """Return a number of steps of the first measure as its value: so many units, rows, or so much of a sum."""
    measure = query.measures[0]
    value = float(steps if measure.bounds is None else steps * measure.bounds.step)
    match measure.aggregate:
        case Aggregate.UNITS:
            return f"{value:.1f} units"
        case Aggregate.ROWS:
            return f"{value:.1f} rows"
        case Aggregate.SUM:
            return f"a sum of {value:.1f}"
