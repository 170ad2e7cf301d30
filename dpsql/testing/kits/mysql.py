"""MariaDB or MySQL at an address, with a new database for each set of tables."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from math import isfinite
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pymysql

from dpsql.engines import Engine
from dpsql.engines.mysql import MySQLEngine, read_address
from dpsql.errors import UsageError
from dpsql.testing.kit import Kit, rename_tables
from dpsql.testing.tables import fit_table

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.uint8(): "TINYINT UNSIGNED",
    pa.uint16(): "SMALLINT UNSIGNED",
    pa.uint32(): "INT UNSIGNED",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "TEXT",
    pa.date32(): "DATE",
    pa.timestamp("us"): "DATETIME(6)",
}
_DAYS = (-719_162, 2_932_896)  # 0001-01-01 and 9999-12-31


def _fit(table: pa.Table) -> pa.Table:
    """Return a table that can be stored; what queries compute of one with units may not leave calendar and DOUBLE."""
    if "user_id" in table.column_names:
        return _reach(table, margin=31, largest=1e300)
    return _reach(table, margin=1)


def _reach(table: pa.Table, *, margin: int = 0, largest: float = float("inf")) -> pa.Table:
    """Make NULL of days outside the calendar, `margin` days at its ends, and other DOUBLE; 0.0 of -0.0."""
    days = (_DAYS[0] + margin * (largest < float("inf")), _DAYS[1] - margin)
    moments = (days[0] * 86_400_000_000, (days[1] + 1) * 86_400_000_000 - 1)
    table = fit_table(table, days=days, moments=moments, infinite=False)
    for at, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            kept = [
                None if value is None or not isfinite(value) or abs(value) > largest else value + 0.0
                for value in table.column(at).to_pylist()
            ]
            table = table.set_column(at, field.name, pa.array(kept, field.type))
    return table


def _connect(url: str) -> pymysql.connections.Connection[Any]:
    return pymysql.connect(**read_address(url), charset="utf8mb4", autocommit=True)


def _open(tables: Mapping[str, pa.Table], *, url: str) -> Engine:
    database = f"kit_{uuid4().hex}"
    atexit.register(_drop, url, database)
    with _connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        for name, table in tables.items():
            columns = ", ".join(
                f"`{field.name}` {_TYPES.get(field.type) or _decimal(field.type)} NULL" for field in table.schema
            )
            cursor.execute(f"CREATE TABLE {database}.`{name}` ({columns})")
            rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
            marks = ", ".join(["%s"] * table.num_columns)
            cursor.executemany(f"INSERT INTO {database}.`{name}` VALUES ({marks})", rows)
    names = {f"{database}.{name}": name for name in tables}
    return rename_tables(MySQLEngine.open(url, dict.fromkeys(names), options={}), names)


def _drop(url: str, database: str) -> None:
    """Drop a database, if the server is still there."""
    with suppress(pymysql.Error), _connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {database}")


def _decimal(type_: pa.DataType) -> str:
    return f"DECIMAL({type_.precision}, {type_.scale})"


def create_kit(url: str | None = None) -> Kit:
    """Return the kit for the server at an address, where the user may create databases."""
    if url is None:
        hint = "Write --url mysql://user@host/database, of a user who may create databases."
        raise UsageError("kit-unknown", "The kit of MySQL needs an address.", hint=hint)
    return Kit("mysql", partial(_open, url=url), _fit, _reach, share=24, every=8)
