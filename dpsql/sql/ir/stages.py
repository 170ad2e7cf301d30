"""Stages: a query block that groups or has windows, in two levels.

Keys and aggregates, or windows and the columns beside them, are computed inside, and what is made of them outside. So
an expression of a key is found again whatever it looks like, and TRY never stands around an aggregate or a window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dpsql.sql.ir.tree import Call, Derived, Exists, Expression, FromWhere, InQuery, Scalar, is_aggregate, output_column
from dpsql.sql.ir.types import BIGINT
from dpsql.sql.ir.visitor import rebuild

__all__ = ["Stage", "group_in_subquery", "positions"]


@dataclass(slots=True)
class Stage:
    """The columns of the inner level, relation `number`; what `inside` says of an expression puts it there."""

    number: int
    inside: Callable[[Expression], bool]
    columns: list[Expression] = field(default_factory=list)

    def outside(self, expression: Expression) -> Expression:
        """Return what the outer level writes: columns of the inner level in place of what that computes."""
        is_inside = self.inside(expression)
        if is_inside and expression not in self.columns:
            self.columns.append(expression)
        if is_inside or expression in self.columns:
            return output_column(self.number, self.columns.index(expression) + 1, expression=expression)
        if isinstance(expression, Scalar | Exists):  # its subquery sees nothing of the block
            return expression
        if isinstance(expression, InQuery):
            return replace(expression, argument=self.outside(expression.argument))
        return rebuild(expression, self.outside)


def positions(count: int) -> str:
    """Return the GROUP BY of the first `count` outputs."""
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
    """Return `outputs` over the subquery that groups `body`, and that subquery; `form` is given to the keys."""
    unique = list(dict.fromkeys(keys))
    stage = Stage(number, is_aggregate, list(unique))
    outside = tuple(map(stage.outside, outputs))
    columns = [key if form is None else form(key) for key in unique] + stage.columns[len(unique) :]
    inner = tuple(columns) or (Call("count_star", (), BIGINT),)
    return outside, Derived(number, inner, body, grouping="ALL" if by_all else positions(len(unique)))
