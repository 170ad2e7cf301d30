"""MariaDB as the tests of conformance use it: a database of its own in the server of this run of the tests."""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf, isnan

import pyarrow as pa
from support.mariadb_kit import fresh_database, server

from dpsql.engines import Engine
from dpsql.engines.mysql.engine import MySQLEngine
from dpsql.testing import Kit
from dpsql.testing.tables import fit_table

__all__ = ["KIT"]

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.uint8(): "TINYINT UNSIGNED",
    pa.uint16(): "SMALLINT UNSIGNED",
    pa.uint32(): "INT UNSIGNED",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "TEXT",
    pa.date32(): "DATE",
    pa.timestamp("us"): "DATETIME(6)",
}
_DAYS = (-719_162, 2_932_896)  # 0001-01-01 and 9999-12-31


def _fit(table: pa.Table) -> pa.Table:
    """Return a table that can be stored; what queries compute of one with units may not leave calendar and DOUBLE."""
    if "user_id" in table.column_names:
        return _reach(table, margin=31, largest=1e300)
    return _reach(table, margin=1)


def _reach(table: pa.Table, *, margin: int = 0, largest: float = float("inf")) -> pa.Table:
    """Make NULL of days outside the calendar, `margin` days at its ends, and other DOUBLE; 0.0 of -0.0."""
    days = (_DAYS[0] + margin * (largest < float("inf")), _DAYS[1] - margin)
    moments = (days[0] * 86_400_000_000, (days[1] + 1) * 86_400_000_000 - 1)
    table = fit_table(table, days=days, moments=moments, infinite=False)
    for at, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            kept = [
                None if value is None or isnan(value) or isinf(value) or abs(value) > largest else value + 0.0
                for value in table.column(at).to_pylist()
            ]
            table = table.set_column(at, field.name, pa.array(kept, field.type))
    return table


def _open(tables: Mapping[str, pa.Table]) -> Engine:
    database = fresh_database()
    with server().session() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {database}")
        for name, table in tables.items():
            columns = ", ".join(
                f"`{field.name}` {_TYPES.get(field.type) or _decimal(field.type)} NULL" for field in table.schema
            )
            cursor.execute(f"CREATE TABLE `{name}` ({columns})")
            marks = ", ".join(["%s"] * table.num_columns)
            rows = list(zip(*(_values(column) for column in table.columns), strict=True))
            cursor.executemany(f"INSERT INTO `{name}` VALUES ({marks})", rows)
    return MySQLEngine.open(server().url(database), dict.fromkeys(tables), options={})


def _values(column: pa.ChunkedArray) -> list[object]:
    return [each.as_py() for each in column]


def _decimal(type_: pa.DataType) -> str:
    return f"DECIMAL({type_.precision}, {type_.scale})"


_OWN = "bound_five_of_booleans known_product_bounded measure_all measure_of_two_known_keys per_all".split()  # 1 for true

KIT = Kit("mariadb", _open, _fit, _reach, own=frozenset(_OWN))
