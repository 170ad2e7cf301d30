"""Databricks at an address, with new tables in its schema for each set of tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from dpsql.engines import Engine
from dpsql.engines.databricks.engine import DatabricksEngine
from dpsql.errors import UsageError
from dpsql.testing.kit import Kit, rename_tables
from dpsql.testing.kits.warehouse import fit_calendar, list_statements, name_tables, quote_backslashed, reach_calendar

__all__ = ["create_kit"]

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}


def create_kit(url: str | None = None, *, options: Mapping[str, str] | None = None) -> Kit:
    """Return the kit of the schema at `url`, in which the user may create tables. They stay there."""
    if url is None:
        hint = "Write --url databricks://token:TOKEN@host/catalog/schema?http_path=..."
        raise UsageError("kit-unknown", "The kit of Databricks needs an address.", hint=hint)
    return Kit("databricks", partial(_open, url, options=options or {}), fit_calendar, reach_calendar)


def _open(url: str, tables: Mapping[str, pa.Table], *, options: Mapping[str, str]) -> Engine:
    names = name_tables(tables)
    engine = DatabricksEngine.open(url, {}, options=options)
    with engine._connection.cursor() as cursor:  # noqa: SLF001 - for kits alone
        for full, name in names.items():
            made = list_statements(
                full, tables[name], types=_TYPES, decimal="DECIMAL({0}, {1})", quote=quote_backslashed, casts=True
            )
            for sql in made:
                cursor.execute(sql)
    engine._tables = engine.look_up(names)  # noqa: SLF001 - for kits alone
    return rename_tables(engine, names)
