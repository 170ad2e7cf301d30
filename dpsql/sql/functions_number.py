"""Functions of numbers, and those that take values of any one type."""

from __future__ import annotations

from dpsql.sql.calls import NUMBERS, Rule, Site
from dpsql.sql.coerce import alike, as_type, comparable
from dpsql.sql.tree import Call, Case, Expression, Literal
from dpsql.sql.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NULL, Family, Type, decimal

__all__ = ["NUMBER_FUNCTIONS"]


def _double(function: str, result: Type = DOUBLE, *, arguments: int = 1) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(arguments, arguments)
        numbers = (as_type(site.of(index, NUMBERS), DOUBLE, place=site.place) for index in range(arguments))
        return Call(function, tuple(numbers), result)

    return rule


def _rounded(function: str) -> Rule:
    """FLOOR, CEIL, ROUND and TRUNC, whose result type follows the argument's."""

    def rule(site: Site) -> Expression:
        site.count(1, 2 if function == "round" else 1)
        argument = site.of(0, NUMBERS)
        if len(site.arguments) > 1:
            digits = site.literal_position(1, INTEGER)
            return Call(function, (argument, digits), _rounded_to(site, argument.type, digits=int(str(digits.value))))
        return Call(function, (argument,), _rounded_type(function, argument.type))

    return rule


def _rounded_type(function: str, type_: Type) -> Type:
    if type_.family is Family.DECIMAL:
        return decimal(type_.precision[0], 0)
    if type_.family is Family.INTEGER and function in {"floor", "ceil"}:
        return DOUBLE
    unsigned = type_.name.startswith("U")
    return BIGINT if unsigned and function == "round" else type_


def _rounded_to(site: Site, type_: Type, *, digits: int) -> Type:
    if type_.family is not Family.DECIMAL:
        return _rounded_type(site.name, type_)
    if digits < 0:
        raise site.refuse("a DECIMAL is rounded to 0 or more digits.", "Cast it to DOUBLE.")
    width, scale = type_.precision
    return decimal(width, min(digits, scale))


def _same_number(function: str) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(1, 1)
        argument = site.of(0, NUMBERS)
        return Call(function, (argument,), argument.type)

    return rule


def _unified(function: str, least: int, *, most: int) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(least, most)
        arguments = alike(site.arguments, site.place)
        if arguments[0].type == NULL:
            raise site.refuse("at least one argument must have a type.")
        lengths = [argument.longest for argument in arguments]
        longest = None if None in lengths else max(length for length in lengths if length is not None)
        return Call(function, arguments, arguments[0].type, longest)

    return rule


def _nullif(site: Site) -> Expression:
    site.count(2, 2)
    first = site.arguments[0]
    equal = Call("=", comparable(site.arguments, site.place), BOOLEAN)
    return Case(((equal, Literal(None, first.type)),), first, first.type, first.longest)


NUMBER_FUNCTIONS: dict[str, Rule] = {
    **{name: _double(name) for name in ("sqrt", "cbrt", "ln", "log2", "log10", "exp")},
    "log": _double("log10"),
    **dict.fromkeys(["pow", "power"], _double("pow", arguments=2)),
    "sign": _double("sign", Type(Family.INTEGER, "TINYINT")),
    **{name: _double(name, BOOLEAN) for name in ("isnan", "isinf", "isfinite")},
    "abs": _same_number("abs"),
    **dict.fromkeys(["ceil", "ceiling"], _rounded("ceil")),
    **{name: _rounded(name) for name in ("floor", "round", "trunc")},
    **{name: _unified(name, 2, most=16) for name in ("greatest", "least")},
    **dict.fromkeys(["coalesce", "ifnull"], _unified("coalesce", 2, most=16)),
    "nullif": _nullif,
}
