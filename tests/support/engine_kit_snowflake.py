"""Snowflake as the tests of conformance use it: a schema of its own in fakesnow, or in the account of an address.

`DPSQL_SNOWFLAKE_URL` is such an address, of a schema in which the role may create tables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count

import pyarrow as pa
from support.engine_kits import Kit
from support.snowflake_kit import start_fakesnow
from support.warehouse_tables import DAYS, MOMENTS, fit_calendar, list_statements, quote_backslashed

from dpsql.engines import Engine
from dpsql.engines.snowflake.engine import SnowflakeEngine
from support.engine_tables import fitted

__all__ = ["KIT"]

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int64(): "NUMBER(38, 0)",
    pa.float64(): "FLOAT",
    pa.string(): "VARCHAR",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ(9)",
}
_NUMBER = count(1)


def _reach(table: pa.Table) -> pa.Table:
    return fitted(table, days=DAYS, moments=MOMENTS, infinite=False)


def address() -> tuple[str, dict[str, str]]:
    """Return the address of a schema, and the options of the driver."""
    if url := os.environ.get("DPSQL_SNOWFLAKE_URL"):
        return url, {}
    name = "adbc.snowflake.sql.uri."
    options = {f"{name}host": "127.0.0.1", f"{name}port": str(start_fakesnow()), f"{name}protocol": "http"}
    return "snowflake://analyst:secret@fakesnow/SHOP/PUBLIC", options


def _open(tables: Mapping[str, pa.Table]) -> Engine:
    url, options = address()
    prefix = f"dpsql_{os.getpid()}_{next(_NUMBER)}_"
    engine = SnowflakeEngine.open(url, {}, options=options)
    with engine._connection.cursor() as cursor:
        if options:
            cursor.execute("CREATE SCHEMA IF NOT EXISTS SHOP.PUBLIC")
        for name, table in tables.items():
            for sql in list_statements(
                prefix + name, table, types=_TYPES, decimal="NUMBER({0}, {1})", quote=quote_backslashed
            ):
                cursor.execute(sql)
    engine._tables = engine.look_up(f"{prefix}{name}" for name in tables)
    engine._tables = {name.removeprefix(prefix): table for name, table in engine._tables.items()}
    return engine


KIT = Kit("snowflake", _open, fit_calendar, _reach)
