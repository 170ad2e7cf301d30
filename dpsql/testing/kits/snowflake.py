"""Snowflake at an address, with new tables in its schema for each set of tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from dpsql.engines import Engine
from dpsql.engines.snowflake import SnowflakeEngine
from dpsql.testing.kit import Kit
from dpsql.testing.kits.warehouse import (
    TableWriter,
    create_tables,
    fit_calendar,
    quote_backslashed,
    reach_calendar,
    require_url,
)

__all__ = ["create_kit"]

_WRITER = TableWriter(
    {
        pa.bool_(): "BOOLEAN",
        pa.int64(): "NUMBER(38, 0)",
        pa.float64(): "FLOAT",
        pa.string(): "VARCHAR",
        pa.date32(): "DATE",
        pa.timestamp("us"): "TIMESTAMP_NTZ(9)",
    },
    "NUMBER({0}, {1})",
    quote_backslashed,
    casts=False,
)


def create_kit(url: str | None = None, *, options: Mapping[str, str] | None = None) -> Kit:
    """Return the kit of the schema at `url`, in which the role may create tables. They stay there: drop the schema."""
    url = require_url(
        url, engine="Snowflake", form="snowflake://user:password@account/database/schema?warehouse=...&role=..."
    )
    return Kit("snowflake", partial(_open, url, options=options or {}), fit_calendar, reach_calendar)


def _open(url: str, tables: Mapping[str, pa.Table], *, options: Mapping[str, str]) -> Engine:
    return create_tables(SnowflakeEngine.open(url, {}, options=options), tables, writer=_WRITER)
