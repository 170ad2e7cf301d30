"""Functions of numbers, and those that take values of any one type."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite

from dpsql.errors import Unsupported
from dpsql.sql.functions.arithmetic import arithmetic, combine_integers
from dpsql.sql.functions.coercion import convert, unify_for_comparison, unify_types
from dpsql.sql.functions.signatures import NUMBERS, TIMES, Rule, Site
from dpsql.sql.ir.tree import Call, Case, Cast, Expression, In, InQuery, Literal, walk
from dpsql.sql.ir.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NULL, Family, Type, decimal
from dpsql.sql.ir.unbound_parameters import fill_unbound

__all__ = ["NUMBER_FUNCTIONS"]

_MOST_REPEATED = 50  # parts of an expression that is written several times
_ABSORB_NULL = frozenset(
    "and or is_null is_true is_false is_distinct is_not_distinct between "
    "coalesce concat concat_ws greatest least".split()
)


def _double(function: str, result: Type = DOUBLE, *, arguments: int = 1) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(arguments, arguments)
        numbers = (convert(site.of(index, NUMBERS), DOUBLE, place=site.place) for index in range(arguments))
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
        arguments = unify_types(site.arguments, site.place)
        if arguments[0].type == NULL:
            raise site.refuse("at least one argument must have a type.", "Such as CAST(NULL AS VARCHAR).")
        lengths = [argument.longest for argument in arguments]
        longest = None if None in lengths else max(length for length in lengths if length is not None)
        return Call(function, arguments, arguments[0].type, longest)

    return rule


def _finite(function: str) -> Rule:
    """ISFINITE and ISINF, which dates and time stamps can be as well."""
    of_number = _double(function, BOOLEAN)

    def rule(site: Site) -> Expression:
        site.count(1, 1)
        argument = site.arguments[0]
        return Call(function, (argument,), BOOLEAN) if argument.type.family in TIMES else of_number(site)

    return rule


def _logarithm(site: Site) -> Expression:
    return _double("log10" if len(site.arguments) == 1 else "log", arguments=min(2, len(site.arguments) or 1))(site)


def _common_integer(function: str) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(2, 2)
        whole = frozenset({Family.INTEGER})
        numbers = (convert(site.of(index, whole), BIGINT, place=site.place) for index in range(2))
        return Call(function, tuple(numbers), BIGINT)

    return rule


def _xor(site: Site) -> Expression:
    site.count(2, 2)
    whole = frozenset({Family.INTEGER})
    return combine_integers(site.of(0, whole), "xor", right=site.of(1, whole), where=site.place)


def _modulo(site: Site) -> Expression:
    site.count(2, 2)
    return arithmetic(site.of(0, NUMBERS), "%", right=site.of(1, NUMBERS), where=site.place)


def _pi(site: Site) -> Expression:
    site.count(0, 0)
    return Call("pi", (), DOUBLE)


def _if(site: Site) -> Expression:
    site.count(3, 3)
    condition = site.of(0, frozenset({Family.BOOLEAN, Family.NULL}))
    then, otherwise = unify_types(site.arguments[1:], site.place)
    if then.type == NULL:
        raise site.refuse("at least one result must have a type.", "Such as CAST(NULL AS VARCHAR).")
    lengths = then.longest, otherwise.longest
    longest = None if lengths[0] is None or lengths[1] is None else max(lengths[0], lengths[1])
    return Case(((convert(condition, BOOLEAN, place=site.place), then),), otherwise, then.type, longest)


def _tried(site: Site) -> Expression:
    """TRY: what fails gives NULL here in any case, and so does all that is computed from it if nothing absorbs NULL."""
    site.count(1, 1)
    for part in walk(site.arguments[0]):
        absorbs = isinstance(part, Call) and part.function in _ABSORB_NULL
        if absorbs or isinstance(part, Case | In | InQuery):
            hint = "Leave TRY out: an operation that fails gives NULL in any case."
            raise Unsupported("try", "TRY is read around plain operations and functions.", hint=hint, place=site.place)
    return site.arguments[0]


def _width_bucket(site: Site) -> Expression:
    """WIDTH_BUCKET of SQL:2003, in DOUBLE: 0 below the first end, n + 1 from the last on, else the bucket of 1 to n.

    DuckDB has no such function, so it is put together of others.
    """
    site.count(4, 4)
    value = convert(site.of(0, NUMBERS), DOUBLE, place=site.place)
    if len(walk(value)) > _MOST_REPEATED:
        raise site.refuse("argument 1 is too long.", "Compute it in a subquery in FROM, and name its column here.")
    low, high = _bucket_end(site, 1), _bucket_end(site, 2)
    buckets = int(str(site.literal_position(3).value))
    if not low < high or not isfinite(high - low) or buckets < 1:
        raise site.refuse("the ends must rise, and there must be a bucket.", "Such as width_bucket(x, 0, 100, 10).")
    start, width, count = (Literal(each, DOUBLE) for each in (low, high - low, float(buckets)))
    one = Literal(1.0, DOUBLE)
    share = Call("/", (Call("-", (value, start), DOUBLE), width), DOUBLE)
    bucket: Expression = Call("+", (Call("floor", (Call("*", (share, count), DOUBLE),), DOUBLE), one), DOUBLE)
    bucket = Call("least", (Call("greatest", (bucket, one), DOUBLE), count), DOUBLE)
    return Case(
        (
            (Call("is_null", (value,), BOOLEAN), Literal(None, INTEGER)),
            (Call("<", (value, start), BOOLEAN), Literal(0, INTEGER)),
            (Call(">=", (value, Literal(high, DOUBLE)), BOOLEAN), Literal(buckets + 1, INTEGER)),
        ),
        Cast(bucket, INTEGER),
        INTEGER,
    )


def _bucket_end(site: Site, index: int) -> float:
    """Return an end of the buckets, which must be a number of the text."""
    argument = fill_unbound(site.arguments[index], DOUBLE, such_as=Literal(float(index), DOUBLE))
    value = argument.value if isinstance(argument, Literal) else None
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool) and isfinite(value):
        return float(value)
    raise site.refuse(f"argument {index + 1} must be a number.", "Write one, such as 100.")


def _nullif(site: Site) -> Expression:
    site.count(2, 2)
    first = site.arguments[0]
    equal = Call("=", unify_for_comparison(site.arguments, site.place), BOOLEAN)
    return Case(((equal, Literal(None, first.type)),), first, first.type, first.longest)


NUMBER_FUNCTIONS: dict[str, Rule] = {
    **{name: _double(name) for name in ("sqrt", "cbrt", "ln", "log2", "log10", "exp")},
    "log": _logarithm,
    **{name: _double(name) for name in "sin cos tan cot asin acos atan sinh cosh tanh radians degrees even".split()},
    "atan2": _double("atan2", arguments=2),
    "pi": _pi,
    "mod": _modulo,
    "xor": _xor,
    **dict.fromkeys(["gcd", "greatest_common_divisor"], _common_integer("greatest_common_divisor")),
    **dict.fromkeys(["lcm", "least_common_multiple"], _common_integer("least_common_multiple")),
    "if": _if,
    "try": _tried,
    **dict.fromkeys(["pow", "power"], _double("pow", arguments=2)),
    "sign": _double("sign", Type(Family.INTEGER, "TINYINT")),
    "isnan": _double("isnan", BOOLEAN),
    **{name: _finite(name) for name in ("isinf", "isfinite")},
    "abs": _same_number("abs"),
    **dict.fromkeys(["ceil", "ceiling"], _rounded("ceil")),
    **{name: _rounded(name) for name in ("floor", "round", "trunc")},
    **{name: _unified(name, 2, most=16) for name in ("greatest", "least")},
    **dict.fromkeys(["coalesce", "ifnull"], _unified("coalesce", 2, most=16)),
    "nullif": _nullif,
    "width_bucket": _width_bucket,
}
