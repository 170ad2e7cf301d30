"""Aggregates: COUNT, SUM, AVG, MIN and MAX, for public tables at the top of a statement, or inside subqueries.

Inside subqueries they are functions of the set of rows alone, in every order of reading: DOUBLE is summed in the order
of its values, and equal values that print differently are made equal. A sum that does not fit is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpsql.dialects import ENUM
from dpsql.errors import Refusal
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.reader import Read, Reader
from dpsql.sql.functions.allow_list import AGGREGATES
from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.tree import (
    Call,
    Case,
    Cast,
    Collate,
    Column,
    Expression,
    Literal,
    Scalar,
    children,
    is_aggregate,
    walk,
)
from dpsql.sql.ir.types import BIGINT, DOUBLE, INTEGER, WIDEST_DECIMAL, Family, decimal, find_read_type, sum_type
from dpsql.sql.ir.unbound_parameters import fill_unbound
from dpsql.sql.ir.visitor import rebuild
from dpsql.sql.lexer import FUNCTION_PREFIX
from dpsql.sql.syntax.sqlglot_nodes import only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["EXACT", "LOCAL", "cast_sum", "has_aggregate", "is_grouped", "read_argument"]

_NARROW, _FEW = 12, 10  # digits of a DECIMAL, and of a sum of wider ones before the point, that are too few


def has_aggregate(expression: Expression) -> bool:
    """Say whether the expression contains an aggregate."""
    return any(map(is_aggregate, walk(expression)))


def is_grouped(expression: Expression, keys: tuple[Expression, ...]) -> bool:
    """Say whether the expression has one value in each group."""
    if expression in keys or isinstance(expression, Literal | Scalar) or is_aggregate(expression):
        return True
    parts = children(expression)
    return bool(parts) and all(is_grouped(part, keys) for part in parts)


def read_argument(reader: Reader, node: Node) -> Expression:
    """Return the argument of an aggregate, in which no other may stand."""
    with reader.reading(READERS):
        return reader.read(node)


def _count(reader: Reader, node: Node) -> Expression:
    only(reader.statement, node, "this", "big_int")
    counted = node.this
    if type(counted).__name__ == "Star":
        only(reader.statement, counted)
        return Call("count_star", (), BIGINT)
    if type(counted).__name__ == "Distinct":
        only(reader.statement, counted, "expressions")
        if len(counted.expressions) == 1:
            return Call("count_distinct", (read_argument(reader, counted.expressions[0]),), BIGINT)
    elif counted is not None:
        return Call("count", (read_argument(reader, counted),), BIGINT)
    hint = "COUNT(*), COUNT(x) and COUNT(DISTINCT x) are."
    raise Refusal("function-arguments", "This COUNT is not read.", hint=hint, place=reader.place(node))


def _local_count(reader: Reader, node: Node) -> Expression:
    counted = _count(reader, node)
    if isinstance(counted, Call) and counted.function == "count_distinct":
        return Call(counted.function, tuple(map(canonicalize, counted.arguments)), BIGINT)
    return counted


def _named(reader: Reader, node: Node) -> tuple[str, Expression] | None:
    """Return name and argument of an aggregate other than COUNT; None for any other function."""
    name = str(node.this).removeprefix(FUNCTION_PREFIX)
    if name not in AGGREGATES:
        return None
    only(reader.statement, node, "this", "expressions")
    arguments = [read_argument(reader, argument) for argument in node.expressions]
    if name in {"sum", "avg"}:
        arguments = [fill_unbound(argument, DOUBLE) for argument in arguments]
    if len(arguments) != 1 or (name in {"sum", "avg"} and not arguments[0].type.is_number):
        hint = f"Write {name}(x) of one column{' of numbers' if name in {'sum', 'avg'} else ''}."
        raise Refusal("function-arguments", f"This {name} is not read.", hint=hint, place=reader.place(node))
    return name, arguments[0]


def _exact(reader: Reader, node: Node) -> Expression:
    """Return an aggregate of a public query, as DuckDB computes it, or a function of the allow-list."""
    named = _named(reader, node)
    if named is None:
        return READERS["Anonymous"](reader, node)
    name, argument = named
    type_ = argument.type
    if name == "avg":
        return Call(name, (argument,), DOUBLE)
    if name == "sum" and type_.family is Family.INTEGER and type_ != BIGINT:
        return cast_sum(Call(name, (argument,), sum_type(type_)), argument)  # of less than 2**31 rows: it fits
    if name == "sum":
        return Call(name, (argument,), sum_type(type_))
    stored = _find_stored_column(argument)
    if stored is not None and name != "sum":
        return Cast(Call(name, (stored,), stored.type), type_)
    return Call(name, (argument,), type_, argument.longest)


def _local(reader: Reader, node: Node) -> Expression:
    """Return an aggregate inside a subquery, or a function of the allow-list."""
    named = _named(reader, node)
    if named is None:
        return READERS["Anonymous"](reader, node)
    name, argument = named
    type_ = argument.type
    if name in {"sum", "avg"} and type_.family is Family.DOUBLE:
        return canonicalize(Call(f"{name}_sorted", (canonicalize(argument),), DOUBLE))
    if name == "avg":
        return Call(name, (argument,), DOUBLE)
    if name == "sum":
        return cast_sum(Call(name, (argument,), sum_type(type_)), argument)
    return Call(name, (canonicalize(argument),), type_, argument.longest)


def _filter(reader: Reader, node: Node) -> Expression:
    """Return an aggregate of the rows where a condition holds: elsewhere its argument is NULL, which none counts."""
    only(reader.statement, node, "this", "expression")
    only(reader.statement, node.expression, "this")
    with reader.reading(READERS):
        condition = reader.condition(node.expression.this)
    found, called = reader.read(node.this), str(node.this.this).removeprefix(FUNCTION_PREFIX)
    if type(node.this).__name__ != "Count" and called not in AGGREGATES:
        reason, hint = "FILTER must follow an aggregate.", "Such as COUNT(*) FILTER (WHERE dwell > 60)."
        raise Refusal("function-arguments", reason, hint=hint, place=reader.place(node))
    return _only_where(found, condition)


def _only_where(expression: Expression, condition: Expression) -> Expression:
    """Return an expression of one aggregate with its argument NULL where the condition does not hold."""
    if not isinstance(expression, Call) or not is_aggregate(expression):
        return rebuild(expression, lambda part: _only_where(part, condition))
    argument = expression.arguments[0] if expression.arguments else Literal(1, INTEGER)
    bytewise = isinstance(argument, Collate)
    kept: Expression = Case(((condition, argument),), None, argument.type, argument.longest)
    kept = Collate(kept, kept.type, kept.longest) if bytewise else kept
    function = "count" if expression.function == "count_star" else expression.function
    return Call(function, (kept,), expression.type, expression.longest)


def cast_sum(total: Expression, argument: Expression) -> Expression:
    """Return an exact sum in a type that is computed with, and NULL where it does not fit.

    A sum of DECIMAL of many decimals has few digits left before the point, and becomes a DOUBLE.
    """
    width, scale = argument.type.precision
    if argument.type.family is Family.INTEGER:
        return Cast(total, BIGINT)
    if width > _NARROW and WIDEST_DECIMAL - scale < _FEW:
        return Cast(total, DOUBLE)
    return Cast(total, decimal(WIDEST_DECIMAL, scale))


def _find_stored_column(argument: Expression) -> Column | None:
    """Return the column that is only read as another type, in whose order it is also stored: all but an ENUM."""
    inner = argument.argument if isinstance(argument, Cast) else None
    if not isinstance(inner, Column) or inner.type.name == ENUM:
        return None
    return inner if find_read_type(inner.type) == argument.type else None


EXACT: Mapping[str, Read] = {**READERS, "Count": _count, "Filter": _filter, "Anonymous": _exact}
LOCAL: Mapping[str, Read] = {**READERS, "Count": _local_count, "Filter": _filter, "Anonymous": _local}
