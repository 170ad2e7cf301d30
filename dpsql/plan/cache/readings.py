"""Readings: what in a statement means something else than it did in an earlier version.

A statement of which a part is in the table below is another question than it was: its key has the numbers of these
readings, so that an answer stored under the earlier meaning is not shown for it. Every other statement has the key
that 0.11 gave it, and its stored answers stay free. A change of the meaning or the arithmetic of a measure adds a line,
or increments a number; a change that releases the same value with less noise, or under another type, does not.

    reading      since   what changed
    -----------  ------  -----------------------------------------------------------------------------------
    average      0.12    AVG divides a sum and a count in which each unit has one weight
    ratio        0.12    measures that are divided by each other have one weight for each unit
    expression   0.12    SUM of an expression has the bounds of the expression, not those of the column in it
    join         0.12    rows of several private tables are bounded by the tables whose rows are counted
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from dpsql.plan.terms import Terms
from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure
from dpsql.sql.ir.scope import join_conjuncts
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import Call, Cast, Expression, is_column, list_scans
from dpsql.sql.ir.types import DOUBLE

READING = 2  # of the answers that are stored now; those of 0.11 have none


@dataclass(frozen=True, slots=True)
class Reread:
    """What of a statement is read otherwise than in 0.11: the `readings` that changed, with their numbers.

    There is none where only the bounds or the condition of a measure are others, which are in the key anyway. The
    `measures` are those of the statement as 0.11 read it; None where it did not accept the statement.
    """

    readings: tuple[tuple[str, int], ...]
    measures: tuple[Measure, ...] | None


def find_changed_readings(query: PrivateQuery, terms: Terms) -> Reread | None:
    """Return what a query with bounded measures is read otherwise than in 0.11; None where it means the same."""
    found = tuple((name, number) for name, number, is_in in _CHANGED if is_in(query))
    earlier = _measure_as_0_11(query, terms)
    return Reread(found, earlier) if found or earlier not in (None, query.measures) else None


def _has_average(query: PrivateQuery) -> bool:
    return any(output.divisor is not None for output in query.outputs)


def _has_ratio(query: PrivateQuery) -> bool:
    averaged = {at for output in query.outputs if output.divisor is not None for at in (output.measure, output.divisor)}
    return any(measure.weight is not None for at, measure in enumerate(query.measures) if at not in averaged)


def _sums_expression(query: PrivateQuery) -> bool:
    return any(measure.argument is not None and not _is_column(measure.argument) for measure in query.measures)


def _is_column(expression: Expression) -> bool:
    """Say whether an expression is a column, read as DOUBLE or as it is."""
    while isinstance(expression, Cast) and expression.type == DOUBLE and expression.argument.type.is_number:
        expression = expression.argument
    return is_column(expression)


def _counts_rows_of_join(query: PrivateQuery) -> bool:
    """Return whether rows, or their values, are measured where private tables are joined, or looked up in others."""
    if all(measure.aggregate is Aggregate.UNITS for measure in query.measures):
        return False
    return len(query.protected) > 1 or sum(scan.path in query.private_paths for scan in list_scans(query.body)) > 1


_CHANGED: tuple[tuple[str, int, Callable[[PrivateQuery], bool]], ...] = (
    ("average", 2, _has_average),
    ("ratio", 2, _has_ratio),
    ("expression", 2, _sums_expression),
    ("join", 2, _counts_rows_of_join),
)


def _measure_as_0_11(query: PrivateQuery, terms: Terms) -> tuple[Measure, ...] | None:
    """Return the measures as 0.11 bounded them; None where it refused one."""
    measures = [
        Measure(measure.aggregate, measure.argument, _drop_nan(measure.condition), measure.columns)
        for measure in query.measures
    ]
    bounded = [_bound_as_0_11(measure, query, terms=terms) for measure in dict.fromkeys(measures)]
    found = tuple(measure for measure in bounded if measure is not None)
    return found if len(found) == len(bounded) else None


def _drop_nan(condition: Expression | None) -> Expression | None:
    """Return the condition of a measure as COUNT(x) had it: a value is not NULL, and may be NaN."""
    match condition:
        case Call(function="and", arguments=(*others, Call(function="not", arguments=(Call(function="isnan"),)))):
            return join_conjuncts(others)
    return condition


def _bound_as_0_11(measure: Measure, query: PrivateQuery, *, terms: Terms) -> Measure | None:
    """Return a measure with the bounds that it had: the fewest rows of any table, or the sum of the one column."""
    match measure.aggregate:
        case Aggregate.UNITS:
            return measure
        case Aggregate.ROWS:
            rows = [most for name in query.tables if (most := terms.tables[name].bounds.rows) is not None]
            if not rows:
                return None
            most = min(rows)
            option = query.clause.options.get("max_rows_contributed")
            if option is not None and isinstance(option.value, Decimal):
                most = min(most, int(option.value))
            return replace(measure, bounds=ContributionRange(0, most))
        case Aggregate.SUM:
            every = [terms.tables[table].bounds.find(column) for table, column in dict.fromkeys(measure.columns)]
            found = [bounds for bounds in every if bounds is not None]
            if len(found) != 1 or measure.argument is None:
                return None
            (bounds,) = found
            if bounds.max is None:  # `each` alone, which 0.11 did not have
                return None
            low, high = bounds.min or Fraction(0), bounds.max
            return replace(measure, bounds=ContributionRange.of_values(low, high, type_=measure.argument.type))
