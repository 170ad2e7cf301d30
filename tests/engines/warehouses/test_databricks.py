"""Databricks' own connector against a recorded warehouse: what is sent, what is read, what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from support.databricks_server import FakeDatabricks

import dpsql
from dpsql.engines import Statement, open_exact
from dpsql.engines.warehouses import DatabricksEngine
from dpsql.errors import EngineError, UsageError

TYPES = ("BIGINT", "VARCHAR", "DATE", "TIMESTAMP", "DOUBLE", "BOOLEAN")
COLUMNS = pa.table(
    [
        ["web"] * 6,
        ["reads"] * 6,
        ["user_id", "article", "folded", "plain", "price", "at"],
        ["bigint", "string", "string collate UTF8_LCASE", "string collate UTF8_BINARY", "decimal(10,2)", "timestamp"],
    ],
    names=list("abcd"),
)
KINDS = (pa.int64(), pa.string(), pa.date32(), pa.timestamp("us"), pa.float64(), pa.bool_())
VALUES = ([1, None], ["\u00e9", None], [1, None], [1, None], [0.5, None], [True, None])
ROWS = pa.table(
    [pa.array(each, kind) for each, kind in zip(VALUES, KINDS, strict=True)], names=[f"c{at}" for at in range(6)]
)


def run(sql: str, values: Mapping[str, str | None]) -> pa.Table:
    if "information_schema" in sql:
        return COLUMNS if values["p2"] == "reads" else COLUMNS.slice(0, 0)
    if "dpsql_weight" in sql:  # the second look, where the first settled nothing
        return pa.table({"k": ["a", "b"], "n": [900, 500], "w": [900 << 20, 500 << 20], "place": [1, 2]})
    if "dpsql_count" in sql:
        return pa.table({"k": ["a", "b"], "n": [900, 500]})
    if "boom" in sql:
        message = "Division by zero of secret"
        raise ValueError(message)
    return ROWS if "c7" in sql else pa.table({"one": [1]})


@contextmanager
def serve(folder: Path, **how: bool) -> Iterator[tuple[FakeDatabricks, str, dict[str, str]]]:
    warehouse = FakeDatabricks(run, **how)
    server, authority = warehouse.start(folder)
    try:
        url = f"databricks://token:secret@localhost:{server.server_address[1]}/main/web?http_path=/sql/1.0/warehouses/a"
        yield warehouse, url, {"tls_trusted_ca_file": str(authority)}
    finally:
        server.shutdown()
        server.server_close()


def test_columns_settings_and_values(tmp_path: Path) -> None:
    with serve(tmp_path) as (warehouse, url, options):
        engine = DatabricksEngine.open(url, {"reads": None}, options=options, time_limit=10)
        assert engine.relation("reads") == ("main", "web", "reads")
        found = {column.name: column.type for column in engine.columns("reads")}
        assert (found["user_id"], found["price"], found["at"]) == ("BIGINT", "DECIMAL(10,2)", "TIMESTAMP")
        assert (found["folded"], found["plain"]) == ("string collate UTF8_LCASE", "VARCHAR")
        settings = {name.rpartition(":")[2].lower(): value for name, value in warehouse.settings.items()}
        assert (settings["ansi_mode"], settings["timezone"], settings["statement_timeout"]) == ("false", "UTC", "12")
        table = open_exact(engine.execute(Statement("SELECT :p1 AS c7", ("it's", None, True), TYPES)))
        assert [column.to_pylist()[1] for column in table] == [None] * 6
        assert table.column(1).to_pylist()[0] == "\u00e9"
        assert warehouse.asked[-1] == ("SELECT :p1 AS c7", {"p1": "it's", "p2": None, "p3": "true"})
        engine.close()


def test_a_session_counts_and_charges(tmp_path: Path) -> None:
    private = {"reads": dpsql.PrivateTable("user_id")}
    with serve(tmp_path) as (warehouse, url, options):
        policy = dpsql.Policy(dpsql.Budget(10, "1e-6"), private, source=dpsql.DataSource(url, options=options))
        assert "secret" not in repr(policy.source)
        with dpsql.connect(policy=policy, ledger=":memory:") as session:
            sql = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 1 PRIVATE"
            assert [row[0] for row in session.sql(sql).fetchall()] == ["a"]
        assert "`main`.`web`.`reads`" in warehouse.asked[-1][0]


def test_what_fails_says_nothing_of_rows_and_the_next_statement_runs(tmp_path: Path) -> None:
    with serve(tmp_path) as (warehouse, url, options):
        engine = DatabricksEngine.open(url, {}, options=options)
        with pytest.raises(EngineError) as caught:
            engine.execute(Statement("SELECT 'boom'"))
        assert "secret" not in str(caught.value)
        assert sum("boom" in sql for sql, _ in warehouse.asked) == 1
        assert open_exact(engine.execute(Statement("SELECT 1"))).num_rows == 1
        with pytest.raises(EngineError):
            engine.execute(Statement("DROP TABLE reads"))
        assert "DROP" not in warehouse.asked[-1][0]
        engine.close()


def test_a_statement_beyond_its_time_is_cancelled(tmp_path: Path) -> None:
    with serve(tmp_path, slow=True) as (warehouse, url, options):
        engine = DatabricksEngine.open(url, {}, options=options, time_limit=0.5)
        with pytest.raises(EngineError):
            engine.execute(Statement("SELECT 2"))
        assert warehouse.stopped.is_set()
        engine.close()


def test_what_is_not_opened_says_why_without_the_password(tmp_path: Path) -> None:
    with serve(tmp_path) as (_, url, options):
        with pytest.raises(EngineError) as missing:
            DatabricksEngine.open(url, {"nothing": None}, options=options)
        assert missing.value.code == "table-missing"
        with pytest.raises(EngineError) as unknown:  # another authority
            DatabricksEngine.open(url.replace("?", "/more?"), {}, options=options)
        assert unknown.value.code == "engine-unreachable"
        assert "secret" not in str(unknown.value)
        with pytest.raises(EngineError, match="has no token") as nobody:
            DatabricksEngine.open(url.replace("token:secret@", ""), {}, options=options)
        assert nobody.value.code == "engine-unreachable"
        with pytest.raises(UsageError) as option:
            DatabricksEngine.open(url, {}, options={**options, "access_token": "secret"})
        assert option.value.code == "source-option"
