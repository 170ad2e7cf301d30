"""Analysts who share an engine learn from waiting for it no more than from an answer: a time of the grid."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any, cast

import pytest

from dpsql.engines import Engine, Statement
from dpsql.policy import EngineSettings
from dpsql.server import shared_engine
from dpsql.server.engine_queue import EngineQueue
from dpsql.server.shared_engine import SharedEngine


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


def shared(engine: object, queue: EngineQueue, analyst: str = "ana", **settings: Any) -> SharedEngine:
    return SharedEngine(cast("Engine", engine), queue, settings=EngineSettings(**settings), analyst=analyst)


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
    within = shared_engine.within
    monkeypatch.setattr(shared_engine, "within", lambda seconds, stop: (left.append(seconds), within(seconds, stop))[1])
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


def test_a_lent_engine_is_not_closed_by_who_borrowed_it() -> None:
    engine: Any = Slow()
    lent = shared(engine, EngineQueue(1, max_waiting=9))
    lent.close()
    assert lent.unique("a", "a")
