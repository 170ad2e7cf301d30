"""Which statements are for a catalog is told from the text, and a wrong guess meets a refusal on the other side."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from dpsql.server.catalog.system_catalog import is_catalog

TABLES = ("reads", "pg_scores", "web.Clicks")
PRIVATE = "SELECT article, COUNT(DISTINCT user_id) FROM reads GROUP BY article TOP 10 PRIVATE"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT version()",
        "select pg_catalog.version();",
        "SELECT current_user",
        "SELECT user AS name",
        "SELECT 'reads'::regclass",
        "SELECT CAST($1 AS regtype)",
        "SELECT * FROM pg_class",
        'SELECT * FROM "pg_catalog"."pg_class"',
        "SELECT 1 FROM dpsql.information_schema.tables",
        "TABLE pg_class",
        "(SELECT 1 FROM information_schema.tables) UNION SELECT 2",
        "WITH c AS (SELECT * FROM pg_class) SELECT * FROM c",
        "WITH c AS MATERIALIZED (SELECT version() AS v) SELECT * FROM c",
        "WITH c (v) AS NOT MATERIALIZED (SELECT version()) SELECT * FROM c",
        "SELECT * FROM unnest(current_schemas(true))",
        "SELECT 1 FROM (SELECT 2) x, LATERAL (SELECT * FROM pg_type) y",
        "SELECT has_table_privilege('reads', 'SELECT')",
        "/* a /* nested */ comment */ SELECT -- and another\n current_database()",
        "SELECT pg_sleep(5)",
    ],
)
def test_what_asks_about_tables_and_the_connection_is_for_the_catalog(sql: str) -> None:
    assert is_catalog(sql, TABLES)


@pytest.mark.parametrize(
    "sql",
    [
        PRIVATE,
        f"SELECT * FROM ({PRIVATE}) x, pg_class",
        f"SELECT * FROM pg_class, ({PRIVATE}) x",
        "SELECT relname FROM pg_class GROUP BY 1 TOP ADAPTIVE PRIVATE",
        "SELECT 1",
        "SELECT article FROM main.reads",
        "SELECT * FROM pg_scores",
        "SELECT * FROM PG_Scores",
        "SELECT version() FROM reads",
        "SELECT user FROM reads",
        "SELECT extract(year FROM pg_day) FROM reads",
        "SELECT article IS DISTINCT FROM pg_name FROM reads",
        "SELECT 'from pg_class'",
        "SELECT $a$ from pg_class $a$",
        "SELECT 1 /* FROM pg_class */",
        "SELECT article AS version FROM reads",
        "WITH pg_mine AS (SELECT 1) SELECT * FROM pg_mine",
        "WITH pg_mine AS MATERIALIZED (SELECT 1) SELECT * FROM pg_mine",
        "WITH pg_mine AS NOT MATERIALIZED (SELECT 1) SELECT * FROM pg_mine",
        "WITH pg_mine(a, b) AS (SELECT 1, 2) SELECT * FROM pg_mine",
        "WITH RECURSIVE x AS (SELECT 1), pg_mine (a) AS MATERIALIZED (SELECT 1) SELECT * FROM pg_mine, x",
        "SHOW BUDGET",
        "EXPLAIN SELECT * FROM pg_class",
        "DELETE FROM pg_class",
        "SELECT 1 /* FROM pg_class",
        "SELECT 'FROM pg_class",
        "",
    ],
)
def test_everything_else_is_for_the_session(sql: str) -> None:
    assert not is_catalog(sql, TABLES)


def test_a_policy_may_have_a_table_whose_name_begins_as_the_systems_do() -> None:
    assert is_catalog("SELECT * FROM pg_scores")
    assert not is_catalog("SELECT * FROM pg_scores", ["PG_SCORES"])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1, " + " ".join(f"$a{'b' * (at % 7)}{chr(97 + at % 26)}$" for at in range(12_000)),
        "SELECT 1, "
        + " ".join(f"$q{chr(97 + at // 26 % 26)}{chr(97 + at % 26)}{'x' * (at // 676)}$" for at in range(9_000)),
        "SELECT " + "(" * 120_000,
        "SELECT " + "a " * 60_000,
        "SELECT " + "'a' " * 30_000,
        "SELECT " + "e'" * 60_000,
        "/*" * 60_000,
        "/**/" * 30_000,
        "SELECT " + '"' * 120_001,
        "SELECT * FROM " + "pg_class, " * 12_000,
        "SELECT * FROM " + "a." * 60_000,
        "x" * 10_000_000,
    ],
    ids=range(12),
)
def test_a_hostile_statement_is_told_quickly(sql: str) -> None:
    begun = time.process_time()
    is_catalog(sql, TABLES)
    assert time.process_time() - begun < 20


def test_the_long_lists_of_tools_are_read() -> None:
    assert is_catalog("SELECT * FROM pg_class WHERE oid IN (" + "1, " * 5_000 + "1)")


def test_no_attack_on_the_session_is_for_the_catalog() -> None:
    lines = (Path(__file__).parents[2] / "properties" / "attacks" / "statements.jsonl").read_text().splitlines()
    attacks = [sql for line in lines if (sql := json.loads(line)["sql"])]
    assert len(attacks) > 300
    assert [sql for sql in attacks if is_catalog(sql, ["reads", "likes", "users", "articles", "countries"])] == []
