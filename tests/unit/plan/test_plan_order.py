"""ORDER BY on the released table is DuckDB's: NULLs, NaN, infinities, ties; and every key type has its Arrow type."""

from __future__ import annotations

import random
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from dpsql.plan.release import arrow_type, order_rows
from dpsql.sql.ir.statements import Order
from dpsql.sql.ir.tree import parse_type

VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "VARCHAR": (pa.string(), ["", "a", "A", "ä", "z", "Z", "\U0001f600", "\uffff", "a\0b", None]),
    "DOUBLE": (pa.float64(), [float("nan"), float("inf"), float("-inf"), 0.0, 1.5, -1.5, 1e300, None]),
    "BIGINT": (pa.int64(), [-(2**63), 2**63 - 1, 0, 7, None]),
    "UINTEGER": (pa.uint32(), [0, 2**32 - 1, 7, None]),
    "BOOLEAN": (pa.bool_(), [True, False, None]),
    "DECIMAL(9,2)": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-0.01"), Decimal("0.00"), None]),
    "DATE": (pa.date32(), [-(2**31) + 1, -800000, 0, 20000, 2**31 - 1, None]),
    "TIMESTAMP": (pa.timestamp("us"), [-(2**63) + 1, 0, 10**15, 2**63 - 1, None]),
}


def table_of(type_: str, seed: int) -> pa.Table:
    arrow, values = VALUES[type_]
    source = random.Random(seed)
    drawn = [source.choice(values) for _ in range(25)]
    base = pa.int32() if arrow == pa.date32() else pa.int64() if pa.types.is_timestamp(arrow) else arrow
    counts = [source.randint(-2, 2) for _ in drawn]
    return pa.table({"key": pa.array(drawn, base).cast(arrow), "n": pa.array(counts, pa.int64()), "place": range(25)})


def as_numbers(table: pa.Table) -> pa.Table:
    """Return the table with dates as integers, which both sides can print."""
    key = table.column("key")
    if pa.types.is_temporal(key.type):
        width = pa.int32() if pa.types.is_date(key.type) else pa.int64()
        table = table.set_column(0, "key", key.cast(width))
    return table


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("nulls_first", [True, False])
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("type_", VALUES)
def test_the_order_is_duckdbs(type_: str, descending: bool, nulls_first: bool, seed: int) -> None:
    table = table_of(type_, seed)
    ours = order_rows(table, (Order(0, descending, nulls_first), Order(1, not descending, nulls_first=False)))
    words = f"key {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
    theirs = duckdb.sql(f'SELECT * FROM "table" ORDER BY {words}, n {"ASC" if descending else "DESC"}, place')
    assert repr(as_numbers(ours).to_pylist()) == repr(as_numbers(theirs.to_arrow_table()).to_pylist())


def test_ties_stay_in_noisy_rank_order() -> None:
    table = pa.table({"key": ["b", "a", "b", None, "a", None], "at": range(6)})
    for descending, expected in ((False, [1, 4, 0, 2, 3, 5]), (True, [0, 2, 1, 4, 3, 5])):
        assert order_rows(table, (Order(0, descending, nulls_first=False),)).column("at").to_pylist() == expected


def test_no_order_and_no_rows() -> None:
    table = pa.table({"key": ["b", "a"]})
    assert order_rows(table, ()).equals(table)
    empty = table.slice(0, 0)
    assert order_rows(empty, (Order(0, descending=False, nulls_first=False),)).schema == table.schema


@pytest.mark.parametrize("type_", [*VALUES, "TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "DECIMAL(18,3)"])
def test_arrow_types_are_those_that_duckdb_uses(type_: str) -> None:
    column = duckdb.sql(f"SELECT CAST(NULL AS {type_}) AS key").to_arrow_table().schema.field("key")
    assert arrow_type(parse_type(type_)) == column.type
