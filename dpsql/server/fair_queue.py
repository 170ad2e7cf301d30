"""Fair shares of the server: places that analysts take in turn, and limits on each one's processor time.

`ProcessorShare` is for threads. `LoopShare` measures what one connection takes of the event loop, which serves all.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from dpsql.engines.base import LOOK, statement_stopped

if TYPE_CHECKING:
    from dpsql.engines.base import Stop

Pause = Callable[[], None]
_SLICE = 0.002  # seconds of processor time after which a long statement pauses
_MAX_DEBTS = 1_000  # analysts whose last pause may be over


class FairQueue:
    """Queue for `places`, at most `each` for one analyst, in which analysts take turns.

    A free place goes to the next waiting analyst with fewer than `each`, and to the one of their threads that has
    waited longest.
    """

    def __init__(self, places: int, *, each: int = 1) -> None:
        self._lock = threading.Lock()
        self._free, self._each = places, each
        self._taken = Counter[str]()
        self._waiting: OrderedDict[str, deque[threading.Event]] = OrderedDict()  # the next of the round first

    @contextmanager
    def place(self, analyst: str, *, stop: Stop | None = None) -> Iterator[None]:
        """Hold a place during the body; raise `statement-stopped` if `stop` returns True while waiting for one."""
        granted = threading.Event()
        with self._lock:
            self._waiting.setdefault(analyst, deque()).append(granted)
            self._grant()
        try:
            while not granted.wait(None if stop is None else LOOK):
                if stop is not None and stop():
                    raise statement_stopped()
            yield
        finally:
            with self._lock:
                if granted.is_set():
                    self._free += 1
                    self._taken[analyst] -= 1
                    if not self._taken[analyst]:
                        del self._taken[analyst]
                else:
                    self._waiting[analyst].remove(granted)
                    if not self._waiting[analyst]:
                        del self._waiting[analyst]
                self._grant()

    def _grant(self) -> None:
        """Give the free places to the next analysts."""
        while self._free:
            for analyst in self._waiting:
                if self._taken[analyst] < self._each:
                    break
            else:
                return
            waiting = self._waiting[analyst]
            waiting.popleft().set()
            self._free -= 1
            self._taken[analyst] += 1
            self._waiting.move_to_end(analyst)
            if not waiting:
                del self._waiting[analyst]


class ProcessorShare:
    """Limit on the share of the interpreter that one analyst takes while others are at work.

    Python runs one thread at a time, so statements that take long to analyse slow down all others. After a statement
    that took t seconds of processor time, the analyst's next one begins 4 t later, at most 2 seconds: an analyst has at
    most about a fifth. A long statement takes such pauses within itself, wherever it calls `pause`. Alone, an analyst
    never waits.

    The event loop, which serves all connections, has a limit of its own, also about a fifth: `add_loop_time` counts the
    time of one connection, and `find_loop_pause` returns how long it waits. What takes little time never waits there.
    """

    _RECENT = 2.0  # seconds since another analyst's last statement

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, float] = OrderedDict()  # the latest last
        self._threads = _Debts(factor=4.0, max_pause=2.0)
        self._loop = _Debts(factor=4.0, max_pause=2.0, grace=0.1)

    @contextmanager
    def turn(self, analyst: str, *, stop: Stop | None = None) -> Iterator[Pause]:
        """Wait until the share allows the body, and yield the pause to call within a long body.

        Both raise `statement-stopped` if `stop` returns True meanwhile.
        """
        self._wait(analyst, stop)
        with self._measure(analyst) as count:
            counted = time.thread_time()

            def pause() -> None:
                nonlocal counted
                if time.thread_time() - counted >= _SLICE:
                    count()
                    self._wait(analyst, stop)
                    counted = time.thread_time()

            yield pause

    @contextmanager
    def try_turn(self, analyst: str) -> Iterator[bool]:
        """Run the body at once, with True if the share allows it and with False otherwise."""
        if self._find_pause(analyst, self._threads) > 0:
            yield False
            return
        with self._measure(analyst):
            yield True

    def add_loop_time(self, analyst: str, seconds: float) -> None:
        """Add processor time that the event loop has spent on a connection of the analyst."""
        with self._lock:
            self._loop.add(analyst, seconds)

    def find_loop_pause(self, analyst: str) -> float:
        """Return the seconds for which the connections of the analyst should leave the event loop to others."""
        return self._find_pause(analyst, self._loop)

    def _wait(self, analyst: str, stop: Stop | None) -> None:
        while (pause := self._find_pause(analyst, self._threads)) > 0:
            if stop is not None and stop():
                raise statement_stopped()
            time.sleep(min(pause, LOOK))

    @contextmanager
    def _measure(self, analyst: str) -> Iterator[Callable[[], None]]:
        """Add the processor time of the body to what the analyst has taken: at its end, and at each call."""
        began = time.thread_time()

        def count() -> None:
            nonlocal began
            now = time.thread_time()
            taken, began = now - began, now
            with self._lock:
                self._threads.add(analyst, taken)

        try:
            yield count
        finally:
            count()

    def _find_pause(self, analyst: str, debts: _Debts) -> float:
        """Return the seconds that the analyst has to wait, and record that the analyst is at work."""
        now = time.monotonic()
        with self._lock:
            self._seen[analyst] = now
            self._seen.move_to_end(analyst)
            while now - next(iter(self._seen.values())) > self._RECENT:
                self._seen.popitem(last=False)
            return 0.0 if len(self._seen) == 1 else debts.find(analyst, now)


class _Debts:
    """Times until which analysts pause: `factor` times what they took, less `grace` seconds; its caller has a lock."""

    def __init__(self, *, factor: float, max_pause: float, grace: float = 0.0) -> None:
        self._factor, self._grace, self._max = factor, grace, max_pause + grace
        self._until: dict[str, float] = {}

    def add(self, analyst: str, seconds: float) -> None:
        """Add the time that an analyst took."""
        now = time.monotonic()
        until = max(self._until.get(analyst, 0.0), now) + self._factor * seconds
        if len(self._until) > _MAX_DEBTS:
            self._until = {name: each for name, each in self._until.items() if each > now}
        self._until[analyst] = min(until, now + self._max)

    def find(self, analyst: str, now: float) -> float:
        """Return the seconds that an analyst has to wait; 0 or less is none."""
        return self._until.get(analyst, 0.0) - now - self._grace


Result = TypeVar("Result")
_MOMENT = 0.0005  # seconds of processor time after which other connections are served


class LoopShare:
    """Processor time of the event loop that one connection takes, for the analyst whose it is now."""

    def __init__(self, share: ProcessorShare, find_analyst: Callable[[], str]) -> None:
        self._share, self._find_analyst = share, find_analyst
        self._began = self._taken = 0.0

    @coroutine
    def measure(self, work: Coroutine[Any, None, Result]) -> Generator[Any, None, Result]:
        """Return the result of `work`, and measure how long the event loop works on it."""
        resume: Callable[[], object] = partial(work.send, None)
        while True:
            self._began = time.thread_time()
            try:
                awaited = resume()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                self._taken += time.thread_time() - self._began
            try:
                yield awaited
                resume = partial(work.send, None)
            except BaseException as error:  # noqa: BLE001 - `work` handles it
                resume = partial(work.throw, error)

    async def give_way(self) -> None:
        """Serve other connections if this one took more than a moment; wait if its analyst takes more than a share."""
        now = time.thread_time()
        taken = self._taken + now - self._began
        if taken < _MOMENT:
            return
        self._taken, self._began = 0.0, now
        analyst = self._find_analyst()
        self._share.add_loop_time(analyst, taken)
        pause = max(0.0, self._share.find_loop_pause(analyst))
        await asyncio.sleep(pause)
        while pause > 0:  # again where another connection of the analyst went on first
            pause = self._share.find_loop_pause(analyst)
            if pause > 0:
                await asyncio.sleep(pause)
