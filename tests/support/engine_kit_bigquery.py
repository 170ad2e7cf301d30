"""Kit of BigQuery's statements on ZetaSQL."""

import json
from pathlib import Path
from tempfile import mkdtemp
from urllib.request import Request, urlopen

from support.bigquery_kit import start_zetasql, write_credentials

from dpsql.engines.bigquery import BigQueryEngine
from dpsql.testing.warehouse_kits import Fields, Rows, create_bigquery

__all__ = ["KIT"]

_PORT = start_zetasql()
_CREDENTIALS = write_credentials(Path(mkdtemp(prefix="dpsql")), _PORT)


def _load(engine: BigQueryEngine, name: str, *, fields: Fields, rows: Rows) -> None:
    body = {"name": f"{engine._dataset[1]}.{name}", "fields": fields, "rows": rows}
    urlopen(Request(f"http://127.0.0.1:{_PORT}/tables", json.dumps(body).encode())).read()


_OPTIONS = {"api_endpoint": f"http://127.0.0.1:{_PORT}"}
KIT = create_bigquery(f"bigquery://shop/web?credentials={_CREDENTIALS}", options=_OPTIONS, load=_load).sample(24)
