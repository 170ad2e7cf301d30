"""Rows of an answer: their columns as PostgreSQL describes them, and their values as text and as binary.

Rows of the session wait as Arrow until they are fetched, and are encoded as they are sent. Unsigned integers are
widened, so that no value is cut; types that PostgreSQL lacks are sent as text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Protocol

import pyarrow as pa

from dpsql.server.catalog.protocol import measure_columns
from dpsql.server.memory_quota import Holding, UserQuota
from dpsql.server.row_blocks import RowBlocks, encode_rows
from dpsql.server.wire.calendar import encode_day, encode_timestamp, format_day, format_time, format_timestamp
from dpsql.server.wire.codec import Column, Malformed
from dpsql.server.wire.sqlstates import WireError

__all__ = [
    "OIDS",
    "ArrowRows",
    "EncodedRows",
    "ReversedRows",
    "Rows",
    "cast_rows",
    "count_rows",
    "describe_columns",
    "encode_column",
    "encode_numeric",
    "expand_formats",
]

OIDS = {
    "bool": 16, "bytea": 17, "int8": 20, "int2": 21, "int4": 23, "text": 25, "float4": 700, "float8": 701,
    "unknown": 705, "varchar": 1043, "date": 1082, "time": 1083, "timestamp": 1114, "timestamptz": 1184,
    "numeric": 1700,
}  # fmt: skip
_SIZES = {16: 1, 20: 8, 21: 2, 23: 4, 701: 8, 1082: 4, 1083: 8, 1114: 8, 1184: 8}
_MICROSECONDS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
_INFINITY = 2**63 - 1
_BATCH_VALUES, _BATCH_ROWS, _BATCH_BYTES = 4_000, 1_000, 128 * 1024  # of rows that are encoded together
_MAX_ROW = 16 << 20  # bytes, more than a private answer can have
_REVERSED = 50  # rows that are read together to be reversed
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
Values = tuple[bytes | None, ...]


class Rows(Protocol):
    """Rows that can be read repeatedly, from any position."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the rows."""
        ...

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int, *, formats: Sequence[int]) -> Iterator[Values]:
        """Yield the rows from `start` up to `stop`, each column in its format."""
        ...

    def messages(self, start: int, stop: int, *, formats: Sequence[int]) -> Iterator[bytes]:
        """Yield the messages of the rows from `start` up to `stop`, in pieces that may be sent one by one."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ArrowRows:
    """Rows in an Arrow table, encoded as they are read; `holding` counts their memory."""

    table: pa.Table
    holding: Holding | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the rows."""
        return describe_columns(self.table.schema)

    @property
    def size(self) -> int:
        """The bytes that the table holds."""
        return int(self.table.get_total_buffer_size()) + measure_columns(self.table.schema)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def read(self, start: int, stop: int, *, formats: Sequence[int]) -> Iterator[Values]:
        """Yield the rows from `start` up to `stop`, each column in its format."""
        for part in self._split(start, stop):
            yield from _encode_batch(part, formats)

    def messages(self, start: int, stop: int, *, formats: Sequence[int]) -> Iterator[bytes]:
        """Yield the messages of the rows from `start` up to `stop`, each column in its format."""
        for part in self._split(start, stop):  # of a batch, only its messages wait until they are sent
            rows = encode_rows(_encode_batch(part, formats))
            yield from rows.messages(0, len(rows))

    def _split(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield batches of the rows, each of one row or of at most `_BATCH_BYTES` bytes."""
        most = max(1, min(_BATCH_ROWS, _BATCH_VALUES // max(1, self.table.num_columns)))
        while start < stop:
            part = self.table.slice(start, min(most, stop - start))
            while part.num_rows > 1 and part.nbytes > _BATCH_BYTES:
                part = part.slice(0, part.num_rows // 2)
            if part.nbytes > _MAX_ROW:
                raise WireError("54000", "A row is too long.", hint="Select fewer columns, or shorter texts.")
            yield part
            start += part.num_rows


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRows:
    """Rows that are encoded, each column in its one of `formats`; `holding` counts their memory."""

    columns: tuple[Column, ...]
    rows: RowBlocks
    formats: tuple[int, ...] = ()
    holding: Holding | None = None

    @property
    def size(self) -> int:
        """The bytes that the rows hold."""
        return self.rows.size + measure_columns(self.columns)

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, start: int, stop: int, *, formats: Sequence[int]) -> Iterator[Values]:
        """Yield the rows from `start` up to `stop`; raise `WireError` for formats other than the encoded ones."""
        self._check_formats(formats)
        yield from self.rows.read(start, stop)

    def messages(self, start: int, stop: int, *, formats: Sequence[int]) -> Iterator[bytes]:
        """Yield the messages of the rows from `start` up to `stop`; raise as `read` does."""
        self._check_formats(formats)
        yield from self.rows.messages(start, stop)

    def _check_formats(self, formats: Sequence[int]) -> None:
        if tuple(formats) != expand_formats(self.formats, len(self.columns)):
            hint = "Fetch them in the format of the first fetch."
            raise WireError("0A000", "These rows are already encoded in another format.", hint=hint)


@dataclass(frozen=True, slots=True, eq=False)
class ReversedRows:
    """The rows of others from `start` up to `stop`, the last one first; they are read a few at a time."""

    rows: Rows
    start: int
    stop: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the rows."""
        return self.rows.columns

    def __len__(self) -> int:
        return self.stop - self.start

    def read(self, start: int, stop: int, *, formats: Sequence[int]) -> Iterator[Values]:
        """Yield the rows from `start` up to `stop`, each column in its format."""
        for part in self._split(start, stop, formats=formats):
            yield from part

    def messages(self, start: int, stop: int, *, formats: Sequence[int]) -> Iterator[bytes]:
        """Yield the messages of the rows from `start` up to `stop`, each column in its format."""
        for part in self._split(start, stop, formats=formats):
            rows = encode_rows(part)
            yield from rows.messages(0, len(rows))

    def _split(self, start: int, stop: int, *, formats: Sequence[int]) -> Iterator[list[Values]]:
        most = max(1, min(_REVERSED, _BATCH_VALUES // max(1, len(formats))))
        for end in range(self.stop - start, self.stop - stop, -most):
            yield list(self.rows.read(max(self.stop - stop, end - most), end, formats=formats))[::-1]


def count_rows(rows: Rows, quota: UserQuota, *, is_free: bool = False) -> Rows:
    """Return rows that are counted for as long as something refers to them, unless they are counted already.

    Rows of the session are counted when they have arrived. Raise `WireError` for too many free ones, and for free ones
    beyond the quota unless the user holds little else; rows that were charged are never refused.
    """
    match rows:
        case ArrowRows(holding=None) | EncodedRows(holding=None):
            if is_free and rows.size > quota.max_answer:
                raise WireError("54000", "The answer is too large.", hint="Add a WHERE or a LIMIT.")
            return replace(rows, holding=quota.hold(rows.size, is_forced=not is_free or quota.has_room))
    return rows


def cast_rows(rows: Rows, schema: pa.Schema | None) -> Rows:
    """Cast rows to the types that were described, which the values of parameters may have made narrower.

    Raise `WireError` where a value does not fit; the error does not contain the value.
    """
    if schema is None or not isinstance(rows, ArrowRows) or rows.table.schema.types == schema.types:
        return rows
    try:
        return ArrowRows(rows.table.cast(schema))
    except (ArithmeticError, ValueError, NotImplementedError):  # the bases of Arrow's errors
        pass
    raise WireError("22003", "A value does not fit the described type.", hint="Cast it in the statement.")


def expand_formats(codes: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the format of each of `count` values from the codes of a Bind: none, one for all, or one for each."""
    for code in codes:
        if code not in {0, _BINARY_FORMAT}:
            raise WireError("22023", "A format is neither text (0) nor binary (1).")
    if len(codes) > 1 and len(codes) != count:
        raise Malformed("The number of formats differs from the number of values.")
    return (tuple(codes) or (0,)) * count if len(codes) < 2 else tuple(codes)  # noqa: PLR2004


def describe_columns(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of a schema as PostgreSQL describes them."""
    columns = []
    for field in schema:
        oid = _find_oid(field.type)
        modifier = -1
        if oid == OIDS["numeric"] and pa.types.is_decimal(field.type):
            modifier = (field.type.precision << 16 | field.type.scale) + 4
        columns.append(Column(field.name, oid, _SIZES.get(oid, -1), modifier))
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


def encode_column(column: pa.ChunkedArray, code: int) -> list[bytes | None]:
    """Return the values of a column, in text (0) or binary (1); None is NULL."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encode = (_BINARY if code else _TEXT).get(_find_oid(column.type), _encode_text)
    return [None if value is None else encode(value) for value in _read_values(column)]


def _encode_batch(part: pa.Table, formats: Sequence[int]) -> list[Values]:
    """Return the values of the rows of a table."""
    if not formats:
        return [()] * part.num_rows
    columns = [encode_column(column, code) for column, code in zip(part.columns, formats, strict=True)]
    return list(zip(*columns, strict=True))


def _read_values(column: pa.ChunkedArray) -> Sequence[object]:
    """Return the Python values of a column; dates and times are counts of days and microseconds."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        times, per = _MICROSECONDS[kind.unit]
        counts: Sequence[int | None] = column.cast(pa.int64()).to_pylist()
        return [None if one is None else one if abs(one) >= _INFINITY else one * times // per for one in counts]
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_time64(kind):
        return column.cast(pa.time64("us")).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_uint64(kind):
        return [None if one is None else Decimal(one) for one in column.to_pylist()]
    return column.to_pylist()  # type: ignore[no-any-return]


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


_TEXT: dict[int, Callable[..., bytes]] = {
    OIDS["bool"]: lambda value: b"t" if value else b"f",
    OIDS["bytea"]: lambda value: b"\\x" + value.hex().encode(),
    OIDS["float8"]: _format_float,
    OIDS["numeric"]: lambda value: format(value, "f").encode(),
    OIDS["date"]: lambda value: format_day(value).encode(),
    OIDS["time"]: lambda value: format_time(value).encode(),
    OIDS["timestamp"]: lambda value: format_timestamp(value).encode(),
    OIDS["timestamptz"]: lambda value: format_timestamp(value, zone="+00").encode(),
}
_BINARY: dict[int, Callable[..., bytes]] = {
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
