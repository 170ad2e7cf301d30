"""Parameter values in the text format of PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from math import isfinite

from dpsql.errors import UsageError

__all__ = ["parse_text_array", "parse_text_value"]

_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,3})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?")
_ITEM = re.compile(
    r"""\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^{},"\\\s](?:[^{},"\\]*[^{},"\\\s])?))\s*(?P<end>[,}])""",
    re.DOTALL,
)
_TRUTH = {
    **dict.fromkeys("t true y yes on 1".split(), True),
    **dict.fromkeys("f false n no off 0".split(), False),
}
_INTEGERS = frozenset("TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER".split())
_WIDEST = 63  # bits of a whole number


def parse_text_value(text: str, type: str) -> object:  # noqa: A002 - its name in every caller
    """Parse `text` as a value of a SQL `type`, such as BIGINT or DECIMAL(9,2). UNKNOWN is text.

    The format is that of PostgreSQL: numbers in plain digits, t or f, dates as 2026-01-31 and time stamps as
    2026-01-31 12:00:00. Raise `UsageError` for a text that is not such a value, and for values that statements do not
    accept: NaN, infinities, whole numbers beyond 64 bits, time zones.
    """
    name = type.partition("(")[0].strip().upper()
    read, hint = _PARSERS["BIGINT" if name in _INTEGERS else name if name in _PARSERS else "VARCHAR"]
    try:
        value = read(text if read is str else text.strip())
    except (ValueError, OverflowError, ArithmeticError):
        value = None
    if value is None or "\0" in text:
        raise UsageError("parameter-type", f"A parameter does not read as {name}.", hint=hint)
    return value


def parse_text_array(text: str) -> list[str | None] | None:
    """Return the items of an array in PostgreSQL's text format, such as {a,"b c",NULL}; None for any other text."""
    text = text.strip()
    if not text.startswith("{") or not text.endswith("}"):
        return None
    if not text[1:-1].strip():
        return []
    found, at, end = list[str | None](), 1, ","
    while end == ",":
        item = _ITEM.match(text, at)
        if item is None:
            return None
        quoted, plain, end = item.groups()
        found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if plain is None else plain)
        if plain is not None and plain.upper() == "NULL":
            found[-1] = None
        at = item.end()
    return found if at == len(text) else None


def _parse_integer(text: str) -> int | None:
    value = int(text) if _WHOLE.fullmatch(text) else None
    return value if value is not None and -(1 << _WIDEST) <= value < 1 << _WIDEST else None


def _parse_double(text: str) -> float | None:
    value = float(text) if _NUMBER.fullmatch(text) else None
    return value if value is not None and isfinite(value) else None


def _parse_decimal(text: str) -> Decimal | None:
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _parse_boolean(text: str) -> bool | None:
    return _TRUTH.get(text.lower())


def _parse_date(text: str) -> date | None:
    return date.fromisoformat(text) if _DATE.fullmatch(text) else None


def _parse_timestamp(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if _MOMENT.fullmatch(text) else None


_PARSERS: dict[str, tuple[Callable[[str], object], str]] = {
    "BIGINT": (_parse_integer, "Send a whole number of at most 64 bits, in plain digits."),
    "DOUBLE": (_parse_double, "Send a finite number, such as 1.5 or 1e-3."),
    "DECIMAL": (_parse_decimal, "Send a finite number, such as 1.50."),
    "BOOLEAN": (_parse_boolean, "Send t or f."),
    "DATE": (_parse_date, "Send a date of the years 1 to 9999, such as 2026-01-31."),
    "TIMESTAMP": (_parse_timestamp, "Send a time stamp without a zone, such as 2026-01-31 12:00:00."),
    "VARCHAR": (str, "Leave the NUL character out."),
}
