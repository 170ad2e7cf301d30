"""Totality: what can raise on some row stands inside TRY, so that an error never depends on one unit's row."""

from __future__ import annotations

from dpsql.sql.functions import raises
from dpsql.sql.passes.rebuild import rebuild
from dpsql.sql.query import Call, Expression, Try

__all__ = ["total"]


def total(expression: Expression) -> Expression:
    """Return the expression with every call that can raise wrapped in TRY, innermost first."""
    rebuilt = rebuild(expression, total)
    if isinstance(rebuilt, Call) and raises(rebuilt):
        return Try(rebuilt, rebuilt.type, rebuilt.longest)
    return rebuilt
