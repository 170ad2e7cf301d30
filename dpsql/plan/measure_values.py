"""Released values of measures: noisy whole steps as numbers of the output's type. Post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.display import shorten, unit_noun
from dpsql.plan.arrow_schema import arrow_type, int64_array
from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.types import DOUBLE, Family

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["decode_steps", "describe_bounds", "divide_steps"]

_LARGEST = 2**63 - 1  # which the rows of 2**33 units are far below


def decode_steps(steps: Sequence[int | Fraction], measure: Measure) -> pa.Array:
    """Return noisy steps as values in the type of the measure, which holds all sums: if exact, rounded half to even."""
    import pyarrow as pa

    step = Fraction(1) if measure.bounds is None else measure.bounds.step
    values = (each * step for each in steps)
    if measure.type.family is Family.INTEGER:
        return int64_array(min(max(round(value), -_LARGEST), _LARGEST) for value in values)
    if measure.type.family is Family.DOUBLE:
        return pa.array(list(map(float, values)), pa.float64())
    width, scale = measure.type.precision
    most, digits = 10**width - 1, Context(prec=width)
    whole = (min(max(round(value * 10**scale), -most), most) for value in values)  # beyond it is noise alone
    return pa.array([Decimal(each).scaleb(-scale, digits) for each in whole], arrow_type(measure.type))


def describe_bounds(query: PrivateQuery, bounded_by: int | None) -> str:
    """Return in words what bounds each unit where values are released, and what true values can be; "" if nothing does.

    Units count in at most `bounded_by` groups, None without such a bound; the others are those of the measures.
    """
    limits = [measure for measure in query.measures if measure.bounds is not None] if query.releases_counts else []
    found = (
        [] if bounded_by is None else ["in at most 1 group" if bounded_by == 1 else f"in at most {bounded_by} groups"]
    )
    found += list(dict.fromkeys(map(_describe_limit, limits)))
    if not found:
        return ""
    values = "values" if limits else "counts"
    signed = any(measure.bounds is not None and measure.bounds.low < 0 for measure in limits)
    differ = "higher or lower" if signed else "higher"
    return f"each {unit_noun(query.unit_name)} counted {' and '.join(found)}: true {values} can be {differ}"


def _describe_limit(measure: Measure) -> str:
    bounds = measure.bounds or ContributionRange(0, 1)
    if measure.aggregate is Aggregate.ROWS:
        return "with at most 1 row" if bounds.high == 1 else f"with at most {bounds.high:,} rows"
    low, high = (f"{float(end * bounds.step):,.10g}" for end in (bounds.low, bounds.high))
    name = shorten(" and ".join(column for _, column in measure.columns))
    return f"with {low} to {high} of {name}" if bounds.low < 0 else f"with at most {high} of {name}"


def divide_steps(steps: Sequence[int | Fraction], divisors: Sequence[int | Fraction], *, measure: Measure) -> pa.Array:
    """Return noisy steps as values, divided by noisy counts; NULL where a count is below 1."""
    import pyarrow as pa

    step = Fraction(1) if measure.bounds is None else measure.bounds.step
    pairs = zip(steps, divisors, strict=True)
    return pa.array([float(each * step / by) if by >= 1 else None for each, by in pairs], arrow_type(DOUBLE))
