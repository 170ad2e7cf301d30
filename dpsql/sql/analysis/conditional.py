"""Arguments of aggregates that are a CASE: the value that counts, and the condition of the rows that have it.

    SUM(CASE WHEN c THEN x ELSE 0 END)        SUM(x) FILTER (WHERE c)
    SUM(CASE WHEN c THEN 0 ELSE x END)        SUM(x) FILTER (WHERE c IS NOT TRUE)
    SUM(CASE WHEN c THEN 1 ELSE 0 END)        COUNT(*) FILTER (WHERE c), for a whole number
    SUM(CAST(c AS INTEGER))                   COUNT(*) FILTER (WHERE c)
    AVG(CASE WHEN c THEN x END)               AVG(x) FILTER (WHERE c)
    AVG(CASE WHEN c THEN 1.0 ELSE 0 END)      AVG(CASE WHEN c THEN 1 ELSE 0 END)
    COUNT(CASE WHEN c THEN x END)             COUNT(x) FILTER (WHERE c), or COUNT(*) where x is a constant
    COUNT(DISTINCT CASE WHEN c THEN x END)    COUNT(DISTINCT x) FILTER (WHERE c)

The two columns are the same number for every row, also where c or x is NULL, and are one question with one answer. IF
is a CASE. The bounds of the right column are never wider: a row that adds nothing has no part in the range of x.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from dpsql.sql.ir.measures import MOST_STEPS, Aggregate, Measure, StatedBounds, is_present
from dpsql.sql.ir.tree import (
    BOOLEAN,
    INTEGER,
    Call,
    Case,
    Cast,
    Expression,
    Family,
    Literal,
    Type,
    join_conjuncts,
    split_conjuncts,
)


@dataclass(frozen=True, slots=True)
class Conditional:
    """An argument that is `value` in the rows where `condition` holds, and NULL or 0 elsewhere."""

    value: Expression
    condition: Expression

    @property
    def is_one(self) -> bool:
        """Whether the value is the whole number 1."""
        return self.value.type.family is Family.INTEGER and _find_number(self.value) == 1

    @property
    def is_constant(self) -> bool:
        """Whether the value is a constant, and not NULL."""
        is_literal = isinstance(self.value, Literal) and self.value.value is not None
        return is_literal or _find_number(self.value) is not None


def simplify_sum(total: Measure) -> Measure:
    """Return a sum as one with a condition, or as a number of rows, where its argument is a CASE."""
    found = _split(total, zero_counts=False)
    if found is None:
        return total
    condition, stated = add_condition(total.condition, found.condition), total.stated
    if found.is_one and (stated is None or are_of_rows(stated)):
        rows = Measure(Aggregate.ROWS, None, condition, stated=stated, words=total.words)
        return replace(rows, former=replace(total, words=None))
    return replace(total, argument=found.value, condition=condition, former=replace(total, words=None))


def simplify_average(total: Measure, divisor: Measure) -> tuple[Measure, Measure]:
    """Return the sum and the number of rows of an average, where its argument is a CASE: of the rows of a condition."""
    share = None if total.argument is None else _read_share(total.argument)
    found = _split(total, zero_counts=True)
    if share is not None:  # each row has a value
        value, condition, counted = share, total.condition, total.condition
    elif found is not None:
        value, condition = found.value, add_condition(total.condition, found.condition)
        counted = join_conjuncts([condition, *is_present(value)])
    else:
        return total, divisor
    return (
        replace(total, argument=value, condition=condition, former=replace(total, words=None)),
        replace(divisor, condition=counted, former=replace(divisor, words=None)),
    )


def simplify_count(rows: Measure, argument: Expression, *, condition: Expression | None) -> Measure:
    """Return the number of rows of a FILTER where an argument has a value; that of a CASE is in the condition."""
    found = split_conditional(argument, zero_counts=True)
    if found is None:
        return rows
    joined = add_condition(condition, found.condition)
    if not found.is_constant:
        joined = join_conjuncts([joined, *is_present(found.value)]) or joined
    return replace(rows, condition=joined, former=replace(rows, words=None))


def simplify_distinct(items: Measure) -> Measure:
    """Return the number of different values of a FILTER, where the argument is a CASE that is NULL elsewhere."""
    found = _split(items, zero_counts=True)
    if found is None or found.is_constant:
        return items
    return replace(items, argument=found.value, condition=add_condition(items.condition, found.condition))


def are_of_rows(stated: StatedBounds) -> bool:
    """Say whether bounds are those of a count of rows."""
    return stated.low == 0 and stated.high.denominator == 1 and 1 <= stated.high <= MOST_STEPS


def _split(total: Measure, *, zero_counts: bool) -> Conditional | None:
    return None if total.argument is None else split_conditional(total.argument, zero_counts=zero_counts)


def split_conditional(argument: Expression, *, zero_counts: bool) -> Conditional | None:
    """Return the value and the condition of a CASE with two outcomes, one of which is NULL; None for anything else.

    The other outcome may be 0, too, unless `zero_counts`: a 0 changes no sum, but an average and a count.
    """
    inner, casts = argument, list[Type]()
    while isinstance(inner, Cast) and inner.type.is_number and inner.argument.type.is_number:
        casts.append(inner.type)
        inner = inner.argument
    if isinstance(inner, Cast) and inner.argument.type == BOOLEAN and inner.type.family is Family.INTEGER:
        return None if zero_counts else Conditional(_cast_again(Literal(1, inner.type), casts), inner.argument)
    if not isinstance(inner, Case) or len(inner.branches) != 1:
        return None
    ((condition, value),) = inner.branches
    if _adds_nothing(inner.default, zero_counts=zero_counts):
        return Conditional(_cast_again(value, casts), condition)
    if inner.default is not None and _adds_nothing(value, zero_counts=zero_counts):
        otherwise = Call("not", (Call("is_true", (condition,), BOOLEAN),), BOOLEAN)
        return Conditional(_cast_again(inner.default, casts), otherwise)
    return None


def _read_share(argument: Expression) -> Expression | None:
    """Return CASE WHEN c THEN 1 ELSE 0 END for one with these outcomes in any type of number, None for another."""
    inner = argument
    while isinstance(inner, Cast) and inner.type.is_number and inner.argument.type.is_number:
        inner = inner.argument
    if not isinstance(inner, Case) or len(inner.branches) != 1 or not inner.type.is_number:
        return None
    ((condition, value),) = inner.branches
    if (_find_number(value), _find_number(inner.default)) != (1, 0):
        return None
    return Case(((condition, Literal(1, INTEGER)),), Literal(0, INTEGER), INTEGER)


def add_condition(filtered: Expression | None, condition: Expression) -> Expression:
    """Return the condition of a FILTER, if there is one, together with another."""
    joined = None if filtered is None else join_conjuncts([*split_conjuncts(filtered), *split_conjuncts(condition)])
    return condition if joined is None else joined


def _cast_again(value: Expression, casts: list[Type]) -> Expression:
    for wanted in reversed(casts):
        if isinstance(value, Literal) and type(value.value) is int and wanted.family is Family.INTEGER:
            value = replace(value, type=wanted)
        elif value.type != wanted:
            value = Cast(value, wanted)
    return value


def _adds_nothing(result: Expression | None, *, zero_counts: bool) -> bool:
    """Say whether a result is NULL, or 0 where that does not count."""
    inner = result
    while isinstance(inner, Cast):
        inner = inner.argument
    if inner is None or (isinstance(inner, Literal) and inner.value is None):
        return True
    return not zero_counts and _find_number(inner) == 0


def _find_number(result: Expression | None) -> int | float | Decimal | None:
    """Return the number that a result is, None for anything but a constant."""
    while isinstance(result, Cast) and result.type.is_number and result.argument.type.is_number:
        result = result.argument
    value = result.value if isinstance(result, Literal) else None
    return value if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else None
