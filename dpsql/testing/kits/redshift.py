"""Redshift at an address, with new tables in its schema for each set of tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.engines import Engine
from dpsql.engines.redshift.engine import RedshiftEngine
from dpsql.errors import UsageError
from dpsql.testing.kit import Kit, rename_tables
from dpsql.testing.kits.warehouse import fit_calendar, list_statements, name_tables, quote_standard, reach_calendar

__all__ = ["create_kit"]

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE PRECISION",
    pa.string(): "VARCHAR(12000)",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
}
_OWN = frozenset(["domain_listed", "known_listed"])  # what is listed as 'de ' is 'de' there


def _fit(table: pa.Table) -> pa.Table:
    """Return a table with NULL for texts that end with a blank, which does not count there."""
    fitted = fit_calendar(table)
    for at, field in enumerate(fitted.schema):
        if pa.types.is_string(field.type):
            ends = pc.ends_with(fitted.column(at), pattern=" ")
            fitted = fitted.set_column(
                at, field.name, pc.if_else(ends, pa.scalar(None, pa.string()), fitted.column(at))
            )
    return fitted


def create_kit(url: str | None = None, *, options: Mapping[str, str] | None = None) -> Kit:
    """Return the kit of the database at `url`, in which the user may create tables. They stay there."""
    if url is None:
        hint = "Write --url redshift://user:password@host:5439/database"
        raise UsageError("kit-unknown", "The kit of Redshift needs an address.", hint=hint)
    return Kit("redshift", partial(_open, url, options=options or {}), _fit, reach_calendar, own=_OWN)


def _open(url: str, tables: Mapping[str, pa.Table], *, options: Mapping[str, str]) -> Engine:
    names = name_tables(tables)
    engine = RedshiftEngine.open(url, {}, options=options)
    with engine._connection.cursor() as cursor:  # noqa: SLF001 - for kits alone
        for full, name in names.items():
            made = list_statements(
                full, tables[name], types=_TYPES, decimal="DECIMAL({0}, {1})", quote=quote_standard, casts=True
            )
            for sql in made:
                cursor.execute(sql)
    engine._tables = engine.look_up(names)  # noqa: SLF001 - for kits alone
    return rename_tables(engine, names)
