"""BigQuery as the tests of conformance use it: tables in ZetaSQL, or in the dataset of an address.

`DPSQL_BIGQUERY_URL` is such an address, of a dataset in which the account may create tables.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from urllib.request import Request, urlopen

import pyarrow as pa
from support.bigquery_kit import start_zetasql, write_credentials
from support.engine_kits import Kit
from support.engine_tables import fitted
from support.warehouse_tables import DAYS, MOMENTS, fit_calendar, list_texts

from dpsql.engines import Engine
from dpsql.engines.bigquery.engine import BigQueryEngine

__all__ = ["KIT"]

_TYPES = {
    pa.bool_(): "BOOL",
    pa.int64(): "INT64",
    pa.float64(): "FLOAT64",
    pa.string(): "STRING",
    pa.date32(): "DATE",
    pa.timestamp("us"): "DATETIME",
}
_NUMBER = count(1)


def _reach(table: pa.Table) -> pa.Table:
    return fitted(table, days=DAYS, moments=MOMENTS, infinite=False)


def _fields(table: pa.Table) -> list[dict[str, str]]:
    return [_field(field) for field in table.schema]


def _field(field: pa.Field) -> dict[str, str]:
    if not pa.types.is_decimal(field.type):
        return {"name": field.name, "type": _TYPES[field.type], "mode": "NULLABLE"}
    digits = {"precision": str(field.type.precision), "scale": str(field.type.scale)}
    return {"name": field.name, "type": "BIGNUMERIC", "mode": "NULLABLE", **digits}


def _open(tables: Mapping[str, pa.Table]) -> Engine:
    prefix = f"dpsql_{os.getpid()}_{next(_NUMBER)}_"
    rows = {name: [*zip(*map(list_texts, table.columns), strict=True)] for name, table in tables.items()}
    names = [prefix + name for name in tables]
    if url := os.environ.get("DPSQL_BIGQUERY_URL"):
        engine = BigQueryEngine.open(url, {}, options={})
        for name, table in tables.items():
            _load(engine, prefix + name, table, rows[name])
    else:
        port = start_zetasql()
        for name, table in tables.items():
            body = {"name": f"web.{prefix}{name}", "fields": _fields(table), "rows": rows[name]}
            urlopen(Request(f"http://127.0.0.1:{port}/tables", json.dumps(body).encode())).read()
        file = write_credentials(Path(mkdtemp(prefix="dpsql")), port)
        options = {"api_endpoint": f"http://127.0.0.1:{port}"}
        engine = BigQueryEngine.open(f"bigquery://shop/web?credentials={file}", {}, options=options)
    engine._tables = {name.removeprefix(prefix): engine.found(name) for name in names}
    return engine


def _load(engine: BigQueryEngine, name: str, table: pa.Table, rows: list[tuple[str | None, ...]]) -> None:
    from google.cloud import bigquery

    place = ".".join((*engine._dataset, name))
    schema = [bigquery.SchemaField.from_api_repr(field) for field in _fields(table)]
    engine._client.create_table(bigquery.Table(place, schema=schema))
    written = [dict(zip(table.column_names, row, strict=True)) for row in rows]
    if written:
        engine._client.load_table_from_json(
            written, place, job_config=bigquery.LoadJobConfig(schema=schema, write_disposition="WRITE_TRUNCATE")
        ).result()


KIT = Kit("bigquery", _open, fit_calendar, _reach)
