"""Arrow's types as PostgreSQL's: which OID a column has, and its values as text and as binary.

Whole numbers without a sign are widened, so that none is cut; what PostgreSQL has no type for goes as text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa

from dpsql.server.wire.calendar import day_binary, day_text, moment_binary, moment_text, time_text
from dpsql.server.wire.codec import Column

__all__ = ["OIDS", "columns_of", "encoded"]

OIDS = {
    "bool": 16, "bytea": 17, "int8": 20, "int2": 21, "int4": 23, "text": 25, "float4": 700, "float8": 701,
    "unknown": 705, "varchar": 1043, "date": 1082, "time": 1083, "timestamp": 1114, "timestamptz": 1184,
    "numeric": 1700,
}  # fmt: skip
_SIZES = {16: 1, 20: 8, 21: 2, 23: 4, 701: 8, 1082: 4, 1083: 8, 1114: 8, 1184: 8}
_MICROSECONDS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
Values = list[bytes | None]


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of an answer as PostgreSQL describes them."""
    found = []
    for field in schema:
        oid = _oid(field.type)
        modifier = -1
        if oid == OIDS["numeric"] and pa.types.is_decimal(field.type):
            modifier = (field.type.precision << 16 | field.type.scale) + 4
        found.append(Column(field.name, oid, _SIZES.get(oid, -1), modifier))
    return tuple(found)


def _oid(kind: pa.DataType) -> int:
    if pa.types.is_timestamp(kind):
        return OIDS["timestamp" if kind.tz is None else "timestamptz"]
    if pa.types.is_dictionary(kind):
        return _oid(kind.value_type)
    for name, holds in _KINDS:
        if any(test(kind) for test in holds):
            return OIDS[name]
    return OIDS["text"]


_KINDS: tuple[tuple[str, tuple[Callable[[pa.DataType], bool], ...]], ...] = (
    ("bool", (pa.types.is_boolean,)),
    ("int2", (pa.types.is_int8, pa.types.is_int16, pa.types.is_uint8)),
    ("int4", (pa.types.is_int32, pa.types.is_uint16)),
    ("int8", (pa.types.is_int64, pa.types.is_uint32)),
    ("numeric", (pa.types.is_uint64, pa.types.is_decimal)),
    ("float8", (pa.types.is_floating,)),
    ("date", (pa.types.is_date32,)),
    ("time", (pa.types.is_time64,)),
    ("bytea", (pa.types.is_binary, pa.types.is_large_binary)),
)


def encoded(column: pa.ChunkedArray, code: int) -> Values:
    """Return the values of a column, in text (0) or binary (1); None is NULL."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    oid = _oid(column.type)
    plain = _plain(column)
    encode = (_BINARY if code else _TEXT).get(oid, _utf8)
    return [None if value is None else encode(value) for value in plain]


def _plain(column: pa.ChunkedArray) -> Sequence[object]:
    """Return values that encoders read: numbers of days and microseconds for dates and times."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        times, per = _MICROSECONDS[kind.unit]
        numbers: Sequence[int | None] = column.cast(pa.int64()).to_pylist()
        return [None if one is None else one if abs(one) >= _ENDLESS else one * times // per for one in numbers]
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_time64(kind):
        return column.cast(pa.time64("us")).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_uint64(kind):
        return [None if one is None else Decimal(one) for one in column.to_pylist()]
    return column.to_pylist()  # type: ignore[no-any-return]


_ENDLESS = 2**63 - 1


def _utf8(value: object) -> bytes:
    return str(value).encode(errors="replace")


def _float_text(value: float) -> bytes:
    if value != value:  # noqa: PLR0124 - NaN alone is no value of itself
        return b"NaN"
    if value in {float("inf"), float("-inf")}:
        return b"Infinity" if value > 0 else b"-Infinity"
    return repr(value).removesuffix(".0").encode()


def _numeric_text(value: Decimal) -> bytes:
    return format(value, "f").encode()


def numeric_binary(value: Decimal) -> bytes:
    """Return a finite number as PostgreSQL's numeric: groups of four digits around the decimal point."""
    sign, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    text = "".join(map(str, digits)) + "0" * max(0, int(exponent))
    whole, part = (text[:-scale], text[-scale:].rjust(scale, "0")) if scale else (text, "")
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    part = part.ljust(-(-len(part) // 4) * 4, "0")
    groups = [int((whole + part)[at : at + 4]) for at in range(0, len(whole + part), 4)]
    weight = len(whole) // 4 - 1
    while groups and groups[0] == 0:
        groups, weight = groups[1:], weight - 1
    while groups and groups[-1] == 0:
        groups.pop()
    weight = weight if groups else 0
    return struct.pack(f"!hhHh{len(groups)}h", len(groups), weight, 0x4000 * sign, scale, *groups)


_TEXT: dict[int, Callable[..., bytes]] = {
    OIDS["bool"]: lambda value: b"t" if value else b"f",
    OIDS["bytea"]: lambda value: b"\\x" + value.hex().encode(),
    OIDS["float8"]: _float_text,
    OIDS["numeric"]: _numeric_text,
    OIDS["date"]: lambda value: day_text(value).encode(),
    OIDS["time"]: lambda value: time_text(value).encode(),
    OIDS["timestamp"]: lambda value: moment_text(value).encode(),
    OIDS["timestamptz"]: lambda value: moment_text(value, zone="+00").encode(),
}
_BINARY: dict[int, Callable[..., bytes]] = {
    OIDS["bool"]: lambda value: b"\1" if value else b"\0",
    OIDS["bytea"]: bytes,
    OIDS["int2"]: struct.Struct("!h").pack,
    OIDS["int4"]: struct.Struct("!i").pack,
    OIDS["int8"]: struct.Struct("!q").pack,
    OIDS["float8"]: struct.Struct("!d").pack,
    OIDS["numeric"]: numeric_binary,
    OIDS["date"]: day_binary,
    OIDS["time"]: struct.Struct("!q").pack,
    OIDS["timestamp"]: moment_binary,
    OIDS["timestamptz"]: moment_binary,
}
