"""Values of parameters, as clients send them, as what the language binds."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from dpsql.server.wire.calendar import day_of, moment_of
from dpsql.server.wire.codec import Malformed
from dpsql.server.wire.sqlstates import WireError
from dpsql.server.wire.types import OIDS
from dpsql.sql.syntax.text_values import value_of

__all__ = ["oid_of", "type_of", "value_of_bytes"]

_OID_OF: Mapping[str, int] = {
    "BOOLEAN": OIDS["bool"],
    "BIGINT": OIDS["int8"],
    "DOUBLE": OIDS["float8"],
    "VARCHAR": OIDS["text"],
    "DATE": OIDS["date"],
    "TIMESTAMP": OIDS["timestamp"],
    "DECIMAL": OIDS["numeric"],
}
_NAMES: Mapping[int, str] = {
    **{oid: name for name, oid in _OID_OF.items()},
    OIDS["int2"]: "BIGINT",
    OIDS["int4"]: "BIGINT",
    26: "BIGINT",  # oid
    OIDS["float4"]: "DOUBLE",
    OIDS["timestamptz"]: "TIMESTAMP",
    OIDS["varchar"]: "VARCHAR",
    18: "VARCHAR",  # "char"
    19: "VARCHAR",  # name
    1042: "VARCHAR",  # char(n)
}

_MOMENT = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})(?P<time>[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?)?"
    r"\s*(?P<zone>Z|[+-][0-9]{2}(?::?[0-9]{2}){0,2})?"
)


def oid_of(name: str) -> int:
    """Return the OID of a type of the language; text for one of which nothing is known."""
    return _OID_OF.get(name.partition("(")[0], OIDS["text"])


def type_of(oid: int) -> str:
    """Return the type of the language that an OID means; UNKNOWN where the client left it open."""
    return _NAMES.get(oid, "UNKNOWN")


def value_of_bytes(data: bytes | None, oid: int, *, code: int, name: str) -> object:
    """Return a value that was sent as text (0) or binary (1) `code`; `name` is the type for an open OID.

    Raises `Malformed`, `WireError` for a type that is not bound, and `UsageError` for a text that does not read.
    """
    if data is None:
        return None
    is_open = oid in {0, OIDS["unknown"]}
    kind = name.partition("(")[0] if is_open else _NAMES.get(oid, "")
    if not kind:
        hint = "Numbers, texts, booleans, dates and timestamps are."
        raise WireError("0A000", "A value of this type is not bound.", hint=hint)
    if code and kind not in {"VARCHAR", "UNKNOWN"}:
        return _BINARY[oid_of(kind) if is_open else oid](data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is None:
        raise Malformed("A value is not UTF-8.", sqlstate="22021")
    if kind in {"VARCHAR", "UNKNOWN"}:
        return text
    return value_of(_plain(text, kind, is_absolute=oid == OIDS["timestamptz"]), name if is_open else kind)


def _plain(text: str, kind: str, *, is_absolute: bool) -> str:
    """Return a date or moment without its zone, which is read as UTC if it is a point in time and else dropped.

    So PostgreSQL does, and JDBC sends a zone with every date.
    """
    found = _MOMENT.fullmatch(text.strip()) if kind in {"DATE", "TIMESTAMP"} else None
    if found is None:
        return text
    if kind == "DATE":
        return found["day"]
    plain = found["day"] + (found["time"] or "")
    if not (is_absolute and found["zone"]):
        return plain
    try:
        return str(datetime.fromisoformat(plain + found["zone"]).astimezone(UTC).replace(tzinfo=None))
    except (ValueError, OverflowError):
        return text


def _number(layout: str, data: bytes) -> int | float | bool:
    found: tuple[int | float | bool] = struct.unpack(layout, _sized(data, struct.calcsize(layout)))
    return found[0]


def _sized(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise Malformed("A value has another length than its type.", sqlstate="22P03")
    return data


def _numeric(data: bytes) -> Decimal:
    """Return the number that groups of four digits around a decimal point make."""
    if len(data) < 8:  # noqa: PLR2004 - four numbers of two bytes
        raise Malformed("A value is shorter than its type.", sqlstate="22P03")
    count, weight, sign, scale = struct.unpack("!hhHH", data[:8])
    if count < 0 or sign not in {0, 0x4000} or scale > 1_000 or abs(weight) > 1_000:  # noqa: PLR2004
        raise WireError("22023", "This number cannot be bound.", hint="NaN and infinities are no numbers.")
    groups = struct.unpack(f"!{count}h", _sized(data[8:], 2 * count))
    if any(not 0 <= group < 10_000 for group in groups):  # noqa: PLR2004
        raise Malformed("A value is not of its type.", sqlstate="22P03")
    digits = "".join(f"{group:04}" for group in groups).lstrip("0") or "0"
    exponent = 4 * (weight + 1 - count)
    while digits.endswith("0") and exponent < -scale:
        digits, exponent = digits[:-1] or "0", exponent + 1
    if exponent > 0:
        digits, exponent = digits + "0" * exponent, 0
    return Decimal((int(sign == 0x4000), tuple(map(int, digits)), exponent))  # noqa: PLR2004


def _day(data: bytes) -> date:
    try:
        return date(1970, 1, 1) + timedelta(day_of(_sized(data, 4)))
    except OverflowError:
        pass
    raise _unbounded()


def _moment(data: bytes) -> datetime:
    try:
        return datetime(1970, 1, 1) + timedelta(microseconds=moment_of(_sized(data, 8)))  # noqa: DTZ001 - as the data
    except OverflowError:
        pass
    raise _unbounded()


def _unbounded() -> WireError:
    return WireError("22008", "This date cannot be bound.", hint="Dates from year 1 to 9999 can.")


_BINARY: Mapping[int, Callable[[bytes], object]] = {
    OIDS["bool"]: lambda data: bool(_number("!?", data)),
    OIDS["int2"]: lambda data: _number("!h", data),
    OIDS["int4"]: lambda data: _number("!i", data),
    OIDS["int8"]: lambda data: _number("!q", data),
    26: lambda data: _number("!I", data),
    OIDS["float4"]: lambda data: _number("!f", data),
    OIDS["float8"]: lambda data: _number("!d", data),
    OIDS["numeric"]: _numeric,
    OIDS["date"]: _day,
    OIDS["timestamp"]: _moment,
    OIDS["timestamptz"]: _moment,
}
