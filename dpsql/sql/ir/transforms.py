"""Functions that change a tree: `rebuild`, the traversal that passes share, `canonicalize`, and stages.

Equal values in a group must print alike, so that no label shows the spelling of one unit: text is compared by its bytes
under every collation, -0.0 becomes 0.0, and every NaN becomes the same NaN.

Stages are two levels of a query block that groups or has windows. The inner level computes keys and aggregates, or
windows and the columns beside them. The outer level computes expressions over the columns of the inner one. An
expression over any key then refers to a column, and TRY never encloses an aggregate or a window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from dpsql.sql.ir.tree import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    Call,
    Case,
    Collate,
    ColumnRef,
    Combined,
    Cut,
    Derived,
    Exists,
    Expression,
    Family,
    FromWhere,
    In,
    InQuery,
    Joined,
    Literal,
    Numbered,
    Relation,
    Scalar,
    Scan,
    Sorted,
    is_aggregate,
    output_column,
)

Change = Callable[[Expression], Expression]
Node = TypeVar("Node", bound=Expression | Relation | FromWhere | Sorted)


def rebuild(node: Node, change: Change) -> Node:
    """Return the node with `change` applied to each expression in it, those of its subqueries included."""
    if isinstance(node, ColumnRef | Literal):
        return node
    parts, changed = fields(node), dict[str, Any]()
    if isinstance(node, In):
        parts = parts[
            ::-1
        ]  # choices come first: the order decides the names of a stage's columns, as stored answers do
    for part in parts:
        changed[part.name] = _change(getattr(node, part.name), change)
    return replace(node, **changed)


def _change(part: object, change: Change) -> object:
    if isinstance(part, tuple):
        return tuple(_change(each, change) for each in part)
    if isinstance(part, Derived | FromWhere | Sorted | Scan | Numbered | Joined | Combined | Cut):
        return rebuild(part, change)
    return change(part) if isinstance(part, Expression) else part


@dataclass(slots=True)
class Stage:
    """Columns of the inner level, relation `number`; `inside` returns whether an expression belongs there.

    The first `keys` columns have a `form` there, which decides the collation of those of the outer level.
    """

    number: int
    inside: Callable[[Expression], bool]
    columns: list[Expression] = field(default_factory=list)
    form: Callable[[Expression], Expression] | None = None
    keys: int = 0

    def outside(self, expression: Expression) -> Expression:
        """Rewrite an expression for the outer level: replace all that the inner level computes by its columns."""
        is_inside = self.inside(expression)
        if is_inside and expression not in self.columns:
            self.columns.append(expression)
        if is_inside or expression in self.columns:
            at = self.columns.index(expression)
            inner = expression if self.form is None or at >= self.keys else self.form(expression)
            return output_column(self.number, at + 1, expression=inner)
        if isinstance(expression, Scalar | Exists):  # its subquery cannot refer to the block
            return expression
        if isinstance(expression, InQuery):
            return replace(expression, argument=self.outside(expression.argument))
        return rebuild(expression, self.outside)


def group_in_subquery(
    outputs: tuple[Expression, ...],
    keys: tuple[Expression, ...],
    *,
    number: int,
    body: FromWhere,
    by_all: bool = False,
    form: Callable[[Expression], Expression] | None = None,
) -> tuple[tuple[Expression, ...], Derived]:
    """Return a subquery that groups `body`, and `outputs` rewritten over it; `form` is applied to the keys."""
    unique = list(dict.fromkeys(keys))
    stage = Stage(number, is_aggregate, list(unique), form, len(unique))
    outside = tuple(map(stage.outside, outputs))
    columns = [key if form is None else form(key) for key in unique] + stage.columns[len(unique) :]
    grouping = "ALL" if by_all else ", ".join(map(str, range(1, len(unique) + 1)))
    inner = tuple(columns) or (Call("count_star", (), BIGINT),)
    return outside, Derived(number, inner, body, grouping=grouping)


def canonicalize(key: Expression) -> Expression:
    """Rewrite a group key so that equal values are identical."""
    if key.type.family is Family.TEXT:
        return Collate(key, key.type, key.longest)
    if isinstance(key, Literal) and key.value is None:
        return key
    if isinstance(key, Literal) and isinstance(key.value, float):  # its NaN is already the one NaN of `coercion.py`
        return Literal(key.value + 0.0, DOUBLE)
    if key.type.family is Family.DOUBLE or key.type.name == "FLOAT":
        is_nan = Call("isnan", (key,), BOOLEAN)
        is_zero = Call("=", (key, Literal(0.0, key.type)), BOOLEAN)
        return Case(((is_nan, Literal("nan", key.type)), (is_zero, Literal(0.0, key.type))), key, key.type)
    return key
