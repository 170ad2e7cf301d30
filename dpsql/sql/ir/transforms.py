"""Functions that change a tree: expressions, relations and query blocks to others, typed tree in, typed tree out.

* `rebuild` is the traversal that they share.
* `make_total` wraps in TRY every call that can raise, so that no error depends on the row of one unit.
* `widen` computes the numbers of a measure in DOUBLE, in which no row overflows its type. amount * 1000 of an INTEGER
  that does not fit is NULL elsewhere, and would add nothing to a sum. The values of a measure become whole steps
  between bounds, at most 2**20 of them, so that DOUBLE is as exact as the type itself.
* `canonicalize` makes equal values of a key print alike, so that no label shows the spelling of one unit: text is
  compared by its bytes under every collation, -0.0 becomes 0.0, and every NaN becomes the same NaN.
* `group_in_subquery` makes two levels, or stages, of a query block that groups or has windows. The inner level computes
  keys and aggregates, or windows and the columns beside them. The outer level computes expressions over the columns of
  the inner one. An expression over any key then refers to a column, and TRY never encloses an aggregate or a window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import Any, TypeVar

from dpsql.dialects.duckdb_releases import release
from dpsql.errors import Unsupported
from dpsql.sql.ir.tree import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    Call,
    Case,
    Cast,
    Collate,
    ColumnRef,
    Combined,
    Cut,
    Derived,
    Exists,
    Expression,
    Family,
    FromWhere,
    In,
    InQuery,
    Joined,
    Literal,
    Numbered,
    Relation,
    Scalar,
    Scan,
    Sorted,
    Try,
    Type,
    is_aggregate,
    join_conjuncts,
    output_column,
    split_conjuncts,
    walk,
)

_SAFE_UNITS = frozenset(["microsecond", "millisecond", "second", "minute", "hour", "day", "week"])
ALWAYS_RAISES = frozenset(
    "date_diff date_sub last_day dayname monthname strftime time_bucket epoch_ms epoch_us epoch_ns "
    "round abs - neg + * greatest_common_divisor least_common_multiple".split()
)
# While planning, and outside TRY, DuckDB computes these functions of the minimum and maximum in the column statistics.
# One row at an end of the calendar would make the statement fail.
_TRIED_ON_STATISTICS = frozenset(["date_part", "date_trunc", "epoch_ms", "epoch_us", "epoch_ns"])
_ARITHMETIC = frozenset(["neg", "abs", "+", "-", "*", "/"])
_CHOICES = frozenset(["coalesce", "least", "greatest"])
Change = Callable[[Expression], Expression]
Node = TypeVar("Node", bound=Expression | Relation | FromWhere | Sorted)


def rebuild(node: Node, change: Change) -> Node:
    """Return the node with `change` applied to each expression in it, those of its subqueries included."""
    if isinstance(node, ColumnRef | Literal):
        return node
    parts, changed = fields(node), dict[str, Any]()
    if isinstance(node, In):
        parts = parts[
            ::-1
        ]  # choices come first: the order decides the names of a stage's columns, as stored answers do
    for part in parts:
        changed[part.name] = _change(getattr(node, part.name), change)
    return replace(node, **changed)


def _change(part: object, change: Change) -> object:
    if isinstance(part, tuple):
        return tuple(_change(each, change) for each in part)
    if isinstance(part, Derived | FromWhere | Sorted | Scan | Numbered | Joined | Combined | Cut):
        return rebuild(part, change)
    return change(part) if isinstance(part, Expression) else part


def make_total(expression: Expression) -> Expression:
    """Wrap every call that can raise in TRY, innermost first.

    Raise `Unsupported` where a subquery would be inside TRY, because DuckDB does not bind it.
    """
    # abs(hits - 1) + 1 of an INTEGER becomes TRY(TRY(abs(TRY(hits - 1))) + 1); of a DOUBLE, which never raises, itself
    rebuilt = rebuild(expression, make_total)
    if not isinstance(rebuilt, Call) or not _can_raise(rebuilt):
        return rebuilt
    if any(isinstance(part, InQuery | Exists | Scalar) for part in walk(rebuilt)):
        hint = "Compute it in a subquery in FROM, or write it as a condition of WHERE."
        raise Unsupported(
            "subquery", "(SELECT ...) and EXISTS are not supported inside an operation that can fail.", hint=hint
        )
    if rebuilt.function in _TRIED_ON_STATISTICS:  # epoch_ms(ts) becomes TRY(epoch_ms(TRY(ts)))
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
        # The least BIGINT divided by -1 leaves its type.
        safe = isinstance(divisor, Literal) and divisor.value not in {None, 0, -1}
        return not safe and not (node.function == "%" and families == {Family.DOUBLE})
    if node.function == "regexp_extract":
        return len(node.arguments) > 2  # noqa: PLR2004 - the pattern may not have the group
    return node.function in ALWAYS_RAISES and families != {Family.DOUBLE}


def widen(expression: Expression) -> Expression:
    """Return a number as DOUBLE, with the arithmetic that it is worked out by in DOUBLE too.

    amount * 1000      becomes      TRY_CAST(amount AS DOUBLE) * CAST(1000.0 AS DOUBLE)
    """
    match expression:
        case Literal(value=value) if isinstance(value, int | float | Decimal):
            return Literal(float(value), DOUBLE)
        case Cast(argument=argument, type=type_) if argument.type.is_number and _keeps_value(argument, type_):
            return widen(argument)
        case Call(function=function, arguments=arguments, type=type_) if (
            function in _ARITHMETIC | _CHOICES and type_.is_number and all(each.type.is_number for each in arguments)
        ):
            return replace(expression, arguments=tuple(map(widen, arguments)), type=DOUBLE)
        case Case(branches=branches, default=default, type=type_) if type_.is_number:
            results = [result for _, result in branches] + ([] if default is None else [default])
            if all(result.type.is_number for result in results):
                return Case(
                    tuple((condition, widen(result)) for condition, result in branches),
                    None if default is None else widen(default),
                    DOUBLE,
                )
    return expression if expression.type == DOUBLE else Cast(expression, DOUBLE)


def _keeps_value(argument: Expression, type_: Type) -> bool:
    """Say whether a cast changes no value: to DOUBLE, or of arithmetic to a type with as many digits or more."""
    if type_ == DOUBLE:
        return True
    is_exact = type_.is_number and argument.type != DOUBLE and isinstance(argument, Call | Case)
    return is_exact and argument.type.precision[1] <= type_.precision[1]


def widen_presence(condition: Expression | None) -> Expression | None:
    """Return a condition in which a number that arithmetic works out is NULL only where an operand is.

    (amount * 1000) IS NOT NULL      becomes      (TRY_CAST(amount AS DOUBLE) * CAST(1000.0 AS DOUBLE)) IS NOT NULL
    """
    parts = split_conjuncts(condition)
    for at, part in enumerate(parts):
        match part:
            case Call(
                function="not",
                arguments=(Call(function="is_null" | "isnan" as function, arguments=(argument,)) as is_absent,),
            ) if argument.type.is_number and (function == "isnan" or isinstance(argument, Call | Case)):
                parts[at] = replace(part, arguments=(replace(is_absent, arguments=(widen(argument),)),))
    return join_conjuncts(parts)


def canonicalize(key: Expression) -> Expression:
    """Rewrite a group key so that equal values are identical."""
    if key.type.family is Family.TEXT:
        return Collate(key, key.type, key.longest)
    if isinstance(key, Literal) and key.value is None:
        return key
    if isinstance(key, Literal) and isinstance(key.value, float):  # its NaN is already the one NaN of `coercion.py`
        # -0.0 + 0.0 is 0.0, in IEEE's rounding to nearest.
        return Literal(key.value + 0.0, DOUBLE)
    if key.type.family is Family.DOUBLE or key.type.name == "FLOAT":
        # CASE WHEN isnan(x) THEN 'nan' WHEN x = 0 THEN 0 ELSE x END
        is_nan = Call("isnan", (key,), BOOLEAN)
        is_zero = Call("=", (key, Literal(0.0, key.type)), BOOLEAN)
        return Case(((is_nan, Literal("nan", key.type)), (is_zero, Literal(0.0, key.type))), key, key.type)
    return key


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
        # SELECT sum(a) + b ... GROUP BY b: sum(a) becomes column c2 of the inner level, behind the key c1, and the
        # outer level has c2 + c1. The same aggregate written twice is one column.
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
    grouping = "ALL" if by_all else ", ".join(map(str, range(1, len(unique) + 1)))
    inner = tuple(columns) or (Call("count_star", (), BIGINT),)
    return outside, Derived(number, inner, body, grouping=grouping)
