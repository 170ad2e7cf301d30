"""Arithmetic: operators typed as DuckDB types them, on numbers and on dates with days and intervals."""

from __future__ import annotations

from contextlib import suppress

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.functions.coercion import convert, unify_types
from dpsql.sql.ir.clock import add_interval
from dpsql.sql.ir.tree import Call, Expression, Literal
from dpsql.sql.ir.types import (
    BIGINT,
    DATE,
    DOUBLE,
    INTEGER,
    MOST_DIGITS,
    NULL,
    TIMESTAMP,
    WIDEST_DECIMAL,
    Family,
    Type,
    decimal,
)
from dpsql.sql.ir.unbound_parameters import fill_unbound

__all__ = ["arithmetic", "combine_integers", "shift_date"]

_DAYS = Literal(1, BIGINT)


def arithmetic(left: Expression, operator: str, *, right: Expression, where: Place) -> Expression:
    """Return left operator right, of numbers or of a date and days."""
    exact = operator != "/"
    left, right = _filled(left, right.type if exact else DOUBLE), _filled(right, left.type if exact else DOUBLE)
    families = {left.type.family, right.type.family}
    if left.type == DATE:
        return _date_arithmetic(left, operator, right=right, where=where)
    if not (left.type.is_number or left.type == NULL) or not (right.type.is_number or right.type == NULL):
        raise Refusal(
            "type",
            "Arithmetic takes numbers.",
            hint="Cast text with CAST(x AS DOUBLE), and take times apart with epoch(x).",
            place=where,
        )
    if operator == "/" or Family.DOUBLE in families:
        return Call(operator, (convert(left, DOUBLE, place=where), convert(right, DOUBLE, place=where)), DOUBLE)
    if Family.DECIMAL in families:
        return _decimal_arithmetic(left, operator, right=right, where=where)
    return combine_integers(left, operator, right=right, where=where)


def _filled(side: Expression, other: Type) -> Expression:
    """Return a side of unknown type with a type that fits the other: whole numbers, days or DOUBLE."""
    if other == DATE:
        return fill_unbound(side, BIGINT, such_as=_DAYS)
    return fill_unbound(side, BIGINT if other.family is Family.INTEGER else DOUBLE)


def _decimal_arithmetic(left: Expression, operator: str, *, right: Expression, where: Place) -> Expression:
    """Type decimals as DuckDB: a digit more for + and -, those of both for *, at most 18 if both have at most 18.

    Sums of public and of released rows are wider, and have at most 38.
    """
    (width, scale), (other_width, other_scale) = left.type.precision, right.type.precision
    digits, whole = max(scale, other_scale), max(width - scale, other_width - other_scale)
    wanted = {
        "+": (whole + digits + 1, digits),
        "-": (whole + digits + 1, digits),
        "%": (whole + digits, digits),
        "*": (width + other_width, scale + other_scale),
    }.get(operator)
    if wanted and operator == "*" and max(width, other_width) <= WIDEST_DECIMAL and wanted[1] < WIDEST_DECIMAL:
        wanted = min(wanted[0], WIDEST_DECIMAL), wanted[1]
    if wanted and max(width, other_width) == MOST_DIGITS and wanted[1] <= MOST_DIGITS:
        return Call(operator, (left, right), decimal(min(wanted[0], MOST_DIGITS), wanted[1]))
    if wanted is None or wanted[0] > WIDEST_DECIMAL or NULL in {left.type, right.type}:
        hint = "Cast to DOUBLE or to a narrower DECIMAL, or write the literal with an exponent, such as 1.5e0."
        raise Unsupported("decimal", "This arithmetic on DECIMAL is not read.", hint=hint, place=where)
    return Call(operator, (left, right), decimal(*wanted))


def combine_integers(left: Expression, operator: str, *, right: Expression, where: Place) -> Expression:
    """Type integers as DuckDB does: the wider of two, BIGINT when neither type holds both."""
    alike_left, alike_right = unify_types((left, right), where)
    wanted = alike_left.type
    literals = isinstance(left, Literal) or isinstance(right, Literal)
    if wanted not in {left.type, right.type} and not literals:
        alike_left, alike_right, wanted = (
            convert(left, BIGINT, place=where),
            convert(right, BIGINT, place=where),
            BIGINT,
        )
    return Call(operator, (alike_left, alike_right), wanted)


def _date_arithmetic(left: Expression, operator: str, *, right: Expression, where: Place) -> Expression:
    if operator in {"+", "-"} and isinstance(right, Literal) and right.type.family is Family.INTEGER:
        return Call(operator, (left, convert(right, INTEGER, place=where)), DATE)
    if operator == "-" and right.type == DATE:
        return Call("-", (left, right), BIGINT)
    raise Refusal(
        "type",
        "A date takes + or - a whole number of days.",
        hint="Or an INTERVAL, such as INTERVAL '7 days'.",
        place=where,
    )


def shift_date(left: Expression, operator: str, *, interval: Literal, where: Place) -> Expression:
    """Return a date or time stamp plus or minus an INTERVAL."""
    left = fill_unbound(left, TIMESTAMP)
    if operator not in {"+", "-"} or left.type.family not in {Family.DATE, Family.TIMESTAMP}:
        raise Refusal(
            "type",
            "An INTERVAL is added to or taken from a date or time stamp.",
            hint="Write ts + INTERVAL '7 days'.",
            place=where,
        )
    if isinstance(left, Literal):
        amount, unit = str(interval.value).split()
        with suppress(ValueError, OverflowError):
            return add_interval(left, int(amount) if operator == "+" else -int(amount), unit=unit)
    return Call(operator, (left, interval), TIMESTAMP)
