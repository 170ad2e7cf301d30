"""A row at an end of its type makes no statement fail, not even where it is the only one.

DuckDB computes some functions of a column's least and greatest value while it plans, outside TRY. Beside other rows, or
NULL, the ends of a column are seldom what such a function fails for, so each value is alone here.
"""

from __future__ import annotations

import duckdb
import pytest
from support.sql_reference import EVERYTHING, catalog_of, private

from dpsql.errors import Error
from dpsql.sql.rewrite.engine_query import rewrite_leaders

PARTS = "year month day dow isodow doy quarter week isoyear yearweek decade century millennium era".split()
UNITS = "microsecond millisecond second minute hour day week month quarter year".split()
TIMES = [
    *(f"date_part('{part}', x)" for part in [*PARTS, "hour", "second", "millisecond", "microsecond", "epoch"]),
    *(f"date_trunc('{unit}', x)" for unit in UNITS),
    *(f"date_diff('{unit}', x, TIMESTAMP '2026-01-01')" for unit in UNITS),
    *(f"date_sub('{unit}', TIMESTAMP '2026-01-01', x)" for unit in UNITS),
    *(f"{name}(x)" for name in "epoch_ms epoch_us epoch_ns last_day dayname monthname date isfinite year week".split()),
    "epoch_us(CASE WHEN k > 0 THEN x END)",
    "epoch_ms(coalesce(x, x))",
    "strftime(x, '%Y %V %G %j')",
    "time_bucket(INTERVAL 7 DAY, x)",
    "time_bucket(INTERVAL 1 MONTH, x)",
    "x + INTERVAL 1 DAY",
    "x - INTERVAL 1000 YEAR",
    "CAST(x AS VARCHAR)",
    "CAST(x AS DATE)",
    "CAST(x AS TIMESTAMP)",
]
NUMBERS = [
    *(f"{name}(x)" for name in "abs sign round floor ceil trunc sqrt ln log log2 exp sin cot acos even".split()),
    *(f"x {sign} 1" for sign in "+ - * / // %".split()),
    *("-x", "x * x", "x + x", "x - x", "CAST(x AS SMALLINT)", "CAST(x AS BIGINT)", "CAST(x AS DOUBLE)", "x // -1"),
    *("greatest_common_divisor(k, k)", "CAST(x AS VARCHAR)", "round(x, -2)", "pow(x, 9)"),
]
ENDS = {
    "DATE": [
        "5881580-07-10",
        "5877642-06-25 (BC)",
        "infinity",
        "-infinity",
        "300000-01-01",
        "9999-12-31",
        "2262-04-12",
    ],
    "TIMESTAMP": ["294247-01-10 04:00:54.775806", "290309-12-22 (BC)", "infinity", "-infinity", "2262-04-12"],
    "BIGINT": ["9223372036854775807", "-9223372036854775808", "0"],
    "INTEGER": ["2147483647", "-2147483648"],
    "TINYINT": ["127", "-128"],
    "DECIMAL(18,2)": ["9999999999999999.99", "-9999999999999999.99", "0"],
    "DOUBLE": ["1.7976931348623157e308", "-1.7976931348623157e308", "nan", "inf", "-inf", "-0.0", "5e-324"],
}


@pytest.mark.parametrize("type_", ENDS)
def test_the_only_row_of_a_table_makes_no_statement_fail(type_: str) -> None:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE alone (unit INTEGER, k BIGINT, x {type_})")
    catalog = catalog_of(con, {"alone": "unit"}, [])
    statements = {}
    for expression in TIMES if type_ in {"DATE", "TIMESTAMP"} else NUMBERS:
        try:
            text = f"SELECT {expression} AS k FROM alone GROUP BY ALL TOP 10 PRIVATE"
            statements[expression] = rewrite_leaders(private(text, catalog), EVERYTHING)
        except Error:
            continue  # not of this type
    assert len(statements) > 20
    failed = []
    for value in ENDS[type_]:
        con.execute(
            "CREATE OR REPLACE TABLE alone AS SELECT 1 AS unit, ? AS k, ?::" + type_ + " AS x", [2**63 - 1, value]
        )
        for expression, counting in statements.items():
            try:
                rows = con.sql(counting.sql, params=list(counting.parameters)).fetchall()
                assert len(rows) == 1
            except duckdb.Error:
                failed.append(f"{expression} of {value}")
    assert failed == []
