"""Joins that not every engine has: SEMI and ANTI JOIN as conditions, and joins by no equality."""

from __future__ import annotations

from dataclasses import replace

from dpsql.sql.ir.tree import Call, Column, Derived, Exists, Expression, FromWhere, Joined, Literal, Relation, walk
from dpsql.sql.ir.types import BOOLEAN

__all__ = ["has_no_equality", "move_semi_joins_to_where"]


def move_semi_joins_to_where(relation: Relation) -> tuple[Relation, tuple[Expression, ...]]:
    """Return a relation without the SEMI and ANTI JOINs at its left, and the conditions that say the same."""
    if not isinstance(relation, Joined) or relation.kind not in {"SEMI", "ANTI", "INNER", "LEFT", "CROSS"}:
        return relation, ()
    left, conditions = move_semi_joins_to_where(relation.left)
    if relation.kind not in {"SEMI", "ANTI"}:
        return replace(relation, left=left), conditions
    found: Expression = Exists(Derived(0, (Literal(True, BOOLEAN),), FromWhere(relation.right, relation.on)))  # noqa: FBT003 - some value
    return left, (*conditions, found if relation.kind == "SEMI" else Call("not", (found,), BOOLEAN))


def has_no_equality(joined: Joined) -> bool:
    """Say whether a join is by anything but an equality of something of each of its two sides."""
    on = joined.on
    parts = on.arguments if isinstance(on, Call) and on.function == "and" else (on,)
    sides = _relations(joined.left), _relations(joined.right)
    for part in parts:
        if isinstance(part, Call) and part.function == "=":
            first, second = (
                {each.relation for each in walk(side) if isinstance(each, Column)} for side in part.arguments
            )
            if first and second and any(first <= one and second <= two for one, two in (sides, sides[::-1])):
                return False
    return True


def _relations(relation: Relation) -> set[int]:
    if isinstance(relation, Joined):
        return _relations(relation.left) | _relations(relation.right)
    return {relation.number}
