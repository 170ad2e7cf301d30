"""Values as typed literals, and types that meet in one operation: literals take the type of what they meet.

A value comes of the text, of a parameter, or of PostgreSQL's text format. Integers that meet take the wider type.
DuckDB casts implicitly and may raise on a row while it does. A literal is therefore converted here, once, before any
row is read; other mixtures are written with a cast that gives NULL where it fails, or refused. Arithmetic is typed as
DuckDB types it, on numbers and on dates with days and intervals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from math import inf, isfinite, isnan, nan
from struct import pack, unpack

from dpsql.errors import Place, Refusal, Unsupported, UsageError
from dpsql.sql.ir.literals import Open, UnboundParameter, add_interval, default_number, fill_unbound
from dpsql.sql.ir.tree import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    MOST_DIGITS,
    NULL,
    TEXT,
    TIMESTAMP,
    WIDEST_DECIMAL,
    Call,
    Cast,
    ColumnRef,
    Expression,
    Family,
    Literal,
    Type,
    decimal,
    find_integer_type,
    find_read_type,
    widen_integers,
)
from dpsql.sql.lexer import Parameter, Value

_MAX_DIGITS = 400  # a DOUBLE has at most 309 digits before its point
_NUMBER = re.compile(r"([0-9]*)(?:\.([0-9]*))?([eE][+-]?[0-9]{1,4})?")
_SIGNED = re.compile(r"(-?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SOME_UUID = Literal("00000000-0000-0000-0000-000000000000", TEXT, 36)
_MAX_PRINTED_LENGTH = 64  # characters of a number, a date or a truth value
_NOT_FINITE = {"nan": nan, **dict.fromkeys(["inf", "infinity"], inf), **dict.fromkeys(["-inf", "-infinity"], -inf)}
_LARGEST_FLOAT = 3.4028234663852886e38
_DAYS = Literal(1, BIGINT)
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?Z?)?)?")

MAX_PARAMETER_BYTES = 16 * 1024  # of one parameter; a statement may bind thousands
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{6})?")  # excludes NaT of pandas, which is a datetime
_SURROGATE = re.compile("[\ud800-\udfff]")
_SENT_NUMBER = r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,3})?"
_TEXTS: dict[str, tuple[str, Callable[[str], object], str]] = {  # of a type: its values, their reader and a hint
    "BIGINT": ("[+-]?[0-9]{1,40}", int, "Send a whole number of at most 64 bits, in plain digits."),
    "DOUBLE": (_SENT_NUMBER, float, "Send a finite number, such as 1.5 or 1e-3."),
    "DECIMAL": (_SENT_NUMBER, Decimal, "Send a finite number, such as 1.50."),
    "BOOLEAN": (
        "(?ai:t|true|y|yes|on|1|f|false|n|no|off|0)",
        lambda text: text.lower() in {"t", "true", "y", "yes", "on", "1"},
        "Send t or f.",
    ),
    "DATE": (
        "[0-9]{4}-[0-9]{2}-[0-9]{2}",
        date.fromisoformat,
        "Send a date of the years 1 to 9999, such as 2026-01-31.",
    ),
    "TIMESTAMP": (
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?",
        datetime.fromisoformat,
        "Send a time stamp without a zone, such as 2026-01-31 12:00:00.",
    ),
    "VARCHAR": ("(?s:.*)", str, "Leave the NUL character out."),
}
_INTEGERS = frozenset("TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER".split())
_ARRAY_ITEM = re.compile(
    r"""\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^{},"\\\s](?:[^{},"\\]*[^{},"\\\s])?))\s*(?P<end>[,}])""",
    re.DOTALL,
)


def read_whole_number(value: Value | None, parameter: Parameter, *, min_value: int) -> int | None:
    """Return the whole number, at least `min_value`, that is bound to a parameter; None for anything else."""
    if value is None or value.kind != "parameter":
        return None
    bound = default_number(parameter(value), min_value)
    return bound if type(bound) is int and min_value <= bound < 1 << 63 else None


def make_literal(value: object, place: Place) -> Literal:  # noqa: C901 - a case for each type
    """Convert a Python value to a typed literal: None, bool, int, float, Decimal, str, date or a naive datetime."""
    match value:
        case UnboundParameter():
            return value.literal()
        case None:
            return Literal(None, NULL)
        case bool():
            return Literal(value, BOOLEAN)
        case int() if (type_ := find_integer_type(value)) is not None:
            return Literal(value, type_)
        case float() if isfinite(value):
            return Literal(value, DOUBLE)
        case Decimal() if value.is_finite():
            _, digits, exponent = value.as_tuple()
            scale = max(0, -int(exponent))
            width = max(len(digits) + max(0, int(exponent)), scale, 1)
            if width <= WIDEST_DECIMAL:
                return Literal(value, decimal(width, scale))
        case str() if len(value.encode(errors="replace")) <= MAX_PARAMETER_BYTES:
            if "\0" not in value and not _SURROGATE.search(value):
                return Literal(value, TEXT, len(value))
        case datetime() if value.tzinfo is None and _MOMENT.fullmatch(value.isoformat(sep=" ")):
            return Literal(value.isoformat(sep=" "), TIMESTAMP)
        case date() if not isinstance(value, datetime):
            return Literal(value.isoformat(), DATE)
    hint = "Use None, bool, 64-bit int, finite float or Decimal, short str, date or datetime without zone."
    raise UsageError("parameter-type", "The value of this parameter cannot be bound.", hint=hint, place=place)


def parse_text_value(text: str, type: str) -> object:  # noqa: A002 - its name in every caller
    """Parse `text` as a value of a SQL `type`, such as BIGINT or DECIMAL(9,2). UNKNOWN is text.

    The format is that of PostgreSQL: numbers in plain digits, t or f, dates as 2026-01-31 and time stamps as
    2026-01-31 12:00:00. Raise `UsageError` for a text that is not such a value, and for values that statements do not
    accept: NaN, infinities, whole numbers beyond 64 bits, time zones.
    """
    name = type.partition("(")[0].strip().upper()
    pattern, convert, hint = _TEXTS["BIGINT" if name in _INTEGERS else name if name in _TEXTS else "VARCHAR"]
    text = text if convert is str else text.strip()
    try:
        value = convert(text) if re.fullmatch(pattern, text) else None
    except (ValueError, OverflowError, ArithmeticError):
        value = None
    is_wide = isinstance(value, int) and not -(1 << 63) <= value < 1 << 63
    is_infinite = isinstance(value, float) and not isfinite(value)
    if value is None or "\0" in text or is_wide or is_infinite:
        raise UsageError("parameter-type", f"A parameter does not read as {name}.", hint=hint)
    return value


def parse_text_array(text: str) -> list[str | None] | None:
    """Return the items of an array in PostgreSQL's text format, such as {a,"b c",NULL}; None for any other text."""
    text = text.strip()
    if not text.startswith("{") or not text.endswith("}"):
        return None
    if not text[1:-1].strip():
        return []
    items, start, end = list[str | None](), 1, ","
    while end == ",":
        item = _ARRAY_ITEM.match(text, start)
        if item is None:
            return None
        quoted, plain, end = item.groups()
        items.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if plain is None else plain)
        if plain is not None and plain.upper() == "NULL":
            items[-1] = None
        start = item.end()
    return items if start == len(text) else None


def number(text: str, place: Place) -> Literal:
    """Return the literal that DuckDB reads in a number: INTEGER, BIGINT, DECIMAL or DOUBLE."""
    found = _NUMBER.fullmatch(text)
    if not found or not (found[1] or found[2]) or len(text) > _MAX_DIGITS:
        reason = "This number is not written in plain decimal digits."
        raise Unsupported("number", reason, hint="Such as 10, 0.5 or 1e-3.", place=place)
    if found[3]:
        value = float(text)
        if value == float("inf"):
            reason = "This number is too large for a DOUBLE."
            raise Refusal("number", reason, hint="Write one below 1e308.", place=place)
        return Literal(value, DOUBLE)
    if found[2] is None:
        return Literal(int(found[1]), _find_integer_type(int(found[1]), place))
    width, scale = len(found[1]) + len(found[2]), len(found[2])  # leading zeros count in DuckDB
    if width > WIDEST_DECIMAL:
        hint = "Write it with an exponent to make it a DOUBLE."
        raise Unsupported("number", f"Decimals have at most {WIDEST_DECIMAL} digits.", hint=hint, place=place)
    return Literal(Decimal(text), decimal(width, scale))


def _find_integer_type(value: int, place: Place) -> Type:
    type_ = find_integer_type(value)
    if type_ is None:
        reason = "Integers wider than BIGINT are not computed with."
        raise Unsupported("number", reason, hint="Write it with an exponent to make it a DOUBLE.", place=place)
    return type_


def to_type(literal: Literal, wanted: Type, *, place: Place) -> Literal:
    """Return the literal as a value of `wanted`; refuse when it does not read as one."""
    fill_unbound(literal, wanted)
    value = literal.value
    if value is None or literal.type == wanted:
        return Literal(value, wanted, literal.longest)
    if isinstance(value, str) and literal.type.family is Family.TEXT:
        return _from_text(value, wanted, place=place)
    if isinstance(value, str) and literal.type == DATE and wanted == TIMESTAMP:
        return Literal(f"{value} 00:00:00", TIMESTAMP)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        if wanted.family is Family.DOUBLE:
            return Literal(float(value), DOUBLE)
        if wanted.family is Family.INTEGER and isfinite(value) and value == int(value) and wanted.holds(int(value)):
            return Literal(int(value), wanted)
        if wanted.family is Family.DECIMAL and not isinstance(value, float):
            width, scale = wanted.precision
            scaled = Fraction(value) * 10**scale
            if scaled.denominator == 1 and abs(scaled) < 10**width:
                return Literal(Decimal(value), wanted)
    raise _mismatch(literal.type, wanted, place=place)


def _from_text(text: str, wanted: Type, *, place: Place) -> Literal:
    """Read a quoted literal as the type it meets: a date, a time stamp, a number, a truth value."""
    try:
        if wanted == DATE and _TIMESTAMP.fullmatch(text):
            return Literal(datetime.fromisoformat(text.removesuffix("Z")).date().isoformat(), DATE)
        if wanted == TIMESTAMP and _TIMESTAMP.fullmatch(text):
            return Literal(datetime.fromisoformat(text.removesuffix("Z")).isoformat(sep=" "), TIMESTAMP)
    except ValueError:
        wanted = Type(Family.OPAQUE, wanted.name)  # such as February 30th: refused below
    if wanted.is_number and (found := _SIGNED.fullmatch(text)):
        unsigned = number(found[2] + (found[3] or ""), place)
        return to_type(negate(unsigned, place) if found[1] else unsigned, wanted, place=place)
    if wanted == DOUBLE and text.lower() in _NOT_FINITE:
        return Literal(_NOT_FINITE[text.lower()], DOUBLE)
    if wanted.family is Family.BOOLEAN and text.lower() in {"true", "false"}:
        return Literal(text.lower() == "true", wanted)
    hint = "Dates are written 'YYYY-MM-DD', time stamps 'YYYY-MM-DD HH:MM:SS', numbers in plain digits."
    raise Refusal("literal", f"This text does not read as {wanted}.", hint=hint, place=place)


def negate(literal: Literal, place: Place) -> Literal:
    """Return minus the number, in a wider type if it takes one: minus the least BIGINT is no BIGINT."""
    value = literal.value
    if isinstance(value, float) and isnan(value):
        return literal  # there is one NaN here, without a sign
    if literal.type.family is Family.INTEGER and isinstance(value, int):
        return Literal(-value, literal.type if literal.type.holds(-value) else _find_integer_type(-value, place))
    return Literal(-value if isinstance(value, float | Decimal) else value, literal.type)


def convert(expression: Expression, wanted: Type, *, place: Place) -> Expression:
    """Return the expression as `wanted`: a converted literal, itself, or a cast that gives NULL where it fails."""
    if isinstance(expression, Literal):
        return to_type(expression, wanted, place=place)
    return expression if expression.type == wanted else Cast(expression, wanted)


def convert_to_text(expression: Expression) -> Expression:
    """Return the expression as DuckDB prints it; a FLOAT, which is computed as a DOUBLE, prints as a FLOAT."""
    expression = fill_unbound(expression, TEXT)
    if expression.type == TEXT:
        return expression
    stored = _read_column(expression)
    printed = expression if stored is None or find_read_type(stored.type) != expression.type else stored
    return Cast(printed, TEXT, _MAX_PRINTED_LENGTH)


def unify_types(expressions: Sequence[Expression], place: Place) -> tuple[Expression, ...]:
    """Return the expressions brought to one type, that of a CASE or COALESCE; refuse one too wide to compute with."""
    if all(expression.type == NULL for expression in expressions):
        expressions = [fill_unbound(expression, TEXT) for expression in expressions]
    # in a DECIMAL, DuckDB allows an integer literal the digits of its type
    wanted = _common(expressions, place, digits=lambda value: (find_integer_type(value) or BIGINT).precision[0])
    if wanted.family is Family.DECIMAL and wanted.precision[0] > WIDEST_DECIMAL:
        hint = "Cast one of them: CAST(x AS DOUBLE)."
        raise Unsupported("type", f"The result {wanted} is wider than dpsql reads.", hint=hint, place=place)
    return tuple(convert(expression, wanted, place=place) for expression in expressions)


def unify_for_comparison(expressions: Sequence[Expression], place: Place) -> tuple[Expression, ...]:
    """Return the expressions brought to one type for a comparison: exactly, however wide a DECIMAL that takes."""
    stored = {inner.type.name for inner in map(_read_column, expressions) if inner is not None}
    expressions = [
        _match_stored_type(each, stored, place=place) if isinstance(each, Literal) else each for each in expressions
    ]
    wanted = _common(expressions, place, digits=lambda value: len(str(abs(value))))
    return tuple(convert(expression, wanted, place=place) for expression in expressions)


def _read_column(expression: Expression) -> ColumnRef | None:
    """Return the column that is read as another type by a cast of `types.find_read_type`."""
    inner = expression.argument if isinstance(expression, Cast) else None
    return inner if isinstance(inner, ColumnRef) and inner.type.family is Family.OPAQUE else None


def _match_stored_type(literal: Literal, stored: set[str], *, place: Place) -> Literal:
    """Return a literal that meets a FLOAT or UUID column as that column would hold it, since it is read as another."""
    if "UUID" in stored and isinstance(literal, Open):
        literal.hole.fill(TEXT, such_as=_SOME_UUID)
    value = literal.value
    if "FLOAT" in stored and isinstance(value, int | float | Decimal) and abs(float(value)) <= _LARGEST_FLOAT:
        # A FLOAT of 0.1 is read as the DOUBLE 0.10000000149011612, which 0.1 alone would not be equal to.
        return Literal(float(unpack("f", pack("f", value))[0]), DOUBLE)
    if "UUID" in stored and isinstance(value, str):
        if not _UUID.fullmatch(value):
            hint = "Write it as 8-4-4-4-12 hexadecimal digits."
            raise Refusal("literal", "This text does not read as UUID.", hint=hint, place=place)
        return Literal(value.lower(), literal.type, literal.longest)
    return literal


def _common(expressions: Sequence[Expression], place: Place, *, digits: Callable[[int], int]) -> Type:
    """Return the type that all can be brought to; `digits` are those of an integer literal among decimals."""
    fixed = [expression.type for expression in expressions if not isinstance(expression, Literal)]
    loose = [expression for expression in expressions if isinstance(expression, Literal) and expression.type != NULL]
    if not fixed:
        # Of literals alone a text takes the type of the others: 5 = '5' compares whole numbers.
        loose.sort(key=lambda literal: literal.type.family is Family.TEXT)
    wanted = fixed[0] if fixed else loose[0].type if loose else NULL
    for type_ in fixed:
        wanted = _meet(wanted, type_, place=place)
    for literal in loose:  # which gives way if it can, as DuckDB's literals do
        value = literal.value
        if literal.type.family is Family.TEXT and wanted.family is not Family.TEXT:
            continue
        if wanted.family is Family.INTEGER and type(value) is int and wanted.holds(value):
            continue
        type_ = literal.type
        if wanted.family is Family.DECIMAL and type(value) is int:
            type_ = decimal(digits(value), 0)
        wanted = _meet(wanted, type_, place=place)
    return wanted


def _meet(first: Type, second: Type, *, place: Place) -> Type:
    """Return the type of two stored types together."""
    if first == second:
        return first
    families = {first.family, second.family}
    if families == {Family.INTEGER}:
        return widen_integers(first, second)
    if families <= {Family.INTEGER, Family.DECIMAL}:
        scale = max(first.precision[1], second.precision[1])
        whole = max(first.precision[0] - first.precision[1], second.precision[0] - second.precision[1])
        return decimal(min(whole + scale, MOST_DIGITS), scale)  # only a SUM, with digits to spare, is cut
    if Family.DOUBLE in families and first.is_number and second.is_number:
        return DOUBLE
    if families == {Family.DATE, Family.TIMESTAMP}:
        return TIMESTAMP
    raise _mismatch(first, second, place=place)


def _mismatch(first: Type, second: Type, *, place: Place) -> Refusal:
    hint = "Cast one of them with CAST(x AS type)."
    return Refusal("type", f"{first} and {second} do not go together here.", hint=hint, place=place)


def arithmetic(left: Expression, operator: str, *, right: Expression, where: Place) -> Expression:
    """Return left operator right, of numbers or of a date and days."""
    exact = operator != "/"
    left, right = _filled(left, right.type if exact else DOUBLE), _filled(right, left.type if exact else DOUBLE)
    families = {left.type.family, right.type.family}
    if left.type == DATE:
        if operator in {"+", "-"} and isinstance(right, Literal) and right.type.family is Family.INTEGER:
            return Call(operator, (left, convert(right, INTEGER, place=where)), DATE)
        if operator == "-" and right.type == DATE:
            return Call("-", (left, right), BIGINT)
        hint = "Or an INTERVAL, such as INTERVAL '7 days'."
        raise Refusal("type", "A date takes + or - a whole number of days.", hint=hint, place=where)
    if not (left.type.is_number or left.type == NULL) or not (right.type.is_number or right.type == NULL):
        hint = "Cast text with CAST(x AS DOUBLE), and take times apart with epoch(x)."
        raise Refusal("type", "Arithmetic takes numbers.", hint=hint, place=where)
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
        alike_left, alike_right = convert(left, BIGINT, place=where), convert(right, BIGINT, place=where)
        wanted = BIGINT
    return Call(operator, (alike_left, alike_right), wanted)


def shift_date(left: Expression, operator: str, *, interval: Literal, where: Place) -> Expression:
    """Return a date or time stamp plus or minus an INTERVAL."""
    left = fill_unbound(left, TIMESTAMP)
    if operator not in {"+", "-"} or left.type.family not in {Family.DATE, Family.TIMESTAMP}:
        reason = "An INTERVAL is added to or taken from a date or time stamp."
        raise Refusal("type", reason, hint="Write ts + INTERVAL '7 days'.", place=where)
    if isinstance(left, Literal):  # such as now(): computed here, so that the statement has a constant
        amount, unit = str(interval.value).split()
        with suppress(ValueError, OverflowError):
            return add_interval(left, int(amount) if operator == "+" else -int(amount), unit=unit)
    return Call(operator, (left, interval), TIMESTAMP)
