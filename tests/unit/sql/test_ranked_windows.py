"""Windows over groups: those that are said to be decided by the groups that rank first are, whatever the others are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress, product

import duckdb
import pytest

from dpsql.sql.lexer import scan
from dpsql.sql.syntax.clause import list_select_tokens
from dpsql.sql.syntax.computed import split_measures

FUNCTIONS = [
    "ROW_NUMBER()",
    "RANK()",
    "DENSE_RANK()",
    "NTILE(3)",
    "PERCENT_RANK()",
    "CUME_DIST()",
    "LAG(SUM(x))",
    "LAG(k, 2, 'none')",
    "LAG(SUM(x), -1)",
    "LEAD(SUM(x))",
    "LEAD(k, 0)",
    "FIRST_VALUE(k)",
    "LAST_VALUE(k)",
    "NTH_VALUE(k, 2)",
    "SUM(SUM(x))",
    "SUM(COUNT(*))",
    "COUNT(*)",
    "AVG(SUM(x))",
    "MIN(k)",
    "MAX(SUM(x))",
    "MAX(COUNT(*))",
    "SUM(SUM(x)) FILTER (WHERE SUM(x) > 20)",
    "string_agg(k, ',' ORDER BY k)",
    "median(SUM(x))",
]
ORDERS = [
    "",
    "ORDER BY SUM(x) DESC",
    "ORDER BY SUM(x) DESC NULLS LAST, k",
    "ORDER BY SUM(x)",
    "ORDER BY (SUM(x)) * 2 + 1 DESC",
    "ORDER BY ROUND(SUM(x) / 40) DESC",
    "ORDER BY COUNT(*) DESC",
    "ORDER BY k",
]
BOUNDS = ["UNBOUNDED PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "UNBOUNDED FOLLOWING"]
FRAMES = [
    "",
    "ROWS 1 PRECEDING",
    *(f"ROWS BETWEEN {one} AND {other}" for one, other in product(BOUNDS[:4], BOUNDS[1:])),
    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE GROUP",
    "GROUPS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
]
SUMS = {"a": 90, "b": 70, "c": 51, "d": 50, "e": 30, "f": 12, "g": 3}
K = 4  # d is among the first, and ROUND does not tell c, d and others apart


def text_of(windows: Iterable[str]) -> str:
    listed = ", ".join(f"{window} AS w{at}" for at, window in enumerate(windows))
    return f"SELECT k, {listed}, SUM(x) AS s FROM t GROUP BY k ORDER BY s DESC"


def which_are_decided(text: str) -> list[bool]:
    statement = scan(text)
    found = split_measures(statement, list_select_tokens(statement)[0])
    assert found is not None
    return [window.is_ranked and not window.partition for window in found.windows]


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE every (k VARCHAR, x BIGINT)")
        for at, (key, total) in enumerate(SUMS.items()):  # numbers of rows rise where the sums fall
            parts = [total - at * 1, *([1] * at)]
            opened.executemany("INSERT INTO every VALUES (?, ?)", [[key, part] for part in parts])
        yield opened


def reading(connection: duckdb.DuckDBPyConnection, keys: Iterable[str]) -> duckdb.DuckDBPyConnection:
    """Return a cursor on which `t` has the rows of these keys."""
    cursor = connection.cursor()
    listed = ", ".join(map(repr, keys))
    cursor.execute(f"CREATE TEMP TABLE t AS FROM every WHERE k IN ({listed})")
    return cursor


def run(connection: duckdb.DuckDBPyConnection, text: str) -> list[tuple[object, ...]] | None:
    try:
        return connection.execute(text).fetchall()
    except duckdb.Error:
        return None  # no window of DuckDB


@pytest.mark.properties
def test_what_is_decided_does_not_depend_on_other_groups(connection: duckdb.DuckDBPyConnection) -> None:
    every, first = reading(connection, SUMS), reading(connection, list(SUMS)[:K])
    decided, others = 0, 0
    for order, frame in product(ORDERS, FRAMES):
        windows = [f"{function} OVER ({order} {frame})" for function in FUNCTIONS]
        ranked = [*compress(windows, which_are_decided(text_of(windows)))]
        others += len(windows) - len(ranked)
        whole = run(every, text_of(ranked)) if ranked else None
        if whole is not None:
            decided += len(ranked)
            assert whole[:K] == run(first, text_of(ranked)), (order, frame)
    assert decided > 900
    assert others > 1000


@pytest.mark.parametrize(
    "window",
    [
        "ROW_NUMBER() OVER (ORDER BY SUM(x) DESC)",
        "RANK() OVER w",
        "SUM(COUNT(*)) OVER (w ROWS 2 PRECEDING)",
        "LAG(k) OVER (ORDER BY s DESC)",
        "LEAD(k) OVER (ORDER BY SUM(x))",
        "FIRST_VALUE(k) OVER (ORDER BY SUM(x) DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
        "MAX(s) OVER ()",
        "SUM(s) OVER (ORDER BY s ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    ],
)
def test_these_are_decided(window: str) -> None:
    assert which_are_decided(
        f"SELECT k, SUM(x) AS s, {window} AS w FROM t GROUP BY k WINDOW w AS (ORDER BY SUM(x) DESC)"
    ) == [True]


@pytest.mark.parametrize(
    "window",
    [
        "RANK() OVER nothing",
        "RANK() OVER (PARTITION BY k ORDER BY SUM(x) DESC)",
        "RANK(ORDER BY k) OVER (ORDER BY SUM(x) DESC)",
        "SUM(SUM(x)) OVER (ORDER BY AVG(x) DESC)",
        "LAG(k, COUNT(*)) OVER (ORDER BY SUM(x) DESC)",
        "MAX(-SUM(x)) OVER ()",
        "MAX(SUM(x)) FILTER (WHERE k > 'a') OVER ()",
    ],
)
def test_these_are_not(window: str) -> None:
    assert which_are_decided(f"SELECT k, SUM(x) AS s, {window} AS w FROM t GROUP BY k") == [False]
