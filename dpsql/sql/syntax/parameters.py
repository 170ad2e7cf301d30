"""Parameters: values bound to ?, $1 or :name, as typed literals, and values in the text format of PostgreSQL."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal

from dpsql.errors import Place, UsageError
from dpsql.sql.ir.literals import UnboundParameter, default_number
from dpsql.sql.ir.tree import (
    BOOLEAN,
    DATE,
    DOUBLE,
    NULL,
    TEXT,
    TIMESTAMP,
    WIDEST_DECIMAL,
    Literal,
    decimal,
    find_integer_type,
)
from dpsql.sql.lexer import ScannedStatement, Value

MAX_PARAMETER_BYTES = 16 * 1024  # of one parameter; a statement may bind thousands
ParameterValues = Sequence[object] | Mapping[str, object]
Parameter = Callable[[Value], object]
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{6})?")  # excludes NaT of pandas, which is a datetime
_SURROGATE = re.compile("[\ud800-\udfff]")
_NUMBER = r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,3})?"
_TEXTS: dict[str, tuple[str, Callable[[str], object], str]] = {  # of a type: its values, their reader and a hint
    "BIGINT": ("[+-]?[0-9]{1,40}", int, "Send a whole number of at most 64 bits, in plain digits."),
    "DOUBLE": (_NUMBER, float, "Send a finite number, such as 1.5 or 1e-3."),
    "DECIMAL": (_NUMBER, Decimal, "Send a finite number, such as 1.50."),
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


def bind(statement: ScannedStatement, parameters: ParameterValues) -> dict[Value, object]:
    """Bind a value to every parameter of the statement; refuse too many, too few and mixed styles."""
    if isinstance(parameters, Mapping) and all(isinstance(name, str) for name in parameters):
        values = {name.lstrip(":$"): value for name, value in parameters.items()}
    elif isinstance(parameters, str) or not isinstance(parameters, Sequence):
        values = None
    else:
        values = dict(zip(map(str, range(1, len(parameters) + 1)), parameters, strict=True))
    bound: dict[Value, object] = {}
    wanted, names, styles = list[Value](), set[str](), set[str]()
    for value in statement.values:
        if value.kind != "parameter":
            continue
        wanted.append(value)
        styles.add("numbered" if value.content[1:].isdigit() else value.content[:1].replace("$", ":"))
        name = str(len(wanted)) if value.content == "?" else value.content[1:]
        names.add(name)
        if values is not None and name in values:
            bound[value] = values[name]
    if len(styles) > 1:
        reason, hint = "A statement must write its parameters in one style.", "Write ?, $1 or :name throughout."
        raise UsageError("parameters", reason, hint=hint, place=wanted[0].place)
    if values is None:
        hint = 'For example ["DE"], or {"country": "DE"} for :country.'
        raise UsageError("parameters", "Parameters must be a list, or a mapping for :name.", hint=hint)
    if len(bound) < len(wanted):
        hint = "Pass one value for each parameter, in order or by name."
        where = next(value.place for value in wanted if value not in bound)
        raise UsageError("parameters", "This parameter has no value.", hint=hint, place=where)
    if values.keys() - names:
        reason = f"More parameters were passed ({len(values)}) than the statement uses ({len(names)})."
        raise UsageError("parameters", reason, hint="Pass one value for each ?, $1 or :name.")
    return bound


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
        case float() if math.isfinite(value):
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
    is_infinite = isinstance(value, float) and not math.isfinite(value)
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
