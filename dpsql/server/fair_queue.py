"""Fair shares of the server: places that analysts take in turn, and a limit on each analyst's processor time."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpsql.engines.base import LOOK, statement_stopped

if TYPE_CHECKING:
    from dpsql.engines.base import Stop

__all__ = ["FairQueue", "ProcessorShare"]


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
    most about a fifth. Alone, an analyst never waits.
    """

    _PAUSE, _MAX_PAUSE, _RECENT = 4.0, 2.0, 2.0  # times the time taken; seconds; seconds since another analyst's last

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: dict[str, float] = {}
        self._seen: OrderedDict[str, float] = OrderedDict()  # the latest last

    @contextmanager
    def turn(self, analyst: str, *, stop: Stop | None = None) -> Iterator[None]:
        """Wait until the share allows the body; raise `statement-stopped` if `stop` returns True meanwhile."""
        while (pause := self._find_pause(analyst)) > 0:
            if stop is not None and stop():
                raise statement_stopped()
            time.sleep(min(pause, LOOK))
        with self._measure(analyst):
            yield

    @contextmanager
    def try_turn(self, analyst: str) -> Iterator[bool]:
        """Run the body at once, with True if the share allows it and with False otherwise."""
        if self._find_pause(analyst) > 0:
            yield False
            return
        with self._measure(analyst):
            yield True

    @contextmanager
    def _measure(self, analyst: str) -> Iterator[None]:
        """Add the processor time of the body to what the analyst has taken."""
        began = time.thread_time()
        try:
            yield
        finally:
            taken, now = time.thread_time() - began, time.monotonic()
            with self._lock:
                ready = max(self._ready.get(analyst, 0.0), now) + self._PAUSE * taken
                self._ready = {name: until for name, until in self._ready.items() if until > now}
                self._ready[analyst] = min(ready, now + self._MAX_PAUSE)

    def _find_pause(self, analyst: str) -> float:
        """Return the seconds that the analyst has to wait, and record that the analyst is at work."""
        now = time.monotonic()
        with self._lock:
            self._seen[analyst] = now
            self._seen.move_to_end(analyst)
            while now - next(iter(self._seen.values())) > self._RECENT:
                self._seen.popitem(last=False)
            return 0.0 if len(self._seen) == 1 else self._ready.get(analyst, 0.0) - now
