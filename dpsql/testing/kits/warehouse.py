"""Tables of the conformance suite in warehouses: their calendar, and a CREATE TABLE with INSERTs of literals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from uuid import uuid4

import pyarrow as pa

from dpsql.testing.tables import fit_table

__all__ = [
    "DAYS",
    "MOMENTS",
    "fit_calendar",
    "list_statements",
    "list_texts",
    "name_tables",
    "quote_backslashed",
    "quote_standard",
    "reach_calendar",
]

_DAY = 86_400_000_000
DAYS = (-719_162, 2_932_896)  # 0001-01-01 and 9999-12-31
MOMENTS = (DAYS[0] * _DAY, (DAYS[1] + 1) * _DAY - 1)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a time stamp without a zone
_WHOLE = {each: pa.int64() for each in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32())}
_ROWS = 500  # in one INSERT


def fit_calendar(table: pa.Table, *, stored: Mapping[pa.DataType, pa.DataType] | None = None) -> pa.Table:
    """Return a table for a warehouse of the years 1 to 9999, without characters of code 0; one size of whole numbers.

    `stored` replaces more types, or these by others.
    """
    types = {**_WHOLE, pa.float32(): pa.float64(), **(stored or {})}
    week = 7  # the suite adds days, and what passes the end is NULL
    return fit_table(
        table, stored=types, days=(DAYS[0], DAYS[1] - week), moments=MOMENTS, infinite=False, zero_bytes=False
    )


def reach_calendar(table: pa.Table) -> pa.Table:
    """Return what DuckDB computes without the days and time stamps that the calendar does not reach."""
    return fit_table(table, days=DAYS, moments=MOMENTS, infinite=False)


def name_tables(tables: Mapping[str, pa.Table]) -> dict[str, str]:
    """Return names for tables in a schema of others, each with the name of the suite."""
    prefix = f"dpsql_suite_{uuid4().hex[:12]}_"
    return {prefix + name: name for name in tables}


def list_statements(
    name: str,
    table: pa.Table,
    *,
    types: Mapping[pa.DataType, str],
    decimal: str,
    quote: Callable[[str], str],
    casts: bool = False,
) -> Iterator[str]:
    """Yield the statements that make a table, already with its quoted name, from `table`, which the engine can store.

    `decimal` is the name of a type of numbers, with {0} and {1} for its digits; `quote` writes a text as a literal.
    With `casts`, texts are not put into columns of other types without a cast.
    """
    kinds = [_name(field.type, types=types, decimal=decimal) for field in table.schema]
    pairs = [*zip(table.column_names, kinds, strict=True)]
    yield f"CREATE TABLE {name} ({', '.join(f'{column} {kind}' for column, kind in pairs)})"
    rows = [*zip(*(list_texts(column) for column in table.columns), strict=True)]
    names = [f"v{at}" for at in range(len(pairs))]
    shown = ", ".join(f"CAST({each} AS {kind})" for each, kind in zip(names, kinds, strict=True))
    for at in range(0, len(rows), _ROWS):
        values = ", ".join(
            f"({', '.join('NULL' if value is None else quote(value) for value in row)})"
            for row in rows[at : at + _ROWS]
        )
        source = f"SELECT {shown} FROM (VALUES {values}) AS v ({', '.join(names)})" if casts else f"VALUES {values}"
        yield f"INSERT INTO {name} {source}"


def quote_standard(text: str) -> str:
    """Return a text as a literal of standard SQL."""
    return "'" + text.replace("'", "''") + "'"


def quote_backslashed(text: str) -> str:
    """Return a text as a literal in which a backslash escapes."""
    special = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "'" + "".join(special.get(each, each) for each in text) + "'"


def _name(type_: pa.DataType, *, types: Mapping[pa.DataType, str], decimal: str) -> str:
    return decimal.format(type_.precision, type_.scale) if pa.types.is_decimal(type_) else types[type_]


def list_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return the values of a column as texts, dates and time stamps as ISO 8601 has them."""
    values = column.combine_chunks()
    if pa.types.is_date32(values.type):
        return [_day(each) for each in values.view(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(values.type):
        return [_moment(each) for each in values.view(pa.int64()).to_pylist()]
    if pa.types.is_floating(values.type):
        return [None if each is None else repr(each).replace("inf", "Infinity") for each in values.to_pylist()]
    return [
        None if each is None else str(each).lower() if isinstance(each, bool) else str(each)
        for each in values.to_pylist()
    ]


def _day(number: int | None) -> str | None:
    return None if number is None else (_EPOCH + timedelta(days=number)).strftime("%Y-%m-%d").rjust(10, "0")


def _moment(number: int | None) -> str | None:
    if number is None:
        return None
    return (_EPOCH + timedelta(microseconds=number)).isoformat(sep=" ", timespec="microseconds")
