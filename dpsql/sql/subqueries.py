"""Subqueries in FROM and CTEs: what they select, under which names, and whether they pass the privacy unit on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.nodes import only
from dpsql.sql.reader import Reader
from dpsql.sql.scope import Scope, ScopeColumn, ScopeTable
from dpsql.sql.text import ascii_lower
from dpsql.sql.tree import Body, Column, Derived, Expression
from dpsql.sql.types import NULL, Family

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["check_alias", "check_shape", "output_name", "selected"]

_INNER_ONLY = {
    "group": "Grouping belongs to the outermost query.",
    "distinct": "Units are counted once, so DISTINCT is not needed here.",
    "limit": "Rows cut by LIMIT depend on other units' rows.",
    "offset": "Rows cut by OFFSET depend on other units' rows.",
    "order": "The order of a subquery has no meaning here; leave it out.",
}


def check_shape(reader: Reader, select: Node, *, node: Node) -> None:
    """Refuse a subquery that does more than choose columns and rows."""
    if type(select).__name__ != "Select":
        raise Unsupported(
            "subquery",
            "A subquery here must be one SELECT.",
            hint="Write UNION and the like as one query.",
            place=reader.place(node),
        )
    for name, hint in _INNER_ONLY.items():
        if select.args.get(name) is not None:
            reason = "A subquery in FROM may only choose columns and rows."
            raise Unsupported("subquery", reason, hint=hint, place=reader.place(select))
    only(reader.statement, select, "expressions", "from_", "joins", "where")


def selected(
    reader: Reader, select: Node, number: int, *, alias: str, body: Body, scope: Scope
) -> tuple[Derived, ScopeTable]:
    """Return the subquery over `body`, as relation `number`, and the names that it brings under its alias."""
    named = [pair for item in select.expressions for pair in _outputs(reader, item, scope=scope)]
    units = {unit.column: unit.absent for unit in scope.units}  # a unit from outside is none of this block's rows
    columns = tuple(
        ScopeColumn(
            name,
            Column(number, f"c{index}", expression.type, expression.longest),
            is_unit=is_unit and expression in units,
            absent=is_unit and units.get(expression, False),
        )
        for index, (name, expression, is_unit) in enumerate(named, start=1)
    )
    private = scope.private
    table = ScopeTable(alias, columns, *((private.table, private.unit_name) if private is not None else ()))
    return Derived(number, tuple(expression for _, expression, _ in named), body), table


def _outputs(reader: Reader, item: Node, *, scope: Scope) -> list[tuple[str, Expression, bool]]:
    """Return name, expression and whether it is the unit, for one item of a subquery's select list."""
    if (starred := reader.star(item)) is not None:
        return [(column.name, column.column, column.is_unit) for column in starred]
    name, node = output_name(reader, item)
    check_alias(reader, name, node, scope=scope)
    if type(node).__name__ == "Column":
        column = reader.column(node)
        return [(name or column.name, column.column, column.is_unit)]
    expression = reader.read(node)
    if expression.type == NULL or expression.type.family is Family.INTERVAL:
        raise Unsupported(
            "type",
            "This column has no type; cast it.",
            hint="Such as CAST(NULL AS VARCHAR).",
            place=reader.place(node),
        )
    return [(name, expression, False)]


def check_alias(reader: Reader, name: str, node: Node, *, scope: Scope) -> None:
    """Refuse to call anything but the privacy unit by the privacy unit's name."""
    private = scope.private
    if private is None or private.unit_name is None or ascii_lower(name) != ascii_lower(private.unit_name):
        return
    if type(node).__name__ != "Column" or not reader.column(node).is_unit:
        reason = f"Only the privacy unit itself may be called {private.unit_name}."
        raise Refusal("unit-name", reason, hint="Choose another alias.", place=reader.place(node))


def output_name(reader: Reader, item: Node) -> tuple[str, Node]:
    """Return the alias of a select item ('' without one) and the item itself."""
    if type(item).__name__ != "Alias":
        return "", item
    only(reader.statement, item, "this", "alias")
    return str(item.alias), item.this
