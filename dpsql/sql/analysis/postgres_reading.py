r"""Differences of meaning between PostgreSQL and DuckDB in expressions of private and public queries.

A statement of the PostgreSQL port is analysed into the same typed nodes as any other: `LIKE 'a\_b'` becomes LIKE with
the escape that another surface writes as ESCAPE '\', and `/` of whole numbers the operator that is written // there.
So both have one identity, and one stored answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import Call, Case, Cast, Column, Expression, Literal, Scalar, children
from dpsql.sql.ir.types import BIGINT, TEXT, Family
from dpsql.sql.ir.unbound_parameters import Open, fill_unbound
from dpsql.sql.lexer import Statement, ascii_lower

__all__ = [
    "BACKSLASH",
    "adapt_arguments",
    "divide_whole",
    "escape_by_backslash",
    "find_numeric_sums",
    "flag_pattern",
    "is_unsure",
    "move_start",
]

BACKSLASH = Literal("\\", TEXT, 1)
_NUMERIC = frozenset(["date_part", "round", "trunc", "sign"])  # these return no integer there
_NUMERIC_WORDS = frozenset(["sum", "extract", *_NUMERIC])
_COMPUTED = re.compile(r"c\d+")  # the names of what subqueries compute
_SUMS = frozenset(["sum", "sum_sorted"])
_SMALLER = frozenset(["TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"])  # whose sum is a BIGINT there


def escape_by_backslash(pattern: Literal, escape: tuple[Literal, ...]) -> tuple[Literal, ...]:
    """Return the escape of a LIKE: a backslash where none is written, and none where the written one is empty."""
    if escape:
        return () if escape[0].value == "" else escape
    return (BACKSLASH,) if "\\" in str(pattern.value) else ()


def divide_whole(left: Expression, right: Expression) -> tuple[str, Expression, Expression]:
    """Return the operator that `/` is, and its operands; a parameter of unknown type has that of the other side."""
    if isinstance(left, Open) and _is_whole(right):
        left = fill_unbound(left, BIGINT)
    if isinstance(right, Open) and _is_whole(left):
        right = fill_unbound(right, BIGINT)
    return "//" if _is_whole(left) and _is_whole(right) else "/", left, right


def _is_whole(expression: Expression) -> bool:
    """Return whether PostgreSQL gives an expression a type of integers, and not NUMERIC or DOUBLE PRECISION."""
    if expression.type.family is not Family.INTEGER or expression.type.name in {"HUGEINT", "UHUGEINT"}:
        return False
    match expression:
        case Cast(argument=Call(function="date_part" | "sum" | "sum_sorted") as inner):
            return _is_whole(inner) if inner.type.family is Family.INTEGER else _has_whole_sum(inner)
        case Call(function=function) if function in _NUMERIC:
            return False
        case Call(function=function) if function in _SUMS:
            return _has_whole_sum(expression)
        case Call(function="coalesce" | "greatest" | "least" | "+" | "-" | "*" | "//" | "%" | "neg" | "abs"):
            return all(_is_whole(each) for each in expression.arguments if each.type.family is Family.INTEGER)
        case Case():
            results = [result for _, result in expression.branches]
            return all(map(_is_whole, results))
        case Scalar():
            return _is_whole(expression.source.outputs[0])
    return True


def is_unsure(statement: Statement, operands: Iterable[Expression]) -> bool:
    """Return whether whole numbers that are divided may be NUMERIC in PostgreSQL, which their columns do not say.

    They are of a subquery, and the statement calls a function that is NUMERIC there and whole here.
    """
    if not any(map(_names_computed, operands)):
        return False
    return any(ascii_lower(token.text) in _NUMERIC_WORDS for token in statement.tokens)


def _names_computed(expression: Expression) -> bool:
    """Return whether an expression has a column of a subquery, unless it is cast."""
    if isinstance(expression, Column):
        return _COMPUTED.fullmatch(expression.name) is not None
    return not isinstance(expression, Cast) and any(map(_names_computed, children(expression)))


def _has_whole_sum(total: Call) -> bool:
    """Return whether a sum is a BIGINT in PostgreSQL: that of integers narrower than that."""
    return total.function in _SUMS and total.arguments[0].type.name in _SMALLER


def find_numeric_sums(query: PrivateQuery) -> list[str]:
    """Return the outputs of a private query that are sums of a BIGINT, which are NUMERIC in PostgreSQL."""
    found = list[str]()
    for output in query.outputs:
        argument = query.measures[output.measure].argument
        is_released = output.key is None and output.divisor is None and output.end is None
        if is_released and argument is not None and argument.type.family is Family.INTEGER:
            found += [] if argument.type.name in _SMALLER else [output.name]
    return found


def flag_pattern(pattern: str) -> str:
    """Return the options of a regular expression: in PostgreSQL a dot is also found at the end of a line."""
    return "s" if "." in pattern else ""


def adapt_arguments(function: str, arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Return the arguments with which a function means what it means in PostgreSQL with these."""
    if function not in {"substring", "substr"}:
        return arguments
    numbers = [each.value for each in arguments[1:] if isinstance(each, Literal) and type(each.value) is int]
    if len(numbers) not in {1, 2} or len(numbers) != len(arguments) - 1:
        return arguments
    moved = zip(numbers, move_start(*numbers), strict=False)
    return (arguments[0], *(Literal(after, BIGINT) for _, after in moved))


def move_start(start: int, length: int = 0) -> tuple[int, int]:
    """Return where a substring begins in the text, and its length: PostgreSQL counts the places before the first."""
    moved = max(start, 1)
    return moved, max(start + length - moved, 0)
