"""The evaluator: released rows are computed with where nothing else is, in bounded time, and in nobody's words."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from dpsql.engines import Statement
from dpsql.engines.duckdb.evaluator import DuckDBEvaluator, SuccessiveInstances, _uses_state
from dpsql.errors import EngineError

PATH = ("memory", "a evaluator", "released")
ROWS = pa.table({"c1": ["a", None, "b"], "c2": pa.array([1, 2, 3], pa.int64()), "c3": [float("nan"), -0.0, 1.0]})
FROM = 'FROM "memory"."a evaluator"."released"'


def test_rows_are_found_at_their_path_as_they_are() -> None:
    answer = DuckDBEvaluator().compute({PATH: ROWS}, Statement(f"SELECT * {FROM}"))
    assert repr(answer.to_pylist()) == repr(ROWS.to_pylist())
    assert answer.schema.field("c2").type == pa.int64()
    greatest = DuckDBEvaluator().compute({PATH: ROWS}, Statement(f"SELECT c2 {FROM} WHERE c3 > $1", (1.0,)))
    assert greatest.to_pylist() == [{"c2": 1}]  # NaN is the greatest number, as everywhere


def test_nothing_of_one_statement_is_there_for_the_next() -> None:
    evaluator = DuckDBEvaluator()
    evaluator.compute({PATH: ROWS}, Statement(f"SELECT 1 {FROM}"))
    with pytest.raises(EngineError):
        evaluator.compute({}, Statement(f"SELECT 1 {FROM}"))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT table_oid, estimated_size FROM duckdb_tables()",
        "SELECT oid, relname, relnamespace FROM pg_catalog.pg_class",
        "SELECT * FROM information_schema.tables",
        "SELECT type_oid, type_name FROM duckdb_types()",
        "SELECT sum(memory_usage_bytes) AS used FROM duckdb_memory()",
        "SELECT name, rootpage FROM sqlite_master",
        f"SELECT rowid, hash(c1), c1, typeof(c4) {FROM}",
    ],
)
def test_a_statement_finds_its_instance_as_a_first_one_does(sql: str) -> None:
    rows = ROWS.append_column("c4", pa.array([5, 6, 7]).cast(pa.decimal128(38, 0)))
    labels = pa.table({"label": pa.array(["x", "y"]).dictionary_encode()})
    for evaluator in (DuckDBEvaluator(), SuccessiveInstances("1GB")):
        first = evaluator.compute({PATH: rows}, Statement(sql)).to_pylist()
        with suppress(EngineError, duckdb.Error):
            evaluator.compute({PATH: rows}, Statement(f"SELECT CAST(c1 AS INTEGER) {FROM}"))
        evaluator.compute({("memory", "main", "other"): labels, PATH: rows}, Statement(f"SELECT sum(c4) {FROM}"))
        assert repr(evaluator.compute({PATH: rows}, Statement(sql)).to_pylist()) == repr(first)


READS_STATE = "SELECT current_transaction_id() AS a, current_query_id() AS b, txid_current() AS c"


@pytest.mark.parametrize("sql", ["SELECT 1", "SELECT setseed(0.5)", "SELECT random()"])
def test_no_statement_shows_how_many_were_run_before_it(sql: str) -> None:
    evaluator, instances = DuckDBEvaluator(), SuccessiveInstances("1GB")
    first = [each.compute({}, Statement(READS_STATE)) for each in (evaluator, instances)]
    for each in (evaluator, instances):
        each.compute({}, Statement(sql))
    assert [each.compute({}, Statement(READS_STATE)) for each in (evaluator, instances)] == first


def test_every_function_with_a_state_has_an_instance_of_its_own() -> None:
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE has_side_effects OR stability = 'VOLATILE'"
        ).fetchall()
    names = {name for (name,) in found}
    stateless = {"current_query", "error", "sleep_ms", "stats", "vector_type"}  # which show the statement alone
    assert names - {name for name in names if _uses_state(Statement(f"SELECT {name}()"))} == stateless


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "COPY (SELECT 1) TO '{file}'",
        "ATTACH '{file}' AS other",
        "SET memory_limit = '9GB'",
        "SELECT 1; SELECT 2",
        "SELECT 'a value'::INTEGER",
        "SELECT * FROM ROWS",
        "SELECT list(repeat('x', 1000) || a) FROM range(10000000) AS t(a)",
    ],
)
def test_whatever_goes_wrong_is_one_error_in_our_words(sql: str, tmp_path: Path) -> None:
    file = tmp_path / "file.csv"
    file.write_text("a\n1\n")
    with pytest.raises(EngineError) as failed:
        DuckDBEvaluator("100MB").compute({PATH: ROWS}, Statement(sql.format(file=file)))
    assert failed.value.code == "wrapping-failed"
    assert failed.value.__context__ is None
    assert "value" not in str(failed.value)
    assert file.read_text() == "a\n1\n"


def test_it_ends_when_its_time_is_over() -> None:
    long = "SELECT count(*) FROM range(1000000) AS a(x), range(1000000) AS b(y) WHERE (x * y) % 7 = 3"
    with pytest.raises(EngineError):
        DuckDBEvaluator(seconds=0.3).compute({}, Statement(long))
