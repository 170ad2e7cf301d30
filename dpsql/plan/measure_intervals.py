"""Intervals of the released values of measures, as columns: post-processing of a release and of its public terms.

The ends are of the type of the measure and rounded outwards; those of an average are DOUBLE.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.intervals import ValueNoise, widen_quotients
from dpsql.plan.arrow_schema import arrow_type
from dpsql.plan.measure_values import find_place
from dpsql.plan.mechanisms import CountNoise
from dpsql.sql.ir.measures import Measure
from dpsql.sql.ir.types import DOUBLE

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["compute_average_interval", "compute_interval", "describe_noise"]


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
