"""Redshift at an address, with new tables in its schema for each set of tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.engines import Engine
from dpsql.engines.redshift import RedshiftEngine
from dpsql.testing.kit import Kit
from dpsql.testing.kits.warehouse import TableWriter, create_tables, fit_calendar, reach_calendar, require_url

__all__ = ["create_kit"]

_WRITER = TableWriter(
    {
        pa.bool_(): "BOOLEAN",
        pa.int64(): "BIGINT",
        pa.float64(): "DOUBLE PRECISION",
        pa.string(): "VARCHAR(12000)",
        pa.date32(): "DATE",
        pa.timestamp("us"): "TIMESTAMP",
    }
)
_UNLIKE = frozenset(["domain_listed", "known_listed"])  # what is listed as 'de ' is 'de' there


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


def create_kit(
    url: str | None = None,
    *,
    options: Mapping[str, str] | None = None,
    engine: type[RedshiftEngine] = RedshiftEngine,
) -> Kit:
    """Return the kit of the database at `url`, in which the user may create tables. They stay there.

    `engine` is another one for what is not Redshift itself.
    """
    url = require_url(url, engine="Redshift", form="redshift://user:password@host:5439/database")
    opened = partial(_open, url, engine=engine, options=options or {})
    return Kit("redshift", opened, _fit, reach_calendar, unlike=_UNLIKE)


def _open(
    url: str, tables: Mapping[str, pa.Table], *, engine: type[RedshiftEngine], options: Mapping[str, str]
) -> Engine:
    return create_tables(engine.open(url, {}, options=options), tables, writer=_WRITER)
