"""Types and values of PostgreSQL's protocol: columns of answers as text and as binary, and parameters from clients.

Unsigned integers are widened, so that no value is cut; types that PostgreSQL lacks are sent as text.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial

import pyarrow as pa

from dpsql.server.memory import WireColumn
from dpsql.server.wire.sqlstates import Malformed, WireError
from dpsql.sql.coercion import parse_text_array, parse_text_value

OIDS = {
    "bool": 16, "bytea": 17, "int8": 20, "int2": 21, "int4": 23, "text": 25, "float4": 700, "float8": 701,
    "unknown": 705, "varchar": 1043, "date": 1082, "time": 1083, "timestamp": 1114, "timestamptz": 1184,
    "numeric": 1700,
}  # fmt: skip
_SIZES = {16: 1, 20: 8, 21: 2, 23: 4, 701: 8, 1082: 4, 1083: 8, 1114: 8, 1184: 8}
_MICROSECONDS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
_INFINITY = 2**63 - 1
_BINARY_FORMAT = 1
_ARROW_TYPES: tuple[tuple[str, tuple[Callable[[pa.DataType], bool], ...]], ...] = (
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


def describe_columns(schema: pa.Schema) -> tuple[WireColumn, ...]:
    """Return the columns of a schema as PostgreSQL describes them."""
    columns = []
    for field in schema:
        oid = _find_oid(field.type)
        modifier = -1
        if oid == OIDS["numeric"] and pa.types.is_decimal(field.type):
            modifier = (field.type.precision << 16 | field.type.scale) + 4
        columns.append(WireColumn(field.name, oid, _SIZES.get(oid, -1), modifier))
    return tuple(columns)


def _find_oid(kind: pa.DataType) -> int:
    if pa.types.is_timestamp(kind):
        return OIDS["timestamp" if kind.tz is None else "timestamptz"]
    if pa.types.is_dictionary(kind):
        return _find_oid(kind.value_type)
    for name, tests in _ARROW_TYPES:
        for matches in tests:
            if matches(kind):
                return OIDS[name]
    return OIDS["text"]


def expand_formats(codes: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the format of each of `count` values from the codes of a Bind: none, one for all, or one for each."""
    for code in codes:
        if code not in {0, _BINARY_FORMAT}:
            raise WireError("22023", "A format is neither text (0) nor binary (1).")
    if len(codes) > 1 and len(codes) != count:
        raise Malformed("The number of formats differs from the number of values.")
    return (tuple(codes) or (0,)) * count if len(codes) < 2 else tuple(codes)  # noqa: PLR2004


def encode_column(column: pa.ChunkedArray, code: int) -> list[bytes | None]:
    """Return the values of a column, in text (0) or binary (1); None is NULL."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_timestamp(kind):  # dates and times are encoded as counts of days and microseconds
        times, per = _MICROSECONDS[kind.unit]
        counts: Sequence[int | None] = column.cast(pa.int64()).to_pylist()
        values: Sequence[object] = [
            None if one is None else one if abs(one) >= _INFINITY else one * times // per for one in counts
        ]
    elif pa.types.is_date32(kind):
        values = column.cast(pa.int32()).to_pylist()
    elif pa.types.is_time64(kind):
        values = column.cast(pa.time64("us")).cast(pa.int64()).to_pylist()
    else:
        values = column.to_pylist()
    if pa.types.is_uint64(kind):
        values = [None if one is None else Decimal(one) for one in column.to_pylist()]
    encode = (_BINARY_ENCODERS if code else _TEXT_ENCODERS).get(_find_oid(kind), _encode_text)
    return [None if value is None else encode(value) for value in values]


def _encode_text(value: object) -> bytes:
    return str(value).encode(errors="replace")


def _format_float(value: float) -> bytes:
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return b"NaN"
    if value in {float("inf"), float("-inf")}:
        return b"Infinity" if value > 0 else b"-Infinity"
    return repr(value).removesuffix(".0").encode()


def encode_numeric(value: Decimal) -> bytes:
    """Encode a finite number as PostgreSQL's numeric: groups of four digits around the decimal point."""
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


# Dates and timestamps as PostgreSQL writes them, also beyond Python's calendar: before Christ, after 9999, infinity.
# DuckDB counts days and microseconds from 1970, PostgreSQL from 2000. In both, the number at each end is infinity.
EPOCH = 10_957  # days from 1970-01-01 to 2000-01-01
MICROSECONDS = 86_400_000_000  # of a day
_LAST_DAY, _LAST_TIMESTAMP = 2**31 - 1, 2**63 - 1
_DAY, _TIMESTAMP = struct.Struct("!i"), struct.Struct("!q")
_ERA = 146_097  # days of 400 years


def _format_date(days: int) -> tuple[str, str]:
    """Return a date of the proleptic Gregorian calendar, in days from 1970-01-01, and " BC" if it is before Christ."""
    era, day = divmod(days + 719_468, _ERA)  # from 0000-03-01, as a leap day then ends its year
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    month = month + 3 if month < 10 else month - 9  # noqa: PLR2004 - March is month 0
    year += era * 400 + (month < 3)  # noqa: PLR2004
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{day + 1:02}", "" if year > 0 else " BC"


def format_day(days: int) -> str:
    """Format a date, in days from 1970, as PostgreSQL writes it in ISO style."""
    if abs(days) == _LAST_DAY:
        return "infinity" if days > 0 else "-infinity"
    return "".join(_format_date(days))


def format_time(microseconds: int) -> str:
    """Format a time of day, in microseconds."""
    seconds, part = divmod(microseconds, 1_000_000)
    hours, seconds = divmod(seconds, 3_600)
    fraction = f".{part:06}".rstrip("0") if part else ""
    return f"{hours:02}:{seconds // 60:02}:{seconds % 60:02}{fraction}"


def format_timestamp(microseconds: int, zone: str = "") -> str:
    """Format a timestamp, in microseconds from 1970, as PostgreSQL writes it in ISO style."""
    if abs(microseconds) == _LAST_TIMESTAMP:
        return "infinity" if microseconds > 0 else "-infinity"
    days, rest = divmod(microseconds, MICROSECONDS)
    date, era = _format_date(days)
    return f"{date} {format_time(rest)}{zone}{era}"


def encode_day(days: int) -> bytes:
    """Encode a date, in days from 1970."""
    if abs(days) == _LAST_DAY:
        return _DAY.pack(_LAST_DAY if days > 0 else -_LAST_DAY - 1)
    return _DAY.pack(_check_range(days - EPOCH, _LAST_DAY))


def encode_timestamp(microseconds: int) -> bytes:
    """Encode a timestamp, in microseconds from 1970."""
    if abs(microseconds) == _LAST_TIMESTAMP:
        return _TIMESTAMP.pack(_LAST_TIMESTAMP if microseconds > 0 else -_LAST_TIMESTAMP - 1)
    return _TIMESTAMP.pack(_check_range(microseconds - EPOCH * MICROSECONDS, _LAST_TIMESTAMP))


def _check_range(number: int, last: int) -> int:
    if abs(number) >= last:
        raise WireError("22008", "A date is outside PostgreSQL's range.", hint="Fetch it in text format.")
    return number


def decode_day(data: bytes) -> int:
    """Decode a date to days from 1970."""
    (days,) = _DAY.unpack(data)
    return int(days) + EPOCH


def decode_timestamp(data: bytes) -> int:
    """Decode a timestamp to microseconds from 1970."""
    (microseconds,) = _TIMESTAMP.unpack(data)
    return int(microseconds) + EPOCH * MICROSECONDS


_TEXT_ENCODERS: dict[int, Callable[..., bytes]] = {
    OIDS["bool"]: lambda value: b"t" if value else b"f",
    OIDS["bytea"]: lambda value: b"\\x" + value.hex().encode(),
    OIDS["float8"]: _format_float,
    OIDS["numeric"]: lambda value: format(value, "f").encode(),
    OIDS["date"]: lambda value: format_day(value).encode(),
    OIDS["time"]: lambda value: format_time(value).encode(),
    OIDS["timestamp"]: lambda value: format_timestamp(value).encode(),
    OIDS["timestamptz"]: lambda value: format_timestamp(value, zone="+00").encode(),
}
_BINARY_ENCODERS: dict[int, Callable[..., bytes]] = {
    OIDS["bool"]: lambda value: b"\1" if value else b"\0",
    OIDS["bytea"]: bytes,
    OIDS["int2"]: struct.Struct("!h").pack,
    OIDS["int4"]: struct.Struct("!i").pack,
    OIDS["int8"]: struct.Struct("!q").pack,
    OIDS["float8"]: struct.Struct("!d").pack,
    OIDS["numeric"]: encode_numeric,
    OIDS["date"]: encode_day,
    OIDS["time"]: struct.Struct("!q").pack,
    OIDS["timestamp"]: encode_timestamp,
    OIDS["timestamptz"]: encode_timestamp,
}

# What follows decodes parameters.
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
    exponent = 4 * (weight + 1 - count)
    while digits.endswith("0") and exponent < -scale:
        digits, exponent = digits[:-1] or "0", exponent + 1
    if exponent > 0:
        digits, exponent = digits + "0" * exponent, 0
    return Decimal((int(sign == 0x4000), tuple(map(int, digits)), exponent))  # noqa: PLR2004


def _decode_moment(data: bytes, *, is_date: bool) -> date:
    try:
        if is_date:
            return date(1970, 1, 1) + timedelta(decode_day(_check_size(data, 4)))
        return datetime(1970, 1, 1) + timedelta(microseconds=decode_timestamp(_check_size(data, 8)))  # noqa: DTZ001 - as the data
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
