"""Trino's own client against a recorded coordinator: what is sent, what is read, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from support.trino_server import Answer, FakeTrino

import dpsql
from dpsql.engines import Statement, open_exact
from dpsql.engines.warehouses import TrinoEngine
from dpsql.errors import EngineError, PolicyError, UsageError

COLUMNS = [
    ["web", "reads", "user_id", "bigint"],
    ["web", "reads", "article", "varchar"],
    ["web", "reads", "price", "decimal(10, 2)"],
    ["web", "reads", "at", "timestamp(3) with time zone"],
]
TYPES = ("BIGINT", "VARCHAR", "DECIMAL(10,2)", "DATE", "TIMESTAMP", "DOUBLE", "BOOLEAN")
ROWS = [
    [9_007_199_254_740_993, "\u00e9", "1.50", "12345-01-02", "1969-12-31 23:59:59.999999", "NaN", True],
    [None, None, None, None, None, None, None],
]


def answer(sql: str) -> Answer:
    if "information_schema" in sql:
        return [(name, "varchar") for name in "abcd"], COLUMNS if "'reads'" in sql else []
    if "dpsql_weight" in sql:  # the second look, where the first settled nothing
        columns = [("k", "varchar"), ("n", "bigint"), ("w", "bigint"), ("place", "bigint")]
        return columns, [["a", 900, 900 << 20, 1], ["b", 500, 500 << 20, 2]]
    if "dpsql_count" in sql:
        return [("k", "varchar"), ("n", "bigint")], [["a", 900], ["b", 500]]
    if "boom" in sql:
        message = "Cannot cast 'secret' to bigint"
        raise ValueError(message)
    if "c7" in sql:
        kinds = ("bigint", "varchar", "decimal(10,2)", "date", "timestamp(6)", "double", "boolean")
        return [(f"c{at}", kind) for at, kind in enumerate(kinds)], ROWS
    return [("one", "integer")], [[1]]


@contextmanager
def serve(**how: bool) -> Iterator[tuple[FakeTrino, str]]:
    trino = FakeTrino(answer, **how)
    server = trino.start()
    try:
        yield trino, f"trino://ada@127.0.0.1:{server.server_address[1]}/lake/web"
    finally:
        server.shutdown()
        server.server_close()


def test_columns_are_read_with_duckdbs_names_of_types() -> None:
    with serve() as (trino, url):
        engine = TrinoEngine.open(url, {"reads": None}, options={"join_distribution_type": "BROADCAST"}, time_limit=10)
        assert engine.relation("reads") == ("lake", "web", "reads")
        found = [(column.name, column.type) for column in engine.columns("reads")]
        assert found[:3] == [("user_id", "BIGINT"), ("article", "VARCHAR"), ("price", "DECIMAL(10,2)")]
        assert found[3][1] not in {"TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}
        _, headers = trino.asked[-1]
        assert headers["X-Trino-User"] == "ada"
        assert headers["X-Trino-Time-Zone"] == "UTC"
        assert "query_max_run_time=12s" in headers["X-Trino-Session"]
        engine.close()


def test_values_come_back_in_their_types_also_beyond_the_year_9999() -> None:
    with serve() as (trino, url):
        engine = TrinoEngine.open(url, {}, options={})
        statement = Statement("SELECT ?/*2*/ AS c7, ?/*1*/, ?/*2*/", ("it's", None), TYPES)
        table = open_exact(engine.execute(statement))
        assert table.schema.types[4].unit == "us"
        rows = [column.to_pylist() if at != 3 else column.cast("int32").to_pylist() for at, column in enumerate(table)]
        assert rows[0] == [9_007_199_254_740_993, None]
        assert rows[3] == [int(np.datetime64("12345-01-02").astype(int)), None]
        assert rows[4][0].microsecond == 999_999
        assert [each is None for each in rows[5]] == [False, True]
        assert "USING NULL,'it''s',NULL" in trino.asked[-1][0]
        engine.execute(Statement("SELECT ?/*1*/, ?/*2*/, ?/*3*/", (float("-inf"), float("nan"), "inf")))
        assert "USING '-Infinity','NaN','inf'" in trino.asked[-1][0]
        engine.close()


def test_a_session_counts_and_charges() -> None:
    policy = dpsql.Policy(dpsql.Budget(10, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    with serve() as (trino, url), dpsql.connect(url, policy=policy, ledger=":memory:") as session:
        answer = session.sql("SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 1 PRIVATE")
        assert [row[0] for row in answer.fetchall()] == ["a"]
        assert answer.receipt.isolation == "remote"
        assert '"lake"."web"."reads"' in trino.asked[-1][0]


def test_what_fails_says_nothing_of_rows_and_the_next_statement_runs() -> None:
    with serve() as (_, url):
        engine = TrinoEngine.open(url, {}, options={})
        with pytest.raises(EngineError) as caught:
            engine.execute(Statement("SELECT 'boom'"))
        assert "secret" not in str(caught.value)
        assert caught.value.__context__ is None
        assert open_exact(engine.execute(Statement("SELECT 1"))).num_rows == 1
        with pytest.raises(EngineError):
            engine.execute(Statement("DROP TABLE reads"))
        engine.close()


def test_a_statement_beyond_its_time_is_cancelled() -> None:
    with serve(slow=True) as (trino, url):
        engine = TrinoEngine.open(url, {}, options={}, time_limit=0.2)
        with pytest.raises(EngineError):
            engine.execute(Statement("SELECT 2"))
        assert trino.cancelled
        engine.close()


@pytest.mark.parametrize(
    ("address", "options", "code"),
    [
        ("trino://127.0.0.1:1/lake", {}, "engine-unreachable"),
        ("trino://127.0.0.1:1/lake/web?colour=red", {}, "engine-unreachable"),
        ("trino://ada:secret@127.0.0.1:1/lake/web?scheme=http", {}, "engine-unreachable"),
        ("trino://127.0.0.1:1/lake/web", {"query_max_run_time": "1d"}, "source-option"),
    ],
)
def test_what_is_not_opened_says_why_without_the_password(address: str, options: dict[str, str], code: str) -> None:
    with pytest.raises((EngineError, UsageError)) as caught:
        TrinoEngine.open(address, {}, options=options)
    assert caught.value.code == code
    assert "secret" not in str(caught.value)
    assert caught.value.hint


def test_a_table_that_is_not_there_is_missing_and_a_file_is_refused() -> None:
    with serve() as (_, url):
        with pytest.raises(EngineError) as caught:
            TrinoEngine.open(url, {"nothing": None}, options={})
        assert caught.value.code == "table-missing"
        with pytest.raises(PolicyError):
            TrinoEngine.open(url, {"reads": "reads.parquet"}, options={})
