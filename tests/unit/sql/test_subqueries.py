"""Subqueries: what they may hold, under which names, and that no order of rows decides what they bring."""

# ruff: noqa: E501 - a query to a line
from __future__ import annotations

from random import Random

import duckdb
import pytest
from support.sql_reference import (
    accepts_pattern,
    catalog_of,
    corpus_catalog,
    corpus_tables,
    counts,
    private,
    reference_counts,
)

from dpsql.errors import Error, Unsupported
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import rewrite_leaders

CON = corpus_tables()
CATALOG = corpus_catalog(CON)
MANY = 3_000

ACCEPTED = [
    "SELECT n FROM (SELECT user_id, COUNT(*) AS n FROM reads GROUP BY user_id) GROUP BY n",
    "SELECT n FROM (SELECT user_id AS u, COUNT(*) + 1 AS n, user_id FROM reads GROUP BY u, 3 HAVING n > 3) GROUP BY n",
    "SELECT n, country FROM (SELECT country, user_id, COUNT(DISTINCT article) AS n FROM reads GROUP BY ALL) GROUP BY ALL",
    "SELECT k FROM (SELECT user_id, lower(max(article)) AS k FROM reads GROUP BY 1 ORDER BY k) GROUP BY k",
    "SELECT topic FROM (SELECT r.user_id, topic FROM reads r JOIN articles USING (article) GROUP BY ALL) GROUP BY topic",
    "SELECT article FROM (SELECT DISTINCT * FROM likes) GROUP BY article",
    "SELECT n FROM (SELECT user_id, row_number() OVER (PARTITION BY user_id) AS n FROM reads) GROUP BY n",
    "SELECT p FROM (SELECT user_id, SUM(1) OVER (PARTITION BY user_id ORDER BY ts) + 1 AS p FROM reads) GROUP BY p",
    "SELECT article FROM (SELECT * FROM reads QUALIFY rank() OVER (PARTITION BY user_id ORDER BY ts) = 1) GROUP BY 1",
    "SELECT article FROM (SELECT *, rank() OVER (PARTITION BY user_id ORDER BY ts) AS r FROM reads QUALIFY r = 1) GROUP BY 1",
    "SELECT over FROM (SELECT *, article AS over FROM reads) GROUP BY over",
    "SELECT a FROM (SELECT user_id, article AS a FROM reads UNION SELECT user_id, city FROM users) GROUP BY a",
    "SELECT a FROM (SELECT user_id, 1 AS a FROM reads UNION ALL SELECT user_id, age FROM users) GROUP BY a",
    (
        "SELECT a FROM (SELECT user_id, city AS a FROM users UNION SELECT user_id, article FROM reads "
        "INTERSECT SELECT user_id, article FROM likes) GROUP BY a"
    ),
    (
        "SELECT a FROM (SELECT user_id, article AS a FROM reads EXCEPT SELECT user_id, article FROM likes "
        "UNION ALL SELECT user_id, article FROM likes) GROUP BY a"
    ),
    "SELECT country FROM (WITH reads AS (SELECT * FROM reads WHERE dwell > 3) SELECT * FROM reads) GROUP BY country",
    (
        "WITH a AS (SELECT * FROM reads), b AS (WITH a AS (SELECT * FROM a WHERE dwell > 3) SELECT * FROM a) "
        "SELECT country FROM (SELECT * FROM a UNION ALL SELECT * FROM b) GROUP BY country"
    ),
    "SELECT article FROM reads WHERE country = (SELECT max(country) FROM countries) GROUP BY article",
    (
        "SELECT article FROM reads WHERE country IN (SELECT country FROM countries GROUP BY 1 ORDER BY 1 DESC LIMIT 1 OFFSET 1) "
        "GROUP BY article"
    ),
    "SELECT n FROM reads JOIN (SELECT country, COUNT(*) AS n FROM countries GROUP BY ALL HAVING n > 1) USING (country) GROUP BY n",
    "SELECT c FROM (SELECT user_id, (SELECT COUNT(*) FROM countries) AS c FROM reads) GROUP BY c",
    "SELECT l FROM (SELECT user_id, user_id IN (SELECT user_id FROM likes) AS l, MAX(ts) AS ts FROM reads GROUP BY 1) GROUP BY l",
    (
        "SELECT article FROM reads r WHERE EXISTS (SELECT 1 FROM likes l, users u WHERE l.user_id = r.user_id "
        "AND u.user_id = r.user_id AND u.age > 20) GROUP BY article"
    ),
    "SELECT article FROM reads TABLESAMPLE SYSTEM (100 PERCENT) GROUP BY article",
    "SELECT article FROM (SELECT * FROM reads AS r TABLESAMPLE bernoulli(100%)) AS s TABLESAMPLE (100 PERCENT) GROUP BY 1",
]
REFUSED = {
    "SELECT article FROM reads TABLESAMPLE SYSTEM (10 PERCENT) GROUP BY article": "keyword",
    "SELECT article FROM reads TABLESAMPLE SYSTEM (100 PERCENT) REPEATABLE (7) GROUP BY article": "keyword",
    "SELECT article FROM reads TABLESAMPLE reservoir (100%) GROUP BY article": "keyword",
    "SELECT article FROM reads TABLESAMPLE SYSTEM (100) GROUP BY article": "keyword",
    'SELECT article FROM reads TABLESAMPLE (100 "percent") GROUP BY article': "keyword",
    "SELECT n FROM (SELECT article, COUNT(*) AS n FROM reads GROUP BY article) GROUP BY n": "not-row-local",
    "SELECT n FROM (SELECT COUNT(*) AS n FROM reads) GROUP BY n": "not-row-local",
    "SELECT n FROM (SELECT user_id + 0 AS u, COUNT(*) AS n FROM reads GROUP BY ALL) GROUP BY n": "not-row-local",
    "SELECT n FROM (SELECT COUNT(*) AS n FROM reads GROUP BY user_id) GROUP BY n": "unit-lost",
    "SELECT n FROM (SELECT max(user_id) AS user_id, 1 AS n FROM reads GROUP BY article) GROUP BY n": "unit-name",
    "SELECT n FROM (SELECT max(user_id) AS u, 1 AS n FROM reads GROUP BY user_id) GROUP BY n": "unit-lost",
    "SELECT article FROM (SELECT DISTINCT article FROM reads) GROUP BY article": "unit-lost",
    "SELECT article FROM (SELECT DISTINCT ON (user_id) user_id, article FROM reads) GROUP BY article": "syntax",
    "SELECT article FROM (SELECT user_id, article FROM reads LIMIT 1) GROUP BY article": "not-row-local",
    "SELECT article FROM (SELECT user_id, article FROM reads OFFSET 1) GROUP BY article": "not-row-local",
    "SELECT r FROM (SELECT user_id, rank() OVER (ORDER BY ts) AS r FROM reads) GROUP BY r": "not-row-local",
    "SELECT r FROM (SELECT user_id, rank() OVER (PARTITION BY article ORDER BY ts) AS r FROM reads) GROUP BY r": "not-row-local",
    "SELECT r FROM (SELECT user_id, rank() OVER (PARTITION BY user_id % 2) AS r FROM reads) GROUP BY r": "not-row-local",
    "SELECT 1 AS r FROM (SELECT user_id FROM reads QUALIFY rank() OVER (ORDER BY ts) = 1) GROUP BY r": "not-row-local",
    "SELECT r FROM (SELECT user_id, COUNT(*) AS n, rank() OVER (PARTITION BY user_id) AS r FROM reads GROUP BY 1) GROUP BY r": "window",
    "SELECT 1 AS r FROM (SELECT user_id FROM reads QUALIFY user_id = 1) GROUP BY r": "window",
    "SELECT r FROM (SELECT user_id, SUM(dwell) OVER (PARTITION BY user_id) AS r FROM reads) GROUP BY r": "window",
    "SELECT r FROM (SELECT user_id, lag(ts, dwell) OVER (PARTITION BY user_id) AS r FROM reads) GROUP BY r": "window",
    "SELECT r FROM (SELECT user_id, COUNT() OVER (PARTITION BY user_id) AS r FROM reads) GROUP BY r": "window",
    "SELECT r FROM (SELECT user_id, last_value(ts) OVER (PARTITION BY user_id) AS r FROM reads) GROUP BY r": "not-row-local",
    "SELECT article FROM (SELECT user_id, article FROM reads UNION SELECT user_id, article FROM likes LIMIT 3) GROUP BY 1": "subquery",
    "SELECT a FROM (SELECT user_id, article AS a FROM reads UNION ALL SELECT 1, article FROM articles) GROUP BY a": "unit-lost",
    "SELECT a FROM (SELECT 1 AS u, article AS a FROM articles UNION ALL SELECT user_id, article FROM reads) GROUP BY a": "unit-lost",
    "SELECT a FROM (SELECT user_id, article AS a FROM reads EXCEPT SELECT age, city FROM users) GROUP BY a": "unit-lost",
    "SELECT a FROM (SELECT user_id, age AS a FROM users UNION SELECT age, user_id FROM users) GROUP BY a": "unit-lost",
    "SELECT a FROM (SELECT user_id, user_id AS a FROM users UNION SELECT age AS b, user_id FROM users) GROUP BY a": "unit-name",
    "SELECT a FROM (SELECT user_id, article AS a FROM reads UNION SELECT user_id FROM likes) GROUP BY a": "subquery",
    "SELECT a FROM (SELECT user_id, ts AS a FROM reads UNION SELECT user_id, article FROM likes) GROUP BY a": "type",
    "SELECT a FROM (SELECT user_id, ts AS a FROM reads INTERSECT ALL SELECT user_id, ts FROM likes) GROUP BY a": "subquery",
    "SELECT article FROM reads UNION SELECT article FROM likes GROUP BY article": "keyword",
    "SELECT article FROM reads WHERE dwell = (SELECT max(age) FROM users) GROUP BY article": "not-row-local",
    "SELECT article FROM reads WHERE dwell = (SELECT count(*) FROM users GROUP BY user_id) GROUP BY article": "subquery-private",
    "SELECT article FROM reads WHERE country = (SELECT country FROM countries) GROUP BY article": "subquery",
    "SELECT article FROM reads WHERE 1 = (SELECT COUNT(*) FROM countries GROUP BY country) GROUP BY article": "subquery",
    "SELECT article FROM reads WHERE 1 = (SELECT COUNT(*) FROM countries HAVING COUNT(*) > 1) GROUP BY article": "subquery",
    "SELECT article FROM reads WHERE 1 = (SELECT COUNT(*) FROM countries LIMIT 0) GROUP BY article": "subquery",
    "SELECT article FROM reads WHERE 1 = (SELECT DISTINCT COUNT(*) FROM countries) GROUP BY article": "subquery",
    "SELECT article FROM reads WHERE 1 = (SELECT 1 UNION SELECT 2) GROUP BY article": "syntax",
    "SELECT k FROM (SELECT user_id, max(min(article)) AS k FROM reads GROUP BY 1) GROUP BY k": "function",
    "SELECT k FROM (SELECT user_id, article AS k FROM reads WHERE COUNT(*) > 1) GROUP BY k": "aggregate",
    "SELECT SUM(dwell) AS k FROM (SELECT user_id, dwell FROM reads) GROUP BY k": "unknown-column",
    "SELECT CASE WHEN SUM(dwell) > 1 THEN 1 END AS k FROM reads GROUP BY k": "aggregate",
    "SELECT EXTRACT(hour FROM MAX(ts)) AS k FROM reads GROUP BY k": "function",
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_what_is_accepted_is_what_duckdb_finds(text: str) -> None:
    query = private(f"{text} TOP 9 PRIVATE", CATALOG)
    found = counts(CON, query)
    assert found
    assert found == reference_counts(CON, query, "user_id")


@pytest.mark.parametrize("text", REFUSED)
def test_a_refusal_has_its_code_and_a_hint(text: str) -> None:
    with pytest.raises(Error) as refused:
        analyze(f"{text} TOP 9 PRIVATE", CATALOG, accepts_pattern=accepts_pattern)
    assert refused.value.code == REFUSED[text]
    assert refused.value.hint


TIES = {
    "row_number": "SELECT unit, CAST(row_number() OVER (PARTITION BY unit ORDER BY c) AS VARCHAR) || w AS k FROM events",
    "sign": "SELECT unit, CAST(x AS VARCHAR) || CAST(row_number() OVER (PARTITION BY unit ORDER BY x) AS VARCHAR) AS k FROM events",
    "bytes": "SELECT unit, c AS k FROM events QUALIFY row_number() OVER (PARTITION BY unit ORDER BY lower(c)) < 9",
    "lag": "SELECT unit, CAST(d AS VARCHAR) || lag(w) OVER (PARTITION BY unit ORDER BY g) AS k FROM events",
    "lead": "SELECT unit, CAST(d AS VARCHAR) || CAST(lead(n, 7) OVER (PARTITION BY unit, g) AS VARCHAR) AS k FROM events",
    "first_value": "SELECT unit, first_value(n) OVER (PARTITION BY unit, g ORDER BY w) AS k FROM events",
    "ntile": "SELECT unit, CAST(ntile(7) OVER (PARTITION BY unit ORDER BY g) AS VARCHAR) || CAST(d AS VARCHAR) AS k FROM events",
    "sum": "SELECT unit, SUM(d) AS k FROM events GROUP BY unit",
    "avg": "SELECT unit, AVG(d * 1.1e0) AS k FROM events GROUP BY unit, g",
    "zero": "SELECT unit, CAST(MIN(x) AS VARCHAR) || CAST(MAX(x) AS VARCHAR) AS k FROM events GROUP BY unit, g",
    "least": "SELECT unit, MIN(c) || MAX(c) AS k FROM events GROUP BY unit, g",
    "least of a window": "SELECT unit, CAST(MIN(x) OVER (PARTITION BY unit, g) AS VARCHAR) AS k FROM events",
    "greatest of a window": "SELECT unit, MAX(c) OVER (PARTITION BY unit ORDER BY n % 4) AS k FROM events",
    "key": "SELECT unit, CAST(x AS VARCHAR) || c AS k FROM events GROUP BY unit, x, c",
    "distinct": "SELECT unit, CAST(x AS VARCHAR) AS k FROM (SELECT DISTINCT unit, x FROM events) AS y",
    "union": "SELECT unit, CAST(x AS VARCHAR) AS k FROM (SELECT unit, x FROM events UNION SELECT unit, x FROM events) AS y",
    "limit": "SELECT unit, CAST(t.x AS VARCHAR) || t.c AS k FROM events, (SELECT x, c, n FROM open ORDER BY g LIMIT 9) AS t",
    "public": "SELECT unit, CAST(t.k AS VARCHAR) AS k FROM events, (SELECT SUM(d) AS k FROM open) AS t",
    "scalar": "SELECT unit, (SELECT AVG(d) FROM open) AS k FROM events",
}


def tied(rows: list[tuple[object, ...]], random: Random) -> duckdb.DuckDBPyConnection:
    """Return a private and a public table of the rows, in another order every time, read by several threads."""
    con = duckdb.connect()
    con.execute("SET threads = 4")
    random.shuffle(rows)
    columns = list(zip(*rows, strict=True))
    for table in ("events", "open"):
        con.execute(
            f"CREATE TABLE {table}(unit INT, g INT, w VARCHAR, c VARCHAR COLLATE NOCASE, n INT, x DOUBLE, d DOUBLE)"
        )
        con.execute(
            f"INSERT INTO {table} SELECT unnest(?::INT[]), unnest(?::INT[]), unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), "
            "unnest(?::INT[]), unnest(?::DOUBLE[]), unnest(?::DOUBLE[])",
            [list(column) for column in columns],
        )
    return con


@pytest.mark.properties
@pytest.mark.parametrize("kind", TIES)
def test_no_order_of_rows_decides_what_a_subquery_brings(kind: str) -> None:
    random, found = Random(kind), set()
    rows: list[tuple[object, ...]] = [
        (
            at % 2,
            at % 3,
            "ab"[at % 5 % 2],
            "aAbB"[at % 7 % 4],
            at % 11,
            [0.0, -0.0][at % 13 % 2],
            random.uniform(-1e9, 1e9),
        )
        for at in range(MANY)
    ]
    for _ in range(4):
        con = tied(rows, random)
        text = f"SELECT k FROM ({TIES[kind]}) AS a GROUP BY k TOP 9 PRIVATE"
        query = private(text, catalog_of(con, {"events": "unit"}, ["open"]))
        found.add(tuple(sorted(counts(con, query).items(), key=repr)))
    assert len(found) == 1


@pytest.mark.parametrize("type_", ["INTERVAL", "INTEGER[]", "TIMESTAMPTZ[]", "MAP(VARCHAR, DOUBLE)"])
def test_columns_whose_equal_values_may_print_differently_are_not_grouped(type_: str) -> None:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE events(unit INT, v {type_}); CREATE TABLE open(v {type_}, w INT)")
    catalog = catalog_of(con, {"events": "unit"}, ["open"])
    for origin in (
        "(SELECT DISTINCT unit, v FROM events) AS a",
        "(SELECT unit, v, COUNT(*) AS n FROM events GROUP BY unit, v) AS a",
        "(SELECT unit, v FROM events EXCEPT SELECT unit, v FROM events) AS a",
        "events, (SELECT v, w FROM open LIMIT 1) AS a",
    ):
        with pytest.raises(Unsupported, match="type"):
            private(f"SELECT unit FROM {origin} GROUP BY 1 TOP 9 PRIVATE", catalog)


def test_aggregates_tell_text_apart_by_its_bytes_and_order_an_enum_by_its_text() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE events(unit INT, c VARCHAR COLLATE NOCASE, e ENUM('b', 'a'))")
    con.execute("INSERT INTO events VALUES (1, 'x', 'a'), (1, 'X', 'b')")
    inside = "SELECT unit, COUNT(DISTINCT c) AS n, MIN(c) AS c, MIN(e) AS e, MAX(e) AS f FROM events GROUP BY unit"
    query = private(
        f"SELECT n, c, e, f FROM ({inside}) AS a GROUP BY ALL TOP 9 PRIVATE", catalog_of(con, {"events": "unit"}, [])
    )
    assert [[value for _, value in key] for key in counts(con, query)] == [[2, "X", "a", "b"]]


def test_a_sum_that_does_not_fit_is_null() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE events(unit INT, n BIGINT, m DECIMAL(18, 0))")
    con.execute("INSERT INTO events SELECT 1, 9223372036854775807, 999999999999999999 FROM range(3)")
    catalog = catalog_of(con, {"events": "unit"}, [])
    for inner in ("SUM({0})", "SUM({0}) OVER (PARTITION BY unit)"):
        for column in "nm":
            group = "" if "OVER" in inner else " GROUP BY unit"
            text = f"SELECT k FROM (SELECT unit, {inner.format(column)} AS k FROM events{group}) AS a GROUP BY k TOP 9 PRIVATE"
            assert [key[0] for key in counts(con, private(text, catalog))] == [("NoneType", None)]


def test_units_that_a_collation_confuses_stay_apart_in_groups_and_windows() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE visits(who VARCHAR COLLATE NOCASE, page VARCHAR)")
    con.execute("INSERT INTO visits VALUES ('Ann', 'x'), ('ann', 'x'), ('ann', 'y')")
    catalog = catalog_of(con, {"visits": "who"}, [])
    for inner in ("SELECT who, COUNT(*) AS k FROM visits GROUP BY who", "SELECT DISTINCT who, 1 AS k FROM visits"):
        found = counts(con, private(f"SELECT k FROM ({inner}) GROUP BY k TOP 9 PRIVATE", catalog))
        assert sum(found.values()) == 2
    window = "SELECT who, COUNT(*) OVER (PARTITION BY who) AS k FROM visits"
    found = counts(con, private(f"SELECT k FROM ({window}) GROUP BY k TOP 9 PRIVATE", catalog))
    assert sorted(key[0][1] for key in found) == [1, 2]


@pytest.mark.parametrize("type_", ["HUGEINT", "UUID", "ENUM('1', '2')", "FLOAT", "DATE", "VARCHAR"])
def test_units_of_every_type_may_be_grouped_by(type_: str) -> None:
    con = duckdb.connect()
    values = {"UUID": ["0" * 32, "1" * 32], "DATE": ["2026-01-01", "2026-01-02"]}.get(type_, ["1", "2"])
    con.execute(f"CREATE TABLE visits(who {type_}, page INT)")
    con.executemany("INSERT INTO visits VALUES (?, 1)", [[value] for value in values])
    catalog = catalog_of(con, {"visits": "who"}, [])
    for inner in (
        "SELECT who, COUNT(*) AS k FROM visits GROUP BY who",
        "SELECT DISTINCT who, 1 AS k FROM visits",
        "SELECT who, row_number() OVER (PARTITION BY who) AS k FROM visits",
        "SELECT who, page AS k FROM visits UNION SELECT who, page FROM visits",
    ):
        query = private(f"SELECT k FROM ({inner}) GROUP BY k TOP 9 PRIVATE", catalog)
        assert list(counts(con, query).values()) == [2]


def test_the_text_of_a_subquery_leaves_nothing_but_values() -> None:
    text = (
        "SELECT k FROM (SELECT user_id, COUNT(*) AS k FROM reads GROUP BY 1 HAVING COUNT(*) > 7) AS secret GROUP BY k"
    )
    query = analyze(f"{text} TOP 9 PRIVATE", CATALOG, accepts_pattern=accepts_pattern)
    assert isinstance(query, PrivateQuery)
    counting = rewrite_leaders(query, 10)
    assert "secret" not in counting.sql
    assert list(counting.parameters) == [7]
