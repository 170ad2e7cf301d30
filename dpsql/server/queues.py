"""Fair shares of the server: engines for many sessions, places that analysts take in turn, and processor time.

A shared engine must not reveal to one analyst how long another's statement ran. Sessions delay their own answers to a
time of the policy's grid. That is not enough: the next session in line would learn when the previous statement ended.
`EngineQueue` is therefore not only fair and bounded, but hands places on at times of the grid. `ProcessorShare` is for
threads. `LoopShare` measures what one connection takes of the event loop, which serves all.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from dpsql.engines import find_data_version, read_confinement, take_turn
from dpsql.engines.base import LOOK, find_descriptions, statement_stopped
from dpsql.engines.pool import EnginePool, within
from dpsql.errors import EngineError, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpsql.dialects import Dialect
    from dpsql.engines import Column, Engine, Exact, PublicStatements, ResultEvaluator, Statement
    from dpsql.engines.base import Stop
    from dpsql.policy import EngineSettings

Pause = Callable[[], None]
Result = TypeVar("Result")
_SLICE = 0.002  # seconds of processor time after which a long statement pauses
_MOMENT = 0.0005  # seconds of processor time after which the event loop serves other connections
_MAX_DEBTS = 1_000  # analysts whose last pause may be over
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
class EnginePlace:
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
    seconds or, where they took more than one second, in this minute. None of them waits for much slower ones, or
    without end for those of analysts who are quick at other times.

    With a grid, a place is handed on at 1, 2, 4, 8 ... times the grid after it was taken, whenever its statement ended:
    who waits, is refused or comes next depends on durations only as rounded so.
    """

    def __init__(self, places: int, *, max_waiting: int) -> None:
        self._changed = threading.Condition()
        self._places, self._max_waiting = places, max_waiting
        self._held: list[EnginePlace] = []
        self._running = Counter[str]()
        self._waiting: OrderedDict[str, deque[list[EnginePlace]]] = OrderedDict()  # the next of the round first
        self._granted = 0
        self._last: dict[str, deque[EnginePlace]] = {}  # of each analyst, those whose time has come

    def resize(self, places: int, *, max_waiting: int) -> None:
        """Change the number of places, and of statements that may wait; those that hold one or wait go on."""
        with self._changed:
            self._places, self._max_waiting = places, max_waiting
            self._changed.notify_all()

    @contextmanager
    def place(self, analyst: str, terms: QueueTerms, *, stop: Stop | None = None) -> Iterator[EnginePlace]:
        """Hold a place during the body, which says whether it `has_run` a statement.

        Raises `engine-busy` if too many wait already or the wait takes too long, and `statement-stopped` if `stop`
        returns True meanwhile.
        """
        deadline = math.inf if terms.seconds is None else time.monotonic() + terms.seconds
        granted: list[EnginePlace] = []
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

    def _line_up(self, analyst: str, granted: list[EnginePlace]) -> None:
        with self._changed:
            self._waiting.setdefault(analyst, deque()).append(granted)
            self._grant()
            if not granted and sum(map(len, self._waiting.values())) > self._max_waiting:
                raise engine_busy("Too many statements wait for the engine.")

    def _wait(self, granted: list[EnginePlace], deadline: float, *, poll: bool) -> bool:
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

    def _leave(self, analyst: str, granted: list[EnginePlace], *, grid_ms: int | None) -> None:
        with self._changed:
            if granted:
                place, now = granted[0], time.monotonic()
                taken = now - place.began
                # The place stays in `_held` until then: with a grid of 100 ms, a statement of 130 ms gives it back
                # after 200 ms.
                place.until = now if grid_ms is None else place.began + round_to_grid(grid_ms / 1000, taken)
                self._running[analyst] -= 1
                if not self._running[analyst]:
                    del self._running[analyst]
            elif analyst in self._waiting:
                # By identity, since empty lists are equal.
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
        while self._waiting and len(self._held) < self._places and (analyst := self._find_next(now)) is not None:
            waiting = self._waiting[analyst]
            taken = {place.number for place in self._held}
            self._granted += 1  # numbers take turns, since the engine may not run at some of them
            number = self._granted % self._places
            while number in taken:
                number = (number + 1) % self._places
            place = EnginePlace(analyst, now, number=number)
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
        if not self._held:  # one place is free for a slow analyst too
            return next(iter(self._waiting))
        usual = {analyst: min(place.measure(now) for place in last) for analyst, last in self._last.items()}
        ages = {analyst: now - last[-1].until for analyst, last in self._last.items()}
        limits = [
            max(_LEAST_SLOW, _SLOW * min((usual[each] for each in usual if ages[each] <= recent), default=math.inf))
            for recent in (_RECENT, _RECENT_FOR_LONG)
        ]
        # The index is a bool: an analyst whose statements take over a second is compared with those of the last minute.
        slow = {analyst for analyst, seconds in usual.items() if seconds > limits[seconds > _LONG]}

        def may_be_slow(analyst: str) -> bool:
            """Return whether a slow analyst may have a place: one of those for slow ones, or the only one they have."""
            longest = _SLOW * usual[analyst]
            limit = limits[usual[analyst] > _LONG]
            # Places whose statements take much longer do not count: one of 1 s is not held back by one of 60 s.
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


_WAIT = 0.5  # of the time limit: a statement that begins has at least the rest


class QueuedEngine:
    """One session's view of a shared engine: it cannot close it, and analysts take turns.

    The time limit of a statement counts from the start of its wait. One that has waited for half of it is refused.
    """

    def __init__(self, engine: Engine, queue: EngineQueue, *, settings: EngineSettings, analyst: str) -> None:
        limit = settings.time_limit
        self._engine, self._queue, self._analyst = engine, queue, analyst
        self._limit = math.inf if limit is None else limit
        self._terms = QueueTerms(settings.answer_grid_ms, None if limit is None else _WAIT * limit)
        self._turn = threading.local()

    @property
    def dialect(self) -> Dialect:
        """The SQL dialect of its statements."""
        return self._engine.dialect

    @property
    def sealed(self) -> bool:
        """Whether dpsql opened the engine."""
        return self._engine.sealed

    @property
    def isolation(self) -> str:
        """The kind of isolation of the data."""
        return self._engine.isolation

    @property
    def confinement(self) -> tuple[str, ...]:
        """The measures that confine the process of the data."""
        return read_confinement(self._engine)

    def relation(self, name: str) -> tuple[str, ...]:
        """Return the identifier of a table."""
        return self._engine.relation(name)

    def columns(self, name: str) -> tuple[Column, ...]:
        """Return the columns of a table."""
        return self._engine.columns(name)

    def data_version(self, name: str) -> str | None:
        """Return the version of the files of a table whose rows stay what they are."""
        return find_data_version(self._engine, name)

    @property
    def descriptions(self) -> Mapping[str, str]:
        """Descriptions of what is materialized in the database."""
        return find_descriptions(self._engine)

    def unique(self, name: str, column: str) -> bool:
        """Return whether the values of a column are distinct."""
        with self._enter() as (place, _):
            place.has_run = True
            return self._engine.unique(name, column)

    def accepts_pattern(self, pattern: str) -> bool:
        """Return whether the engine compiles this regular expression; waits for no statement."""
        return self._engine.accepts_pattern(pattern)

    @contextmanager
    def turn(self, stop: Stop | None = None) -> Iterator[None]:
        """Wait for this analyst's turn, and run the body in it; raise `engine-busy` if that takes too long."""
        with self._enter(stop):
            yield

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT, in the turn of the caller or in one of its own; it fails at the time limit."""
        with self._enter(stop) as (place, deadline):
            place.has_run = True
            if not math.isinf(deadline):
                stop = within(deadline - time.monotonic(), stop)
            return self._engine.execute(statement) if stop is None else self._engine.execute(statement, stop=stop)

    @contextmanager
    def _enter(self, stop: Stop | None = None) -> Iterator[tuple[EnginePlace, float]]:
        """Run the body in the turn of the caller, or in a new one; yield its place, and when its time is over.

        Raises `engine-busy` if the wait for a new one takes too long.
        """
        current: tuple[EnginePlace, float] | None = getattr(self._turn, "current", None)
        if current is not None:
            yield current
            return
        began = time.monotonic()

        def is_late() -> bool:
            return time.monotonic() - began > _WAIT * self._limit

        def should_stop() -> bool:
            return is_late() or (stop is not None and stop())

        is_ready = False
        waits = stop if math.isinf(self._limit) else should_stop
        with self._queue.place(self._analyst, self._terms, stop=stop) as place:
            pool = self._engine if isinstance(self._engine, EnginePool) else None
            try:  # at a free place, the engine itself may not be ready yet
                with take_turn(self._engine, waits) if pool is None else pool.turn(waits, place=place.number):
                    if not is_late():
                        is_ready = True
                        self._turn.current = place, began + self._limit
                        try:
                            yield self._turn.current
                        finally:
                            self._turn.current = None
            except EngineError:
                # Where the engine was not ready in time it raises because `should_stop` said so, which is no failure of
                # the statement.
                if is_ready or not is_late():
                    raise
            if not is_ready:
                raise engine_busy("The engine was not ready in time.")

    def close(self) -> None:
        """Do nothing: the service closes the engine."""


class QueuedPublic:
    """One session's view of the shared engine of public tables; analysts take turns."""

    def __init__(self, public: PublicStatements, queue: EngineQueue, *, settings: EngineSettings, analyst: str) -> None:
        self._public, self._queue, self._analyst = public, queue, analyst
        self._terms = QueueTerms(seconds=settings.public_time_limit)

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT over public tables, in this analyst's turn."""
        with self._queue.place(self._analyst, self._terms, stop=stop) as place:
            place.has_run = True
            return self._public.execute(statement, stop=stop)

    def close(self) -> None:
        """Do nothing: the service closes it."""


class QueuedEvaluator:
    """One session's view of the shared evaluator of released rows; analysts take turns."""

    def __init__(self, evaluator: ResultEvaluator, queue: FairQueue, *, analyst: str) -> None:
        self._evaluator, self._queue, self._analyst = evaluator, queue, analyst

    def compute(
        self,
        tables: Mapping[tuple[str, str, str], pa.Table],
        statement: Statement,
        *,
        stop: Stop | None = None,
    ) -> pa.Table:
        """Run one SELECT over `tables`, in this analyst's turn."""
        with self._queue.place(self._analyst, stop=stop):
            return self._evaluator.compute(tables, statement, stop=stop)

    def close(self) -> None:
        """Do nothing: the service closes it."""


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
                # Under the lock: the place may have been granted after the last look, while `stop` raised, and is given
                # back then.
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
        counted = time.thread_time()

        def pause() -> None:
            nonlocal counted
            now = time.thread_time()
            if now - counted >= _SLICE:
                taken, counted = now - counted, now
                self._add(analyst, taken)
                self._wait(analyst, stop)

        try:
            yield pause
        finally:
            self._add(analyst, time.thread_time() - counted)

    @contextmanager
    def try_turn(self, analyst: str) -> Iterator[bool]:
        """Run the body at once, with True if the share allows it and with False otherwise."""
        if self._find_pause(analyst, self._threads) > 0:
            yield False
            return
        began = time.thread_time()
        try:
            yield True
        finally:
            self._add(analyst, time.thread_time() - began)

    def _add(self, analyst: str, seconds: float) -> None:
        with self._lock:
            self._threads.add(analyst, seconds)

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


class LoopShare:
    """Processor time of the event loop that one connection takes."""

    def __init__(self, share: ProcessorShare) -> None:
        self._share = share
        self._began = self._taken = 0.0

    @coroutine
    def measure(self, work: Coroutine[Any, None, Result]) -> Generator[Any, None, Result]:
        """Return the result of `work`, and measure how long the event loop works on it."""
        # The coroutine is driven by hand: each step between two awaits is timed, and what it awaits is passed on.
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

    async def give_way(self, analyst: str) -> None:
        """Serve other connections if this one took more than a moment; wait if its analyst takes more than a share."""
        now = time.thread_time()
        # `work` calls this, so its current step, which began at `_began`, is not in `_taken` yet.
        taken = self._taken + now - self._began
        if taken < _MOMENT:
            return
        self._taken, self._began = 0.0, now
        self._share.add_loop_time(analyst, taken)
        pause = max(0.0, self._share.find_loop_pause(analyst))
        await asyncio.sleep(pause)
        while pause > 0:  # again where another connection of the analyst went on first
            pause = self._share.find_loop_pause(analyst)
            if pause > 0:
                await asyncio.sleep(pause)
