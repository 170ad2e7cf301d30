"""Released values of measures: noisy whole steps as numbers of the output's type. Post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.display import shorten
from dpsql.plan.arrow_schema import arrow_type, int64_array
from dpsql.sql.ir.measures import Aggregate, Measure
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.types import DOUBLE, Family

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["decode_steps", "describe_limits", "divide_steps"]

_LARGEST = 2**63 - 1


def decode_steps(steps: Sequence[int], measure: Measure) -> pa.Array:
    """Return noisy steps as values in the type of the measure: rounded, and within the type, if it is exact."""
    import pyarrow as pa

    step = Fraction(1) if measure.bounds is None else measure.bounds.step
    values = (each * step for each in steps)
    if measure.type.family is Family.INTEGER:
        return int64_array(min(max(round(value), -_LARGEST), _LARGEST) for value in values)
    if measure.type.family is Family.DOUBLE:
        return pa.array(list(map(float, values)), pa.float64())
    width, scale = measure.type.precision
    most = 10**width - 1
    whole = (min(max(round(value * 10**scale), -most), most) for value in values)
    return pa.array([Decimal(each).scaleb(-scale) for each in whole], arrow_type(measure.type))


def describe_limits(query: PrivateQuery) -> str:
    """Return in words what bounds one unit in each group: its rows, and the sums of its values; "" without either."""
    found = dict.fromkeys(_describe_limit(measure) for measure in query.measures)
    return " and ".join(limit for limit in found if limit)


def _describe_limit(measure: Measure) -> str:
    if measure.bounds is None:
        return ""
    high = measure.bounds.high * measure.bounds.step
    if measure.aggregate is Aggregate.ROWS:
        return "with at most 1 row" if high == 1 else f"with at most {measure.bounds.high:,} rows"
    name = " and ".join(column for _, column in measure.columns)
    return f"with at most {float(high):,.10g} of {shorten(name)}"


def divide_steps(steps: Sequence[int], divisors: Sequence[int], *, measure: Measure) -> pa.Array:
    """Return noisy steps as values, divided by noisy counts; NULL where a count is below 1."""
    import pyarrow as pa

    step = Fraction(1) if measure.bounds is None else measure.bounds.step
    pairs = zip(steps, divisors, strict=True)
    return pa.array([float(each * step / by) if by >= 1 else None for each, by in pairs], arrow_type(DOUBLE))
