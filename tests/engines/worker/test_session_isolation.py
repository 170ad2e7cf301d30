"""Sessions whose data is open in a process of its own: the same answers, and whatever happens to it is one failure."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import duckdb
import pytest
from support.session_kit import COUNTS, NAMES, PRIVATE, filled, rebuilt, session_on, values_rows

import dpsql
from dpsql import charged_release
from dpsql.charged_release import hold_to_grid
from dpsql.engines import Exact, Statement
from dpsql.engines.duckdb.worker_engine import WorkerEngine
from dpsql.report.answer_json import encode_receipt
from dpsql.session import Session

CORPUS = Path(__file__).parents[2] / "properties" / "attacks" / "statements.jsonl"
BOMBS = [
    pytest.param(statement["sql"], id=statement["id"])
    for statement in map(json.loads, CORPUS.read_text().splitlines())
    if statement["category"].startswith("resource/")
]
SLOW = "SELECT count(*) AS n FROM range(400000) AS a, range(400000) AS b WHERE a.range * b.range = 7"
FAILED = "The engine could not answer; the query is charged in full: 5 % of the budget."
FRESH = NAMES.replace("epsilon", "fresh = true, epsilon")
ISOLATED = dpsql.EngineSettings(isolation="process", memory_limit="1GB", threads=2, time_limit=20)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("isolated") / "events.duckdb"
    with duckdb.connect(str(file)) as connection:
        for statement in values_rows({"a": 2000, "b": 1000}):
            connection.execute(statement)
        connection.execute("ALTER TABLE reads ADD COLUMN dwell DOUBLE")
    return file


def policy(**engine: object) -> dpsql.Policy:
    return dpsql.Policy(dpsql.Budget(10, "1e-6"), PRIVATE, engine=dpsql.EngineSettings(**engine))  # type: ignore[arg-type]


@pytest.fixture
def session(database: Path) -> Iterator[Session]:
    known = dpsql.Policy(dpsql.Budget(10, "1e-6"), PRIVATE, engine=ISOLATED)
    with dpsql.connect(database, policy=known, ledger=":memory:") as opened:
        yield opened


def worker_of(session: Session) -> int:
    engine = session._dependencies.engine
    assert isinstance(engine, WorkerEngine)
    assert engine._worker is not None
    return engine._worker.pid


def assert_charged_in_full(session: Session, sql: str) -> None:
    assert session.budget.rho.spent == session.explain(sql).worst_case.rho.value
    assert session.budget.rho.reserved == 0
    assert session.history.column("state").to_pylist()[-1] == "failed"


def test_answers_and_receipts_come_as_in_process(session: Session) -> None:
    answer = session.sql(COUNTS)
    assert [row[0] for row in answer.fetchall()] == ["a", "b"]
    assert (answer.receipt.isolation, answer.receipt.sealed) == ("process", True)
    shown = session.sql("SHOW TABLES").receipt
    assert shown.isolation == "process"
    measures = session._dependencies.engine.confinement  # type: ignore[attr-defined]
    assert answer.receipt.confinement == shown.confinement == measures
    assert encode_receipt(answer.receipt)["confinement"] == list(measures)
    assert session.sql(COUNTS).receipt.replayed


def test_the_caller_may_ask_for_a_worker_where_the_policy_does_not(database: Path) -> None:
    for asked, found in ((None, "in_process"), ("process", "process")):
        with dpsql.connect(database, policy=policy(), ledger=":memory:", isolation=asked) as session:
            assert session.sql(NAMES).receipt.isolation == found


def test_the_caller_cannot_ask_for_less(database: Path) -> None:
    with pytest.raises(dpsql.UsageError) as caught:
        dpsql.connect(database, policy=policy(isolation="process"), ledger=":memory:", isolation="in_process")
    assert caught.value.code == "isolation"


def test_an_open_connection_cannot_be_isolated() -> None:
    with filled(*values_rows({"a": 10})) as connection, pytest.raises(dpsql.UsageError) as caught:
        dpsql.connect(connection, policy=policy(isolation="process"), ledger=":memory:")
    assert caught.value.code == "isolation-connection"


def test_a_worker_that_is_killed_is_a_failure_charged_in_full_and_the_next_is_answered(session: Session) -> None:
    victim = worker_of(session)

    def killed(_statement: Statement, execute: object) -> Exact:
        threading.Timer(0.3, os.kill, (victim, signal.SIGKILL)).start()
        return execute(Statement(SLOW))  # type: ignore[operator, no-any-return]

    broken = rebuilt(session, engine=killed)
    with pytest.raises(dpsql.EngineError) as caught:
        broken.sql(NAMES)
    assert caught.value.reason == FAILED
    assert caught.value.__context__ is None
    assert_charged_in_full(broken, NAMES)
    assert [row[0] for row in session.sql(COUNTS).fetchall()] == ["a", "b"]
    assert worker_of(session) != victim


REASONS = {
    "too slow": SLOW,
    "too large": "SELECT repeat('x', 3000000000::BIGINT) AS x",
    "an error": "SELECT error('VICTIM_SECRET')",
    "no table": "SELECT * FROM nothing",
}


@pytest.mark.parametrize("reason", REASONS.values(), ids=REASONS.keys())
def test_failures_cannot_be_told_apart(database: Path, reason: str) -> None:
    known = policy(isolation="process", memory_limit="512MB", threads=2, time_limit=1)
    with dpsql.connect(database, policy=known, ledger=":memory:") as session:
        failing = rebuilt(session, engine=lambda _, execute: execute(Statement(reason)))
        with pytest.raises(dpsql.EngineError) as caught:
            failing.sql(NAMES)
        assert (caught.value.code, caught.value.reason) == ("engine-failed", FAILED)
        assert vars(caught.value).keys() == {"code", "reason", "hint", "place"}
        assert_charged_in_full(failing, NAMES)
        assert len(session.sql(NAMES)) == 2


@pytest.mark.parametrize("sql", BOMBS)
def test_what_would_exhaust_the_machine_is_refused_answered_or_killed(session: Session, sql: str) -> None:
    began = time.monotonic()
    try:
        session.sql(sql)
    except dpsql.Error as error:
        told = error.code
    else:
        told = "answered"
    assert told != "engine-result"
    assert time.monotonic() - began < 20 + 10
    assert [row[0] for row in session.sql(FRESH).fetchall()] == ["a", "b"]


def test_in_process_the_time_limit_asks_the_statement_to_stop(database: Path) -> None:
    with dpsql.connect(database, policy=policy(time_limit=0.5), ledger=":memory:") as session:
        slow = rebuilt(session, engine=lambda _, execute: execute(Statement(SLOW)))
        began = time.monotonic()
        with pytest.raises(dpsql.EngineError) as caught:
            slow.sql(NAMES)
        assert caught.value.code == "engine-failed"
        assert time.monotonic() - began < 10
        assert_charged_in_full(slow, NAMES)
        assert len(session.sql(NAMES)) == 2


class Clock:
    """A clock that goes on only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    ("grid", "passes", "leaves"),
    [
        (200, 0, 0.2),
        (200, 0.2, 0.2),
        (200, 0.201, 0.4),
        (200, 0.5, 0.8),
        (250, 1.1, 2),
        (None, 0.3, 0.3),
        (1, 9, 16.384),
    ],
)
def test_the_grid_is_one_two_four_times_the_first_step(
    monkeypatch: pytest.MonkeyPatch, grid: int | None, passes: float, leaves: float, *, fails: bool
) -> None:
    clock = Clock()
    monkeypatch.setattr("dpsql.charged_release.time", clock)
    with suppress(ValueError), hold_to_grid(grid):
        clock.sleep(passes)
        int("no number" if fails else "1")
    assert clock.now == pytest.approx(leaves)


@pytest.mark.parametrize("fails", [False, True])
def test_answers_and_failures_leave_on_the_grid(*, fails: bool) -> None:
    def answering(statement: Statement, execute: object) -> Exact:
        if fails:
            raise dpsql.EngineError("any", "Words.", hint="None.")
        return execute(statement)  # type: ignore[operator, no-any-return]

    with session_on(filled(*values_rows({"a": 2000})), policy(answer_grid_ms=700)) as session:
        began = time.monotonic()
        try:
            rebuilt(session, engine=answering).sql(NAMES)
        except dpsql.EngineError:
            assert fails
        assert time.monotonic() - began >= 0.7


def test_what_depends_on_no_row_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    grids, hold = list[int | None](), charged_release.hold_to_grid

    def counted(milliseconds: int | None) -> AbstractContextManager[None]:
        grids.append(milliseconds)
        return hold(milliseconds)

    monkeypatch.setattr(charged_release, "hold_to_grid", counted)
    with session_on(filled(*values_rows({"a": 2000})), policy(answer_grid_ms=15)) as session:
        for sql in (NAMES, NAMES, f"EXPLAIN {NAMES}", "SHOW BUDGET"):
            session.sql(sql)
    assert grids == [15]  # the first query alone


def interrupted(execute: Callable[[Statement], Exact], statement: Statement) -> Exact:
    """Ask the engine, and interrupt this process half a second later."""
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    return execute(statement)


def test_an_interrupt_does_not_wait_and_is_charged_in_full() -> None:
    with session_on(filled(*values_rows({"a": 2000})), policy(answer_grid_ms=60_000)) as session:
        statements = list[Statement]()

        def interrupt_first(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
            """Interrupt once, however many statements the query runs."""
            statements.append(statement)
            return interrupted(execute, statement) if len(statements) == 1 else execute(statement)

        waiting = rebuilt(session, engine=interrupt_first)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        began = time.monotonic()
        try:
            with pytest.raises(KeyboardInterrupt) as caught:
                waiting.sql(NAMES)
        finally:
            signal.signal(signal.SIGINT, before)
        assert time.monotonic() - began < 30
        assert caught.value.__context__ is None
        assert session.budget.rho.spent == session.explain(NAMES).worst_case.rho.value
        assert session.history.column("state").to_pylist() == ["interrupted"]


def test_an_interrupt_while_the_worker_counts_is_charged_in_full_and_the_next_is_answered(session: Session) -> None:
    victim = worker_of(session)
    slow = rebuilt(session, engine=lambda _, execute: interrupted(execute, Statement(SLOW)))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            slow.sql(NAMES)
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught.value.__context__ is None
    assert session.history.column("state").to_pylist() == ["interrupted"]
    assert session.budget.rho.spent == session.explain(NAMES).worst_case.rho.value
    assert [row[0] for row in session.sql(COUNTS).fetchall()] == ["a", "b"]
    assert worker_of(session) != victim


def test_closing_while_a_query_runs_leaves_its_worst_case_spent(database: Path, tmp_path: Path) -> None:
    ledger, known = tmp_path / "ledger.sqlite", policy(isolation="process", threads=1, time_limit=3)
    failures: list[dpsql.Error] = []
    with dpsql.connect(database, policy=known, ledger=ledger) as session:
        worst = session.explain(NAMES).worst_case
        slow = rebuilt(session, engine=lambda _, execute: execute(Statement(SLOW)))

        def ask() -> None:
            try:
                slow.sql(NAMES)
            except dpsql.Error as error:
                failures.append(error)

        running = threading.Thread(target=ask)
        running.start()
        time.sleep(1)
    running.join()
    assert {error.code for error in failures} <= {"engine-failed", "ledger-closed"}
    assert len(failures) == 1
    with dpsql.connect(database, policy=known, ledger=ledger) as later:
        assert later.budget.rho.spent + later.budget.rho.reserved == worst.rho.value


def test_an_interrupt_of_a_statement_leaves_the_grid_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), hold_to_grid(60_000):
        raise KeyboardInterrupt
    assert time.monotonic() - began < 30


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_ledger_is_open_here_and_the_data_there(database: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    with dpsql.connect(database, policy=policy(isolation="process"), ledger=ledger) as session:
        session.sql(NAMES)
        mine, its = (
            {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
            for pid in (os.getpid(), worker_of(session))
        )
    assert str(ledger) in mine
    assert str(ledger) not in its
    assert str(database) in its
    assert str(database) not in mine
