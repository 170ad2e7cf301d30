"""Words of a note about one measure: its call as the analyst wrote it, its bounds, and the values of its rows.

A measure without words of the analyst is named by its columns. Measures that are equal may be written differently, as
AVG(x) and SUM(x) / COUNT(x): each is named by the aggregate that it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor, log10

from dpsql.display import shorten
from dpsql.sql.ir.measures import MOST_STEPS, Aggregate, Measure, is_presence
from dpsql.sql.ir.tree import Call, Case, Cast, Expression, Literal, strip_casts
from dpsql.sql.ir.types import Family
from dpsql.sql.ir.unit_equality import split_conjuncts

__all__ = [
    "can_be_below",
    "describe_ends",
    "describe_limit",
    "find_range",
    "name_argument",
    "name_average",
    "name_call",
]

_UNSIGNED = frozenset(["UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"])
_CALL = re.compile(r"(?:count|sum|avg) ?\( ?(.*?) ?\)", re.IGNORECASE)
_STATED = re.compile(r" ?, ?contribution_bounds_per_group ?=>.*", re.IGNORECASE)
_DIGITS, _PLACES = 5, 2  # of a bound: those that count, and at least so many after the point


def name_call(measure: Measure) -> str:
    """Return the call of a measure: COUNT(*), SUM(-x), SUM(x) FILTER (…)."""
    argument = _read_argument(measure)
    if measure.aggregate is Aggregate.ROWS:
        return _write_call("COUNT", argument or "*", measure=measure)
    return _write_call("SUM", argument, measure=measure)


def name_average(total: Measure) -> str:
    """Return the call of the average that a sum is a part of."""
    return _write_call("AVG", _read_argument(total), measure=total)


def name_argument(measure: Measure) -> str:
    """Return what a measure adds up."""
    columns = " and ".join(dict.fromkeys(column for _, column in measure.columns))
    return shorten(_read_argument(measure) or columns) or "an expression"


def _write_call(name: str, argument: str, *, measure: Measure) -> str:
    """Return a call with a sign that the measure has a FILTER, as far as the measure knows."""
    call = f"{name}({shorten(argument)})" if argument else f"{name} of {name_argument(measure)}"
    conditions = split_conjuncts(measure.condition)
    if argument != "*" and measure.aggregate is Aggregate.ROWS:  # where a value is present, by what it counts
        conditions = [each for each in conditions if not is_presence(each)]
    return f"{call} FILTER (…)" if conditions else call


def _read_argument(measure: Measure) -> str:
    """Return the argument of the call that the analyst wrote, "" where no call is known."""
    words = "" if measure.words is None else " ".join(measure.words.fragment.split())
    found = _CALL.fullmatch(words)
    return "" if found is None else _STATED.sub("", found[1])


def describe_limit(measure: Measure) -> str:
    """Return how many rows, or what sum, one unit counts with at most."""
    bounds = measure.row_bounds
    if measure.aggregate is Aggregate.ROWS:
        return "1 row" if bounds.high == 1 else f"{bounds.high:,} rows"
    low, high = _find_bounds(measure)
    return describe_ends([low, high] if low < 0 else [high], measure)


def describe_ends(ends: Sequence[Fraction], measure: Measure) -> str:
    """Return the end or both ends of a range of values of a measure, in few digits."""
    bounds = measure.row_bounds
    slack = (bounds.high - bounds.low) * bounds.step / MOST_STEPS  # what bounds in whole steps differ by at most
    return " to ".join(_write(end, slack, is_upper=at == len(ends) - 1) for at, end in enumerate(ends))


def _write(value: Fraction, slack: Fraction, *, is_upper: bool) -> str:
    """Return a number as it is if it is short, else as the short one within the slack, or rounded outwards."""
    size = float(abs(value))
    places = max(_PLACES, _DIGITS - 1 - floor(log10(size))) if size else _PLACES
    if slack and (value * 10**places).denominator != 1:
        places = min(places, -ceil(log10(slack)))
    unit = Fraction(10) ** -places
    nearest = round(value / unit) * unit
    outwards = (ceil(value / unit) if is_upper else floor(value / unit)) * unit
    return f"{float(nearest if abs(nearest - value) <= slack else outwards):,.15g}"


def _find_bounds(measure: Measure) -> tuple[Fraction, Fraction]:
    bounds = measure.row_bounds
    return bounds.low * bounds.step, bounds.high * bounds.step


def find_range(measure: Measure) -> tuple[Fraction, Fraction] | None:
    """Return the least and the greatest value that a row of a sum counts with; None where it has no others."""
    if measure.argument is None or _is_of_constants(measure.argument):
        return None
    return measure.row_range or _find_bounds(measure)


def _is_of_constants(expression: Expression) -> bool:
    """Say whether the values of an expression are written in the statement, or are true and false."""
    match bare := strip_casts(expression):
        case Literal():
            return True
        case Case(branches=branches, default=default):
            results = [result for _, result in branches] + ([] if default is None else [default])
            return all(map(_is_of_constants, results))
        case Call(function="neg" | "coalesce", arguments=arguments):
            return all(map(_is_of_constants, arguments))
    return bare.type.family is Family.BOOLEAN


def can_be_below(measure: Measure, least: Fraction) -> bool:
    """Say whether the type of a sum's argument has values below one."""
    if measure.argument is None:
        return False
    stored = measure.argument.argument if isinstance(measure.argument, Cast) else measure.argument
    return least > 0 or stored.type.name not in _UNSIGNED
