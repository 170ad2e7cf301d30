"""SQLite as the tests of conformance use it: a file of its own, its columns declared as the types of the tables."""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from math import isnan
from pathlib import Path

import pyarrow as pa

from dpsql.engines import Engine
from dpsql.testing.kit import Kit
from dpsql.testing.tables import fit_table

sys.path.append(str(Path(__file__).parents[2] / "examples" / "engines"))

__all__ = ["KIT"]

_TYPES = {pa.bool_(): "BOOLEAN", pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "TEXT", pa.date32(): "DATE"}
_TYPES[pa.timestamp("us")] = "TIMESTAMP"
_STORED = dict.fromkeys([pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32()], pa.int64())
_DAYS = (-719_162, 2_932_896)  # 0001-01-01 and 9999-12-31
_MOMENTS = (-719_162 * 86_400_000_000, 2_932_897 * 86_400_000_000 - 1)


def _fit(table: pa.Table) -> pa.Table:
    """Return a table of SQLite's types, without NaN, which it stores as NULL, and -0.0."""
    table = fit_table(table, stored=_STORED, days=_DAYS, moments=_MOMENTS, infinite=False)
    for at, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type) or pa.types.is_floating(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(pa.float64()))
            values = [None if value is None or isnan(value) else value + 0.0 for value in table.column(at).to_pylist()]
            table = table.set_column(at, field.name, pa.array(values, pa.float64()))
    return table


def _open(tables: Mapping[str, pa.Table]) -> Engine:
    from sqlite import SQLite

    path = Path(tempfile.mkdtemp()) / "kit.sqlite"
    with sqlite3.connect(path) as connection:
        for name, table in tables.items():
            columns = ", ".join(f'"{field.name}" {_TYPES[field.type]}' for field in table.schema)
            connection.execute(f'CREATE TABLE "{name}" ({columns})')
            rows = zip(*map(_values, table.columns), strict=True)
            connection.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * table.num_columns)})', rows)
    connection.close()
    return SQLite(f"sqlite:{path}", tables)


def _values(column: pa.ChunkedArray) -> list[object]:
    """Return dates and time stamps as text, other values as they are."""
    of_time = pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type)
    return [str(value) if of_time and value is not None else value for value in column.to_pylist()]


KIT = Kit("sqlite", _open, _fit, share=2)
