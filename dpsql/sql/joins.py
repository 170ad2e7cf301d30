"""Joins: two sides of FROM into one, and the names that both bring.

A join with public tables keeps the private side's rows: INNER, LEFT with the private side on the left, CROSS, or a
comma.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.coerce import comparable
from dpsql.sql.nodes import only
from dpsql.sql.reader import Reader
from dpsql.sql.scope import Scope, ScopeTable
from dpsql.sql.text import ascii_lower
from dpsql.sql.tree import Call, Expression, Joined, Relation
from dpsql.sql.types import BOOLEAN

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["Side", "joined"]

Side = tuple[Relation, Scope]


def joined(reader: Reader, join: Node, *, left: Side, right: Side) -> Side:
    """Return the join of two sides, of which the right one is a single table."""
    only(reader.statement, join, "this", "side", "kind", "on", "using")
    side, kind = str(join.args.get("side") or ""), str(join.args.get("kind") or "")
    (source, scope), (other, added) = left, right
    _check_join(reader, join, side, scope=scope, added=added)
    (table,) = added.tables
    if any(ascii_lower(known.alias) == ascii_lower(table.alias) for known in scope.tables):
        hint = "Give one of them another alias."
        raise Refusal("alias", "Two tables have this name.", hint=hint, place=reader.place(join))
    conditions: list[Expression] = []
    if join.args.get("using"):
        table, conditions = _using(reader, join, scope, table=table)
    both = Scope((*scope.tables, table))
    if join.args.get("on") is not None:
        conditions.append(reader.within(both).condition(join.args["on"]))
    if not conditions and (side or kind not in {"", "CROSS"}):
        raise Refusal("join", "This join has no condition.", hint="ON or USING.", place=reader.place(join))
    condition = None if not conditions else _and(conditions)
    return Joined(source, (side or "INNER") if condition is not None else "CROSS", other, condition), both


def _check_join(reader: Reader, join: Node, side: str, *, scope: Scope, added: Scope) -> None:
    where = reader.place(join)
    if side not in {"", "LEFT"} or str(join.args.get("kind") or "") not in {"", "INNER", "OUTER", "CROSS"}:
        hint = "INNER JOIN and LEFT JOIN are; write the private table first."
        raise Unsupported("join", "This kind of join is not built yet.", hint=hint, place=where)
    if scope.private is not None and added.private is not None:
        hint = "Ask about one private table at a time; public tables may be joined."
        raise Unsupported("join-private", "Joins of two private tables are not built yet.", hint=hint, place=where)
    if side == "LEFT" and added.private is not None:
        hint = "Write the private table first."
        raise Unsupported("join", "LEFT JOIN must keep the private table's rows.", hint=hint, place=where)


def _using(reader: Reader, join: Node, scope: Scope, *, table: ScopeTable) -> tuple[ScopeTable, list[Expression]]:
    """Return the right side with its USING columns merged into the left's, and the equalities they mean."""
    conditions: list[Expression] = []
    columns = list(table.columns)
    for name in join.args["using"]:
        where = reader.at(name)
        left, right = scope.find(name.name, "", place=where), Scope((table,)).find(name.name, "", place=where)
        if left is None or right is None:
            raise Refusal(
                "unknown-column",
                "USING needs this column on both sides.",
                hint="Write ON left.x = right.y instead.",
                place=where,
            )
        sides = comparable(tuple(reader.computed(side.column, name) for side in (left, right)), where)
        conditions.append(Call("=", sides, BOOLEAN))
        columns[columns.index(right)] = replace(right, merged=True)
    return replace(table, columns=tuple(columns)), conditions


def _and(conditions: list[Expression]) -> Expression:
    return conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions), BOOLEAN)
