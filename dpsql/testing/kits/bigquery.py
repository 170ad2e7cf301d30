"""BigQuery at an address, with new tables in its dataset for each set of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from dpsql.engines import Engine
from dpsql.engines.bigquery import BigQueryEngine
from dpsql.testing.kit import Kit, rename_tables
from dpsql.testing.kits.warehouse import fit_calendar, list_texts, name_tables, reach_calendar, require_url

__all__ = ["create_kit"]

Fields = list[dict[str, str]]
Rows = list[tuple[str | None, ...]]
Load = Callable[..., None]
_TYPES = {
    pa.bool_(): "BOOL",
    pa.int64(): "INT64",
    pa.float64(): "FLOAT64",
    pa.string(): "STRING",
    pa.date32(): "DATE",
    pa.timestamp("us"): "DATETIME",
}
_OWN = frozenset(["bound_five_of_decimals"])  # it prints 1.5 where others print 1.50


def create_kit(url: str | None = None, *, options: Mapping[str, str] | None = None, load: Load | None = None) -> Kit:
    """Return the kit of the dataset at `url`, in which the account may create tables. They stay there.

    `load` puts a table with its fields and rows of texts into the dataset; by default, by a load job.
    """
    url = require_url(url, engine="BigQuery", form="bigquery://project/dataset")
    opened = partial(_open, url, options=options or {}, load=load or _load)
    return Kit("bigquery", opened, fit_calendar, reach_calendar, own=_OWN)


def _open(url: str, tables: Mapping[str, pa.Table], *, options: Mapping[str, str], load: Load) -> Engine:
    names = name_tables(tables)
    engine = BigQueryEngine.open(url, {}, options=options)
    for full, name in names.items():
        table = tables[name]
        rows = [*zip(*map(list_texts, table.columns), strict=True)]
        load(engine, full, fields=[*map(_field, table.schema)], rows=rows)
    engine._tables = engine.look_up(names)  # noqa: SLF001 - for kits alone
    return rename_tables(engine, names)


def _field(field: pa.Field) -> dict[str, str]:
    if not pa.types.is_decimal(field.type):
        return {"name": field.name, "type": _TYPES[field.type], "mode": "NULLABLE"}
    digits = {"precision": str(field.type.precision), "scale": str(field.type.scale)}
    return {"name": field.name, "type": "BIGNUMERIC", "mode": "NULLABLE", **digits}


def _load(engine: BigQueryEngine, name: str, *, fields: Fields, rows: Rows) -> None:
    from google.cloud import bigquery

    client: Any = engine._client  # noqa: SLF001 - for kits alone
    place = ".".join((*engine._dataset, name))  # noqa: SLF001 - as above
    schema = [bigquery.SchemaField.from_api_repr(field) for field in fields]
    client.create_table(bigquery.Table(place, schema=schema))
    written = [dict(zip((field["name"] for field in fields), row, strict=True)) for row in rows]
    if written:
        client.load_table_from_json(written, place, job_config=bigquery.LoadJobConfig(schema=schema)).result()
