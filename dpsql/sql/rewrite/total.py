"""Totality pass: wrap in TRY every call that can raise, so that no error depends on the row of one unit."""

from __future__ import annotations

from dataclasses import replace

from dpsql.dialects import release
from dpsql.errors import Unsupported
from dpsql.sql.ir.tree import Call, Exists, Expression, InQuery, Literal, Scalar, Try, walk
from dpsql.sql.ir.types import DATE, Family
from dpsql.sql.ir.visitor import rebuild

__all__ = ["make_total"]

_SAFE_UNITS = frozenset(["microsecond", "millisecond", "second", "minute", "hour", "day", "week"])
_ALWAYS_RAISES = frozenset(
    "date_diff date_sub last_day dayname monthname strftime time_bucket epoch_ms epoch_us epoch_ns "
    "round abs - neg + * greatest_common_divisor least_common_multiple".split()
)
# While planning, and outside TRY, DuckDB computes these functions of the minimum and maximum in the column statistics.
# One row at an end of the calendar would make the statement fail.
_TRIED_ON_STATISTICS = frozenset(["date_part", "date_trunc", "epoch_ms", "epoch_us", "epoch_ns"])


def make_total(expression: Expression) -> Expression:
    """Wrap every call that can raise in TRY, innermost first.

    Raise `Unsupported` where a subquery would be inside TRY, because DuckDB does not bind it.
    """
    rebuilt = rebuild(expression, make_total)
    if not isinstance(rebuilt, Call) or not _can_raise(rebuilt):
        return rebuilt
    if any(isinstance(part, InQuery | Exists | Scalar) for part in walk(rebuilt)):
        hint = "Compute it in a subquery in FROM, or write it as a condition of WHERE."
        raise Unsupported(
            "subquery", "(SELECT ...) and EXISTS are not supported inside an operation that can fail.", hint=hint
        )
    if rebuilt.function in _TRIED_ON_STATISTICS:
        hidden = (  # DuckDB has no statistics for the result of TRY
            part if isinstance(part, Literal | Try) else Try(part, part.type, part.longest)
            for part in rebuilt.arguments
        )
        rebuilt = replace(rebuilt, arguments=tuple(hidden))
    return Try(rebuilt, rebuilt.type, rebuilt.longest)


def _can_raise(node: Call) -> bool:
    """Return whether a call can raise on some row."""
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
