"""BigQuery's own client against a recorded API: what is sent, what is read, what is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.bigquery_kit import write_credentials
from support.bigquery_server import Answer, FakeBigQuery

import dpsql
from dpsql.engines import Statement, open_exact
from dpsql.engines.bigquery import BigQueryEngine
from dpsql.errors import EngineError, UsageError

FIELDS = [
    {"name": "user_id", "type": "INTEGER"},
    {"name": "article", "type": "STRING"},
    {"name": "folded", "type": "STRING", "collation": "und:ci"},
    {"name": "price", "type": "NUMERIC", "precision": "10", "scale": "2"},
    {"name": "amount", "type": "NUMERIC"},
    {"name": "at", "type": "TIMESTAMP"},
    {"name": "tags", "type": "STRING", "mode": "REPEATED"},
    {"name": "Twice", "type": "STRING"},
    {"name": "twice", "type": "STRING"},
]
KINDS = ("INT64", "STRING", "BIGNUMERIC", "DATE", "DATETIME", "FLOAT64", "BOOL")
TYPES = ("BIGINT", "VARCHAR", "DECIMAL(10,2)", "DATE", "TIMESTAMP", "DOUBLE", "BOOLEAN")
ROWS: list[list[str | None]] = [
    ["9007199254740993", "\u00e9", "1.5", "0001-01-01", "9999-12-31T23:59:59.999999", "NaN", "true"],
    [None] * 7,
]
RUNNING = threading.Event()


def run(sql: str, values: Mapping[str, str | None]) -> Answer:
    if "dpsql_count" in sql:
        groups = [["a", "900", f"{900 << 20}", "1"], ["b", "500", f"{500 << 20}", "2"]]
        fields = [{"name": "k", "type": "STRING"}, *({"name": each, "type": "INT64"} for each in ("n", "w", "place"))]
        read = 4 if "dpsql_weight" in sql else 2  # weights in the second look, where the first settled nothing
        return fields[:read], [group[:read] for group in groups]
    if "boom" in sql:
        message = f"Bad int64 value: secret {values}"
        raise ValueError(message)
    if "c7" in sql:
        return [{"name": f"c{at}", "type": kind} for at, kind in enumerate(KINDS)], ROWS
    if "wait" in sql:
        RUNNING.wait(5)
    return [{"name": "one", "type": "INT64"}], [["1"]]


@contextmanager
def serve(folder: Path) -> Iterator[tuple[FakeBigQuery, str, dict[str, str]]]:
    project = FakeBigQuery(run, {"web.reads": FIELDS, "web.folded": FIELDS}, {"web.folded": "und:ci"})
    server = project.start()
    port = server.server_address[1]
    try:
        url = f"bigquery://shop/web?location=EU&credentials={write_credentials(folder, port)}"
        yield project, url, {"api_endpoint": f"http://127.0.0.1:{port}"}
    finally:
        server.shutdown()
        server.server_close()


def test_columns_are_read_with_duckdbs_names_of_types(tmp_path: Path) -> None:
    with serve(tmp_path) as (_, url, options):
        engine = BigQueryEngine.open(url, {"reads": None, "web.reads": None}, options=options)
        assert engine.relation("reads") == engine.relation("web.reads") == ("shop", "web", "reads")
        found = {column.name: column.type for column in engine.columns("reads")}
        assert found == {
            "user_id": "BIGINT",
            "article": "VARCHAR",
            "folded": "STRING COLLATE",
            "price": "DECIMAL(10,2)",
            "amount": "NUMERIC",
            "at": "TIMESTAMP",
            "tags": "ARRAY(STRING)",
        }
        assert [table.name for table in engine.list_tables()] == ["reads", "folded"]
        engine.close()


def test_text_may_have_the_default_collation_of_its_table(tmp_path: Path) -> None:
    with serve(tmp_path) as (_, url, options):
        engine = BigQueryEngine.open(url, {"folded": None}, options=options)
        found = {column.name: column.type for column in engine.columns("folded")}
        assert (found["user_id"], found["article"], found["folded"]) == ("BIGINT", "STRING COLLATE", "STRING COLLATE")
        policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"folded": dpsql.PrivateTable("article")})
        with pytest.raises(dpsql.Error):
            dpsql.connect(engine, policy=policy, ledger=":memory:")
        engine.close()


def test_what_is_sent_and_what_comes_back(tmp_path: Path) -> None:
    with serve(tmp_path) as (project, url, options):
        limits = {**options, "maximum_bytes_billed": "1000000"}
        engine = BigQueryEngine.open(url, {}, options=limits, time_limit=10)
        table = open_exact(engine.execute(Statement("SELECT @p1 AS c7", ("it's", None, True), TYPES)))
        rows = [column.to_pylist() for column in table]
        assert rows[0] == [9_007_199_254_740_993, None]
        assert [str(each) for each in rows[2]] == ["1.50", "None"]
        assert str(rows[4][0]) == "9999-12-31 23:59:59.999999"
        assert [str(each) for each in rows[5]] == ["nan", "None"]
        sent = project.asked[-1]
        assert sent["jobTimeoutMs"] == "12000"
        query = sent["query"]
        assert (query["maximumBytesBilled"], query["useQueryCache"]) == ("1000000", False)
        assert query["connectionProperties"] == [{"key": "time_zone", "value": "UTC"}]
        assert [each["parameterValue"]["value"] for each in query["queryParameters"]] == ["it's", None, "true"]
        engine.close()


def test_a_session_counts_and_charges(tmp_path: Path) -> None:
    private = {"reads": dpsql.PrivateTable("user_id")}
    with serve(tmp_path) as (project, url, options):
        policy = dpsql.Policy(dpsql.Budget(10, "1e-6"), private, source=dpsql.DataSource(url, options=options))
        with dpsql.connect(policy=policy, ledger=":memory:") as session:
            sql = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 1 PRIVATE"
            assert [row[0] for row in session.sql(sql).fetchall()] == ["a"]
        assert "`shop`.`web`.`reads`" in project.asked[-1]["query"]["query"]


def test_what_fails_says_nothing_of_rows_and_the_next_statement_runs(tmp_path: Path) -> None:
    with serve(tmp_path) as (project, url, options):
        engine = BigQueryEngine.open(url, {}, options=options)
        with pytest.raises(EngineError) as caught:
            engine.execute(Statement("SELECT 'boom'"))
        assert "secret" not in str(caught.value)
        assert caught.value.__context__ is None
        assert sum("boom" in each["query"]["query"] for each in project.asked) == 1  # it is not run again
        assert open_exact(engine.execute(Statement("SELECT 1"))).num_rows == 1
        with pytest.raises(EngineError):
            engine.execute(Statement("DROP TABLE reads"))
        assert "DROP" not in project.asked[-1]["query"]["query"]
        engine.close()


@pytest.mark.parametrize(
    ("address", "options", "code"),
    [
        ("bigquery://shop", {}, "engine-unreachable"),
        ("bigquery://shop/web?credentials=/nowhere.json", {}, "engine-unreachable"),
        ("bigquery://shop/web", {"maximum_bytes_billed": "1 GB"}, "source-option"),
        ("bigquery://shop/web", {"priority": "BATCH"}, "source-option"),
    ],
)
def test_what_is_not_opened_says_why(address: str, options: dict[str, str], code: str) -> None:
    with pytest.raises((EngineError, UsageError)) as caught:
        BigQueryEngine.open(address, {}, options=options)
    assert caught.value.code == code
    assert caught.value.hint


def test_a_table_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with serve(tmp_path) as (_, url, options), pytest.raises(EngineError) as caught:
        BigQueryEngine.open(url, {"nothing": None}, options=options)
    assert caught.value.code == "table-missing"
