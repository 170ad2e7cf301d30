"""Ties: equalities of privacy units by which rows of several private tables may meet, and nothing else.

The invariant of every query block: in each of its rows all unit columns that are not NULL are equal, so the row belongs
to that unit, or to nobody when all are NULL. Nobody's rows are dropped in the end. Rows meet only by an equality of
units, which NULL never fulfils: so nothing ties a nobody's row to a somebody's row, nor rows of two units, and whether
a row of a unit finds a partner, or finds none, is decided by rows of the same unit. Dropping a unit then drops its own
rows and changes no other's.

A tie is a conjunct at the top of a condition, `a = b` of two unit columns of one type: under OR, NOT, CASE or a
function it would not hold in every row. What is a unit column is decided by identity, never by name. Units of text are
compared by their bytes, since a collation would take two units for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpsql.sql.ir.scope import Scope, ScopeColumn
from dpsql.sql.ir.tree import Call, Cast, Collate, Expression
from dpsql.sql.ir.types import BOOLEAN, Family, read_as

__all__ = [
    "Pair",
    "compare_by_bytes",
    "equate_units",
    "extract_unit_equalities",
    "find_unit",
    "is_connected",
    "join_conjuncts",
    "split_conjuncts",
]

Pair = tuple[Expression, Expression]


def split_conjuncts(condition: Expression | None) -> list[Expression]:
    """Return the conditions that AND joins at the top."""
    if condition is None:
        return []
    if isinstance(condition, Call) and condition.function == "and":
        return [part for argument in condition.arguments for part in split_conjuncts(argument)]
    return [condition]


def join_conjuncts(conditions: Sequence[Expression]) -> Expression | None:
    """Return the conditions joined by AND; None where there is none."""
    if len(conditions) < 2:  # noqa: PLR2004 - nothing to join
        return conditions[0] if conditions else None
    return Call("and", tuple(conditions), BOOLEAN)


def find_unit(expression: Expression, units: Iterable[ScopeColumn]) -> ScopeColumn | None:
    """Return the unit column that an expression is, as it is stored or as it is read."""
    for unit in units:
        wanted = read_as(unit.column.type)
        read = unit.column if wanted == unit.column.type else Cast(unit.column, wanted)
        if expression in (unit.column, read):
            return unit
    return None


def compare_by_bytes(unit: Expression) -> Expression:
    """Return a unit column so that only the same unit is equal to it."""
    return Collate(unit, unit.type, unit.longest) if unit.type.family is Family.TEXT else unit


def equate_units(left: ScopeColumn, right: ScopeColumn) -> Expression:
    """Return the equality of two unit columns."""
    return Call("=", (compare_by_bytes(left.column), compare_by_bytes(right.column)), BOOLEAN)


def extract_unit_equalities(
    condition: Expression | None, left: Sequence[ScopeColumn], *, right: Sequence[ScopeColumn]
) -> tuple[Expression | None, tuple[Pair, ...]]:
    """Return the condition with its ties between a unit of `left` and one of `right` made exact, and those ties."""
    parts, pairs = split_conjuncts(condition), list[Pair]()
    for at, part in enumerate(parts):
        if not isinstance(part, Call) or part.function != "=":
            continue
        for first, second in (part.arguments, part.arguments[::-1]):
            one, other = find_unit(first, left), find_unit(second, right)
            if one is not None and other is not None and _may_meet(one, other):
                parts[at] = equate_units(one, other)
                pairs.append((one.column, other.column))
                break
    return join_conjuncts(parts), tuple(pairs)


def _may_meet(one: ScopeColumn, other: ScopeColumn) -> bool:
    return one.column != other.column and one.column.type == other.column.type


def is_connected(scope: Scope, ties: Iterable[Pair] = ()) -> bool:
    """Say whether the ties join all private tables of the scope, so that the invariant holds in its rows."""
    private = [table for table in scope.tables if table.table is not None]
    groups = [{each.column for each in Scope((table,)).units} for table in private]
    if len(groups) > 1 and not all(groups):
        return False
    for first, second in (*scope.ties, *ties):
        touched = [group for group in groups if first in group or second in group]
        groups = [group for group in groups if group not in touched] + [set().union({first, second}, *touched)]
    units = scope.units
    return sum(any(unit.column in group for unit in units) for group in groups) <= 1
