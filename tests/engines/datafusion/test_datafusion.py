"""The engine of DataFusion, in this process: opened over files, asked, refused and stopped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command_kit import dpsql_command

import dpsql
from dpsql.engines import Column, CsvFile, RemoteFiles, Statement, open_exact
from dpsql.engines.datafusion import PINNED, DataFusionEngine
from dpsql.engines.lakes import find_folder
from dpsql.engines.sources import Folder
from dpsql.errors import EngineError, Error, PolicyError, UsageError
from dpsql.policy import EngineSettings

SECRET = "VICTIM_SECRET"
SLOW = "SELECT COUNT(*) AS n FROM generate_series(1, 100000000000) AS s(x) WHERE x % 7 = 3"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    reads = {
        "user_id": pa.array([1, 2, 3], pa.int64()),
        "article": pa.array(["a", "b", SECRET]),
        "price": pa.array([1.5, 2.5, math.nan]),
        "Day": pa.array([0, 1, 2], pa.int32()).cast(pa.date32()),
        "DAY": pa.array([0, 1, 2], pa.int32()),
        "at": pa.array([0, 1, 2], pa.timestamp("us")),
        "zoned": pa.array([0, 1, 2], pa.timestamp("us", tz="UTC")),
        "exact": pa.array([0, 1, 2], pa.timestamp("ns")),
        "tags": pa.array([["x"], [], None], pa.list_(pa.string())),
        "cost": pa.array([None, None, None], pa.decimal128(10, 2)),
    }
    pq.write_table(pa.table(reads), tmp_path / "reads.parquet", row_group_size=1)
    for kind, values in [("k=a%20b", [1]), ("k=__HIVE_DEFAULT_PARTITION__", [2, 3]), ("k=it's", [4])]:
        (tmp_path / "parts" / kind).mkdir(parents=True)
        pq.write_table(pa.table({"user_id": values}), tmp_path / "parts" / kind / "part[0]*.parquet")
    return tmp_path


def opened(
    sources: dict[str, Path | CsvFile | Folder | None], time_limit: float | None = 30, **options: str
) -> DataFusionEngine:
    return DataFusionEngine.open("datafusion:", sources, options=options, time_limit=time_limit)


@pytest.fixture
def engine(folder: Path) -> Iterator[DataFusionEngine]:
    parts = find_folder(folder / "parts", place="table parts")
    with closing(
        opened({"reads": folder / "reads.parquet", 'Odd "name': folder / "reads.parquet", "parts": parts})
    ) as it:
        yield it


def run(engine: DataFusionEngine, sql: str, *parameters: object) -> pa.Table:
    return open_exact(engine.execute(Statement(sql, parameters)))


def test_columns_have_duckdbs_types(engine: DataFusionEngine) -> None:
    assert engine.columns("reads") == engine.columns('Odd "name')
    assert engine.columns("reads") == (  # without the two whose names differ in case alone
        Column("user_id", "BIGINT"),
        Column("article", "VARCHAR"),
        Column("price", "DOUBLE"),
        Column("at", "TIMESTAMP"),
        Column("zoned", "TIMESTAMP WITH TIME ZONE"),
        Column("exact", "timestamp[ns]"),
        Column("tags", "list"),
        Column("cost", "DECIMAL(10,2)"),
    )
    assert run(engine, 'SELECT COUNT(*) AS n FROM "Odd ""name"').to_pylist() == [{"n": 3}]


def test_a_folder_has_the_files_and_partitions_that_it_had_when_it_was_opened(
    engine: DataFusionEngine, folder: Path
) -> None:
    pq.write_table(pa.table({"user_id": [9]}), folder / "parts" / "k=it's" / "late.parquet")
    found = run(engine, 'SELECT user_id, k FROM "parts" ORDER BY user_id').to_pylist()
    assert [(row["user_id"], row["k"]) for row in found] == [(1, "a b"), (2, None), (3, None), (4, "it's")]
    assert engine.columns("parts") == (Column("user_id", "BIGINT"), Column("k", "VARCHAR"))


def test_links_to_files_end_with_the_engine(folder: Path) -> None:
    engine = opened({"reads": folder / "reads.parquet"})
    place = engine._links._root
    assert place is not None
    assert [file.resolve() for file in place.rglob("*.parquet")] == [folder / "reads.parquet"]
    engine.close()
    assert not place.exists()


def test_sources_are_parquet(folder: Path) -> None:
    (folder / "bad.parquet").write_text("no Parquet")
    for source, code in [
        (None, "table-missing"),
        (CsvFile(folder / "x.csv", ()), "policy-source"),
        (Folder(folder, "delta", ()), "policy-source"),
        (RemoteFiles("s3://example/reads.parquet"), "policy-source"),
        (folder / "none.parquet", "source-missing"),
        (folder / "bad.parquet", "source-unreadable"),
    ]:
        with pytest.raises(Error) as caught:
            opened({"reads": source})
        assert caught.value.code == code
        assert caught.value.__context__ is None
    with pytest.raises(PolicyError, match="no address"):
        DataFusionEngine.open("datafusion://host", {}, options={})


def test_a_starter_policy_is_written_from_the_files(tmp_path: Path) -> None:
    code, _, err = dpsql_command("init", "datafusion:", cwd=tmp_path)
    assert code != 0
    assert "Name a Parquet file or a folder" in err


def test_settings_are_datafusions_but_for_those_that_statements_need(folder: Path) -> None:
    small = {"datafusion.runtime.memory_limit": "1K"}
    sql = 'SELECT "a"."user_id" FROM "reads" AS "a" CROSS JOIN "reads" AS "b" ORDER BY "b"."article"'
    with closing(opened({"reads": folder / "reads.parquet"}, **small)) as engine, pytest.raises(EngineError):
        run(engine, sql)
    with closing(opened({"reads": folder / "reads.parquet"})) as engine:
        assert run(engine, sql).num_rows == 9
    refused = {**PINNED, "datafusion.no.such": "1", "x'; SELECT 1": "1", "datafusion.execution.batch_size": "many"}
    for name, value in refused.items():
        with pytest.raises(UsageError) as caught:
            opened({}, **{name: value})
        assert (caught.value.code, caught.value.place) == ("source-option", f"source.options.{name}")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; SELECT 2",
        "",
        "SELEC 1",
        "SET datafusion.execution.batch_size = 1",
        "CREATE TABLE other AS SELECT 1",
        "DROP TABLE reads",
        "INSERT INTO reads SELECT * FROM reads",
        "COPY (SELECT 1) TO '/tmp/dpsql-copied.parquet'",
        "SELECT * FROM '/etc/passwd'",
    ],
)
def test_only_one_select_that_reads_is_run(engine: DataFusionEngine, sql: str) -> None:
    with pytest.raises(EngineError) as caught:
        run(engine, sql)
    assert caught.value.code == "engine-failed"
    assert run(engine, "SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_an_error_has_no_word_of_the_engine(engine: DataFusionEngine) -> None:
    with pytest.raises(EngineError) as caught:
        run(engine, 'SELECT CAST(article AS INT) FROM "reads"')
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_a_statement_that_takes_too_long_is_stopped_and_the_next_one_runs(folder: Path) -> None:
    with closing(opened({"reads": folder / "reads.parquet"}, time_limit=0.3)) as engine:
        with pytest.raises(EngineError) as caught:
            run(engine, SLOW)
        assert caught.value.code == "engine-failed"
        assert engine._running is None  # its tasks have ended
        assert run(engine, "SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_a_stop_signal_stops_a_statement(engine: DataFusionEngine) -> None:
    with pytest.raises(EngineError):
        engine.execute(Statement(SLOW), stop=lambda: True)
    assert run(engine, "SELECT 1 AS one").to_pylist() == [{"one": 1}]


def policy(folder: Path, *, engine: EngineSettings | None = None) -> dpsql.Policy:
    tables = {"reads": dpsql.PrivateTable("user_id", source=folder / "reads.parquet")}
    source = dpsql.DataSource("datafusion:")
    settings = EngineSettings() if engine is None else engine
    return dpsql.Policy(dpsql.Budget(100, "1e-6"), tables, source=source, engine=settings)


def test_rows_with_nan_are_found_in_blocks_whose_statistics_leave_it_out(folder: Path) -> None:
    rows = 4_000
    reads = {"user_id": range(rows), "price": [math.nan if each % 2 else 1.0 for each in range(rows)]}
    pq.write_table(pa.table(reads), folder / "reads.parquet", row_group_size=100)
    sql = (
        "SELECT price > 5 AS large, COUNT(DISTINCT user_id) AS n FROM reads WHERE price > 5 OR price = 'NaN' GROUP BY 1"
    )
    with dpsql.connect(policy=policy(folder), ledger=":memory:") as session:
        answer = session.sql(f"{sql} TOP 1 PRIVATE WITH (epsilon = 1)")
        ((large, count),) = answer.fetchall()
        assert large
        assert abs(count - rows / 2) < 100
        assert answer.receipt.isolation == "in_process"


def test_the_data_is_open_in_this_process(folder: Path) -> None:
    with pytest.raises(UsageError) as caught:
        dpsql.connect(policy=policy(folder), isolation="process", ledger=":memory:")
    assert caught.value.code == "isolation-connection"
    with pytest.raises(PolicyError, match="memory_limit"):
        dpsql.connect(policy=policy(folder, engine=EngineSettings(memory_limit="1GB")), ledger=":memory:")
