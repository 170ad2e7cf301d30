"""Passes over the expressions of a query, before it is written: typed tree in, typed tree out.

* `make_total` wraps in TRY every call that can raise, so that no error depends on the row of one unit.
* `widen` computes the numbers of a measure in DOUBLE, in which no row overflows its type. amount * 1000 of an INTEGER
  that does not fit is NULL elsewhere, and would add nothing to a sum. The values of a measure become whole steps
  between bounds, at most 2**20 of them, so that DOUBLE is as exact as the type itself.
* `canonicalize` of `ir/transforms.py` makes equal keys print alike.
* `confine_to_values` drops the rows of units that have none of the values to which a query is charged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

from dpsql.dialects import release
from dpsql.errors import Unsupported
from dpsql.sql.ir.statements import (
    LiteralDomain,
    PrivateQuery,
    ProductDomain,
    ReleasedDomain,
    TableDomain,
    list_factors,
)
from dpsql.sql.ir.transforms import canonicalize, rebuild
from dpsql.sql.ir.tree import (
    DATE,
    DOUBLE,
    Call,
    Case,
    Cast,
    Exists,
    Expression,
    Family,
    InQuery,
    Literal,
    Scalar,
    Try,
    Type,
    join_conjuncts,
    split_conjuncts,
    walk,
)

_SAFE_UNITS = frozenset(["microsecond", "millisecond", "second", "minute", "hour", "day", "week"])
_ALWAYS_RAISES = frozenset(
    "date_diff date_sub last_day dayname monthname strftime time_bucket epoch_ms epoch_us epoch_ns "
    "round abs - neg + * greatest_common_divisor least_common_multiple".split()
)
# While planning, and outside TRY, DuckDB computes these functions of the minimum and maximum in the column statistics.
# One row at an end of the calendar would make the statement fail.
_TRIED_ON_STATISTICS = frozenset(["date_part", "date_trunc", "epoch_ms", "epoch_us", "epoch_ns"])
_ARITHMETIC = frozenset(["neg", "abs", "+", "-", "*", "/"])
_CHOICES = frozenset(["coalesce", "least", "greatest"])


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
        safe = isinstance(divisor, Literal) and divisor.value not in {None, 0, -1}
        return not safe and not (node.function == "%" and families == {Family.DOUBLE})
    if node.function == "regexp_extract":
        return len(node.arguments) > 2  # noqa: PLR2004 - the pattern may not have the group
    return node.function in _ALWAYS_RAISES and families != {Family.DOUBLE}


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


def make_query_total(query: PrivateQuery) -> PrivateQuery:
    """Apply `make_total` to every expression of the query."""
    query = _change_keys(query, make_total)
    return replace(query, body=rebuild(query.body, make_total))


def canonicalize_query(query: PrivateQuery) -> PrivateQuery:
    """Apply `canonicalize` to every key and candidate."""
    return _change_keys(query, canonicalize)


def _change_keys(query: PrivateQuery, change: Callable[[Expression], Expression]) -> PrivateQuery:
    """Return a query with `change` applied to its keys and the values of its domain."""
    domain, keys = query.domain, tuple(map(change, query.keys))
    if domain is None or isinstance(domain, ReleasedDomain):
        return replace(query, keys=keys)
    factors = tuple(
        replace(each, value=change(each.value))
        if isinstance(each, TableDomain)
        else LiteralDomain(tuple(map(change, each.values)))
        for each in list_factors(domain)
    )
    return replace(query, keys=keys, domain=ProductDomain(factors) if isinstance(domain, ProductDomain) else factors[0])


PASSES: tuple[Callable[[PrivateQuery], PrivateQuery], ...] = (make_query_total, canonicalize_query)


def apply_passes(query: PrivateQuery) -> PrivateQuery:
    """Return a query whose expressions never fail, and whose keys are equal if they print alike."""
    for step in PASSES:
        query = step(query)
    return query


def confine_to_values(query: PrivateQuery) -> PrivateQuery:
    """Return the query over the rows of units that have one of its charged values; as it is without these.

    In every row of a private query all units are equal, and a row belongs to its unit (`ir/scope.py`). Rows of
    units with other values are dropped where the rows are counted. So such a unit changes no answer: its own rows are
    not counted, and neither the rows of other units nor their values depend on it. Which value a unit has is decided
    over all its rows of the stored table, before WHERE, without the salts of a session and without materialized tables.
    """
    values = query.charged_values
    if values is None or values.condition is None:
        return query
    # WHERE year = 2026 becomes WHERE year = 2026 AND user_id IN (SELECT the units that have one of the values)
    where = join_conjuncts([*split_conjuncts(query.body.where), values.condition])
    return replace(query, body=replace(query.body, where=where), charged_values=replace(values, condition=None))
