"""Trino at an address, with new tables in its schema for each set of tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from dpsql.engines import Engine
from dpsql.engines.trino import TrinoEngine
from dpsql.testing.kit import Kit
from dpsql.testing.kits.warehouse import TableWriter, create_tables, fit_calendar, reach_calendar, require_url

__all__ = ["create_kit"]

_WRITER = TableWriter(
    {
        pa.bool_(): "BOOLEAN",
        pa.int64(): "BIGINT",
        pa.float64(): "DOUBLE",
        pa.string(): "VARCHAR",
        pa.date32(): "DATE",
        pa.timestamp("us"): "TIMESTAMP(6)",
    }
)
_OWN = frozenset(["bound_five_of_decimals"])  # the draw is of decimals as they are printed


def create_kit(url: str | None = None, *, options: Mapping[str, str] | None = None) -> Kit:
    """Return the kit of the schema at `url`, in which the user may create tables. They stay there."""
    url = require_url(url, engine="Trino", form="trino://user@host:8080/memory/default")
    return Kit("trino", partial(_open, url, options=options or {}), fit_calendar, reach_calendar, own=_OWN)


def _open(url: str, tables: Mapping[str, pa.Table], *, options: Mapping[str, str]) -> Engine:
    return create_tables(
        TrinoEngine.open(url, {}, options=options), tables, writer=_WRITER, finish=lambda cursor: cursor.fetchall()
    )
