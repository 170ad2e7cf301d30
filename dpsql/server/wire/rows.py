"""Rows of an answer as messages: their types and values, those of a SELECT, of COPY ... TO STDOUT, and of EXPLAIN.

Rows of the session wait as Arrow until they are fetched, and are encoded as they are sent. Those of the catalog are
encoded already. Unsigned integers are widened, so that no value is cut; types that PostgreSQL lacks are sent as text.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final, Protocol
from xml.sax.saxutils import escape

import pyarrow as pa

from dpsql.server.catalog.system_catalog import (
    RowBlocks,
    WireColumn,
    encode_row,
    encode_rows,
    measure_columns,
    split_pieces,
    split_row,
)
from dpsql.server.limits import Holding, UserQuota
from dpsql.server.wire.codec import Malformed, WireError, message

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
            # PostgreSQL's modifier of numeric is 4 more than what it holds.
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
            # A number at either end is infinity, which has no unit.
            None if one is None else one if abs(one) >= _INFINITY else one * times // per
            for one in counts
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
    # PostgreSQL writes 1 for 1.0.
    return repr(value).removesuffix(".0").encode()


def encode_numeric(value: Decimal) -> bytes:
    """Encode a finite number as PostgreSQL's numeric: groups of four digits around the decimal point."""
    sign, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    text = "".join(map(str, digits)) + "0" * max(0, int(exponent))
    whole, part = (text[:-scale], text[-scale:].rjust(scale, "0")) if scale else (text, "")
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    part = part.ljust(-(-len(part) // 4) * 4, "0")
    # 12345.678 is the groups 1, 2345 and 6780, of weight 1.
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


_BATCH_VALUES, _BATCH_ROWS, _BATCH_BYTES = 4_000, 1_000, 128 * 1024  # of rows that are encoded together
_MAX_ROW = 16 << 20  # bytes, more than a private answer can have
_REVERSED = 50  # rows that are read together to be reversed
Values = tuple[bytes | None, ...]


class WireRows(Protocol):
    """Rows that can be read repeatedly, from any position."""

    @property
    def columns(self) -> tuple[WireColumn, ...]:
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
    def columns(self) -> tuple[WireColumn, ...]:
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
            yield from split_pieces([b"".join(map(encode_row, _encode_batch(part, formats)))])

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

    columns: tuple[WireColumn, ...]
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

    rows: WireRows
    start: int
    stop: int

    @property
    def columns(self) -> tuple[WireColumn, ...]:
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
            yield from split_pieces([b"".join(map(encode_row, part))])

    def _split(self, start: int, stop: int, *, formats: Sequence[int]) -> Iterator[list[Values]]:
        most = max(1, min(_REVERSED, _BATCH_VALUES // max(1, len(formats))))
        # Row number n of these is row number stop - 1 - n of the others.
        for end in range(self.stop - start, self.stop - stop, -most):
            yield list(self.rows.read(max(self.stop - stop, end - most), end, formats=formats))[::-1]


def count_rows(rows: WireRows, quota: UserQuota, *, is_free: bool = False) -> WireRows:
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


def cast_rows(rows: WireRows, schema: pa.Schema) -> WireRows:
    """Cast rows to the types that were described, which the values of parameters may have made narrower.

    Raise `WireError` where a value does not fit; the error does not contain the value.
    """
    if not isinstance(rows, ArrowRows) or rows.table.schema.types == schema.types:
        return rows
    try:
        return ArrowRows(rows.table.cast(schema))
    except (ArithmeticError, ValueError, NotImplementedError):  # the bases of Arrow's errors
        pass
    raise WireError("22003", "A value does not fit the described type.", hint="Cast it in the statement.")


def _encode_batch(part: pa.Table, formats: Sequence[int]) -> list[Values]:
    """Return the values of the rows of a table."""
    if not formats:
        return [()] * part.num_rows
    columns = [encode_column(column, code) for column, code in zip(part.columns, formats, strict=True)]
    return list(zip(*columns, strict=True))


_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = struct.pack("!h", -1)
_ESCAPES: Final = [(b"\\", b"\\\\"), (b"\n", b"\\n"), (b"\r", b"\\r"), (b"\t", b"\\t")]
_OPTIONS: Final = frozenset("format delimiter null header quote escape force_quote encoding freeze oids".split())
_TRUE, _FALSE = frozenset(["", "true", "on", "1"]), frozenset(["false", "off", "0"])


@dataclass(frozen=True, slots=True)
class CopyLayout:
    """Format and options of a COPY; `kind` is text, csv or binary, and CSV always quotes the `quoted` columns."""

    kind: str = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    quote: str = '"'
    escape: str = '"'
    quoted: tuple[str, ...] = ()

    @property
    def format(self) -> int:
        """The format of values: text (0) or binary (1)."""
        return int(self.kind == "binary")


def parse_layout(options: Mapping[str, str]) -> CopyLayout:
    """Return the layout for the options of a COPY; raise `WireError` for unsupported ones."""
    kind = options.get("format", "text").lower()
    if kind not in {"text", "csv", "binary"} or options.keys() - _OPTIONS:
        raise WireError(
            "0A000", "This option of COPY is not supported.", hint="COPY (SELECT ...) TO STDOUT (FORMAT csv, HEADER)."
        )
    if options.get("encoding", "utf8").lower().replace("-", "") != "utf8":
        raise WireError("0A000", "Only UTF-8 is supported.", hint="Leave ENCODING out.")
    header = options.get("header", "false").lower()
    quote = options.get("quote", '"')
    layout = CopyLayout(
        kind,
        options.get("delimiter", "," if kind == "csv" else "\t"),
        options.get("null", "" if kind == "csv" else "\\N"),
        header in _TRUE,
        quote,
        options.get("escape", quote),
        tuple(options["force_quote"].split("\0")) if "force_quote" in options else (),
    )
    signs = layout.delimiter, layout.quote, layout.escape
    if header not in _TRUE | _FALSE or any(len(sign.encode()) != 1 or sign in "\r\n" for sign in signs):
        raise WireError(
            "22023",
            "An option of COPY has an invalid value.",
            hint="DELIMITER, QUOTE and ESCAPE take one ASCII character.",
        )
    return layout


def copy_messages(
    rows: Iterator[Sequence[bytes | None]], columns: Sequence[WireColumn], *, layout: CopyLayout
) -> Iterator[bytes]:
    """Yield the messages of rows in pieces that may be sent one by one.

    In binary, the signature and the first row share a message, as ADBC's driver and ConnectorX expect.
    """
    count = struct.pack("!H", len(columns))

    def encode() -> Iterator[bytes]:
        if layout.kind == "binary":
            before = _SIGNATURE
            for row in rows:
                yield message(b"d", before, count, *split_row(row))
                before = b""
            yield message(b"d", before, _END)
            return
        write = _format_csv if layout.kind == "csv" else _format_text
        if layout.header:
            yield message(b"d", write([column.name.encode() for column in columns], columns, layout=layout))
        for row in rows:
            yield message(b"d", write(row, columns, layout=layout))

    return split_pieces(encode())


def _format_text(row: Sequence[bytes | None], _: Sequence[WireColumn], *, layout: CopyLayout) -> bytes:
    delimiter, cells = layout.delimiter.encode(), []
    for value in row:
        cell = layout.null.encode() if value is None else value
        if value is not None:
            # A tab as delimiter is among _ESCAPES already.
            for sign, escaped in (*_ESCAPES, (delimiter, b"\\" + delimiter))[: 5 if delimiter != b"\t" else 4]:
                cell = cell.replace(sign, escaped)
        cells.append(cell)
    return delimiter.join(cells) + b"\n"


def _format_csv(row: Sequence[bytes | None], columns: Sequence[WireColumn], *, layout: CopyLayout) -> bytes:
    quote, escape, delimiter = layout.quote.encode(), layout.escape.encode(), layout.delimiter.encode()
    special, cells = (quote, delimiter, b"\n", b"\r"), []
    for value, column in zip(row, columns, strict=True):
        if value is None:
            cells.append(layout.null.encode())
            continue
        is_forced = "*" in layout.quoted or column.name in layout.quoted
        is_end_mark = len(row) == 1 and value == rb"\."  # readers would take it for the end
        if is_forced or is_end_mark or value == layout.null.encode() or any(sign in value for sign in special):
            escaped = value if escape == quote else value.replace(escape, escape * 2)
            cells.append(quote + escaped.replace(quote, escape + quote) + quote)
        else:
            cells.append(value)
    return delimiter.join(cells) + b"\n"


Fact = tuple[str, str]
Node = dict[str, object]
_OIDS: Mapping[str, int] = {"TEXT": 25, "JSON": 114, "XML": 142}
_NAMESPACE = "http://www.postgresql.org/2009/explain"
_PART, _ENGINE = "private query", "engine SQL"  # the latter begins a name: there can be a second look
_OF_ALL = frozenset(["together", "around it"])  # facts of all private queries of a statement


def describe_plan(layout: str) -> tuple[WireColumn, ...]:
    """Return the one column of EXPLAIN in a layout."""
    return (WireColumn("QUERY PLAN", _OIDS[layout], -1, -1),)


def encode_plan(table: pa.Table, layout: str, *, formats: Sequence[int]) -> EncodedRows:
    """Return the facts of EXPLAIN, by property and value, in a layout: lines of text, or one document."""
    facts: list[Fact] = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    match layout:
        case "JSON":
            lines = [json.dumps([{"Plan": _build_tree(facts)}], indent=2, ensure_ascii=False)]
        case "XML":
            plan = "".join(_write_xml("Plan", _build_tree(facts), indent=4))
            lines = [f'<explain xmlns="{_NAMESPACE}">\n  <Query>\n{plan}  </Query>\n</explain>']
        case _:
            lines = [f"{name}: {value}" for name, value in facts]
    rows = encode_rows((line.encode(),) for line in lines)
    return EncodedRows(describe_plan(layout), rows, expand_formats(formats, 1))


def _build_tree(facts: Sequence[Fact]) -> Node:
    """Return the node of a statement; each of several private queries is a node below it."""
    starts = [at for at, (name, _) in enumerate(facts) if name == _PART]
    if not starts:
        return _build_node(facts)
    of_all = [fact for fact in facts if fact[0] in _OF_ALL]
    ends = [*starts[1:], len(facts)]
    parts = [
        _build_node([fact for fact in facts[start:end] if fact[0] not in _OF_ALL])
        for start, end in zip(starts, ends, strict=True)
    ]
    return {**_build_node(of_all), "Plans": parts}


def _build_node(facts: Sequence[Fact]) -> Node:
    """Return the facts of one private query as a node, and each query of the engine as one below it."""
    found = dict[str, list[str]]()
    for name, value in facts:
        found.setdefault(name, []).append(value)
    engine = [value for name in list(found) if name.startswith(_ENGINE) for value in found.pop(name)]
    node: Node = {"Node Type": " ".join(found.pop("mechanism", ["Result"])).replace("_", " ").title()}
    node |= {f"{name[0].upper()}{name[1:]}": each[0] if len(each) == 1 else each for name, each in found.items()}
    if engine:
        node["Plans"] = [{"Node Type": "Engine Query", "Parent Relationship": "Outer", "SQL": each} for each in engine]
    return node


def _write_xml(name: str, value: object, *, indent: int) -> Iterator[str]:
    """Yield the lines of an element; names have hyphens in place of spaces, as in PostgreSQL."""
    tag, margin = "".join(each if each.isalnum() else "-" for each in name), " " * indent
    if not isinstance(value, dict | list):
        yield f"{margin}<{tag}>{escape(str(value))}</{tag}>\n"
        return
    yield f"{margin}<{tag}>\n"
    item = "Plan" if name == "Plans" else "Item"
    items = value.items() if isinstance(value, dict) else [(item, each) for each in value]
    for inner, each in items:
        yield from _write_xml(inner, each, indent=indent + 2)
    yield f"{margin}</{tag}>\n"
