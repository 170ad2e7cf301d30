"""Released measures as values: steps as numbers of the measure's type, quotients, and intervals around them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.intervals import AveragePlace, ValueNoise, widen_quotients
from dpsql.plan.arrow_tables import arrow_type, int64_array
from dpsql.plan.mechanisms import CountNoise
from dpsql.sql.ir.measures import Measure
from dpsql.sql.ir.types import DOUBLE, Family

if TYPE_CHECKING:
    import pyarrow as pa


_LARGEST = 2**63 - 1  # which the rows of 2**33 units are far below


def decode_steps(steps: Sequence[int | Fraction], measure: Measure) -> pa.Array:
    """Return noisy steps as values in the type of the measure, which holds all sums: if exact, rounded half to even."""
    import pyarrow as pa

    step = _find_step(measure)
    values = (each * step for each in steps)
    if measure.type.family is Family.INTEGER:
        return int64_array(min(max(round(value), -_LARGEST), _LARGEST) for value in values)
    if measure.type.family is Family.DOUBLE:
        return pa.array(list(map(float, values)), pa.float64())
    width, scale = measure.type.precision
    most, digits = 10**width - 1, Context(prec=width)
    whole = (min(max(round(value * 10**scale), -most), most) for value in values)  # beyond it is noise alone
    return pa.array([Decimal(each).scaleb(-scale, digits) for each in whole], arrow_type(measure.type))


def divide_steps(
    steps: Sequence[int | Fraction], divisors: Sequence[int | Fraction], *, measures: tuple[Measure, Measure]
) -> pa.Array:
    """Return noisy steps of a sum as averages, divided by noisy steps of a count; NULL where that is below 1.

    An average is within the range of its rows, where that is known.
    """
    import pyarrow as pa

    (step, by_step), place = map(_find_step, measures), find_place(measures[0])
    found = [
        float(place.put(each * step / (by * by_step))) if by * by_step >= 1 else None
        for each, by in zip(steps, divisors, strict=True)
    ]
    return pa.array(found, arrow_type(DOUBLE))


def find_place(measure: Measure) -> AveragePlace:
    """Return where averages of a measure are: around which number, and in what range."""
    centre = None if measure.weight is None else measure.weight.centre
    return AveragePlace(Fraction(0) if centre is None else centre, measure.row_range)


def _find_step(measure: Measure) -> Fraction:
    return Fraction(1) if measure.bounds is None else measure.bounds.step


def describe_noise(noise: CountNoise, measure: Measure) -> ValueNoise:
    """Return the noise of the values of a measure, by the terms of its release."""
    bounds = measure.bounds
    if bounds is None:
        return ValueNoise(noise.variance, noise.scale, parts=noise.parts)
    return ValueNoise(noise.variance, noise.scale, bounds.step, bounds.low < 0, noise.parts)


def compute_interval(
    values: pa.Array | pa.ChunkedArray, measure: Measure, *, noise: CountNoise, level: float
) -> tuple[pa.Array, pa.Array]:
    """Return the lower and upper ends for released values of a measure, NULL for NULL.

    `values` are those that are shown, in the type of the measure, and `noise` is that of the terms of their release:
    each exact value, within the bounds of each unit, lies between the ends with probability `level`.
    """
    import pyarrow as pa

    low, high = describe_noise(noise, measure).widen(values.to_pylist(), level)
    return pa.array(low, values.type), pa.array(high, values.type)


def compute_average_interval(
    sums: Sequence[int | Fraction],
    rows: Sequence[int | Fraction],
    *,
    measures: tuple[Measure, Measure],
    noises: tuple[CountNoise, CountNoise],
    level: float,
) -> tuple[pa.Array, pa.Array]:
    """Return the ends for averages, by the noisy steps of their sums and their noisy numbers of rows.

    Conservative, as `dpsql.intervals.widen_quotients` says; NULL where an average is.
    """
    import pyarrow as pa

    first, second = (describe_noise(*each) for each in zip(noises, measures, strict=True))
    place = find_place(measures[0])
    low, high = widen_quotients(list(zip(sums, rows, strict=True)), noises=(first, second), level=level, place=place)
    return pa.array(low, arrow_type(DOUBLE)), pa.array(high, arrow_type(DOUBLE))
