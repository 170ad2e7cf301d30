"""Words about one measure: the argument that the analyst wrote, and the ends of a range of its values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction

from dpsql.sql.ir.measures import MOST_STEPS, Measure

_CALL = re.compile(
    r"(?:approx_count_distinct|count|count_?if|sum|avg|var|variance|stddev|(?:var|stddev|covar)_(?:pop|samp)) ?"
    r"\( ?(.*?) ?\)",
    re.IGNORECASE,
)
_STATED = re.compile(r" ?, ?contribution_bounds_per_(?:group|row) ?=>.*", re.IGNORECASE)
_DIGITS, _PLACES = 5, 2  # of a bound: those that count, and at least so many after the point


def read_argument(measure: Measure) -> str:
    """Return the argument of the call that the analyst wrote, "" where no call is known."""
    words = "" if measure.words is None else " ".join(measure.words.fragment.split())
    found = _CALL.fullmatch(words)
    return "" if found is None else _STATED.sub("", found[1])


def describe_ends(ends: Sequence[Fraction], measure: Measure) -> str:
    """Return the end or both ends of a range of values of a measure, in few digits."""
    bounds = measure.row_bounds
    slack = (bounds.high - bounds.low) * bounds.step / MOST_STEPS  # what bounds in whole steps differ by at most
    written = []
    for at, end in enumerate(ends, start=1):
        size = float(abs(end))
        places = max(_PLACES, _DIGITS - 1 - math.floor(math.log10(size))) if size else _PLACES
        if slack and (end * 10**places).denominator != 1:
            places = min(places, -math.ceil(math.log10(slack)))
        unit = Fraction(10) ** -places
        nearest = round(end / unit) * unit
        outwards = (math.ceil(end / unit) if at == len(ends) else math.floor(end / unit)) * unit
        # as it is if it is short, else the short number within the slack, or rounded outwards
        written.append(f"{float(nearest if abs(nearest - end) <= slack else outwards):,.15g}")
    return " to ".join(written)
