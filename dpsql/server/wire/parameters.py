"""Types and values of parameters that clients bind, as text or in PostgreSQL's binary formats."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial

from dpsql.server.wire.codec import Malformed, WireError
from dpsql.server.wire.rows import EPOCH, MICROSECONDS, OIDS
from dpsql.sql.coercion import parse_text_array, parse_text_value

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
_ITEMS: Mapping[int, int] = {  # the types of arrays, and those of their items
    1000: OIDS["bool"],
    1003: OIDS["text"],  # of name
    1005: OIDS["int2"],
    1007: OIDS["int4"],
    1009: OIDS["text"],
    1014: OIDS["text"],  # of char(n)
    1015: OIDS["varchar"],
    1016: OIDS["int8"],
    1021: OIDS["float4"],
    1022: OIDS["float8"],
    1115: OIDS["timestamp"],
    1182: OIDS["date"],
    1185: OIDS["timestamptz"],
    1231: OIDS["numeric"],
}
_ARRAYS: Mapping[int, int] = {**{item: array for array, item in _ITEMS.items()}, OIDS["text"]: 1009}
_ARRAY_HEAD = struct.Struct("!iiI")
_ARRAY_DIMENSION = struct.Struct("!ii")

_MOMENT = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})(?P<time>[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?)?"
    r"\s*(?P<zone>Z|[+-][0-9]{2}(?::?[0-9]{2}){0,2})?"
)


def find_oid(name: str) -> int:
    """Return the OID of a type of the language, or of its array; that of text for an unknown type."""
    oid = _OID_OF.get(name.partition("(")[0].removesuffix("[]"), OIDS["text"])
    return _ARRAYS[oid] if name.endswith("[]") else oid


def find_type(oid: int) -> str:
    """Return the type of the language for an OID, or that of an array; UNKNOWN if the client left it open."""
    if oid in _ITEMS:
        return f"{find_type(_ITEMS[oid])}[]"
    return _NAMES.get(oid, "UNKNOWN")


def decode_value(data: bytes | None, oid: int, *, code: int, name: str) -> object:
    """Decode a value that was sent as text (`code` 0) or binary (1); `name` is the type for an open OID.

    Raises `Malformed`, `WireError` for an unsupported type, and `UsageError` for a text that is not of its type.
    """
    if data is None:
        return None
    is_open = oid in {0, OIDS["unknown"]}
    array = find_oid(name) if is_open and name.endswith("[]") else oid
    if array in _ITEMS:
        return _decode_array(data, _ITEMS[array], code=code)
    kind = name.partition("(")[0] if is_open else _NAMES.get(oid, "")
    if not kind:
        hint = "Bind a number, a text, a boolean, a date, a timestamp or an array of one of these."
        raise WireError("0A000", "Parameters of this type are not supported.", hint=hint)
    if code and kind not in {"VARCHAR", "UNKNOWN"}:
        return _DECODERS[find_oid(kind) if is_open else oid](data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is None:
        raise Malformed("A value is not UTF-8.", sqlstate="22021")
    if kind in {"VARCHAR", "UNKNOWN"}:
        return text
    return parse_text_value(_drop_zone(text, kind, is_absolute=oid == OIDS["timestamptz"]), name if is_open else kind)


def _drop_zone(text: str, kind: str, *, is_absolute: bool) -> str:
    """Return the text of a date or timestamp without its time zone, which JDBC sends with every date.

    As in PostgreSQL, a timestamptz is converted to UTC, and the zone of any other type is ignored.
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


def _decode_array(data: bytes, oid: int, *, code: int) -> list[object]:
    """Decode an array of one dimension, whose items have a type."""
    if code:
        items = _split_array(data)
    else:
        texts = parse_text_array(data.decode(errors="replace"))
        items = None if texts is None else [None if text is None else text.encode() for text in texts]
    if items is None:
        raise Malformed("A value does not read as an array of one dimension.", sqlstate="22P02")
    return [decode_value(item, oid, code=code, name="") for item in items]


def _split_array(data: bytes) -> list[bytes | None] | None:
    """Return the items of an array in binary format; None if it has several dimensions or another length."""
    if len(data) < _ARRAY_HEAD.size:
        return None
    dimensions, _, _ = _ARRAY_HEAD.unpack_from(data)
    if dimensions == 0:
        return []
    at = _ARRAY_HEAD.size + _ARRAY_DIMENSION.size
    if dimensions != 1 or len(data) < at:
        return None
    count, _ = _ARRAY_DIMENSION.unpack_from(data, _ARRAY_HEAD.size)
    items = list[bytes | None]()
    while at + 4 <= len(data):
        (size,) = struct.unpack_from("!i", data, at)
        at += 4
        items.append(None if size < 0 else data[at : at + size])
        at += max(size, 0)
    return items if at == len(data) and len(items) == count else None


def _unpack(layout: str, data: bytes) -> int | float | bool:
    found: tuple[int | float | bool] = struct.unpack(layout, _check_size(data, struct.calcsize(layout)))
    return found[0]


def _check_size(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise Malformed("The length of a value does not fit its type.", sqlstate="22P03")
    return data


def _decode_numeric(data: bytes) -> Decimal:
    """Decode a number in groups of four digits around the decimal point."""
    if len(data) < 8:  # noqa: PLR2004 - four numbers of two bytes
        raise Malformed("A value is shorter than its type.", sqlstate="22P03")
    count, weight, sign, scale = struct.unpack("!hhHH", data[:8])
    if count < 0 or sign not in {0, 0x4000} or scale > 1_000 or abs(weight) > 1_000:  # noqa: PLR2004
        raise WireError("22023", "This number is out of range.", hint="Bind a finite number.")
    groups = struct.unpack(f"!{count}h", _check_size(data[8:], 2 * count))
    if any(not 0 <= group < 10_000 for group in groups):  # noqa: PLR2004
        raise Malformed("A value does not fit its type.", sqlstate="22P03")
    digits = "".join(f"{group:04}" for group in groups).lstrip("0") or "0"
    # The last of `count` groups stands for 10000**(weight + 1 - count).
    exponent = 4 * (weight + 1 - count)
    # 1.5 has the groups 1 and 5000 and the scale 1: what fills the last group up to four digits goes.
    while digits.endswith("0") and exponent < -scale:
        digits, exponent = digits[:-1] or "0", exponent + 1
    if exponent > 0:
        digits, exponent = digits + "0" * exponent, 0
    return Decimal((int(sign == 0x4000), tuple(map(int, digits)), exponent))  # noqa: PLR2004


def _decode_moment(data: bytes, *, is_date: bool) -> date:
    try:
        if is_date:
            return date(1970, 1, 1) + timedelta(_unpack("!i", data) + EPOCH)
        return datetime(1970, 1, 1) + timedelta(microseconds=_unpack("!q", data) + EPOCH * MICROSECONDS)  # noqa: DTZ001 - as the data
    except OverflowError:
        pass
    raise WireError("22008", "This date is out of range.", hint="Bind a date of the years 1 to 9999.")


_DECODERS: Mapping[int, Callable[[bytes], object]] = {
    OIDS["bool"]: lambda data: bool(_unpack("!?", data)),
    OIDS["int2"]: lambda data: _unpack("!h", data),
    OIDS["int4"]: lambda data: _unpack("!i", data),
    OIDS["int8"]: lambda data: _unpack("!q", data),
    26: lambda data: _unpack("!I", data),
    OIDS["float4"]: lambda data: _unpack("!f", data),
    OIDS["float8"]: lambda data: _unpack("!d", data),
    OIDS["numeric"]: _decode_numeric,
    OIDS["date"]: partial(_decode_moment, is_date=True),
    OIDS["timestamp"]: partial(_decode_moment, is_date=False),
    OIDS["timestamptz"]: partial(_decode_moment, is_date=False),
}
