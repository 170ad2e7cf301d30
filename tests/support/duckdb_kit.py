"""A small DuckDB file with a marked value, a Parquet file at a path that needs quotes, and the engine over both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from dpsql.engines import Statement, open_exact
from dpsql.engines.duckdb.engine import DuckDBEngine


def run(engine: DuckDBEngine, sql: str, *parameters: object) -> pa.Table:
    return open_exact(engine.execute(Statement(sql, parameters)))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "events.duckdb"
    with closing(duckdb.connect(file)) as connection:
        connection.execute("CREATE TABLE reads AS SELECT range AS user_id, 'VICTIM_SECRET' AS article FROM range(1000)")
    return file


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    folder = tmp_path / "country=DE"
    folder.mkdir()
    file = folder / "it's [1] of *.parquet"
    duckdb.execute("COPY (SELECT 7 AS user_id, 'p' AS page) TO '" + str(file).replace("'", "''") + "'")
    return file


@pytest.fixture
def sealed(database: Path, parquet: Path) -> Iterator[DuckDBEngine]:
    with closing(DuckDBEngine.open(database, {"reads": None, "visits": parquet})) as engine:
        yield engine
