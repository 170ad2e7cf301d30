"""Released rows are computed with in a worker: the same answers, its limits, and nothing of its failures."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from dpsql.confinement import MEASURES
from dpsql.engines import Statement
from dpsql.engines.duckdb.evaluator import DuckDBEvaluator, SharedEvaluator, WorkerEvaluator, try_confinement
from dpsql.errors import EngineError, UsageError

PATH, OTHER = ("memory", "a evaluator", "released"), ("memory", "main", "public")
ROWS = pa.table({"c1": ["a", None, "b"], "c2": pa.array([1, 2, 3], pa.int64()), "c3": [float("nan"), -0.0, 1.0]})
FROM = 'FROM "memory"."a evaluator"."released"'
LONG = "SELECT count(*) FROM range(1000000) AS a(x), range(1000000) AS b(y) WHERE (x * y) % 7 = 3"
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module")
def evaluator() -> Iterator[WorkerEvaluator]:
    with closing(WorkerEvaluator("500MB", 20)) as opened:
        yield opened


def failed(evaluator: WorkerEvaluator | DuckDBEvaluator, sql: str, stop: Callable[[], bool] | None = None) -> float:
    """Return after how many seconds a statement failed with the one error there is."""
    began = time.monotonic()
    with pytest.raises(EngineError) as caught:
        evaluator.compute({PATH: ROWS}, Statement(sql), stop=stop)
    assert caught.value.code == "wrapping-failed"
    assert caught.value.__context__ is None
    assert "value" not in str(caught.value)
    return time.monotonic() - began


def pids(evaluator: WorkerEvaluator) -> set[int]:
    return {worker.pid for worker in evaluator._idle}


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        (f"SELECT * {FROM}", ()),
        (f"SELECT c2 {FROM} WHERE c3 > $1", (1.0,)),
        (f"SELECT c1, SUM(c2) AS s, AVG(c3) AS a {FROM} GROUP BY ALL ORDER BY ALL", ()),
        (f"SELECT * {FROM} LIMIT 0", ()),
        (f"SELECT t.c1, p.d, p.m {FROM} AS t LEFT JOIN memory.main.public AS p USING (c1) ORDER BY ALL", ()),
        ("SELECT $1 AS a, $2 AS b, $3 AS c", (Decimal("1.50"), "text", None)),
    ],
)
def test_it_answers_as_in_process(evaluator: WorkerEvaluator, sql: str, parameters: tuple[object, ...]) -> None:
    public = pa.table({"c1": ["a", "z"], "d": pa.array([0, None], pa.date32()), "m": [Decimal("1.25"), None]})
    tables, statement = {PATH: ROWS, OTHER: public}, Statement(sql, parameters)
    here, there = DuckDBEvaluator().compute(tables, statement), evaluator.compute(tables, statement)
    assert there.schema == here.schema
    assert repr(there.to_pylist()) == repr(here.to_pylist())


def test_nothing_of_one_statement_is_there_for_the_next_in_the_same_worker(evaluator: WorkerEvaluator) -> None:
    evaluator.compute({PATH: ROWS}, Statement(f"SELECT 1 {FROM}"))
    before = pids(evaluator)
    evaluator.compute({PATH: ROWS}, Statement(f"SELECT 2 {FROM}"))
    assert pids(evaluator) == before != set()
    with pytest.raises(EngineError):
        evaluator.compute({}, Statement(f"SELECT 1 {FROM}"))
    assert pids(evaluator).isdisjoint(before)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "COPY (SELECT 1) TO '{file}'",
        "ATTACH '{file}' AS other",
        "SELECT 1; SELECT 2",
        "SELECT 'a value'::INTEGER",
        "SELECT list(repeat('x', 1000) || a) FROM range(10000000) AS t(a)",
        "SELECT repeat('x', 3000000000::BIGINT) AS x",
        "SELECT repeat('x', 70000000) AS x",
        "SELECT [1, 2] AS nested",
    ],
)
def test_any_failure_is_one_error_and_the_next_is_answered(
    evaluator: WorkerEvaluator, sql: str, tmp_path: Path
) -> None:
    file = tmp_path / "file.csv"
    file.write_text("a\n1\n")
    failed(evaluator, sql.format(file=file))
    assert file.read_text() == "a\n1\n"
    assert evaluator.compute({}, Statement("SELECT 1 AS x")).to_pylist() == [{"x": 1}]


def test_it_starts_no_process_before_it_is_needed_and_leaves_none() -> None:
    evaluator = WorkerEvaluator()
    assert not evaluator._idle
    evaluator.compute({}, Statement("SELECT 1"))
    (pid,) = pids(evaluator)
    evaluator.close()
    evaluator.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(UsageError):
        evaluator.compute({}, Statement("SELECT 1"))


def test_one_that_is_forgotten_leaves_no_process() -> None:
    evaluator = WorkerEvaluator()
    evaluator.compute({}, Statement("SELECT 1"))
    (pid,) = pids(evaluator)
    del evaluator
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("kind", [WorkerEvaluator, DuckDBEvaluator])
def test_it_ends_when_its_time_is_over(kind: type[WorkerEvaluator | DuckDBEvaluator]) -> None:
    with closing(kind(seconds=1)) as evaluator:
        evaluator.compute({}, Statement("SELECT 1"))  # starting is not part of a statement's time
        assert 1 <= failed(evaluator, LONG) < 2


@pytest.mark.parametrize("kind", [WorkerEvaluator, DuckDBEvaluator])
def test_it_ends_soon_after_a_stop(kind: type[WorkerEvaluator | DuckDBEvaluator]) -> None:
    with closing(kind()) as evaluator:
        evaluator.compute({}, Statement("SELECT 1"), stop=lambda: False)
        stop = threading.Event()
        threading.Timer(0.5, stop.set).start()
        assert 0.5 <= failed(evaluator, LONG, stop.is_set) < 1.5
        assert evaluator.compute({}, Statement("SELECT 1 AS x")).to_pylist() == [{"x": 1}]


def test_an_interrupt_passes_and_costs_the_worker(evaluator: WorkerEvaluator) -> None:
    evaluator.compute({}, Statement("SELECT 1"))
    held = pids(evaluator)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            evaluator.compute({}, Statement(LONG))
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(held - pids(evaluator)) == 1
    assert evaluator.compute({}, Statement("SELECT 1 AS x")).to_pylist() == [{"x": 1}]


def test_a_long_statement_does_not_hold_up_another_and_a_third_waits_or_gives_up(evaluator: WorkerEvaluator) -> None:
    stop = threading.Event()
    codes: list[str] = []

    def run() -> None:
        try:
            evaluator.compute({}, Statement(LONG), stop=stop.is_set)
        except EngineError as error:
            codes.append(error.code)

    first, second = (threading.Thread(target=run) for _ in range(2))
    first.start()
    time.sleep(0.3)
    assert evaluator.compute({}, Statement("SELECT 1 AS x")).to_pylist() == [{"x": 1}]
    second.start()
    time.sleep(0.5)
    assert failed(evaluator, "SELECT 1", lambda: True) < 1
    threading.Timer(0.5, stop.set).start()
    assert evaluator.compute({}, Statement("SELECT 1 AS x")).to_pylist() == [{"x": 1}]
    first.join()
    second.join()
    assert codes == ["wrapping-failed"] * 2


def test_many_threads_get_their_own_answers(evaluator: WorkerEvaluator) -> None:
    found: list[tuple[int, object]] = []

    def ask(number: int) -> None:
        table = pa.table({"n": list(range(number))})
        answer = evaluator.compute({PATH: table}, Statement(f"SELECT count(*) + $1 AS n {FROM}", (number,)))
        found.append((number, answer.to_pylist()[0]["n"]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(number, 2 * number) for number in range(1, 25)]
    assert len(evaluator._idle) <= 2


def test_a_worker_that_died_between_two_statements_is_replaced_unseen(evaluator: WorkerEvaluator) -> None:
    evaluator.compute({}, Statement("SELECT 1"))
    for worker in evaluator._idle:
        worker._process.kill()
        worker._process.wait()
    assert evaluator.compute({}, Statement("SELECT 1 AS x")).to_pylist() == [{"x": 1}]


def test_a_value_that_no_statement_has_costs_no_worker(evaluator: WorkerEvaluator) -> None:
    with pytest.raises(EngineError):
        evaluator.compute({}, Statement("SELECT $1", (object(),)))
    assert evaluator.compute({}, Statement("SELECT 1 AS x")).to_pylist() == [{"x": 1}]


@on_linux
def test_its_worker_has_two_pipes_no_file_and_the_limits(evaluator: WorkerEvaluator) -> None:
    evaluator.compute({}, Statement("SELECT 1"))
    pid = evaluator._idle[0].pid
    opened = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    assert {name for name in opened if not name.startswith("pipe:")} <= {"/dev/null"}
    assert len([name for name in opened if name.startswith("pipe:")]) == 2
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    hard = {line[:25].strip(): line[26:].split()[1] for line in lines[1:]}
    assert hard["Max file size"] == hard["Max core file size"] == "0"
    assert int(hard["Max address space"]) == 500 * 10**6 + (3 << 29) + (1 << 26)


@on_linux
def test_an_evaluation_takes_its_memory_elsewhere(evaluator: WorkerEvaluator) -> None:
    def memory() -> int:
        (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1])

    evaluator.compute({}, Statement("SELECT 1"))
    before = memory()
    sql = "SELECT count(*) AS n FROM (SELECT DISTINCT i, i::VARCHAR AS t FROM range(3000000) AS r(i))"
    assert evaluator.compute({}, Statement(sql)).to_pylist() == [{"n": 3_000_000}]
    assert memory() - before < 50_000


HOSTILE = """
import os, sys, time
sys.path[:] = sys.argv[1:]
from dpsql.engines.duckdb import evaluator as duckdb_desk
from dpsql.engines.duckdb import protocol, worker
import pyarrow as pa
def hostile(table):
    {act}
protocol.encode_table = hostile
worker.evaluate()
"""
ACTS = {
    "is killed": "os.kill(os.getpid(), 9)",
    "goes without a word": "os._exit(0)",
    "stands still within the answer": "os.write(1, b''); time.sleep(600)",
    "sends noise": "return os.urandom(5000)",
    "sends another message": "return protocol.message(kind='ready', error='VICTIM')",
    "sends too much": "return memoryview(bytearray((256 << 20) + 1))",
    "fails": "raise ValueError('VICTIM')",
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
def test_a_worker_in_other_hands_is_one_failure(monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    monkeypatch.setattr("dpsql.engines.duckdb.evaluator._BEGIN", HOSTILE.format(act=act))
    with closing(WorkerEvaluator(seconds=2)) as evaluator:
        assert failed(evaluator, "SELECT 1") < 2 + 10
        monkeypatch.undo()
        assert evaluator.compute({}, Statement("SELECT 1 AS x")).to_pylist() == [{"x": 1}]


def test_a_worker_that_cannot_start_is_one_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path))
    with closing(WorkerEvaluator()) as evaluator:
        failed(evaluator, "SELECT 1")
    assert try_confinement() == ()


def test_what_a_worker_can_do_here_is_told_in_known_words() -> None:
    assert set(try_confinement()) <= set(MEASURES)


def test_one_that_is_shared_stays_open_when_a_session_closes_it(evaluator: WorkerEvaluator) -> None:
    shared = SharedEvaluator(evaluator)
    shared.close()
    assert shared.compute({}, Statement("SELECT 1 AS x")).to_pylist() == [{"x": 1}]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_starts_a_worker_of_its_own(evaluator: WorkerEvaluator) -> None:
    evaluator.compute({}, Statement("SELECT 1"))
    before = pids(evaluator)
    child = os.fork()
    if child == 0:
        evaluator.compute({}, Statement("SELECT 1"))
        own = pids(evaluator) - before
        evaluator.close()
        os._exit(0 if len(own) == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert pids(evaluator) == before
    assert evaluator.compute({}, Statement("SELECT 1 AS x")).to_pylist() == [{"x": 1}]
