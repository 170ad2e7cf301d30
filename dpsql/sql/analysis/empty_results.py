"""Detection of statements that cannot return a row (LIMIT 0, WHERE 1 = 0), which tools send to learn the columns.

Their answer does not depend on any table, so nothing is read, released or charged. Where such a statement names
private tables, the catalog gives its columns.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from dpsql.sql.ir.statements import PrivateQuery, PublicQuery
from dpsql.sql.ir.tree import (
    Call,
    Cast,
    Column,
    Combined,
    Cut,
    Derived,
    Expression,
    FromWhere,
    Joined,
    Literal,
    Numbered,
    Relation,
    is_aggregate,
    walk,
)
from dpsql.sql.ir.types import NULL, Type, find_answer_type

__all__ = ["has_no_row", "is_empty_by_text", "is_false", "remove_rows"]

_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def is_empty_by_text(query: PrivateQuery) -> bool:
    """Say whether the text alone decides that no row is selected: LIMIT 0, or a WHERE that is never true.

    A private query then returns no row also if its domain is known. Its candidates would be returned because of their
    noise alone, which a query without rows does not want. A total is a row of its own.
    """
    return query.limit == 0 or (query.clause.shape != "total" and _is_empty_body(query.body))


def has_no_row(query: PublicQuery) -> bool:
    """Say whether the text alone decides that the answer has no row; COUNT(*) without a key has one also of none."""
    return query.limit == 0 or (query.keys is None and _is_empty_body(query.body))


def remove_rows(query: PublicQuery) -> PublicQuery:
    """Return a query of no table that answers with the names and types of the columns of this one, and no row."""
    return PublicQuery(
        names=query.names,
        outputs=tuple(_nothing(output.type) for output in query.outputs),
        distinct=False,
        body=FromWhere(Numbered(1, 1), None),
        keys=None,
        by_all=False,
        having=None,
        order=(),
        limit=0,
        offset=0,
    )


def _nothing(type_: Type) -> Expression:
    """Return NULL in the type as which a column is answered, which the catalog says and no row."""
    absent = Literal(None, NULL)
    return absent if type_ == NULL else Cast(absent, find_answer_type(type_))


def _is_empty_body(body: FromWhere) -> bool:
    return (body.where is not None and is_false(body.where)) or _is_empty(body.source)


def _is_empty(relation: Relation) -> bool:
    """Say whether a relation certainly has no row, for all data; some such relations are not recognized."""
    match relation:
        case Joined(left=left, kind="LEFT" | "ANTI"):
            return _is_empty(left)
        case Joined(kind="RIGHT", right=right):
            return _is_empty(right)
        case Joined(left=left, kind="FULL", right=right):
            return _is_empty(left) and _is_empty(right)
        case Joined(left=left, right=right):
            return _is_empty(left) or _is_empty(right)
        case Combined(kind=kind, branches=(first, *others)):
            found = _is_empty(first), *map(_is_empty, others)
            return found[0] if kind == "EXCEPT" else any(found) if kind == "INTERSECT" else all(found)
        case Cut(source=source, limit=limit):
            return limit == 0 or _is_empty(source)
        case Derived(body=body):
            return _has_row_for_row(relation) and _is_empty_body(body)
    return False


def _has_row_for_row(derived: Derived) -> bool:
    """Say whether a subquery has no row where its source has none; one that aggregates without a key has one."""
    aggregated = any(is_aggregate(node) for output in derived.outputs for node in walk(output))
    return not aggregated or (derived.grouping != "" and any(isinstance(output, Column) for output in derived.outputs))


def is_false(condition: Expression) -> bool:
    """Say whether a condition is FALSE, NULL or a comparison of two values of one kind that does not hold, as 1 = 0."""
    match condition:
        case Literal(value=value):
            return not value
        case Call(function="and", arguments=arguments):
            return any(map(is_false, arguments))
        case Call(function="or", arguments=arguments):
            return all(map(is_false, arguments))
        case Call(function="not", arguments=(Literal(value=bool() as value),)):
            return value
        case Call(function=function, arguments=(Literal(value=int() as left), Literal(value=int() as right))):
            return function in _COMPARED and not _COMPARED[function](left, right)
        case Call(function="=", arguments=(Literal(value=str() as text), Literal(value=str() as other))):
            return text != other
    return False
