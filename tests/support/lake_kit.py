"""What the tests of folders share: how one is opened and read, and what it is refused with."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.engines import Column, Statement, open_exact
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.lakes import find_folder
from dpsql.errors import Error

PLACE = "table t"


def opened(path: Path) -> DuckDBEngine:
    return DuckDBEngine.open(None, {"t": find_folder(path, place=PLACE)}, threads=2)


def table_of(engine: DuckDBEngine, sql: str = "SELECT * FROM memory.main.t") -> pa.Table:
    return open_exact(engine.execute(Statement(sql)))


def rows(path: Path) -> Counter[tuple[object, ...]]:
    """Return the rows of a folder as dpsql reads it, in no order."""
    with closing(opened(path)) as engine:
        return counted(table_of(engine))


def counted(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def types(path: Path) -> dict[str, str]:
    with closing(opened(path)) as engine:
        return {column.name: column.type for column in columns(engine)}


def columns(engine: DuckDBEngine) -> tuple[Column, ...]:
    return engine.columns("t")


def refused(path: Path) -> Error:
    """Return the error with which a folder is refused; no value and no word of a package hangs on it."""
    with pytest.raises(Error) as caught:
        opened(path).close()
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


def write(path: Path, schema: pa.Schema | None = None, /, **values: list[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(values, schema=schema), path)
    return path
