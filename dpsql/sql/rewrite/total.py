"""Totality: what can raise on some row stands inside TRY, so that an error never depends on one unit's row."""

from __future__ import annotations

from dataclasses import replace

from dpsql.dialects import release
from dpsql.errors import Unsupported
from dpsql.sql.ir.tree import Call, Exists, Expression, InQuery, Literal, Scalar, Try, walk
from dpsql.sql.ir.types import DATE, Family
from dpsql.sql.ir.visitor import rebuild

__all__ = ["total"]

_SAFE_UNITS = frozenset(["microsecond", "millisecond", "second", "minute", "hour", "day", "week"])
_ALWAYS_RAISES = frozenset(
    "date_diff date_sub last_day dayname monthname strftime time_bucket epoch_ms epoch_us epoch_ns "
    "round abs - neg + * greatest_common_divisor least_common_multiple".split()
)
# These DuckDB computes of the least and the greatest value that a column's statistics tell, while it plans and outside
# TRY: one row at an end of the calendar would make the statement fail.
_TRIED_ON_ENDS = frozenset(["date_part", "date_trunc", "epoch_ms", "epoch_us", "epoch_ns"])


def total(expression: Expression) -> Expression:
    """Return the expression with every call that can raise wrapped in TRY, innermost first.

    Raises `Unsupported` where a subquery would come to stand inside TRY, which DuckDB does not bind.
    """
    rebuilt = rebuild(expression, total)
    if not isinstance(rebuilt, Call) or not _raises(rebuilt):
        return rebuilt
    if any(isinstance(part, InQuery | Exists | Scalar) for part in walk(rebuilt)):
        hint = "Compute it in a subquery in FROM, or write it as a condition of WHERE."
        raise Unsupported("subquery", "(SELECT ...) and EXISTS may not stand in an operation that can fail.", hint=hint)
    if rebuilt.function in _TRIED_ON_ENDS:
        rebuilt = replace(rebuilt, arguments=tuple(map(_unforeseen, rebuilt.arguments)))
    return Try(rebuilt, rebuilt.type, rebuilt.longest)


def _unforeseen(argument: Expression) -> Expression:
    """Return an argument of whose ends DuckDB knows nothing before it reads the rows."""
    return argument if isinstance(argument, Literal | Try) else Try(argument, argument.type, argument.longest)


def _raises(node: Call) -> bool:
    """Say whether a call can raise on some row and so must stand inside TRY."""
    if node.function in release().raises:
        return True
    families = {argument.type.family for argument in node.arguments}
    if node.function == "date_trunc":
        unit = node.arguments[0]
        safe = isinstance(unit, Literal) and unit.value in _SAFE_UNITS and Family.DATE not in families
        return not safe
    if node.function == "date_part":
        return node.arguments[1].type == DATE
    if node.function in {"%", "//"}:
        divisor = node.arguments[1]
        safe = isinstance(divisor, Literal) and divisor.value not in {None, 0, -1}
        return not safe and not (node.function == "%" and families == {Family.DOUBLE})
    if node.function == "regexp_extract":
        return len(node.arguments) > 2  # noqa: PLR2004 - the pattern may not have the group
    return node.function in _ALWAYS_RAISES and families != {Family.DOUBLE}
