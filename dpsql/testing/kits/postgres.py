"""PostgreSQL at an address, with a new schema for each set of tables."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from uuid import uuid4

import psycopg
import pyarrow as pa

from dpsql.engines import Engine
from dpsql.engines.postgres import PostgresEngine
from dpsql.errors import UsageError
from dpsql.testing.kit import Kit, rename_tables
from dpsql.testing.tables import fit_table

_TYPES = {
    pa.bool_(): "boolean",
    pa.int16(): "int2",
    pa.int32(): "int4",
    pa.int64(): "int8",
    pa.float32(): "float4",
    pa.float64(): "float8",
    pa.string(): "text",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
}
_STORED = {pa.int8(): pa.int16(), pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_DAYS = (-2_440_588, 2_145_042_540)  # 4714-11-24 BC and 5874897-12-31
_MOMENTS = (-210_866_803_200_000_000, 9_223_371_331_199_999_999)
_ENDLESS = {2**31 - 1: "infinity", -(2**31) + 1: "-infinity", 2**63 - 1: "infinity", -(2**63) + 1: "-infinity"}


def _fit(table: pa.Table) -> pa.Table:
    return fit_table(table, stored=_STORED, days=_DAYS, moments=_MOMENTS, zero_bytes=False)


def _reach(table: pa.Table) -> pa.Table:
    return fit_table(table, days=_DAYS, moments=(_MOMENTS[0], 2**63 - 2))


def create_kit(url: str | None = None) -> Kit:
    """Return the kit of the PostgreSQL at `url`; each engine has a schema of its own, which is dropped at the end."""
    if url is None:
        hint = "Write --url postgresql://user@host/database; the user needs the right to create schemas there."
        raise UsageError("kit-unknown", "The kit of PostgreSQL needs an address.", hint=hint)
    types = ("BLOB", "ENUM", "UUID", "NUMERIC", "TIMESTAMP WITH TIME ZONE")
    return Kit("postgres", partial(_open, url), _fit, _reach, types=types)


def _open(url: str, tables: Mapping[str, pa.Table]) -> Engine:
    schema = f"dpsql_suite_{uuid4().hex[:12]}"
    atexit.register(_drop, url, schema)
    with psycopg.connect(url, autocommit=True) as connection:
        _run(connection, f'CREATE SCHEMA "{schema}"')
        for name, table in tables.items():
            columns = ", ".join(
                f'"{field.name}" {_TYPES.get(field.type, _decimal(field.type))}' for field in table.schema
            )
            _run(connection, f'CREATE TABLE "{schema}"."{name}" ({columns})')
            with connection.cursor().copy(f'COPY "{schema}"."{name}" FROM STDIN'.encode()) as copy:
                for row in zip(*map(_texts, table.columns), strict=True):
                    copy.write_row(row)
    names = {f"{schema}.{name}": name for name in tables}
    return rename_tables(PostgresEngine.open(url, dict.fromkeys(names), options={}), names)


def _drop(url: str, schema: str) -> None:
    """Drop a schema, if the server is still there."""
    with suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as connection:
        _run(connection, f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


def _run(connection: psycopg.Connection[tuple[object, ...]], statement: str) -> None:
    connection.execute(statement.encode())


def _decimal(type_: pa.DataType) -> str:
    return f"numeric({type_.precision}, {type_.scale})" if pa.types.is_decimal(type_) else ""


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return the values as PostgreSQL reads them."""
    values = column.combine_chunks()
    if pa.types.is_date32(values.type):
        return [_moment(days, 86_400_000_000, type_="DATE") for days in values.view(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(values.type):
        return [_moment(at, 1, type_="TIMESTAMP") for at in values.view(pa.int64()).to_pylist()]
    return [None if value is None else str(value) for value in values.to_pylist()]


def _moment(number: int | None, width: int, *, type_: str) -> str | None:
    """Return a date or time stamp, of which a month before our era is the year 1 BC, as PostgreSQL reads it."""
    if number is None or number in _ENDLESS:
        return None if number is None else _ENDLESS[number]
    days, rest = divmod(number * width, 86_400_000_000)
    year, month, day = _civil(days)
    second, micro = divmod(rest, 1_000_000)
    era = f" {'BC' if year <= 0 else ''}".rstrip()
    clock = "" if type_ == "DATE" else f" {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{micro:06}"
    return f"{1 - year if year <= 0 else year:04}-{month:02}-{day:02}{clock}{era}"


def _civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a day since 1970 in the Gregorian calendar, beyond Python's dates too."""
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    return year + era * 400 + (month >= 10), month + 3 if month < 10 else month - 9, day
