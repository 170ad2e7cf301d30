"""Amounts of the measure that ranks, in words."""

from __future__ import annotations

from fractions import Fraction

from dpsql.sql.ir.measures import Aggregate, Measure
from dpsql.sql.ir.statements import PrivateQuery

NO_ROW = "if no row has any of them, none is returned in 95 of 100 answers"


def describe_amount(query: PrivateQuery, steps: Fraction | int) -> str:
    """Return a number of steps of the first measure as its value: so many units, rows, or so much of a sum.

    A whole number of units or rows that is given as an int is written as one.
    """
    measure = query.measures[0]
    value = _value_of(measure, steps)
    counted = f"{value:,.0f}" if isinstance(steps, int) else f"{value:.1f}"
    match measure.aggregate:
        case Aggregate.UNITS:
            return f"{counted} units"
        case Aggregate.ROWS:
            return f"{counted} rows"
        case Aggregate.SUM:
            return f"a sum of {value:.1f}"


def describe_about(measure: Measure, steps: float, *, units: str = "units") -> str:
    """Return about how much of a measure a group needs."""
    value = f"{float(steps) * float(1 if measure.bounds is None else measure.bounds.step):,.0f}"
    match measure.aggregate:
        case Aggregate.UNITS:
            return f"about {value} {units}"
        case Aggregate.ROWS:
            return f"about {value} rows"
        case Aggregate.SUM:
            return f"a sum of about {value}"


def describe_noisy(query: PrivateQuery, steps: int) -> str:
    """Return the noisy value that a group needs."""
    amount = describe_amount(query, steps)
    return f"a noisy {amount.removeprefix('a ')}" if amount.startswith("a ") else f"a noisy count of {amount}"


def describe_spread(query: PrivateQuery, steps: float) -> str:
    """Return the scale of noise on the first measure as a value."""
    return f"{_value_of(query.measures[0], steps):.1f}"


def describe_known(known: int, *, line: str = "") -> tuple[tuple[str, str], ...]:
    """Return how many names need no threshold, as lines of name and value; none where there are none.

    `line` says what they need instead; "" for nothing.
    """
    if not known:
        return ()
    names = "1 that an earlier answer released needs" if known == 1 else f"{known:,} that earlier answers released need"
    if line:
        return (("known names", f"{names} {line}, less than the threshold; {NO_ROW}"),)
    return (("known names", f"{names} no threshold, also with no unit at all"),)


def name_value(query: PrivateQuery) -> str:
    """Return what the first measure of a group is called: its count, or its sum."""
    return "sum" if query.measures[0].aggregate is Aggregate.SUM else "count"


def _value_of(measure: Measure, steps: Fraction | float) -> float:
    return float(steps) if measure.bounds is None else float(steps) * float(measure.bounds.step)
