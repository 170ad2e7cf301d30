"""Snowflake at an address, with new tables in its schema for each set of tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from dpsql.engines import Engine
from dpsql.engines.snowflake.engine import SnowflakeEngine
from dpsql.errors import UsageError
from dpsql.testing.kit import Kit, rename_tables
from dpsql.testing.kits.warehouse import fit_calendar, list_statements, name_tables, quote_backslashed, reach_calendar

__all__ = ["create_kit"]

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int64(): "NUMBER(38, 0)",
    pa.float64(): "FLOAT",
    pa.string(): "VARCHAR",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ(9)",
}


def create_kit(url: str | None = None, *, options: Mapping[str, str] | None = None) -> Kit:
    """Return the kit of the schema at `url`, in which the role may create tables. They stay there: drop the schema."""
    if url is None:
        hint = "Write --url snowflake://user:password@account/database/schema?warehouse=...&role=..."
        raise UsageError("kit-unknown", "The kit of Snowflake needs an address.", hint=hint)
    return Kit("snowflake", partial(_open, url, options=options or {}), fit_calendar, reach_calendar)


def _open(url: str, tables: Mapping[str, pa.Table], *, options: Mapping[str, str]) -> Engine:
    names = name_tables(tables)
    engine = SnowflakeEngine.open(url, {}, options=options)
    with engine._connection.cursor() as cursor:  # noqa: SLF001 - for kits alone
        for full, name in names.items():
            for sql in list_statements(
                full, tables[name], types=_TYPES, decimal="NUMBER({0}, {1})", quote=quote_backslashed
            ):
                cursor.execute(sql)
    engine._tables = engine.look_up(names)  # noqa: SLF001 - for kits alone
    return rename_tables(engine, names)
