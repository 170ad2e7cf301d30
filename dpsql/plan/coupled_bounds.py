"""Bounds of coupled measures: finer steps, and averages around the middle of the range of their rows.

A unit beyond a bound of a set has a weight below 1, which is rounded down to whole steps. Steps are as fine as the
largest number of them allows, so that what is lost by rounding is far below the noise (`maths.md` 10.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from dpsql.sql.ir.measures import MOST_STEPS, ContributionRange, Measure
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.types import Family

__all__ = ["refine_coupled"]

_FEWEST_STEPS = 256  # from the middle of a range to its end, for values that are no whole steps


def refine_coupled(query: PrivateQuery) -> PrivateQuery:
    """Return a query, whose measures are bounded, with the steps of its coupled measures."""
    if all(measure.weight is None for measure in query.measures):
        return query
    changed = dict(_center_averages(query))
    refined = [changed.get(measure) or _refine(measure) for measure in query.measures]
    measures = tuple(dict.fromkeys(refined))
    places = [measures.index(measure) for measure in refined]
    outputs = tuple(
        output
        if output.key is not None
        else replace(
            output,
            measure=places[output.measure],
            divisor=None if output.divisor is None else places[output.divisor],
        )
        for output in query.outputs
    )
    return replace(query, measures=measures, outputs=outputs)


def _refine(measure: Measure) -> Measure:
    """Return a measure in the finest steps such that one unit adds at most MOST_STEPS."""
    if measure.weight is None or measure.bounds is None:
        return measure
    shift = max(0, (MOST_STEPS // measure.bounds.width).bit_length() - 1)
    return replace(measure, bounds=measure.bounds.refine(shift), weight=replace(measure.weight, shift=shift))


def _center_averages(query: PrivateQuery) -> Iterator[tuple[Measure, Measure]]:
    """Yield sums and counts of averages with those that replace them: of the distances from the middle, and alone.

    Those of a set that is shown as it is have to stay.
    """
    shown = {query.measures[output.measure] for output in query.outputs if output.divisor is None}
    for output in query.outputs:
        if output.key is not None or output.divisor is None:
            continue
        total, rows = query.measures[output.measure], query.measures[output.divisor]
        if total not in shown and rows not in shown and (centred := _center(total, rows)) is not None:
            yield total, centred
            yield rows, replace(rows, weight=None)


def _center(total: Measure, rows: Measure) -> Measure | None:
    """Return the sum of the distances from the middle of the range of a row; None where that has more noise."""
    if total.row_range is None or total.bounds is None or rows.bounds is None or total.weight is None:
        return None
    (least, most), most_rows = total.row_range, rows.bounds.high
    half = (most - least) / 2
    if half <= 0 or most_rows * half > total.bounds.sensitivity * total.bounds.step:
        return None
    steps = _count_half(total, half, most=MOST_STEPS // 2 // most_rows)
    if steps is None:
        return None
    bounds = ContributionRange(-most_rows * steps, most_rows * steps, half / steps)
    weight = replace(total.weight, centre=(least + most) / 2, rows=most_rows)
    return replace(total, bounds=bounds, weight=weight)


def _count_half(total: Measure, half: Fraction, *, most: int) -> int | None:
    """Return the steps from the middle of a range to its end, at most `most`; None where they would be too coarse.

    Values of an exact type are whole numbers of steps where these are few enough.
    """
    type_ = None if total.argument is None else total.argument.type
    if type_ is not None and type_.family is not Family.DOUBLE:
        own = 2 * half * 10 ** type_.precision[1]  # halves of its last digit
        if own.denominator == 1 and int(own) <= most:
            return int(own) << ((most // int(own)).bit_length() - 1)
    return most if most >= _FEWEST_STEPS else None
