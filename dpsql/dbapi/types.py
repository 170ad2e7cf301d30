"""Types as PEP 249 names them: codes of described columns, the objects that they equal, and constructors of values."""

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
    "Date",
    "DateFromTicks",
    "Described",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "described",
]

Described = tuple[str, str, None, int | None, int | None, int | None, None]

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
    """What equals the codes of several column types, as PEP 249 wants it: `cursor.description[0][1] == STRING`."""

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
ROWID = TypeObject(frozenset())  # a row that is released has no identity

Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:
    """Return the local date so many seconds after the epoch."""
    return TimestampFromTicks(ticks).date()


def TimeFromTicks(ticks: float) -> dt.time:
    """Return the local time of day so many seconds after the epoch."""
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> dt.datetime:
    """Return the local time so many seconds after the epoch; like a TIMESTAMP of DuckDB it names no zone."""
    return dt.datetime.fromtimestamp(ticks)  # noqa: DTZ006 - PEP 249 means the local one


def described(table: pa.Table) -> tuple[Described, ...]:
    """Return what PEP 249 says of each column.

    Its name, DuckDB's name of the type, the bytes of a whole number or a float, a DECIMAL's precision and scale.
    """
    return tuple(_described(field) for field in table.schema)


def _described(field: pa.Field) -> Described:
    import pyarrow as pa

    if pa.types.is_decimal(field.type):
        return field.name, "DECIMAL", None, None, field.type.precision, field.type.scale, None
    zoned = pa.types.is_timestamp(field.type) and field.type.tz is not None
    code = "TIMESTAMP WITH TIME ZONE" if zoned else _CODES.get(str(field.type), str(field.type).upper())
    numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    return field.name, code, None, field.type.bit_width // 8 if numeric else None, None, None, None
