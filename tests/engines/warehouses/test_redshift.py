"""Redshift's adapter on PostgreSQL, for the part of the language and of the catalog that both have."""

from __future__ import annotations

from contextlib import closing

import pytest
from support.postgres_kit import server
from support.redshift_kit import RedshiftOnPostgres

import dpsql
from dpsql.engines import Statement, open_exact
from dpsql.engines.warehouses import RedshiftEngine
from dpsql.errors import EngineError, UsageError


@pytest.fixture(scope="module")
def url() -> str:
    with server().session() as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS web")
        connection.execute(
            "CREATE TABLE web.reads (user_id bigint, article varchar(20), price numeric(10, 2), at timestamptz)"
        )
        connection.execute(
            "INSERT INTO web.reads SELECT n, 'a' || n % 4 || repeat(' ', n % 2), 1, now() "
            "FROM generate_series(1, 4000) AS n"
        )
    return server().url("public").partition("&")[0].replace("postgresql:", "redshift:", 1)


def test_columns_are_read_with_duckdbs_names_of_types(url: str) -> None:
    engine = RedshiftEngine.open(url, {"web.reads": None}, options={"query_group": "dpsql"}, time_limit=10)
    assert engine.relation("web.reads") == ("web", "reads")
    found = {column.name: column.type for column in engine.columns("web.reads")}
    assert (found["user_id"], found["article"], found["price"]) == ("BIGINT", "VARCHAR", "DECIMAL(10,2)")
    assert found["at"] not in {"TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}
    engine.close()


def test_blanks_at_the_end_of_a_text_make_no_group_of_their_own(url: str) -> None:
    policy = dpsql.Policy(dpsql.Budget(10, "1e-6"), {"web.reads": dpsql.PrivateTable("user_id")})
    engine = RedshiftOnPostgres.open(url, {"web.reads": None}, options={})
    with closing(engine), dpsql.connect(engine, policy=policy, ledger=":memory:") as session:
        rows = session.sql("SELECT article, COUNT(DISTINCT user_id) AS n FROM web.reads GROUP BY article TOP 4 PRIVATE")
        assert sorted(row[0] for row in rows.fetchall()) == ["a0", "a1", "a2", "a3"]


def test_what_fails_says_nothing_of_rows_and_the_next_statement_runs(url: str) -> None:
    engine = RedshiftEngine.open(url, {}, options={}, time_limit=0.3)
    for sql in ("SELECT CAST('secret' AS integer)", "DROP TABLE web.reads", "SELECT pg_sleep(5)"):
        with pytest.raises(EngineError) as caught:
            engine.execute(Statement(sql))
        assert "secret" not in str(caught.value)
    assert open_exact(engine.execute(Statement("SELECT COUNT(*) AS n FROM web.reads"))).to_pydict() == {"n": [4000]}
    engine.close()


def test_what_is_not_opened_says_why_without_the_password(url: str) -> None:
    with pytest.raises(EngineError) as missing:
        RedshiftEngine.open(url, {"web.nothing": None}, options={})
    assert missing.value.code == "table-missing"
    with pytest.raises(EngineError) as unreachable:
        RedshiftEngine.open("redshift://ada:secret@127.0.0.1:1/shop", {}, options={})
    assert unreachable.value.code == "engine-unreachable"
    assert "secret" not in str(unreachable.value)
    with pytest.raises(UsageError) as option:
        RedshiftEngine.open(url, {}, options={"timezone": "CET"})
    assert option.value.code == "source-option"


def test_a_session_that_ended_is_replaced_before_a_statement_is_charged(url: str) -> None:
    engine = RedshiftEngine.open(url, {}, options={}, time_limit=10)
    mine = open_exact(engine.execute(Statement("SELECT pg_backend_pid() AS pid"))).to_pylist()[0]["pid"]
    server().run(f"SELECT pg_terminate_backend({mine}, 10000)")
    with engine.turn():
        assert open_exact(engine.execute(Statement("SELECT 1 AS one"))).to_pylist() == [{"one": 1}]
    engine.close()
