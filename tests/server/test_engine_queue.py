"""Turns at an engine that runs several statements: fair, bounded, and handed on at times of the grid."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dpsql.errors import EngineError, Refusal
from dpsql.server import engine_queue
from dpsql.server.engine_queue import EngineQueue, QueueTerms, _Place, round_to_grid

FREE = QueueTerms()


def until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError


def waiting(queue: EngineQueue) -> int:
    return sum(map(len, queue._waiting.values()))


class Analyst:
    """A thread that holds a place until it is released."""

    def __init__(self, queue: EngineQueue, name: str, terms: QueueTerms = FREE) -> None:
        self.entered, self.going, self.code = threading.Event(), threading.Event(), ""
        self._queue, self._name, self._terms = queue, name, terms
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._queue.place(self._name, self._terms):
                self.entered.set()
                assert self.going.wait(60)
        except Refusal as error:
            self.code = error.code

    def leave(self) -> None:
        self.going.set()
        self._thread.join()

    def join(self) -> None:
        self._thread.join()


@contextmanager
def holding(queue: EngineQueue, *names: str) -> Iterator[list[Analyst]]:
    """Let analysts hold places during the body."""
    found = [Analyst(queue, name) for name in names]
    try:
        assert all(each.entered.wait(30) for each in found)
        yield found
    finally:
        for each in found:
            each.leave()


class Clock:
    """Time that passes when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        fake: Any = type("Time", (), {"monotonic": lambda _: self.now})()
        monkeypatch.setattr(engine_queue, "time", fake)


def is_at_rest(queue: EngineQueue) -> bool:
    queue._grant()
    return not queue._held and not queue._waiting and not queue._running


def test_analysts_take_turns_at_every_place_however_many_statements_each_has_sent() -> None:
    queue, order = EngineQueue(2, max_waiting=20), list[str]()
    inside = [Analyst(queue, name) for name in ("first", "second")]
    assert all(each.entered.wait(30) for each in inside)
    outside = []
    for name in ["greedy"] * 2 + ["ana", "ben"]:
        outside.append((name, Analyst(queue, name)))
        until(lambda: waiting(queue) == len(outside))
    while outside:
        inside.pop(0).leave()
        until(lambda: any(each.entered.is_set() for _, each in outside))
        for found in [each for each in outside if each[1].entered.is_set()]:
            outside.remove(found)
            order.append(found[0])
            inside.append(found[1])
    for each in inside:
        each.leave()
    assert order == ["greedy", "ana", "ben", "greedy"]
    assert is_at_rest(queue)


def test_an_analyst_runs_one_statement_at_a_time_though_places_are_free() -> None:
    queue = EngineQueue(4, max_waiting=20)
    with holding(queue, "ana"):
        second = Analyst(queue, "ana")
        until(lambda: waiting(queue) == 1)
        with holding(queue, "ben"):
            assert not second.entered.is_set()
    assert second.entered.wait(30)
    second.leave()
    assert is_at_rest(queue)


def remember(queue: EngineQueue, **seconds: float) -> None:
    """Let the queue remember one statement of each analyst, which ended just now."""
    now = engine_queue.time.monotonic()
    queue._last = {name: deque([_Place(name, now - taken, now)]) for name, taken in seconds.items()}


def test_a_quick_statement_does_not_wait_for_those_of_slow_analysts() -> None:
    queue = EngineQueue(4, max_waiting=20)
    remember(queue, light=0.3, s1=1.3, s2=1.3, s3=1.3, s4=1.3)
    with holding(queue, "s1", "s2"):
        others = [Analyst(queue, name) for name in ("s3", "s4")]
        until(lambda: waiting(queue) == 2)  # though two places are free
        for name in ("light", "light", "new"):
            with queue.place(name, FREE):
                assert not any(each.entered.is_set() for each in others)
    for each in others:
        assert each.entered.wait(30)
        each.leave()
    assert is_at_rest(queue)


@pytest.mark.parametrize("last", [(1.3, 1.3, 1.3), (0.01, 0.15, 0.15), (0.3, 1.1, 1.1)])
def test_analysts_of_whom_none_is_slow_leave_no_place_free(last: tuple[float, ...]) -> None:
    queue = EngineQueue(3, max_waiting=20)
    remember(queue, **dict(zip(("a", "b", "c"), last, strict=True)))
    with holding(queue, "a", "b", "c"):
        assert waiting(queue) == 0


def test_slow_analysts_have_all_places_once_the_quick_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, queue = Clock(monkeypatch), EngineQueue(2, max_waiting=20)
    remember(queue, light=0.01, s1=1.0, s2=1.0)
    with holding(queue, "s1"):
        other = Analyst(queue, "s2")
        until(lambda: waiting(queue) == 1)
        for last in (queue._last["s1"], queue._last["s2"]):
            last.append(_Place("", clock.now + 60, clock.now + 61))
        clock.now += 61
        queue.resize(2, max_waiting=20)
        assert other.entered.wait(30)
        other.leave()


def test_one_delayed_statement_makes_nobody_slow() -> None:
    queue = EngineQueue(2, max_waiting=20)
    remember(queue, light=0.01, slow=1.0, other=0.01)
    queue._last["light"].append(_Place("light", 0.0, 9.0))
    with holding(queue, "slow", "light"):
        pass


def test_a_statement_that_runs_for_long_counts_as_slow_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, queue = Clock(monkeypatch), EngineQueue(2, max_waiting=20)
    remember(queue, light=0.01, slow=5.0)
    with holding(queue, "unknown"):
        clock.now += 0.3
        other = Analyst(queue, "slow")
        until(lambda: waiting(queue) == 1)
        with queue.place("light", FREE):
            assert not other.entered.is_set()
    assert other.entered.wait(30)
    other.leave()


def test_one_place_is_for_all() -> None:
    queue = EngineQueue(1, max_waiting=20)
    remember(queue, light=0.01, ana=5.0)
    with queue.place("ana", FREE), pytest.raises(Refusal), queue.place("ben", QueueTerms(seconds=0.01)):
        raise AssertionError
    assert is_at_rest(queue)


def test_a_full_queue_refuses_and_goes_on() -> None:
    queue = EngineQueue(1, max_waiting=2)
    with holding(queue, "ana"):
        lined_up = []
        for name in ("ben", "cleo"):
            lined_up.append(Analyst(queue, name))
            until(lambda: waiting(queue) == len(lined_up))
        with pytest.raises(Refusal) as caught, queue.place("dan", FREE):
            raise AssertionError
        assert caught.value.code == "engine-busy"
        assert waiting(queue) == 2
    for each in lined_up:
        assert each.entered.wait(30)
        each.leave()
    with queue.place("dan", FREE):
        pass
    assert is_at_rest(queue)


def test_a_wait_that_takes_too_long_is_refused() -> None:
    queue = EngineQueue(1, max_waiting=2)
    with holding(queue, "ana"):
        late = Analyst(queue, "ben", QueueTerms(seconds=0.05))
        late.join()
        assert (late.code, late.entered.is_set()) == ("engine-busy", False)
    assert is_at_rest(queue)


def test_who_gives_up_leaves_the_queue() -> None:
    queue = EngineQueue(1, max_waiting=2)
    with holding(queue, "ana"), pytest.raises(EngineError) as caught, queue.place("ben", FREE, stop=lambda: True):
        raise AssertionError
    assert caught.value.code == "statement-stopped"
    assert is_at_rest(queue)


def test_more_and_fewer_places_hold_from_then_on() -> None:
    queue = EngineQueue(1, max_waiting=9)
    with holding(queue, "ana"):
        second = Analyst(queue, "ben")
        until(lambda: waiting(queue) == 1)
        queue.resize(2, max_waiting=9)
        assert second.entered.wait(30)
        queue.resize(1, max_waiting=0)
        with pytest.raises(Refusal), queue.place("cleo", FREE):
            raise AssertionError
        second.leave()
        with pytest.raises(Refusal), queue.place("cleo", FREE):
            raise AssertionError
    assert is_at_rest(queue)


@pytest.mark.parametrize(("taken", "point"), [(0.01, 0.25), (0.2, 0.25), (0.26, 0.5), (3.9, 4.0)])
def test_a_place_of_several_is_handed_on_at_a_time_of_its_grid(
    taken: float, point: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the next in line nor who is refused learns when the statement ended."""
    clock, queue = Clock(monkeypatch), EngineQueue(2, max_waiting=0)
    grid = QueueTerms(250)
    assert point == round_to_grid(0.25, taken)

    def is_free(analyst: str) -> bool:
        try:
            with queue.place(analyst, FREE):
                return True
        except Refusal:
            return False

    other = Analyst(queue, "other")
    assert other.entered.wait(30)
    with queue.place("ana", grid):
        clock.now += taken
    clock.now = 100.0 + point - 0.001
    assert not is_free("ben")
    clock.now = 100.0 + point + 0.001
    assert is_free("ben")
    other.leave()
    assert is_at_rest(queue)


def test_with_a_grid_the_time_of_a_statement_is_one_of_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, queue = Clock(monkeypatch), EngineQueue(2, max_waiting=9)
    with queue.place("ana", QueueTerms(900)):
        clock.now += 0.95
    clock.now = 101.7
    queue._grant()
    assert queue._last == {}
    clock.now = 101.9
    queue._grant()
    assert [place.measure(clock.now) for place in queue._last["ana"]] == [pytest.approx(1.8)]


def test_many_threads_lose_no_place() -> None:
    queue, running, most, lock = EngineQueue(3, max_waiting=50), list[int](), list[int](), threading.Lock()

    def working(name: str) -> None:
        for number in range(40):
            stop = (lambda: True) if number % 7 == 0 else None
            try:
                with queue.place(name, QueueTerms(1 if number % 3 == 0 else None), stop=stop):
                    with lock:
                        running.append(1)
                        most.append(len(running))
                    with lock:
                        running.pop()
            except EngineError:
                pass

    threads = [threading.Thread(target=working, args=(f"analyst{number % 4}",)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= max(most) <= 3
    until(lambda: is_at_rest(queue))
