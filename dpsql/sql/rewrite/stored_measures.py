"""Measures of materialized tables: their columns, and which of them a measure of a query can be read from.

Both tables of a set have the same columns of measures. In the pairs they are of one unit: the number of its rows
(ROWS), and for each summed column, by its position, the number of rows where it is not NULL and the steps of these rows
added up. These are not clamped, so that pairs can be added up and clamped like rows. In the counts they are of all
units of a group, each clamped to the bounds of the policy; without a bound of rows, sums alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.sql.ir.catalog import StoredMeasures
from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure
from dpsql.sql.ir.tree import Call, Case, Cast, Column, Expression, Literal
from dpsql.sql.ir.types import BIGINT, find_read_type
from dpsql.sql.ir.unit_equality import join_conjuncts, split_conjuncts

__all__ = ["ROWS", "UNITS", "find_stored_steps", "name_sum", "name_values", "read_number"]

UNITS = "dpsql_units"
ROWS = "dpsql_rows"


def name_values(at: int) -> str:
    """Return the column with the number of values that are not NULL of summed column number `at`, from 0."""
    return f"dpsql_values_{at + 1}"


def name_sum(at: int) -> str:
    """Return the column with the sum, in steps, of summed column number `at`, from 0."""
    return f"dpsql_sum_{at + 1}"


def read_number(column: Column) -> Expression:
    """Return a column of numbers as every query reads it."""
    read = find_read_type(column.type)
    return column if read == column.type else Cast(column, read)


def find_stored_steps(
    measure: Measure, stored: StoredMeasures | None, *, relation: int, counted: bool
) -> Expression | None:
    """Return the expression over pairs that has the steps of a measure, or None if they are not stored.

    With `counted` it is over the counts, which have measures without a condition, and only under the policy's bounds.
    A condition of FILTER remains, but for IS NOT NULL of a summed column: its columns must be those of the set. What a
    unit adds to coupled measures is found from all of its rows, before the bounds of any measure.
    """
    if not _is_stored(measure, counted=counted):
        return None
    sums = () if stored is None else stored.sums
    conditions = split_conjuncts(measure.condition)
    name = ""
    if measure.aggregate is Aggregate.UNITS:
        name = UNITS
    elif stored is not None and measure.aggregate is Aggregate.ROWS:
        name = ROWS
        for at, (column, _) in enumerate(sums):
            present = [each for each in conditions if _is_present(each, column, relation=relation)]
            if present:
                name, conditions = name_values(at), [each for each in conditions if each not in present]
                break
        if counted and measure.bounds != ContributionRange(0, stored.rows or 0):
            return None
    elif measure.aggregate is Aggregate.SUM:
        name = _find_sum(measure, sums, relation=relation)
    if not name or (counted and conditions):
        return None
    one_unit = name == UNITS and not counted
    steps: Expression = Literal(1, BIGINT) if one_unit else Column(relation, name, BIGINT)
    condition = join_conjuncts(conditions)
    return steps if condition is None else Case(((condition, steps),), Literal(0, BIGINT), BIGINT)


def _find_sum(measure: Measure, sums: Sequence[tuple[str, ContributionRange]], *, relation: int) -> str:
    """Return the column of a sum, "" if it is not stored."""
    found = [
        name_sum(at)
        for at, (column, bounds) in enumerate(sums)
        if _is_column(measure.argument, column, relation=relation) and measure.row_bounds == bounds
    ]
    return next(iter(found), "")


def _is_stored(measure: Measure, *, counted: bool) -> bool:
    """Say whether rows are stored with the values that they have in a measure, added up as far as it adds them up."""
    weight = measure.weight
    return measure.row_range is None and (weight is None or not (counted or weight.centre is not None))


def _is_present(condition: Expression, column: str, *, relation: int) -> bool:
    match condition:
        case Call(function="not", arguments=(Call(function="is_null", arguments=(argument,)),)):
            return _is_column(argument, column, relation=relation)
    return False


def _is_column(expression: Expression | None, column: str, *, relation: int) -> bool:
    """Say whether an expression is the stored column, read as every query reads it."""
    inner = expression.argument if isinstance(expression, Cast) else expression
    if not isinstance(inner, Column) or (inner.relation, inner.name) != (relation, column):
        return False
    return expression in {inner, read_number(inner)}
