"""Analysts who share an engine learn from waiting for it no more than from an answer: a time of the grid."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import pytest

from dpsql.engines import Engine, Statement
from dpsql.engines.base import statement_stopped
from dpsql.errors import Refusal
from dpsql.policy import EngineSettings
from dpsql.server import queues as engine_queue
from dpsql.server.queues import EngineQueue, QueuedEngine


class Slow:
    """An engine whose statements take as long as their text says."""

    def __init__(self) -> None:
        self.began = threading.Event()

    def execute(self, statement: Statement, **_: Any) -> None:
        self.began.set()
        seconds = float(statement.sql)
        time.sleep(abs(seconds))
        if seconds < 0:
            raise ValueError

    def accepts_pattern(self, pattern: str) -> bool:
        return pattern != "("

    def unique(self, name: str, column: str) -> bool:
        return name == column


def shared(engine: object, queue: EngineQueue, analyst: str = "ana", **settings: Any) -> QueuedEngine:
    return QueuedEngine(cast("Engine", engine), queue, settings=EngineSettings(**settings), analyst=analyst)


def waited(grid: int | None, sql: str, *, ask: str = "execute") -> float:
    """Return how long another analyst waits who asks right after a statement began."""
    engine, queue = Slow(), EngineQueue(1, max_waiting=9)
    first, second = (shared(engine, queue, name, answer_grid_ms=grid) for name in ("ana", "ben"))

    def running() -> None:
        with suppress(ValueError):
            first.execute(Statement(sql))

    thread = threading.Thread(target=running)
    thread.start()
    assert engine.began.wait(30)
    began = time.monotonic()
    if ask == "execute":
        second.execute(Statement("0"))
    else:
        assert second.unique("x", "x")
    took = time.monotonic() - began
    thread.join()
    return took


@pytest.mark.parametrize(("sql", "point"), [("0.01", 0.2), ("0.15", 0.2), ("0.25", 0.4), ("-0.01", 0.2)])
@pytest.mark.parametrize("ask", ["execute", "unique"])
def test_whoever_waits_goes_on_at_a_time_of_the_grid(sql: str, point: float, ask: str) -> None:
    assert point - 0.05 <= waited(200, sql, ask=ask)


def test_a_pattern_waits_for_no_statement() -> None:
    """Waiting would tell when the statement of another ends."""
    engine, queue = Slow(), EngineQueue(1, max_waiting=9)
    thread = threading.Thread(target=shared(engine, queue, answer_grid_ms=60_000).execute, args=(Statement("1"),))
    thread.start()
    assert engine.began.wait(30)
    assert shared(engine, queue, "ben", answer_grid_ms=60_000).accepts_pattern("x")
    assert thread.is_alive()
    thread.join()


def test_the_answer_itself_is_not_held_twice() -> None:
    """The session holds it back already; two grids, one after the other, would double every time."""
    began = time.monotonic()
    shared(Slow(), EngineQueue(1, max_waiting=9), answer_grid_ms=60_000).execute(Statement("0.01"))
    assert time.monotonic() - began < 30


def test_without_a_grid_nothing_is_held() -> None:
    assert waited(None, "3") < 10


class Limited(Slow):
    """An engine that waits until it is stopped."""

    def execute(self, statement: Statement, *, stop: Any = None) -> None:
        self.began.set()
        while not stop():
            time.sleep(0.01)
        raise TimeoutError(statement.sql)


def test_the_time_limit_counts_from_the_start_of_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []
    within = engine_queue.within
    monkeypatch.setattr(engine_queue, "within", lambda seconds, stop: (left.append(seconds), within(seconds, stop))[1])
    engine, queue = Limited(), EngineQueue(1, max_waiting=9)

    def second() -> None:
        with suppress(TimeoutError):
            shared(engine, queue, "ben", time_limit=4).execute(Statement(""))

    first = shared(engine, queue, time_limit=2)
    thread = threading.Thread(target=second)
    with first.turn():
        thread.start()
        while not queue._waiting:
            time.sleep(0.01)
        time.sleep(0.5)
    thread.join()
    assert left[0] <= 4 - 0.5


def test_what_is_asked_in_a_turn_waits_for_no_other_turn() -> None:
    queue = EngineQueue(1, max_waiting=0)
    engine = shared(Slow(), queue)
    with engine.turn():
        assert engine.unique("x", "x")
        with engine.turn():
            engine.execute(Statement("0"))
        assert len(queue._held) == 1
    queue._grant()
    assert not queue._held


class Late(Slow):
    """An engine that becomes ready only when it is told to stop, or after some seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.ran = seconds, False

    @contextmanager
    def turn(self, stop: Any = None) -> Iterator[None]:
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            if self.seconds > 1 and stop():
                raise statement_stopped()
            time.sleep(0.01)
        yield

    def execute(self, _: Statement, **__: Any) -> None:
        self.ran = True


@pytest.mark.parametrize("seconds", [0.3, 60])
def test_a_statement_whose_engine_is_ready_too_late_does_not_begin(seconds: float) -> None:
    """It would be charged, and stopped at once."""
    engine, queue = Late(seconds), EngineQueue(1, max_waiting=9)
    with pytest.raises(Refusal) as caught, shared(engine, queue, time_limit=0.4).turn():
        raise AssertionError
    assert caught.value.code == "engine-busy"
    assert not queue._running
    assert not engine.ran
    engine.seconds = 0
    shared(engine, queue).execute(Statement(""))
    assert engine.ran


def test_only_statements_that_ran_say_how_long_an_analyst_takes() -> None:
    """One that was refused in its turn, as for want of budget, is free and quick, and would make others slow."""
    queue = EngineQueue(2, max_waiting=9)
    with suppress(ValueError), shared(Slow(), queue, "refused").turn():
        raise ValueError
    shared(Slow(), queue, "asked").execute(Statement("0"))
    queue._grant()
    assert list(queue._last) == ["asked"]


def test_a_lent_engine_is_not_closed_by_who_borrowed_it() -> None:
    engine: Any = Slow()
    lent = shared(engine, EngineQueue(1, max_waiting=9))
    lent.close()
    assert lent.unique("a", "a")
