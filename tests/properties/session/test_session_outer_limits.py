"""The SELECT around a private query has the limits of the policy, and with a worker takes nothing of this process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from support.session_kit import COUNTS, values_rows

import dpsql
from dpsql.connect import open_session
from dpsql.engines.duckdb.evaluator import DuckDBEvaluator, WorkerEvaluator
from dpsql.open_engine import open_engine, open_evaluator
from dpsql.session import Session

LONG = f"WITH x AS ({COUNTS}) SELECT COUNT(*) FROM x, wide AS a, wide AS b, wide AS c WHERE a.i * b.i % c.i = n"
LARGE = f"WITH x AS ({COUNTS}) SELECT DISTINCT a.t, b.t AS u, n FROM x, wide AS a, wide AS b ORDER BY 1, 2, 3"
TABLES = {"reads": dpsql.PrivateTable("user_id"), "wide": dpsql.PublicTable()}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("wrapped") / "events.duckdb"
    with duckdb.connect(str(file)) as connection:
        for statement in values_rows({"a": 2000, "b": 1000}):
            connection.execute(statement)
        connection.execute("CREATE TABLE wide AS SELECT i, repeat('x', 200) || i AS t FROM range(1, 3001) AS r(i)")
    return file


@pytest.fixture(params=["process", "in_process"])
def session(database: Path, request: pytest.FixtureRequest) -> Iterator[Session]:
    settings = dpsql.EngineSettings(isolation=request.param, memory_limit="512MB", threads=1, time_limit=2)
    policy = dpsql.Policy(dpsql.Budget(10, "1e-6"), TABLES, engine=settings)
    with dpsql.connect(database, policy=policy, ledger=":memory:") as opened:
        yield opened


def peak() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])


@pytest.mark.parametrize("sql", [LONG, LARGE], ids=["long", "large"])
def test_it_ends_within_the_time_limit_and_the_private_answer_is_stored(session: Session, sql: str) -> None:
    session.sql(f"SELECT COUNT(*) FROM ({COUNTS}) AS x")
    began = time.monotonic()
    with pytest.raises(dpsql.EngineError) as caught:
        session.sql(sql)
    assert caught.value.code == "wrapping-failed"
    assert time.monotonic() - began < 2 + 28
    assert session.sql(COUNTS).receipt.replayed
    assert len(session.sql(f"SELECT n FROM ({COUNTS}) AS x")) == 2
    assert session.history.num_rows == 1


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("session", ["process"], indirect=True)
def test_the_process_that_has_the_ledger_stays_small(session: Session) -> None:
    session.sql(f"SELECT COUNT(*) FROM ({COUNTS}) AS x")
    before = peak()
    with pytest.raises(dpsql.EngineError):
        session.sql(LARGE)
    assert peak() - before < 50_000


def test_the_evaluator_is_chosen_by_where_the_data_is_open_and_closed_with_the_session(session: Session) -> None:
    evaluator = session._dependencies.evaluator
    if session._dependencies.engine.isolation == "in_process":
        assert isinstance(evaluator, DuckDBEvaluator)
        return
    assert isinstance(evaluator, WorkerEvaluator)
    session.sql(f"SELECT COUNT(*) FROM ({COUNTS}) AS x")
    (worker,) = evaluator._idle
    session.close()
    assert worker._process.poll() is not None


@pytest.mark.parametrize(
    ("settings", "memory_limit", "seconds"),
    [
        ({}, "1GB", 60),
        ({"time_limit": 5, "memory_limit": "200MB"}, "200MB", 5),
        ({"time_limit": 600, "memory_limit": "16GB"}, "1GB", 600),
    ],
)
@pytest.mark.parametrize("isolation", ["process", "in_process"])
def test_the_limits_are_the_policys(
    database: Path, isolation: str, settings: dict[str, object], memory_limit: str, seconds: float
) -> None:
    known = dpsql.EngineSettings(isolation=isolation, **settings)  # type: ignore[arg-type]
    policy = dpsql.Policy(dpsql.Budget(10, "1e-6"), TABLES, engine=known)
    with closing(open_engine(database, policy)) as engine:
        evaluator = open_evaluator(engine, policy)
        assert isinstance(evaluator, WorkerEvaluator if isolation == "process" else DuckDBEvaluator)
        assert (evaluator._memory_limit, evaluator._seconds) == (memory_limit, seconds)


def test_a_desk_that_sessions_share_outlives_them(database: Path) -> None:
    settings = dpsql.EngineSettings(isolation="process", memory_limit="512MB", threads=1, time_limit=20)
    policy = dpsql.Policy(dpsql.Budget(10, "1e-6"), TABLES, engine=settings)
    with closing(WorkerEvaluator()) as evaluator:
        for _ in range(2):
            with open_session(open_engine(database, policy), policy, ledger=":memory:", evaluator=evaluator) as session:
                assert len(session.sql(f"SELECT n FROM ({COUNTS}) AS x")) == 2
        assert len(evaluator._idle) == 1
