"""Turns at an engine that runs several statements: fair, bounded, and handed on at times of the grid."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, cycle, repeat
from typing import Any

import pytest

from dpsql.errors import EngineError, Refusal
from dpsql.server import queues as engine_queue
from dpsql.server.queues import EnginePlace, EngineQueue, QueueTerms, round_to_grid

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
    queue._last = {name: deque([EnginePlace(name, now - taken, now)]) for name, taken in seconds.items()}


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
            last.append(EnginePlace("", clock.now + 60, clock.now + 61))
        clock.now += 61
        queue.resize(2, max_waiting=20)
        assert other.entered.wait(30)
        other.leave()


def test_one_delayed_statement_makes_nobody_slow() -> None:
    queue = EngineQueue(2, max_waiting=20)
    remember(queue, light=0.01, slow=1.0, other=0.01)
    queue._last["light"].append(EnginePlace("light", 0.0, 9.0))
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
    with queue.place("ana", QueueTerms(900)) as place:
        place.has_run = True
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


Durations = Iterator[float]


class Simulation:
    """Analysts at a queue whose clock a test turns: the seconds of their statements, and between two of one.

    `waits` are the seconds that statements waited, and for those that still wait at the end; `unused` is the longest
    time in which a place was free while somebody waited.
    """

    def __init__(self, clock: Clock, places: int, analysts: dict[str, tuple[Durations, float]]) -> None:
        self._clock, self._queue, self._places = clock, EngineQueue(places, max_waiting=99), places
        self._analysts = analysts
        self._ends: dict[str, float] = {}
        self._asks = dict.fromkeys(analysts, clock.now)
        self._granted: dict[str, list[EnginePlace]] = {}
        self.waits: dict[str, list[float]] = {name: [] for name in analysts}
        self.unused, self._since = 0.0, clock.now

    def run(self, seconds: float) -> Simulation:
        end = self._clock.now + seconds
        while self._clock.now < end:
            for name in self._analysts:
                self._step(name)
            with self._queue._changed:
                self._queue._grant()
            for name, (durations, _) in self._analysts.items():
                if self._granted.get(name) and name not in self._ends:
                    self._granted[name][0].has_run = True
                    self.waits[name].append(self._clock.now - self._asks[name])
                    self._ends[name] = self._clock.now + next(durations)
            if waiting(self._queue) == 0 or len(self._queue._held) == self._places:
                self._since = self._clock.now
            self.unused = max(self.unused, self._clock.now - self._since)
            self._clock.now += 0.01
        for name in self._granted.keys() - self._ends.keys():
            self.waits[name].append(self._clock.now - self._asks[name])
        return self

    def _step(self, name: str) -> None:
        now = self._clock.now
        if name in self._ends and self._ends[name] <= now:
            self._queue._leave(name, self._granted.pop(name), grid_ms=None)
            del self._ends[name]
            self._asks[name] = now + self._analysts[name][1]
        if name not in self._granted and self._asks[name] <= now:
            self._granted[name] = []
            self._queue._line_up(name, self._granted[name])


def test_slow_analysts_do_not_wait_without_end_for_those_who_are_quick_at_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The quickest of three statements says how slow an analyst is; two long ones of three may fill the places."""
    analysts = {f"at times {seconds}": (cycle([seconds, seconds, 0.01]), 0.0) for seconds in (7.0, 9.0, 10.0)}
    found = Simulation(Clock(monkeypatch), 3, {**analysts, "light": (repeat(0.01), 2.0), "slow": (repeat(10.0), 0.0)})
    assert max(found.run(400).waits["slow"]) < 60


@pytest.mark.parametrize("places", [2, 3, 4])
def test_slow_analysts_do_not_wait_for_much_slower_ones(places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    analysts = {f"slow {number}": (repeat(0.3), 0.0) for number in range(3)}
    endless = {f"endless {number}": (chain([0.3] * 3, repeat(1e9)), 0.0) for number in range(places // 2)}
    found = Simulation(Clock(monkeypatch), places, {**analysts, **endless, "light": (repeat(0.01), 2.0)}).run(60)
    assert max(max(found.waits[name]) for name in analysts) < 5
    assert max(found.waits["light"]) < 1


def test_one_quick_statement_keeps_no_places_free_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    analysts = {f"alike {number}": (repeat(0.2), 0.0) for number in range(5)}
    found = Simulation(Clock(monkeypatch), 4, {**analysts, "light": (repeat(0.01), 40.0)}).run(120)
    assert 9 < found.unused < 11
    assert Simulation(Clock(monkeypatch), 4, analysts).run(30).unused == 0


def test_places_are_kept_free_for_quick_statements_that_keep_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    analysts = {f"slow {number}": (repeat(1.3), 0.0) for number in range(4)}
    light = {f"light {number}": (repeat(0.02), 2.0) for number in range(12)}
    found = Simulation(Clock(monkeypatch), 3, {**analysts, **light})
    waits = found.run(40).waits
    assert max(max(waits[name][5:]) for name in light) < 0.2


def test_places_have_numbers_of_their_own_which_take_turns() -> None:
    queue = EngineQueue(3, max_waiting=9)
    numbers = list[int]()
    with queue.place("ana", FREE) as first:
        for _ in range(4):
            with queue.place("ben", FREE) as place:
                numbers.append(place.number)
        queue.resize(1, max_waiting=9)
    assert len(set(numbers)) == 2
    assert first.number not in numbers
    with queue.place("ana", FREE) as first:
        assert first.number == 0
