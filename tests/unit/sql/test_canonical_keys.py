"""Canonical keys: values that are one group have one label, whoever's spelling is stored; others stay apart."""

from __future__ import annotations

import duckdb
import pytest
from support.sql_reference import EVERYTHING, catalog_of, private

from dpsql.errors import Error
from dpsql.sql.rewrite.engine_query import rewrite_leaders

NEGATIVE_NAN = "-('nan'::DOUBLE)"
ONE_GROUP = [  # (type of the column, values that DuckDB groups together, the key)
    ("DOUBLE", ["0.0", "-0.0"], "v"),
    ("DOUBLE", ["'nan'", NEGATIVE_NAN], "v"),
    ("DOUBLE", ["0.0", "-0.0"], "v * 2"),
    ("DOUBLE", ["1.0", "-1.0"], "round(v * 0.1)"),
    ("DOUBLE", ["'inf'", "'-inf'"], "v - v"),
    ("DOUBLE", ["0.0", "-0.0"], "coalesce(v, 1)"),
    ("DOUBLE", ["0.0", "-0.0"], "CASE WHEN v = 0 THEN v END"),
    ("DOUBLE", ["0.0", "-0.0"], "if(v = 0, v, 1e0)"),
    ("DOUBLE", ["0.0", "-0.0"], "greatest(v, 0)"),
    ("DOUBLE", ["0.0", "-0.0"], "atan(v)"),
    ("FLOAT", ["0.0", "-0.0"], "v"),
    ("FLOAT", ["'nan'", NEGATIVE_NAN], "v"),
    ("DECIMAL(9,4)", ["1.5", "1.5000"], "v"),
    ("DECIMAL(9,4)", ["0", "-0.0"], "-v"),
    ("BOOLEAN", ["true", "'yes'"], "v"),
    ("UUID", ["'FFFFFFFF-ffff-4fff-bfff-ffffffffffff'", "'{ffffffffffff4fffbfffffffffffffff}'"], "v"),
    ("TIMESTAMP", ["'2026-01-01'", "'2026-01-01 00:00:00.000000'"], "v"),
]
APART = [
    ("VARCHAR", ["'abc'", "'ABC'", "'Abc'"], "v"),
    ("VARCHAR COLLATE NOCASE", ["'abc'", "'ABC'", "'Abc'"], "v"),
    ("VARCHAR COLLATE NOCASE", ["'abc'", "'ABC'", "'Abc'"], "coalesce(v, 'x')"),
    ("VARCHAR COLLATE NOCASE", ["'abc'", "'ABC'"], "v || 'x'"),
    ("VARCHAR COLLATE NOCASE", ["'abc'", "'ABC'"], 'v COLLATE "C"'),
    ("VARCHAR COLLATE NOCASE", ["'abc'", "'ABC'"], "if(length(v) > 1, v, 'x')"),
    ("VARCHAR COLLATE NOACCENT", ["'cafe'", "'café'"], "v"),
    ("VARCHAR COLLATE NFC", ["'caf\u00e9'", "'cafe\u0301'"], "v"),
    ("VARCHAR", ["'caf\u00e9'", "'cafe\u0301'"], "v"),
    ("VARCHAR", ["'a'", "'a' || chr(0)", "'a' || chr(0) || 'b'", "''"], "v"),
    ("VARCHAR", ["'a'", "'a '", "' a'", "'a\u00a0'", "'a\u200b'", "'a\ufeff'"], "v"),
    ("CHAR(5)", ["'a'", "'a    '"], "v"),
    ("VARCHAR", ["'\U0001f642'", "'\U0001f642\u200d'", "chr(1114111)", "chr(55295)"], "v"),
    ("VARCHAR", ["'I'", "'\u0130'", "'i'", "'\u0131'"], "v"),
    ("VARCHAR", ["'ß'", "'ss'", "'\u1e9e'"], "v"),
    ("DOUBLE", ["1.0", "1.0000000000000002", "5e-324", "0.0", "'inf'", "'-inf'", "'nan'"], "v"),
    ("FLOAT", ["0.1", "0.1000001"], "v"),
    ("ENUM('red', 'Red')", ["'red'", "'Red'"], "v"),
    (
        "DATE",
        ["'infinity'", "'-infinity'", "'9999-12-31'", "'5881580-07-10'", "'0001-01-01 (BC)'"],
        "v",
    ),
    ("TIMESTAMP", ["'infinity'", "'-infinity'", "'9999-12-31 23:59:59.999999'", "'294247-01-10 04:00:54.775806'"], "v"),
    ("BIGINT", ["9007199254740992", "9007199254740993"], "v"),
    ("DECIMAL(18,0)", ["999999999999999999", "999999999999999998"], "v"),
]
REFUSED = {
    "INTERVAL": "INTERVAL 30 DAY",
    "TIME": "TIME '10:00:00'",
    "TIMETZ": "TIMETZ '10:00:00+01'",
    "TIMESTAMPTZ": "TIMESTAMPTZ '2026-01-01 10:00:00+01'",
    "TIMESTAMP_NS": "TIMESTAMP_NS '2026-01-01 10:00:00'",
    "HUGEINT": "1::HUGEINT",
    "UBIGINT": "1::UBIGINT",
    "DECIMAL(38,2)": "1.5",
    "BLOB": "'a'::BLOB",
    "BIT": "'101'::BIT",
    "JSON": "'1'::JSON",
    **({} if duckdb.__version__ < "1.5" else {"VARIANT": "1::VARIANT"}),  # of which there is no table before
    "DOUBLE[]": "[0.0, -0.0]",
    "DOUBLE[2]": "[0.0, -0.0]::DOUBLE[2]",
    "STRUCT(a DOUBLE)": "{'a': 0.0}",
    "MAP(VARCHAR, INTEGER)": "MAP {'a': 1}",
    "UNION(a INTEGER, b VARCHAR)": "1",
}


def labels(type_: str, values: list[str], key: str) -> list[str | None]:
    """Return the labels of the groups over rows that hold these values, as the engine prints them."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE rows(unit BIGINT, v {type_})")
    for unit, value in enumerate(values):
        con.execute(f"INSERT INTO rows SELECT {unit}, ({value})")
    query = private(f"SELECT {key} AS k FROM rows GROUP BY k TOP 9 PRIVATE", catalog_of(con, {"rows": "unit"}, []))
    counting = rewrite_leaders(query, EVERYTHING)
    printed = f"SELECT dpsql_key_1::VARCHAR FROM ({counting.sql})"
    return [row[0] for row in con.execute(printed, list(counting.parameters)).fetchall()]


@pytest.mark.parametrize(("type_", "values", "key"), ONE_GROUP)
def test_values_of_one_group_have_one_label_whoever_is_there(type_: str, values: list[str], key: str) -> None:
    together = labels(type_, values, key)
    assert len(together) == 1
    for some in (values[:1], values[1:], values[::-1], values * 3):
        assert labels(type_, some, key) == together


@pytest.mark.parametrize(("type_", "values", "key"), APART)
def test_values_that_differ_are_groups_that_print_differently(type_: str, values: list[str], key: str) -> None:
    found = labels(type_, values, key)
    assert len(found) == len(set(found)) == len(values)


@pytest.mark.parametrize("type_", REFUSED)
def test_a_type_whose_equal_values_may_print_differently_is_no_key(type_: str) -> None:
    with pytest.raises(Error) as refused:
        labels(type_, [REFUSED[type_]], "v")
    assert refused.value.code in {"type", "key-type"}
    assert refused.value.hint
