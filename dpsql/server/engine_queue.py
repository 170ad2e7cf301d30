"""Queue of the statements of many analysts for the places of an engine: fair, bounded, and silent about durations."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engines.base import LOOK, statement_stopped
from dpsql.errors import Refusal

if TYPE_CHECKING:
    from dpsql.engines.base import Stop

__all__ = ["EngineQueue", "QueueTerms", "round_to_grid"]

# An analyst is slow of whose last statements even the quickest took so many times as long as that of the quickest
# analyst, and so many seconds: one of several is not delayed by what else the machine does.
_SLOW, _LEAST_SLOW, _REMEMBERED = 4.0, 0.05, 3
_RECENT = 60.0  # seconds since the end of a last statement beside which others are slow


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """Terms of a place: the grid on which it is handed on, and the most seconds that a statement waits for it."""

    grid_ms: int | None = None
    seconds: float | None = None


@dataclass(eq=False, slots=True)
class _Place:
    """Place that an analyst holds, from when, and at which time it is free again."""

    analyst: str
    began: float
    until: float = math.inf

    def measure(self, now: float) -> float:
        """Return the seconds that the statement has taken; after its end, those until the time of the grid."""
        return min(now, self.until) - self.began


class EngineQueue:
    """Queue for `places`, one for each analyst, in which analysts take turns and at most `max_waiting` statements wait.

    A free place goes to the next waiting analyst, and to the one of their threads that has waited longest. Slow
    analysts have at most half of several places, so that quick statements do not wait for slow ones: those whose last
    three statements took more than four times as long as the quickest of others in this minute, and more than 0.05 s.
    With a grid, a place is handed on at 1, 2, 4, 8 ... times the grid after it was taken, whenever its statement ended:
    who waits, is refused or comes next depends on durations only as rounded so.
    """

    def __init__(self, places: int, *, max_waiting: int) -> None:
        self._changed = threading.Condition()
        self._places, self._max_waiting = places, max_waiting
        self._held: list[_Place] = []
        self._running = Counter[str]()
        self._waiting: OrderedDict[str, deque[list[_Place]]] = OrderedDict()  # the next of the round first
        self._last: dict[str, deque[_Place]] = {}  # of each analyst, those whose time has come

    def resize(self, places: int, *, max_waiting: int) -> None:
        """Change the number of places, and of statements that may wait; those that hold one or wait go on."""
        with self._changed:
            self._places, self._max_waiting = places, max_waiting
            self._changed.notify_all()

    @contextmanager
    def place(self, analyst: str, terms: QueueTerms, *, stop: Stop | None = None) -> Iterator[None]:
        """Hold a place during the body.

        Raises `engine-busy` if too many wait already or the wait takes too long, and `statement-stopped` if `stop`
        returns True meanwhile.
        """
        deadline = math.inf if terms.seconds is None else time.monotonic() + terms.seconds
        granted: list[_Place] = []
        try:
            self._line_up(analyst, granted)
            while not self._wait(granted, deadline, poll=stop is not None):
                if stop is not None and stop():
                    raise statement_stopped()
                if time.monotonic() >= deadline:
                    raise _engine_busy("No place at the engine became free in time.")
            yield
        finally:
            self._leave(analyst, granted, grid_ms=terms.grid_ms)

    def _line_up(self, analyst: str, granted: list[_Place]) -> None:
        with self._changed:
            self._waiting.setdefault(analyst, deque()).append(granted)
            self._grant()
            if not granted and sum(map(len, self._waiting.values())) > self._max_waiting:
                raise _engine_busy("Too many statements wait for the engine.")

    def _wait(self, granted: list[_Place], deadline: float, *, poll: bool) -> bool:
        """Wait until something may have changed; return whether the place is granted."""
        with self._changed:
            self._grant()
            if not granted:
                now = time.monotonic()
                moments = [deadline, *(place.until for place in self._held)]
                pause = min([each - now for each in moments] + [LOOK] * poll)
                self._changed.wait(None if math.isinf(pause) else max(0.0, pause))
            return bool(granted)

    def _leave(self, analyst: str, granted: list[_Place], *, grid_ms: int | None) -> None:
        with self._changed:
            if granted:
                place, now = granted[0], time.monotonic()
                taken = now - place.began
                place.until = now if grid_ms is None else place.began + round_to_grid(grid_ms / 1000, taken)
                self._running[analyst] -= 1
                if not self._running[analyst]:
                    del self._running[analyst]
            elif analyst in self._waiting:
                self._waiting[analyst] = deque(each for each in self._waiting[analyst] if each is not granted)
                if not self._waiting[analyst]:
                    del self._waiting[analyst]
            self._grant()
            self._changed.notify_all()

    def _grant(self) -> None:
        """Take back the places whose time has come, and give the free ones to the next analysts."""
        now = time.monotonic()
        for place in [each for each in self._held if each.until <= now]:
            self._held.remove(place)
            self._last.setdefault(place.analyst, deque(maxlen=_REMEMBERED)).append(place)
        is_granted = False
        while len(self._held) < self._places and (analyst := self._find_next(now)) is not None:
            waiting = self._waiting[analyst]
            place = _Place(analyst, now)
            waiting.popleft().append(place)
            self._held.append(place)
            self._running[analyst] += 1
            self._waiting.move_to_end(analyst)
            if not waiting:
                del self._waiting[analyst]
            is_granted = True
        if is_granted:
            self._changed.notify_all()

    def _find_next(self, now: float) -> str | None:
        """Return the next analyst who may have a free place."""
        usual = {analyst: min(place.measure(now) for place in last) for analyst, last in self._last.items()}
        recent = [usual[analyst] for analyst, last in self._last.items() if now - last[-1].until <= _RECENT]
        limit = max(_LEAST_SLOW, _SLOW * min(recent, default=math.inf))
        slow = {analyst for analyst, seconds in usual.items() if seconds > limit}
        slow_places = sum(place.analyst in slow or place.measure(now) > limit for place in self._held)
        may_be_slow = slow_places < max(1, self._places // 2)
        for analyst in self._waiting:
            if not self._running[analyst] and (may_be_slow or analyst not in slow):
                return analyst
        return None


def round_to_grid(grid: float, seconds: float) -> float:
    """Return the least of 1, 2, 4, 8 ... times `grid` that is at least `seconds`."""
    step = grid
    while step < seconds:
        step *= 2
    return step


def _engine_busy(reason: str) -> Refusal:
    hint = "Nothing was charged. Send the statement again later."
    return Refusal("engine-busy", reason, hint=hint)
