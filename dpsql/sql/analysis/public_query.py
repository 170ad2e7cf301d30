"""Queries over public tables alone: read into our own form like private ones, answered exactly, and free.

The same expressions are known as in private queries, and besides them COUNT, SUM, AVG, MIN and MAX, GROUP BY, HAVING,
DISTINCT, ORDER BY, LIMIT and OFFSET of the outermost SELECT. One without FROM has one row, as SELECT 1.

This file has two parts: (1) `read_public`; (2) from `seeks_no_row` on, detection of statements that cannot return a row
(LIMIT 0, WHERE 1 = 0), which tools send to learn the columns. Their answer does not depend on any table, so nothing is
read, released or charged. Where such a statement names private tables, the catalog gives its columns.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.from_clause import Sources
from dpsql.sql.analysis.reader import Reader, read_alias, read_row_count
from dpsql.sql.analysis.select_clauses import PUBLIC_READERS, SelectClauses, Selected, read_output
from dpsql.sql.ir.statements import PrivateQuery, PublicQuery
from dpsql.sql.ir.tree import (
    NULL,
    Call,
    Cast,
    ColumnRef,
    Combined,
    Cut,
    Derived,
    Expression,
    FromWhere,
    Joined,
    Literal,
    Numbered,
    Relation,
    find_answer_type,
    is_aggregate,
    walk,
)
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.sqlglot_nodes import allow_only, pair_items_with_text

if TYPE_CHECKING:
    from sqlglot import Token
    from sqlglot.expressions import Expression as Node


_PARTS = "with_ expressions from_ joins where group having order limit offset distinct".split()
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def read_public(sources: Sources, select: Node, *, tokens: list[Token]) -> PublicQuery:
    """Analyze the SELECT; the caller must ensure that `sources` found no private table."""
    reader = sources.reader
    allow_only(reader.statement, select, *_PARTS)
    if select.args.get("with_") is not None:
        sources.define(select.args["with_"])
    # only a list of values, which tools send to test a connection, has one row
    is_one_row = not select.is_star and all(name == "expressions" for name, part in select.args.items() if part)
    body, _ = sources.read_without_from(select) if is_one_row else sources.read_from_and_where(select)
    outputs = list[Selected]()
    for item, text in pair_items_with_text(reader.statement, select, tokens=tokens):
        if (starred := reader.star(item)) is not None:
            outputs += [Selected(column.name, column.expression) for column in starred]
            continue
        name, node = read_alias(reader, item)
        if type(node).__name__ == "Column" and not reader.means_clock(node):
            name = name or reader.column(node).name
        outputs.append(Selected(name or text, read_output(reader, node, readers=PUBLIC_READERS)))
    block = SelectClauses(reader, select, outputs, PUBLIC_READERS)
    names = tuple(output.name for output in block.outputs)
    if len(set(map(ascii_lower, names))) < len(names):
        hint = "Give each output its own alias."
        raise Refusal("output-names", "Two outputs have the same name.", hint=hint, place=block.place)
    grouping, order = block.grouping(), block.order()
    block.check(grouping, order)
    return PublicQuery(
        names=names,
        outputs=tuple(output.expression for output in block.outputs),
        distinct=block.distinct,
        body=body,
        keys=grouping.keys,
        by_all=grouping.by_all,
        having=grouping.having,
        order=order,
        limit=read_row_count(reader, select.args.get("limit")),
        offset=read_row_count(reader, select.args.get("offset")) or 0,
    )


# Part 2: statements that cannot return a row.


def seeks_no_row(reader: Reader, select: Node) -> bool:
    """Say whether a SELECT ends with LIMIT 0 or has a WHERE that is false without any column; it need not be read."""
    where = select.args.get("where")
    try:
        return read_row_count(reader, select.args.get("limit")) == 0 or (
            where is not None and is_false(reader.condition(where.this))
        )
    except (Refusal, Unsupported):
        return False


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
    absent = Literal(None, NULL)  # in the type as which a column is answered, which the catalog says and no row
    types = [output.type for output in query.outputs]
    return replace(
        query,
        outputs=tuple(absent if type_ == NULL else Cast(absent, find_answer_type(type_)) for type_ in types),
        distinct=False,
        body=FromWhere(Numbered(1, 1), None),
        keys=None,
        by_all=False,
        having=None,
        order=(),
        limit=0,
        offset=0,
    )


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
            # a subquery that aggregates without a key has a row where its source has none
            aggregated = any(is_aggregate(node) for output in relation.outputs for node in walk(output))
            has_key = relation.grouping != "" and any(isinstance(output, ColumnRef) for output in relation.outputs)
            return (not aggregated or has_key) and _is_empty_body(body)
    return False


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
