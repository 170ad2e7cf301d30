"""Types of PEP 249: type codes of columns, the objects that they equal, and constructors of values."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "ColumnDescription",
    "Date",
    "DateFromTicks",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "describe_columns",
]

ColumnDescription = tuple[str, str, None, int | None, int | None, int | None, None]

_CODES = {
    "null": "NULL",
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "large_string": "VARCHAR",
    "string_view": "VARCHAR",
    "binary": "BLOB",
    "large_binary": "BLOB",
    "binary_view": "BLOB",
    "date32[day]": "DATE",
    "timestamp[us]": "TIMESTAMP",
}


@dataclass(frozen=True, slots=True, eq=False)
class TypeObject:
    """Object of PEP 249 that equals several type codes: `cursor.description[0][1] == STRING`."""

    codes: frozenset[str]

    def __eq__(self, other: object) -> bool:
        return other in self.codes if isinstance(other, str) else self is other

    __hash__ = None  # type: ignore[assignment]  # it equals several texts, whose hashes differ


STRING = TypeObject(frozenset(["VARCHAR"]))
BINARY = TypeObject(frozenset(["BLOB"]))
NUMBER = TypeObject(
    frozenset(
        "BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT FLOAT DOUBLE DECIMAL".split()
    )
)
DATETIME = TypeObject(frozenset(["DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"]))
ROWID = TypeObject(frozenset())  # released rows have no identity

Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:
    """Return the local date at a number of seconds after the epoch."""
    return TimestampFromTicks(ticks).date()


def TimeFromTicks(ticks: float) -> dt.time:
    """Return the local time of day at a number of seconds after the epoch."""
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> dt.datetime:
    """Return the local time at a number of seconds after the epoch, without a zone, as a TIMESTAMP of DuckDB."""
    return dt.datetime.fromtimestamp(ticks)  # noqa: DTZ006 - PEP 249 means local time


def describe_columns(table: pa.Table) -> tuple[ColumnDescription, ...]:
    """Return the description of each column that PEP 249 defines.

    It has the name, DuckDB's name of the type, the bytes of an integer or a float, and the precision and scale of a
    DECIMAL.
    """
    return tuple(_describe_column(field) for field in table.schema)


def _describe_column(field: pa.Field) -> ColumnDescription:
    import pyarrow as pa

    if pa.types.is_decimal(field.type):
        return field.name, "DECIMAL", None, None, field.type.precision, field.type.scale, None
    zoned = pa.types.is_timestamp(field.type) and field.type.tz is not None
    code = "TIMESTAMP WITH TIME ZONE" if zoned else _CODES.get(str(field.type), str(field.type).upper())
    numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    return field.name, code, None, field.type.bit_width // 8 if numeric else None, None, None, None
