"""ClickHouse as the tests of conformance use it: a database of its own in the one that this process has, in memory."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import chdb
import pyarrow as pa
from chdb.state.sqlitelike import Connection

from dpsql.engines import Engine
from dpsql.testing.kit import Kit
from dpsql.testing.tables import fit_table

sys.path.append(str(Path(__file__).parents[2] / "examples" / "engines"))

__all__ = ["KIT", "laid", "memory"]

_DAYS = (-719_162, 2_932_896)  # 0001-01-01 and 9999-12-31
_MOMENTS = (-719_162 * 86_400_000_000, 2_932_897 * 86_400_000_000 - 1)
_NUMBER = count(1)
_TYPES = {
    pa.bool_(): "Bool",
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.uint8(): "UInt8",
    pa.uint16(): "UInt16",
    pa.uint32(): "UInt32",
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.string(): "String",
    pa.date32(): "Date32",
    pa.timestamp("us"): "DateTime64(6, 'UTC')",
}


def _fit(table: pa.Table) -> pa.Table:
    return fit_table(table, days=_DAYS, moments=_MOMENTS, infinite=False)


def laid(tables: Mapping[str, pa.Table]) -> str:
    """Lay tables into a new database and return its name."""
    database, connection = f"kit_{next(_NUMBER)}", memory()
    connection.query(f"CREATE DATABASE {database}")
    with TemporaryDirectory() as folder:
        for name, table in tables.items():
            types = [_TYPES.get(field.type) or _decimal(field.type) for field in table.schema]
            columns = ", ".join(
                f"`{field.name}` Nullable({type_})" for field, type_ in zip(table.schema, types, strict=True)
            )
            connection.query(f"CREATE TABLE {database}.{name} ({columns}) ENGINE = MergeTree ORDER BY tuple()")
            with pa.OSFile(f"{folder}/{name}", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            connection.query(f"INSERT INTO {database}.{name} SELECT * FROM file('{folder}/{name}', 'Arrow')")
    return database


@cache
def memory() -> Connection:
    """Return the connection that keeps the database in memory alive."""
    return chdb.connect(":memory:")


def _open(tables: Mapping[str, pa.Table]) -> Engine:
    from clickhouse import ClickHouse

    database = laid(tables)
    engine = ClickHouse("clickhouse:", [f"{database}.{name}" for name in tables])
    engine._tables = {name: engine._tables[f"{database}.{name}"] for name in tables}
    return engine


def _decimal(type_: pa.DataType) -> str:
    return f"Decimal({type_.precision}, {type_.scale})"


_OWN = ["bound_five_of_booleans", "bound_five_of_decimals", "per_all"]  # it prints 1 and 1.5

KIT = Kit("clickhouse", _open, _fit, share=24, own=frozenset(_OWN))
