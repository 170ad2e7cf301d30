"""Analysts who share an engine learn from waiting for it no more than from an answer: a time of the grid."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any, cast

import pytest

from dpsql.engines import Engine, Statement
from dpsql.server.shared_engine import SharedEngine, TimingGate


class Slow:
    """An engine whose statements take as long as their text says."""

    def __init__(self) -> None:
        self.began = threading.Event()

    def execute(self, statement: Statement) -> None:
        self.began.set()
        seconds = float(statement.sql)
        time.sleep(abs(seconds))
        if seconds < 0:
            raise ValueError

    def accepts_pattern(self, pattern: str) -> bool:
        return pattern != "("

    def unique(self, name: str, column: str) -> bool:
        return name == column


def waited(gate: TimingGate, sql: str) -> float:
    """Return how long another waits who asks right after a statement began."""
    engine = Slow()
    first, second = (SharedEngine(cast("Engine", engine), gate) for _ in range(2))

    def running() -> None:
        with suppress(ValueError):
            first.execute(Statement(sql))

    thread = threading.Thread(target=running)
    thread.start()
    assert engine.began.wait(30)
    began = time.monotonic()
    assert second.accepts_pattern("x")
    took = time.monotonic() - began
    thread.join()
    return took


@pytest.mark.parametrize(("sql", "point"), [("0.01", 0.2), ("0.15", 0.2), ("0.25", 0.4), ("-0.01", 0.2)])
def test_whoever_waits_goes_on_at_a_time_of_the_grid(sql: str, point: float) -> None:
    assert point - 0.05 <= waited(TimingGate(200), sql) < point + 5


def test_the_answer_itself_is_not_held_twice() -> None:
    """The session holds it back already; two grids, one after the other, would double every time."""
    began = time.monotonic()
    SharedEngine(cast("Engine", Slow()), TimingGate(60_000)).execute(Statement("0.01"))
    assert time.monotonic() - began < 30


def test_without_a_grid_nothing_is_held() -> None:
    assert waited(TimingGate(None), "3") < 10


def test_a_lent_engine_is_not_closed_by_who_borrowed_it() -> None:
    engine: Any = Slow()
    lent = SharedEngine(engine, TimingGate(None))
    lent.close()
    assert lent.unique("a", "a")
