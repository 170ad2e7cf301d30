"""Arithmetic of summed values in DOUBLE, in which no row overflows its type.

amount * 1000 of an INTEGER that does not fit is NULL elsewhere, and would add nothing to a sum. The values of a measure
become whole steps between bounds, at most 2**20 of them, so that DOUBLE is as exact as the type itself.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from dpsql.sql.ir.tree import Call, Case, Cast, Expression, Literal
from dpsql.sql.ir.types import DOUBLE, Type
from dpsql.sql.ir.unit_equality import join_conjuncts, split_conjuncts

__all__ = ["widen", "widen_presence"]

_ARITHMETIC = frozenset(["neg", "abs", "+", "-", "*", "/"])
_CHOICES = frozenset(["coalesce", "least", "greatest"])


def widen(expression: Expression) -> Expression:
    """Return a number as DOUBLE, with the arithmetic that it is worked out by in DOUBLE too."""
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
    """Return a condition in which a number that arithmetic works out is NULL only where an operand is."""
    return join_conjuncts([_widen_presence(each) for each in split_conjuncts(condition)])


def _widen_presence(condition: Expression) -> Expression:
    match condition:
        case Call(
            function="not",
            arguments=(Call(function="is_null" | "isnan" as function, arguments=(argument,)) as is_absent,),
        ) if argument.type.is_number and (function == "isnan" or isinstance(argument, Call | Case)):
            return replace(condition, arguments=(replace(is_absent, arguments=(widen(argument),)),))
    return condition
