"""Tables of the conformance suite in warehouses: their calendar, and a CREATE TABLE with INSERTs of literals.

A kit makes new tables in the schema of its address for each set of tables, and leaves them there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa

from dpsql.engines import Engine
from dpsql.engines.warehouse import ConnectedWarehouse
from dpsql.errors import UsageError
from dpsql.testing.kit import rename_tables
from dpsql.testing.tables import fit_table

__all__ = [
    "DAYS",
    "MOMENTS",
    "TableWriter",
    "create_tables",
    "fit_calendar",
    "list_texts",
    "name_tables",
    "quote_backslashed",
    "quote_standard",
    "reach_calendar",
    "require_url",
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


def quote_standard(text: str) -> str:
    """Return a text as a literal of standard SQL."""
    return "'" + text.replace("'", "''") + "'"


def quote_backslashed(text: str) -> str:
    """Return a text as a literal in which a backslash escapes."""
    special = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "'" + "".join(special.get(each, each) for each in text) + "'"


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Writer of the statements that make a table in a warehouse.

    `types` are its names of types; `decimal` is that of numbers, with {0} and {1} for their digits; `quote` writes a
    text as a literal. With `casts`, texts are not put into columns of other types without a cast.
    """

    types: Mapping[pa.DataType, str]
    decimal: str = "DECIMAL({0}, {1})"
    quote: Callable[[str], str] = quote_standard
    casts: bool = True

    def list_statements(self, name: str, table: pa.Table) -> Iterator[str]:
        """Yield the statements that make a table from `table`, which the engine can store; no name needs quotes."""
        kinds = [self._name_type(field.type) for field in table.schema]
        pairs = [*zip(table.column_names, kinds, strict=True)]
        yield f"CREATE TABLE {name} ({', '.join(f'{column} {kind}' for column, kind in pairs)})"
        rows = [*zip(*(list_texts(column) for column in table.columns), strict=True)]
        names = [f"v{at}" for at in range(len(pairs))]
        shown = ", ".join(f"CAST({each} AS {kind})" for each, kind in zip(names, kinds, strict=True))
        for at in range(0, len(rows), _ROWS):
            values = ", ".join(
                f"({', '.join('NULL' if value is None else self.quote(value) for value in row)})"
                for row in rows[at : at + _ROWS]
            )
            source = f"SELECT {shown} FROM (VALUES {values}) AS v ({', '.join(names)})"
            yield f"INSERT INTO {name} {source if self.casts else f'VALUES {values}'}"

    def _name_type(self, type_: pa.DataType) -> str:
        if pa.types.is_decimal(type_):
            return self.decimal.format(type_.precision, type_.scale)
        return self.types[type_]


def create_tables(
    engine: ConnectedWarehouse,
    tables: Mapping[str, pa.Table],
    *,
    writer: TableWriter,
    finish: Callable[[Any], object] = lambda _: None,
) -> Engine:
    """Make tables over the connection of an engine, and return it with them, by the names of the suite.

    `finish` takes the cursor of a statement to its end, where `execute` alone does not.
    """
    names = name_tables(tables)
    with engine._connection.cursor() as cursor:  # noqa: SLF001 - for kits alone
        for full, name in names.items():
            for sql in writer.list_statements(full, tables[name]):
                cursor.execute(sql)
                finish(cursor)
    engine._tables = engine.look_up(names)  # noqa: SLF001 - for kits alone
    return rename_tables(engine, names)


def require_url(url: str | None, *, engine: str, form: str) -> str:
    """Return the address of a kit. Raises `UsageError` where there is none; `form` is that of its addresses."""
    if url is None:
        hint = f"Write --url {form}"
        raise UsageError("kit-unknown", f"The kit of {engine} needs an address.", hint=hint)
    return url


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
