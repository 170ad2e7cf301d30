"""Windows of a subquery: the OVER clause, and the total order that makes their values a function of the rows alone.

A window that distinguishes rows of one rank (row_number, ntile, lag, lead, first_value) is ordered, after its own
terms, by every column that the block reads. Rows that are still equal are equal in everything that the block computes,
so their order does not affect the result. Other windows give all rows of one rank the same value and are unchanged.
With the privacy unit in PARTITION BY a window sees the rows of one unit only, so no unit affects the values of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.aggregates import cast_sum, read_argument
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.analysis.select_block import make_sort_term, read_output
from dpsql.sql.functions.signatures import MAX_POSITION
from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.tree import Call, Column, Expression, Literal, Sorted, Window, stored_column, walk
from dpsql.sql.ir.types import BIGINT, BOOLEAN, DOUBLE, Family, has_one_form, sum_type
from dpsql.sql.ir.visitor import rebuild
from dpsql.sql.lexer import FUNCTION_PREFIX
from dpsql.sql.syntax.sqlglot_nodes import only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["break_ties", "has_windows", "read_window"]

_NUMBERED = {
    **dict.fromkeys(["row_number", "rank", "dense_rank"], BIGINT),
    **dict.fromkeys(["percent_rank", "cume_dist"], DOUBLE),
}
_MOVED = frozenset(["lag", "lead"])
_TELLS_APART = frozenset(["row_number", "ntile", "lag", "lead", "first_value"])
_HINT = "Those read are row_number, rank, dense_rank, ntile, lag, lead, first_value, count, sum, avg, min and max."


def has_windows(expression: Expression) -> bool:
    """Say whether the expression contains a window."""
    return any(isinstance(part, Window) for part in walk(expression))


def read_window(reader: Reader, node: Node) -> Expression:
    """Return function(...) OVER (PARTITION BY ... ORDER BY ...), without a frame of its own."""
    only(reader.statement, node, "this", "partition_by", "order", "over")
    partition = tuple(
        canonicalize(read_output(reader, term, readers=READERS)) for term in node.args.get("partition_by") or ()
    )
    order = node.args.get("order")
    if order is not None:
        only(reader.statement, order, "expressions")
    terms = tuple(_term(reader, term) for term in (order.expressions if order is not None else ()))
    called = node.this
    if type(called).__name__ == "Count":
        return Window(*_counted(reader, called), partition, terms, BIGINT)
    only(reader.statement, called, "this", "expressions")
    name = str(called.this).removeprefix(FUNCTION_PREFIX)
    arguments = tuple(read_argument(reader, argument) for argument in called.expressions)
    if name in _NUMBERED and not arguments:
        return Window(name, (), partition, terms, _NUMBERED[name])
    if name == "ntile" and len(arguments) == 1 and _is_position(arguments[0], min_value=1):
        return Window(name, (replace(arguments[0], type=BIGINT),), partition, terms, BIGINT)
    found = _of_column(reader, node, name=name, arguments=arguments)
    if isinstance(found, Window):
        return replace(found, partition=partition, order=terms)
    return rebuild(found, lambda part: replace(part, partition=partition, order=terms))  # type: ignore[arg-type]


def _term(reader: Reader, term: Node) -> Sorted:
    only(reader.statement, term, "this", "desc", "nulls_first")
    expression = read_argument(reader, term.this)
    if isinstance(expression, Literal):
        reason, hint = "A constant puts nothing in order.", "Order by a column."
        raise Refusal("order", reason, hint=hint, place=reader.place(term))
    return make_sort_term(term, expression)


def _counted(reader: Reader, node: Node) -> tuple[str, tuple[Expression, ...]]:
    """Return COUNT(*) or COUNT(x) by name and arguments."""
    only(reader.statement, node, "this", "big_int")
    if type(node.this).__name__ == "Star":
        only(reader.statement, node.this)
        return "count_star", ()
    if node.this is None:
        raise Unsupported("window", "This window is not read.", hint=_HINT, place=reader.place(node))
    return "count", (read_argument(reader, node.this),)


def _of_column(reader: Reader, node: Node, *, name: str, arguments: tuple[Expression, ...]) -> Expression:
    """Return a window that takes a column, without partition and order: itself, or the cast of a sum."""
    type_, place = arguments[0].type if arguments else BOOLEAN, reader.place(node)
    if name in {"sum", "avg"} and len(arguments) == 1 and type_.family is Family.DOUBLE:
        hint = f"Cast it to DECIMAL, or compute {name}(x) with GROUP BY in a subquery."
        raise Unsupported("window", f"{name} OVER adds DOUBLE values in an undefined order.", hint=hint, place=place)
    if name == "sum" and len(arguments) == 1 and type_.is_number:
        return cast_sum(Window(name, arguments, (), (), sum_type(type_)), arguments[0])
    if name == "avg" and len(arguments) == 1 and type_.is_number:
        return Window(name, arguments, (), (), DOUBLE)
    if name in {"min", "max", "first_value"} and len(arguments) == 1 and type_.family is not Family.NULL:
        argument = arguments[0] if name == "first_value" else canonicalize(arguments[0])
        return Window(name, (argument,), (), (), type_, argument.longest)
    moved = name in _MOVED and type_.family is not Family.NULL
    if moved and (len(arguments) == 1 or (len(arguments) == 2 and _is_position(arguments[1], min_value=0))):  # noqa: PLR2004 - and how far
        far = tuple(replace(argument, type=BIGINT) for argument in arguments[1:])
        return Window(name, (arguments[0], *far), (), (), type_, arguments[0].longest)
    raise Unsupported("window", "This window is not read.", hint=_HINT, place=place)


def _is_position(expression: Expression, *, min_value: int) -> bool:
    value = expression.value if isinstance(expression, Literal) else None
    return type(value) is int and min_value <= value <= MAX_POSITION


def break_ties(expressions: Iterable[Expression], *, refuse: Callable[[Column], Exception]) -> tuple[Expression, ...]:
    """Return all that a block computes, with windows whose order no two rows share that differ in anything read.

    `refuse` says what to raise for a column whose equal values may print differently.
    """
    found = tuple(expressions)
    read = {part for expression in found for part in walk(expression) if isinstance(part, Column)}
    columns = sorted(read, key=lambda column: (column.relation, column.name))

    def ordered(expression: Expression) -> Expression:
        if isinstance(expression, Window) and expression.function in _TELLS_APART:
            for column in columns:
                if not has_one_form(column.type):
                    raise refuse(column)
            ties = tuple(
                Sorted(tie, descending=False, nulls_first=False) for column in columns for tie in _ties(column)
            )
            return replace(expression, order=(*expression.order, *ties))
        return rebuild(expression, ordered)

    return tuple(map(ordered, found))


def _ties(column: Column) -> tuple[Expression, ...]:
    """Return what is the same of two values only if they print alike: 0.0 and -0.0 differ in their sign."""
    if column.type.family is Family.DOUBLE or column.type.name == "FLOAT":
        return canonicalize(column), Call("signbit", (column,), BOOLEAN)
    return (canonicalize(stored_column(column.relation, column.name, type_=column.type)),)
