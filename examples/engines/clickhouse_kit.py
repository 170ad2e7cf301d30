"""Kit of clickhouse.py for `python -m dpsql.testing --engine clickhouse_kit:KIT`: databases in memory."""

from collections.abc import Mapping
from functools import cache
from itertools import count
from tempfile import TemporaryDirectory

import chdb
import pyarrow as pa
from chdb.state.sqlitelike import Connection
from clickhouse import ClickHouse

from dpsql.engines import RemoteEngine
from dpsql.testing import Kit, fit_table, rename_tables

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


def load_tables(tables: Mapping[str, pa.Table]) -> str:
    """Load tables into a new database and return its name."""
    database, connection = f"kit_{next(_NUMBER)}", connect()
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
def connect() -> Connection:
    """Return the connection that keeps the database in memory open."""
    return chdb.connect(":memory:")


def _open(tables: Mapping[str, pa.Table]) -> RemoteEngine:
    database = load_tables(tables)
    names = {f"{database}.{name}": name for name in tables}
    return rename_tables(ClickHouse("clickhouse:", names), names)


def _decimal(type_: pa.DataType) -> str:
    return f"Decimal({type_.precision}, {type_.scale})"


_OWN = ["bound_five_of_booleans", "bound_five_of_decimals", "per_all"]  # ClickHouse prints 1 and 1.5

KIT = Kit("clickhouse", _open, _fit, share=24, own=frozenset(_OWN))
