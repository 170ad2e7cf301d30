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

__all__ = ["EngineQueue", "Place", "QueueTerms", "engine_busy", "round_to_grid"]

# An analyst is slow of whose last statements even the quickest took so many times as long as that of the quickest
# analyst, and so many seconds: one of several is not delayed by what else the machine does.
_SLOW, _LEAST_SLOW, _REMEMBERED = 4.0, 0.05, 3
# Seconds since the end of a last statement beside which others are slow, and those beside which they are if their own
# take longer than so many: places are left free for quick statements only as long as some are to be expected.
_RECENT, _RECENT_FOR_LONG, _LONG = 10.0, 60.0, 1.0


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """Terms of a place: the grid on which it is handed on, and the most seconds that a statement waits for it."""

    grid_ms: int | None = None
    seconds: float | None = None


@dataclass(eq=False, slots=True)
class Place:
    """Place that an analyst holds, from when, and at which time it is free again.

    No two places that are held have the same number. One at which no statement has run says nothing of its analyst.
    """

    analyst: str
    began: float
    until: float = math.inf
    number: int = 0
    has_run: bool = False

    def measure(self, now: float) -> float:
        """Return the seconds that the statement has taken; after its end, those until the time of the grid."""
        return min(now, self.until) - self.began


class EngineQueue:
    """Queue for `places`, one for each analyst, in which analysts take turns and at most `max_waiting` statements wait.

    A free place goes to the next waiting analyst, and to the one of their threads that has waited longest. Slow
    analysts have at most half of several places, so that quick statements do not wait for slow ones: those whose last
    three statements took more than 0.05 s, and more than four times as long as the quickest of others in the last ten
    seconds or, where they took more than one second, in this minute.
    None of them waits for much slower ones, or without end for those of analysts who are quick at other times.
    With a grid, a place is handed on at 1, 2, 4, 8 ... times the grid after it was taken, whenever its statement ended:
    who waits, is refused or comes next depends on durations only as rounded so.
    """

    def __init__(self, places: int, *, max_waiting: int) -> None:
        self._changed = threading.Condition()
        self._places, self._max_waiting = places, max_waiting
        self._held: list[Place] = []
        self._running = Counter[str]()
        self._waiting: OrderedDict[str, deque[list[Place]]] = OrderedDict()  # the next of the round first
        self._granted = 0
        self._last: dict[str, deque[Place]] = {}  # of each analyst, those whose time has come

    def resize(self, places: int, *, max_waiting: int) -> None:
        """Change the number of places, and of statements that may wait; those that hold one or wait go on."""
        with self._changed:
            self._places, self._max_waiting = places, max_waiting
            self._changed.notify_all()

    @contextmanager
    def place(self, analyst: str, terms: QueueTerms, *, stop: Stop | None = None) -> Iterator[Place]:
        """Hold a place during the body, which says whether it `has_run` a statement.

        Raises `engine-busy` if too many wait already or the wait takes too long, and `statement-stopped` if `stop`
        returns True meanwhile.
        """
        deadline = math.inf if terms.seconds is None else time.monotonic() + terms.seconds
        granted: list[Place] = []
        try:
            self._line_up(analyst, granted)
            while not self._wait(granted, deadline, poll=stop is not None):
                if stop is not None and stop():
                    raise statement_stopped()
                if time.monotonic() >= deadline:
                    raise engine_busy("No place at the engine became free in time.")
            yield granted[0]
        finally:
            self._leave(analyst, granted, grid_ms=terms.grid_ms)

    def _line_up(self, analyst: str, granted: list[Place]) -> None:
        with self._changed:
            self._waiting.setdefault(analyst, deque()).append(granted)
            self._grant()
            if not granted and sum(map(len, self._waiting.values())) > self._max_waiting:
                raise engine_busy("Too many statements wait for the engine.")

    def _wait(self, granted: list[Place], deadline: float, *, poll: bool) -> bool:
        """Wait until something may have changed; return whether the place is granted."""
        with self._changed:
            self._grant()
            if not granted:
                now = time.monotonic()
                moments = [deadline, *(place.until for place in self._held)]
                is_held_back = len(self._held) < self._places  # which ends as time passes
                pause = min([each - now for each in moments] + [LOOK] * (poll or is_held_back))
                self._changed.wait(None if math.isinf(pause) else max(0.0, pause))
            return bool(granted)

    def _leave(self, analyst: str, granted: list[Place], *, grid_ms: int | None) -> None:
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
            if place.has_run:
                self._last.setdefault(place.analyst, deque(maxlen=_REMEMBERED)).append(place)
        is_granted = False
        while len(self._held) < self._places and (analyst := self._find_next(now)) is not None:
            waiting = self._waiting[analyst]
            place = Place(analyst, now, number=self._find_number())
            waiting.popleft().append(place)
            self._held.append(place)
            self._running[analyst] += 1
            self._waiting.move_to_end(analyst)
            if not waiting:
                del self._waiting[analyst]
            is_granted = True
        if is_granted:
            self._changed.notify_all()

    def _find_number(self) -> int:
        """Return the number of a free place; they take turns, since the engine may not run at some of them."""
        taken = {place.number for place in self._held}
        self._granted += 1
        numbers = ((self._granted + step) % self._places for step in range(self._places))
        return next(number for number in numbers if number not in taken)

    def _find_next(self, now: float) -> str | None:
        """Return the next analyst who may have a free place."""
        usual = {analyst: min(place.measure(now) for place in last) for analyst, last in self._last.items()}
        ages = {analyst: now - last[-1].until for analyst, last in self._last.items()}
        limits = [
            max(_LEAST_SLOW, _SLOW * min((usual[each] for each in usual if ages[each] <= recent), default=math.inf))
            for recent in (_RECENT, _RECENT_FOR_LONG)
        ]
        slow = {analyst for analyst, seconds in usual.items() if seconds > limits[seconds > _LONG]}

        def may_be_slow(analyst: str) -> bool:
            """Return whether a slow analyst may have a place: one of those for slow ones, or the only one they have."""
            longest = _SLOW * usual[analyst]
            limit = limits[usual[analyst] > _LONG]
            held = [place for place in self._held if place.measure(now) <= longest]
            of_slow = sum(place.analyst in slow for place in held)
            taken = sum(place.analyst in slow or place.measure(now) > limit for place in held)
            return taken < max(1, self._places // 2) or (ages[analyst] > longest and not of_slow)

        for analyst in self._waiting:
            if not self._running[analyst] and (analyst not in slow or may_be_slow(analyst)):
                return analyst
        return None


def round_to_grid(grid: float, seconds: float) -> float:
    """Return the least of 1, 2, 4, 8 ... times `grid` that is at least `seconds`."""
    step = grid
    while step < seconds:
        step *= 2
    return step


def engine_busy(reason: str) -> Refusal:
    """Return the refusal of a statement that was not run, for now."""
    hint = "Nothing was charged. Send the statement again later."
    return Refusal("engine-busy", reason, hint=hint)
