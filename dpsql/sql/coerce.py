"""Types meet: literals take the type of what they meet, integers the wider, and nothing else is cast in silence.

DuckDB casts implicitly and may raise on a row while it does. A literal is therefore converted here, once, before any
row is read; other mixtures are written with a cast that gives NULL where it fails, or refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.query import Cast, Expression, Literal
from dpsql.sql.types import (
    DATE,
    DOUBLE,
    NULL,
    TIMESTAMP,
    WIDEST_DECIMAL,
    Family,
    Type,
    decimal,
    smallest_integer,
    widest_integer,
)

__all__ = ["alike", "as_type", "comparable", "number", "to_type"]

_NUMBER = re.compile(r"([0-9]*)(?:\.([0-9]*))?([eE][+-]?[0-9]{1,4})?")
_SIGNED = re.compile(r"(-?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?")


def number(text: str, place: Place) -> Literal:
    """Return the literal that DuckDB reads in a number: INTEGER, BIGINT, DECIMAL or DOUBLE."""
    found = _NUMBER.fullmatch(text)
    if not found or not (found[1] or found[2]):
        raise Unsupported("number", "This number is not written in plain decimal digits.", place=place)
    if found[3]:
        value = float(text)
        if value == float("inf"):
            raise Refusal("number", "This number is too large for a DOUBLE.", place=place)
        return Literal(value, DOUBLE)
    if found[2] is None:
        type_ = smallest_integer(int(found[1]))
        if type_ is None:
            raise Unsupported("number", "Integers wider than BIGINT are not computed with.", place=place)
        return Literal(int(found[1]), type_)
    width, scale = max(1, len(found[1].lstrip("0")) + len(found[2])), len(found[2])
    if width > WIDEST_DECIMAL:
        hint = "Write it with an exponent to make it a DOUBLE."
        raise Unsupported("number", f"Decimals have at most {WIDEST_DECIMAL} digits.", hint=hint, place=place)
    return Literal(Decimal(text), decimal(width, scale))


def to_type(literal: Literal, wanted: Type, place: Place) -> Literal:
    """Return the literal as a value of `wanted`; refuse when it does not read as one."""
    value = literal.value
    if value is None or literal.type == wanted:
        return Literal(value, wanted, literal.longest)
    if isinstance(value, str) and literal.type.family is Family.TEXT:
        return _from_text(value, wanted, place)
    if isinstance(value, str) and literal.type == DATE and wanted == TIMESTAMP:
        return Literal(f"{value} 00:00:00", TIMESTAMP)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        if wanted.family is Family.DOUBLE:
            return Literal(float(value), DOUBLE)
        if wanted.family is Family.INTEGER and value == int(value) and wanted.holds(int(value)):
            return Literal(int(value), wanted)
        if wanted.family is Family.DECIMAL and not isinstance(value, float) and _fits(Decimal(value), wanted):
            return Literal(Decimal(value), wanted)
    raise _mismatch(literal.type, wanted, place)


def _fits(value: Decimal, wanted: Type) -> bool:
    width, scale = wanted.precision
    return abs(value) < Decimal(10) ** (width - scale) and value == round(value, scale)


def _from_text(text: str, wanted: Type, place: Place) -> Literal:
    """Read a quoted literal as the type it meets: a date, a time stamp, a number, a truth value."""
    try:
        if wanted == DATE and _DATE.fullmatch(text):
            return Literal(date.fromisoformat(text).isoformat(), DATE)
        if wanted == TIMESTAMP and _TIMESTAMP.fullmatch(text):
            return Literal(datetime.fromisoformat(text).isoformat(sep=" "), TIMESTAMP)
    except ValueError:
        wanted = Type(Family.OPAQUE, wanted.name)  # such as February 30th: refused below
    if wanted.is_number and (found := _SIGNED.fullmatch(text)):
        unsigned = number(found[2] + (found[3] or ""), place)
        return to_type(negated(unsigned) if found[1] else unsigned, wanted, place)
    if wanted.family is Family.BOOLEAN and text.lower() in {"true", "false"}:
        return Literal(text.lower() == "true", wanted)
    hint = "Dates are written 'YYYY-MM-DD', time stamps 'YYYY-MM-DD HH:MM:SS', numbers in plain digits."
    raise Refusal("literal", f"This text does not read as {wanted}.", hint=hint, place=place)


def negated(literal: Literal) -> Literal:
    """Return minus the number."""
    value = literal.value
    return Literal(-value if isinstance(value, int | float | Decimal) else value, literal.type)


def as_type(expression: Expression, wanted: Type, place: Place) -> Expression:
    """Return the expression as `wanted`: a converted literal, itself, or a cast that gives NULL where it fails."""
    if isinstance(expression, Literal):
        return to_type(expression, wanted, place)
    return expression if expression.type == wanted else Cast(expression, wanted)


def alike(expressions: Sequence[Expression], place: Place) -> tuple[Expression, ...]:
    """Return the expressions brought to one type, that of a CASE or COALESCE; refuse what has none."""
    wanted = _common(expressions, place)
    if wanted is None:
        hint = "Cast one of them: CAST(x AS DOUBLE)."
        raise Unsupported("type", "Integers and decimals are not mixed in one result.", hint=hint, place=place)
    return tuple(as_type(expression, wanted, place) for expression in expressions)


def comparable(expressions: Sequence[Expression], place: Place) -> tuple[Expression, ...]:
    """Return the expressions brought to one type for a comparison, where integers meet decimals as DOUBLE."""
    wanted = _common(expressions, place) or DOUBLE
    return tuple(as_type(expression, wanted, place) for expression in expressions)


def _common(expressions: Sequence[Expression], place: Place) -> Type | None:
    """Return the type that all can be brought to; None for a mixture of integers and decimals."""
    fixed = [expression.type for expression in expressions if not isinstance(expression, Literal)]
    loose = [expression for expression in expressions if isinstance(expression, Literal) and expression.type != NULL]
    wanted: Type | None = fixed[0] if fixed else loose[0].type if loose else NULL
    for type_ in fixed:
        wanted = None if wanted is None else _meet(wanted, type_, place)
    for literal in loose:
        wanted = None if wanted is None else _meet_literal(wanted, literal, place)
    return wanted


def _meet(first: Type, second: Type, place: Place) -> Type | None:
    """Return the type of two stored types together."""
    if first == second:
        return first
    families = {first.family, second.family}
    if families == {Family.INTEGER}:
        return widest_integer(first, second)
    if families == {Family.DECIMAL}:
        scale = max(first.precision[1], second.precision[1])
        whole = max(first.precision[0] - first.precision[1], second.precision[0] - second.precision[1])
        return decimal(whole + scale, scale) if whole + scale <= WIDEST_DECIMAL else DOUBLE
    if families == {Family.INTEGER, Family.DECIMAL}:
        return None
    if Family.DOUBLE in families and first.is_number and second.is_number:
        return DOUBLE
    if families == {Family.DATE, Family.TIMESTAMP}:
        return TIMESTAMP
    raise _mismatch(first, second, place)


def _meet_literal(wanted: Type, literal: Literal, place: Place) -> Type | None:
    """Return the type once a literal has joined: it gives way if it can, as DuckDB's literals do."""
    if literal.type.family is Family.TEXT and wanted.family is not Family.TEXT:
        return wanted
    value = literal.value
    if wanted.family is Family.INTEGER and type(value) is int and wanted.holds(value):
        return wanted
    if wanted.family is Family.DECIMAL and type(value) is int:
        digits = len(str(abs(value)))
        return _meet(wanted, decimal(digits, 0), place)
    return _meet(wanted, literal.type, place)


def _mismatch(first: Type, second: Type, place: Place) -> Refusal:
    hint = "Cast one of them with CAST(x AS type)."
    return Refusal("type", f"{first} and {second} do not go together here.", hint=hint, place=place)
