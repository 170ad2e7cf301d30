"""Trino at an address, with new tables in its schema for each set of tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from dpsql.engines import Engine
from dpsql.engines.trino.engine import TrinoEngine
from dpsql.errors import UsageError
from dpsql.testing.kit import Kit, rename_tables
from dpsql.testing.kits.warehouse import fit_calendar, list_statements, name_tables, quote_standard, reach_calendar

__all__ = ["create_kit"]

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP(6)",
}
_OWN = frozenset(["bound_five_of_decimals"])  # the draw is of decimals as they are printed


def create_kit(url: str | None = None, *, options: Mapping[str, str] | None = None) -> Kit:
    """Return the kit of the schema at `url`, in which the user may create tables. They stay there."""
    if url is None:
        hint = "Write --url trino://user@host:8080/memory/default"
        raise UsageError("kit-unknown", "The kit of Trino needs an address.", hint=hint)
    return Kit("trino", partial(_open, url, options=options or {}), fit_calendar, reach_calendar, own=_OWN)


def _open(url: str, tables: Mapping[str, pa.Table], *, options: Mapping[str, str]) -> Engine:
    names = name_tables(tables)
    engine = TrinoEngine.open(url, {}, options=options)
    with engine._connection.cursor() as cursor:  # noqa: SLF001 - for kits alone
        for full, name in names.items():
            made = list_statements(
                full, tables[name], types=_TYPES, decimal="DECIMAL({0}, {1})", quote=quote_standard, casts=True
            )
            for sql in made:
                cursor.execute(sql)
                cursor.fetchall()
    engine._tables = engine.look_up(names)  # noqa: SLF001 - for kits alone
    return rename_tables(engine, names)
