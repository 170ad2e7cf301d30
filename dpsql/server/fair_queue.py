"""Fair queue: of those who wait for a place, the analysts take turns, however many statements each has sent."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpsql.engines.base import LOOK, statement_stopped

if TYPE_CHECKING:
    from dpsql.engines.base import Stop

__all__ = ["FairQueue"]


class FairQueue:
    """Gives out `places`, of which an analyst holds at most `each`; threads wait in it, in the order of their analysts.

    A place that becomes free goes to the next analyst in the round who waits and holds fewer than `each`, and there to
    the thread that has waited longest.
    """

    def __init__(self, places: int, *, each: int = 1) -> None:
        self._lock = threading.Lock()
        self._free, self._each = places, each
        self._held = Counter[str]()
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
            self._leave(analyst, granted)

    def _leave(self, analyst: str, granted: threading.Event) -> None:
        """Free the place that was granted, or give up waiting for one."""
        with self._lock:
            if granted.is_set():
                self._free += 1
                self._held[analyst] -= 1
                if not self._held[analyst]:
                    del self._held[analyst]
            else:
                self._waiting[analyst].remove(granted)
                if not self._waiting[analyst]:
                    del self._waiting[analyst]
            self._grant()

    def _grant(self) -> None:
        """Give free places to those who are next."""
        while self._free:
            analyst = next((name for name in self._waiting if self._held[name] < self._each), None)
            if analyst is None:
                return
            waiting = self._waiting[analyst]
            waiting.popleft().set()
            self._free -= 1
            self._held[analyst] += 1
            self._waiting.move_to_end(analyst)
            if not waiting:
                del self._waiting[analyst]
