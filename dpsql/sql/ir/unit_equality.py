"""Ties: equalities of privacy units, the only conditions that may join rows of several private tables.

Every query block has this invariant: in each of its rows, all unit columns that are not NULL are equal. The row belongs
to that unit. A row whose unit columns are all NULL has no unit and is dropped in the end. Rows are joined only by an
equality of units, which is never true of NULL. No tie joins a row with a unit to a row without one, or rows of two
units, and only rows of the same unit decide whether a row of a unit has a partner. Removing a unit therefore removes
its own rows and changes no other row.

A tie is a conjunct at the top of a condition, `a = b` of two unit columns of one type. Under OR, NOT, CASE or a
function it need not hold in every row. Unit columns are recognized by identity, never by name. Text units are compared
by their bytes, because a collation could treat two units as equal.

Rows that name the same row of a table by its key, which a link of the policy declares unique, have the same unit, so
SQL joins them by the key alone. The equality of their units is then added as a tie: where keys are unique it removes no
row that has a unit, and where they are not, no row of two units is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpsql.sql.ir.scope import Scope, ScopeColumn, ScopeTable
from dpsql.sql.ir.tree import Call, Cast, Collate, Expression
from dpsql.sql.ir.types import BOOLEAN, Family, find_read_type

__all__ = [
    "Pair",
    "add_ties",
    "compare_by_bytes",
    "equate_units",
    "extract_unit_equalities",
    "find_linked_units",
    "find_unit",
    "is_connected",
    "join_conjuncts",
    "link_units",
    "split_conjuncts",
]

Pair = tuple[Expression, Expression]


def split_conjuncts(condition: Expression | None) -> list[Expression]:
    """Split a condition at the ANDs of its top level."""
    if condition is None:
        return []
    if isinstance(condition, Call) and condition.function == "and":
        return [part for argument in condition.arguments for part in split_conjuncts(argument)]
    return [condition]


def join_conjuncts(conditions: Sequence[Expression]) -> Expression | None:
    """Join the conditions by AND; return None if there are none."""
    if len(conditions) < 2:  # noqa: PLR2004 - nothing to join
        return conditions[0] if conditions else None
    return Call("and", tuple(conditions), BOOLEAN)


def find_unit(expression: Expression, units: Iterable[ScopeColumn]) -> ScopeColumn | None:
    """Return the unit column that the expression is, in its stored type or in the type it is read as, else None."""
    for unit in units:
        wanted = find_read_type(unit.column.type)
        read = unit.column if wanted == unit.column.type else Cast(unit.column, wanted)
        if expression in (unit.column, read):
            return unit
    return None


def compare_by_bytes(unit: Expression) -> Expression:
    """Return the unit in a form that is equal only to the same unit: text is compared by its bytes."""
    return Collate(unit, unit.type, unit.longest) if unit.type.family is Family.TEXT else unit


def equate_units(left: ScopeColumn, right: ScopeColumn) -> Expression:
    """Return the equality of two unit columns."""
    return Call("=", (compare_by_bytes(left.column), compare_by_bytes(right.column)), BOOLEAN)


def extract_unit_equalities(
    condition: Expression | None, left: Sequence[ScopeColumn], *, right: Sequence[ScopeColumn]
) -> tuple[Expression | None, tuple[Pair, ...]]:
    """Return the ties between units of `left` and `right`, and the condition with each tie made an exact equality."""
    parts, pairs = split_conjuncts(condition), list[Pair]()
    for at, part in enumerate(parts):
        if not isinstance(part, Call) or part.function != "=":
            continue
        for first, second in (part.arguments, part.arguments[::-1]):
            one, other = find_unit(first, left), find_unit(second, right)
            if one is not None and other is not None and _is_comparable(one, other):
                parts[at] = equate_units(one, other)
                pairs.append((one.column, other.column))
                break
    return join_conjuncts(parts), tuple(pairs)


def add_ties(condition: Expression | None, pairs: Iterable[tuple[ScopeColumn, ScopeColumn]]) -> Expression | None:
    """Return a condition and the equalities of these units."""
    return join_conjuncts([*split_conjuncts(condition), *(equate_units(*pair) for pair in pairs)])


def find_linked_units(
    condition: Expression | None, left: Sequence[ScopeTable], *, right: Sequence[ScopeTable]
) -> tuple[tuple[ScopeColumn, ScopeColumn], ...]:
    """Return the units of tables of `left` and `right` that a condition joins by a key that a link leads to."""
    pairs = list[tuple[ScopeColumn, ScopeColumn]]()
    for part in split_conjuncts(condition):
        if isinstance(part, Call) and part.function == "=":
            pairs += link_units(part.arguments, left, right=right) or link_units(
                part.arguments[::-1], left, right=right
            )
    return tuple(pairs)


def link_units(
    sides: Sequence[Expression], left: Sequence[ScopeTable], *, right: Sequence[ScopeTable]
) -> list[tuple[ScopeColumn, ScopeColumn]]:
    """Return the units of the tables of two sides that name the same row by its key; nothing for other sides."""
    first, second = sides
    found = []
    for table, column in _find_keyed(first, left):
        for other, named in _find_keyed(second, right):
            one, two = _find_table_unit(table), _find_table_unit(other)
            is_same = table is not other and not column.row_keys.isdisjoint(named.row_keys)
            if is_same and one is not None and two is not None and _is_comparable(one, two):
                found.append((one, two))
    return found


def _find_keyed(side: Expression, tables: Sequence[ScopeTable]) -> list[tuple[ScopeTable, ScopeColumn]]:
    """Return the column that a side is, in its stored type or in the type it is read as, with its table."""
    return [
        (table, column)
        for table in tables
        for column in table.columns
        if column.row_keys and find_unit(side, (column,)) is not None
    ]


def _find_table_unit(table: ScopeTable) -> ScopeColumn | None:
    """Return the unit of a table, which is NULL only where its key is."""
    units = [column for column in table.columns if column.is_unit]
    return next((column for column in units if not column.absent), units[0] if units else None)


def _is_comparable(one: ScopeColumn, other: ScopeColumn) -> bool:
    return one.column != other.column and one.column.type == other.column.type


def is_connected(scope: Scope, ties: Iterable[Pair] = ()) -> bool:
    """Return whether the ties connect all private tables of the scope, which gives its rows the invariant."""
    private = [table for table in scope.tables if table.table is not None]
    groups = [{each.column for each in Scope((table,)).units} for table in private]
    if len(groups) > 1 and not all(groups):
        return False
    for first, second in (*scope.ties, *ties):
        touched = [group for group in groups if first in group or second in group]
        groups = [group for group in groups if group not in touched] + [set().union({first, second}, *touched)]
    units = scope.units
    return sum(any(unit.column in group for unit in units) for group in groups) <= 1
