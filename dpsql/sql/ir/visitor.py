"""The one traversal that passes share: a node with its operands replaced.

Stages: two levels of a query block that groups or has windows.

The inner level computes keys and aggregates, or windows and the columns beside them. The outer level computes
expressions over the columns of the inner one. An expression over any key then refers to a column, and TRY never
encloses an aggregate or a window.

Canonical keys: equal values in a group print alike, so that no label shows the spelling of one unit.

Text is compared by its bytes under every collation. -0.0 becomes 0.0, and every NaN becomes the same NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dpsql.sql.ir.tree import (
    Call,
    Case,
    Cast,
    Collate,
    ColumnRef,
    Combined,
    Cut,
    Derived,
    Exists,
    Expression,
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
    Try,
    Window,
    is_aggregate,
    output_column,
)
from dpsql.sql.ir.types import BIGINT, BOOLEAN, DOUBLE, Family

Change = Callable[[Expression], Expression]


def rebuild(expression: Expression, change: Change) -> Expression:
    """Return the node with `change` applied to each operand."""
    match expression:
        case ColumnRef() | Literal():
            return expression
        case Call():
            return replace(expression, arguments=tuple(map(change, expression.arguments)))
        case In():
            choices = tuple(map(change, expression.choices))
            return replace(expression, argument=change(expression.argument), choices=choices)
        case Case():
            branches = tuple((change(condition), change(result)) for condition, result in expression.branches)
            default = None if expression.default is None else change(expression.default)
            return replace(expression, branches=branches, default=default)
        case InQuery():
            source = _derived(expression.source, change)
            return replace(expression, argument=change(expression.argument), source=source)
        case Exists() | Scalar():
            return replace(expression, source=_derived(expression.source, change))
        case Window():
            return replace(
                expression,
                arguments=tuple(map(change, expression.arguments)),
                partition=tuple(map(change, expression.partition)),
                order=_order(expression.order, change),
            )
        case Cast() | Try() | Collate():
            return replace(expression, argument=change(expression.argument))


def rebuild_body(body: FromWhere, change: Change) -> FromWhere:
    """Return the query block with `change` applied to every expression in it, subqueries included."""
    where = None if body.where is None else change(body.where)
    return FromWhere(_relation(body.source, change), where)


def _relation(relation: Relation, change: Change) -> Relation:
    match relation:
        case Scan() | Numbered():
            return relation
        case Derived():
            return _derived(relation, change)
        case Combined():
            return replace(relation, branches=tuple(_derived(branch, change) for branch in relation.branches))
        case Cut():
            return replace(relation, source=_derived(relation.source, change), order=_order(relation.order, change))
        case Joined():
            on = None if relation.on is None else change(relation.on)
            return replace(
                relation, left=_relation(relation.left, change), right=_relation(relation.right, change), on=on
            )


def _derived(relation: Derived, change: Change) -> Derived:
    outputs = tuple(map(change, relation.outputs))
    return replace(relation, outputs=outputs, body=rebuild_body(relation.body, change))


def _order(order: tuple[Sorted, ...], change: Change) -> tuple[Sorted, ...]:
    return tuple(replace(term, expression=change(term.expression)) for term in order)


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


def list_positions(count: int) -> str:
    """Return the GROUP BY list of the first `count` outputs."""
    return ", ".join(str(at) for at in range(1, count + 1))


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
    inner = tuple(columns) or (Call("count_star", (), BIGINT),)
    return outside, Derived(number, inner, body, grouping="ALL" if by_all else list_positions(len(unique)))


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
