"""Tasks beside a caller that can be interrupted, also while the thread starts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import duckdb
import pyarrow as pa
import pytest

from dpsql.dialects import STANDARD
from dpsql.engines import RemoteEngine, Statement, base
from dpsql.engines.base import BackgroundTask
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import EngineError

ONE = Statement("SELECT 1 AS one", (), ("INTEGER",))


class Remote(RemoteEngine):
    """An engine elsewhere that answers every statement with 1."""

    def fetch(self, _: Statement) -> pa.Table:
        return pa.table({"one": pa.array([1], pa.int32())})

    def disconnect(self) -> None:
        pass


@pytest.fixture(params=["duckdb", "remote"])
def engine(request: pytest.FixtureRequest) -> Iterator[DuckDBEngine | Remote]:
    opened = Remote(STANDARD, {}) if request.param == "remote" else DuckDBEngine.borrow(duckdb.connect(), {})
    with closing(opened):
        yield opened


def starting(failure: BaseException, *, before: bool) -> type[threading.Thread]:
    """Return a thread whose start raises, before or after it runs."""

    class Thread(threading.Thread):
        def start(self) -> None:
            if not before:
                super().start()
            raise failure

    return Thread


@pytest.mark.parametrize("before", [True, False])
def test_an_interrupt_while_the_thread_starts_passes_and_the_next_statement_runs(
    engine: DuckDBEngine | Remote, monkeypatch: pytest.MonkeyPatch, *, before: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(base.threading, "Thread", starting(KeyboardInterrupt(), before=before))
        with pytest.raises(KeyboardInterrupt):
            engine.execute(ONE)
    engine.execute(ONE)


def test_a_thread_that_cannot_start_is_a_failure_of_the_engine(
    engine: DuckDBEngine | Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(base.threading, "Thread", starting(RuntimeError("no thread"), before=True))
        with pytest.raises(EngineError, match="engine-failed"):
            engine.execute(ONE)
    engine.execute(ONE)


def in_threads(act: Callable[[], bool], number: int) -> list[bool]:
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(act())) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_task_runs_or_is_revoked_and_never_both() -> None:
    for _ in range(200):
        ran: list[float] = []
        task = BackgroundTask(lambda ran=ran: ran.append(time.monotonic()), name="task")  # type: ignore[misc]
        task.start()
        revoked = in_threads(task.revoke, 2)
        assert task.done.wait(10)
        assert sum(revoked) + len(ran) == 1


def test_a_revoked_task_never_runs() -> None:
    task = BackgroundTask(lambda: pytest.fail("it ran"), name="task")
    assert task.revoke()
    assert not task.revoke()
    task.start()
    assert task.done.is_set()
