"""The one traversal that passes share: a node with its operands replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dpsql.sql.ir.tree import (
    Call,
    Case,
    Cast,
    Collate,
    Column,
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
)

__all__ = ["rebuild", "rebuild_body"]

Change = Callable[[Expression], Expression]


def rebuild(expression: Expression, change: Change) -> Expression:
    """Return the node with `change` applied to each operand."""
    match expression:
        case Column() | Literal():
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
