"""Turns that go round among the analysts, and places of connections that are nobody's yet."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from dpsql.errors import EngineError
from dpsql.server.limits import PendingConnections
from dpsql.server.queues import FairQueue, ProcessorShare
from dpsql.server.telemetry import Telemetry


def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError


def test_analysts_take_turns_however_many_statements_each_has_sent() -> None:
    queue, order, lock = FairQueue(1), list[str](), threading.Lock()

    def waiting(name: str) -> None:
        with queue.place(name), lock:
            order.append(name)

    threads = []
    with queue.place("first"):
        for name in ["greedy"] * 5 + ["ana", "ben"]:
            threads.append(threading.Thread(target=waiting, args=(name,)))
            threads[-1].start()
            until(lambda: sum(map(len, queue._waiting.values())) == len(threads))
    for thread in threads:
        thread.join()
    assert order == ["greedy", "ana", "ben", "greedy", "greedy", "greedy", "greedy"]
    assert (queue._free, dict(queue._taken), dict(queue._waiting)) == (1, {}, {})


def test_an_analyst_holds_no_more_than_their_places_though_others_are_free() -> None:
    queue = FairQueue(3, each=1)
    entered = threading.Event()

    def second() -> None:
        with queue.place("ana"):
            entered.set()

    with queue.place("ana"):
        thread = threading.Thread(target=second)
        thread.start()
        with queue.place("ben"):
            assert not entered.wait(0.2)
    thread.join()
    assert entered.is_set()


def test_who_gives_up_leaves_the_queue() -> None:
    queue, stop = FairQueue(1), threading.Event()

    def given_up() -> None:
        with queue.place("ana", stop=stop.is_set):
            raise AssertionError

    with queue.place("ben"):
        threading.Timer(0.2, stop.set).start()
        with pytest.raises(EngineError) as caught:
            given_up()
        assert caught.value.code == "statement-stopped"
    with queue.place("ana"):
        pass
    assert (queue._free, dict(queue._taken), dict(queue._waiting)) == (1, {}, {})


def test_many_threads_lose_no_place() -> None:
    queue, running, most = FairQueue(3, each=2), list[int](), list[int]()
    lock = threading.Lock()

    def working(name: str) -> None:
        for number in range(50):
            stop = (lambda: True) if number % 7 == 0 else None
            try:
                with queue.place(name, stop=stop):
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
    assert max(most) <= 3
    assert (queue._free, dict(queue._taken), dict(queue._waiting)) == (3, {}, {})


def test_the_oldest_silent_connection_of_a_full_address_gives_way() -> None:
    closed: list[int] = []
    places = PendingConnections(4)
    added = [places.add("10.0.0.1", lambda number=number: closed.append(number)) for number in range(2)]  # type: ignore[misc]
    added[0].has_spoken = True
    places.add("10.0.0.1", lambda: closed.append(2))
    assert closed == [1]
    places.add("10.0.0.2", lambda: closed.append(3))
    places.add("10.0.0.3", lambda: closed.append(4))
    assert closed == [1]
    places.add("10.0.0.4", lambda: closed.append(5))  # all are taken: of the address that has most
    assert closed == [1, 2]
    assert len(places) == 4


def test_what_is_being_answered_gives_way_to_nothing() -> None:
    closed: list[int] = []
    places = PendingConnections(2)
    busy = places.add("10.0.0.1", lambda: closed.append(0), is_idle=lambda: False)
    places.add("10.0.0.1", lambda: closed.append(1), is_idle=lambda: False)
    places.add("10.0.0.1", lambda: closed.append(2))
    assert closed == []
    places.remove(busy)
    places.remove(busy)
    assert len(places) == 2


def test_faults_that_are_alike_are_counted_and_no_field_takes_the_place_of_the_time() -> None:
    now, stream = datetime(2026, 11, 23, tzinfo=UTC), io.StringIO()
    watch = Telemetry(stream, clock=lambda: now)
    for _ in range(100):
        watch.log("fault", surface="web", kind="KeyError", where="module:7")
    watch.log("fault", surface="web", kind="OSError", where="module:7")
    now += timedelta(minutes=2)
    watch.log("fault", surface="web", kind="KeyError", where="module:7")
    watch.log("listens", at="elsewhere", place="x")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line.get("unsaid") for line in lines] == [None, None, 99, None]
    assert lines[-1]["at"].startswith("2026-11-23")
    assert 'dpsql_faults_total{surface="web"} 102' in watch.metrics()


def test_an_analyst_who_takes_much_of_the_processor_waits_while_others_are_at_work() -> None:
    share = ProcessorShare()

    def seconds(analyst: str, work: float) -> float:
        began = time.monotonic()
        with share.turn(analyst):
            waited = time.monotonic() - began
            until = time.thread_time() + work
            while time.thread_time() < until:
                pass
        return waited

    assert seconds("greedy", 0.4) + seconds("greedy", 0.4) < 1  # alone, an analyst does not wait
    assert seconds("ana", 0.0) < 1
    assert seconds("greedy", 0.4) >= 0.5  # of the 1.6 s that are left after 0.4 s of work
    assert seconds("ana", 0.0) < 1
    with pytest.raises(EngineError, match="statement-stopped"), share.turn("greedy", stop=lambda: True):
        raise AssertionError


def test_the_share_of_an_analyst_is_charged_when_the_statement_fails_too() -> None:
    share = ProcessorShare()
    with share.turn("ana"):
        pass
    with suppress(ZeroDivisionError), share.turn("greedy"):
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        raise ZeroDivisionError
    assert share._find_pause("greedy", share._threads) > 0


def test_a_long_statement_pauses_within_itself_and_ends_there_when_it_is_stopped() -> None:
    share, paused, is_over = ProcessorShare(), list[float](), list[bool]()

    def work() -> None:
        with share.turn("greedy", stop=lambda: bool(is_over)) as pause:
            while True:
                until = time.thread_time() + 0.02
                while time.thread_time() < until:
                    pass
                began = time.monotonic()
                pause()
                paused.append(time.monotonic() - began)
                if len(paused) > 2:
                    is_over.append(True)

    with share.try_turn("ana"):
        pass
    with pytest.raises(EngineError, match="statement-stopped"):
        work()
    assert len(paused) == 3
    assert min(paused) > 0.05  # of four times 0.02 s


def test_the_event_loop_is_left_to_others_by_who_takes_much_of_it_only() -> None:
    share = ProcessorShare()
    for analyst in ("ana", "greedy"):
        share.find_loop_pause(analyst)
    share.add_loop_time("ana", 0.01)
    share.add_loop_time("greedy", 0.2)
    assert share.find_loop_pause("ana") <= 0
    assert 0.3 < share.find_loop_pause("greedy") <= 0.8
    assert share._find_pause("greedy", share._threads) <= 0
    share.add_loop_time("greedy", 100)
    assert share.find_loop_pause("greedy") <= 2
    alone = ProcessorShare()
    alone.add_loop_time("greedy", 10)
    assert alone.find_loop_pause("greedy") == 0


def test_a_turn_is_refused_at_once_to_an_analyst_who_would_have_to_wait() -> None:
    share = ProcessorShare()
    for analyst in ("ana", "greedy"):
        with share.try_turn(analyst) as has_turn:
            assert has_turn
            until = time.thread_time() + (0.3 if analyst == "greedy" else 0.0)
            while time.thread_time() < until:
                pass
    with share.try_turn("greedy") as has_turn:
        assert not has_turn
    with share.try_turn("ana") as has_turn:
        assert has_turn
