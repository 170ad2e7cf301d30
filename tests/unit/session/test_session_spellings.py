"""Words of other systems around the same query: TOP n of SQL Server, and Snowflake's names of the ends of intervals."""

from __future__ import annotations

import pytest
from support.session_kit import session_on, shared

import dpsql
from dpsql.errors import Error
from dpsql.session import Session

CREATE = (
    "CREATE TABLE orders (user_id BIGINT, amount INT, kind VARCHAR)",
    "INSERT INTO orders SELECT i % 1500, i % 7 * 10, ['a', 'b', 'c', 'd'][1 + i % 4] FROM range(8000) t(i)",
    "CREATE TABLE kinds AS SELECT unnest(['a', 'b', 'c', 'd']) AS kind",
)
TABLES: dict[str, dpsql.PrivateTable | dpsql.PublicTable] = {
    "orders": dpsql.PrivateTable("user_id", bounds={"rows": 8, "amount": {"max": 400}}),
    "kinds": dpsql.PublicTable(),
}


def open_session(*, implicit: bool) -> Session:
    limits = dpsql.Limits(max_epsilon=20)
    return session_on(
        shared(*CREATE), dpsql.Policy(dpsql.Budget(100, "1e-2"), TABLES, limits=limits, implicit=implicit)
    )


GROUPS = "kind, COUNT(*) AS n FROM orders GROUP BY kind"
LIMITS = {
    f"SELECT TOP 3 {GROUPS}": f"SELECT {GROUPS} LIMIT 3",
    f"SELECT TOP 3 {GROUPS} ORDER BY n DESC;": f"SELECT {GROUPS} ORDER BY n DESC LIMIT 3;",
    f"SELECT TOP (3) {GROUPS} ORDER BY COUNT(*) DESC": f"SELECT {GROUPS} ORDER BY COUNT(*) DESC LIMIT 3",
    f"SELECT {GROUPS} TOP 3": f"SELECT {GROUPS} LIMIT 3",
    f"select {GROUPS} top 3 order by n desc": f"select {GROUPS} order by n desc LIMIT 3",
    "SELECT DISTINCT TOP 3 kind FROM orders": "SELECT DISTINCT kind FROM orders LIMIT 3",
    "SELECT TOP 3 kind, 2 * COUNT(*) AS n FROM orders GROUP BY kind ORDER BY n DESC": (
        "SELECT kind, 2 * COUNT(*) AS n FROM orders GROUP BY kind ORDER BY n DESC LIMIT 3"
    ),
    f"SELECT * FROM (SELECT TOP 3 {GROUPS} ORDER BY n DESC) AS x WHERE n > 5": (
        f"SELECT * FROM (SELECT {GROUPS} ORDER BY n DESC LIMIT 3) AS x WHERE n > 5"
    ),
}


@pytest.mark.parametrize("sql", LIMITS)
def test_top_n_is_limit_n_in_standard_sql(sql: str) -> None:
    session = open_session(implicit=True)
    first = session.sql(LIMITS[sql])
    again = session.sql(sql)
    assert again.columns == first.columns
    assert sorted(again.fetchall()) == sorted(first.fetchall())
    assert again.receipt.items_charged == 0 or again.receipt.replayed
    assert again.receipt.read_as == first.receipt.read_as


NAMES = [
    "SELECT kind AS top, COUNT(*) FROM orders GROUP BY kind",
    "SELECT top.kind FROM kinds AS top",
    "SELECT kind FROM kinds AS top WHERE top.kind = 'a'",
    "WITH top AS (SELECT kind FROM kinds) SELECT * FROM top",
    "SELECT 'SELECT TOP 3 x' AS t FROM kinds",
    f"SELECT {GROUPS} TOP 3 PRIVATE",
    f"SELECT TOP 3 PRIVATE {GROUPS}",
    "SELECT kind, COUNT(*) FROM orders GROUP BY kind TOP ADAPTIVE PRIVATE",
]


@pytest.mark.parametrize("sql", NAMES)
def test_other_uses_of_the_word_stay(sql: str) -> None:
    assert open_session(implicit=True).sql(sql).receipt.read_as in {"", "TOP 10 PRIVATE"}


REFUSED = {
    f"SELECT TOP 10 PERCENT {GROUPS}": ("TOP 10 PERCENT", "TOP 10 PRIVATE"),
    f"SELECT TOP 3 WITH TIES {GROUPS}": ("TOP 3 WITH TIES", "TOP 3 PRIVATE"),
    f"SELECT TOP 3 {GROUPS} LIMIT 2": ("TOP 3", "TOP 3 PRIVATE"),
}


@pytest.mark.parametrize("sql", REFUSED)
def test_other_forms_of_it_are_refused(sql: str) -> None:
    session, (wrong, right) = open_session(implicit=True), REFUSED[sql]
    with pytest.raises(Error, match="TOP must be followed by one number") as refused:
        session.sql(sql)
    assert f"Write {right}." in (refused.value.hint or "")
    assert session.sql(sql.replace(wrong, right)).receipt.items_charged > 0


def test_in_the_other_setting_the_word_private_decides() -> None:
    session = open_session(implicit=False)
    for sql in (f"SELECT TOP 3 {GROUPS}", f"SELECT {GROUPS} TOP 3"):
        with pytest.raises(Error, match="PRIVATE"):
            session.sql(sql)
        assert session.sql(sql.replace("TOP 3", "TOP 3 PRIVATE")).receipt.items_charged >= 0


ENDS = [
    "SELECT {n} AS n, DP_INTERVAL_LOW(n) AS low, DP_INTERVAL_HIGH(n) AS high FROM orders",
    "SELECT kind, {n} AS n, dp_interval_low(n) AS low, dp_interval_high({n}) AS high FROM orders GROUP BY kind",
    "SELECT kind, {n} AS n FROM orders GROUP BY kind LIMIT 3",
    "SELECT kind, SUM(amount) / {n} AS r, DP_INTERVAL_LOW(r) AS l, DP_INTERVAL_HIGH(r) AS h FROM orders GROUP BY kind",
    "SELECT x.*, DP_INTERVAL_HIGH(x.n) AS h FROM (SELECT kind, {n} AS n FROM orders GROUP BY kind LIMIT 3) AS x",
]


@pytest.mark.parametrize("measure", ["COUNT(*)", "COUNT(DISTINCT user_id)", "AVG(amount)"])
@pytest.mark.parametrize("sql", ENDS)
def test_snowflakes_names_of_interval_ends_are_ours(sql: str, measure: str) -> None:
    if measure == "AVG(amount)" and " / " in sql:
        measure = "COUNT(amount)"
    session = open_session(implicit=True)
    written = sql.format(n=measure)
    plain = written.replace("DP_INTERVAL_", "value_").replace("dp_interval_", "value_")
    plain = plain.replace("value_LOW", "value_low").replace("value_HIGH", "value_high")
    first = session.sql(plain)
    again = session.sql(written)
    assert again.receipt.replayed
    assert again.columns == first.columns
    assert sorted(map(str, again.fetchall())) == sorted(map(str, first.fetchall()))
