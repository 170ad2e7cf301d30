"""Stages: two levels of a query block that groups or has windows.

The inner level computes keys and aggregates, or windows and the columns beside them. The outer level computes
expressions over the columns of the inner one. An expression over any key then refers to a column, and TRY never
encloses an aggregate or a window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dpsql.sql.ir.tree import Call, Derived, Exists, Expression, FromWhere, InQuery, Scalar, is_aggregate, output_column
from dpsql.sql.ir.types import BIGINT
from dpsql.sql.ir.visitor import rebuild

__all__ = ["Stage", "group_in_subquery", "list_positions"]


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
