"""Engines shared by many sessions, without revealing to one analyst how long another's statement ran.

Sessions delay their own answers to a time of the policy's grid. That is not enough for a shared engine: the next
session in line would learn when the previous statement ended. The queue therefore hands places on at times of the grid.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpsql.engines import find_data_version, read_confinement, take_turn
from dpsql.engines.base import find_descriptions
from dpsql.engines.pool import EnginePool, within
from dpsql.errors import EngineError
from dpsql.server.engine_queue import EngineQueue, Place, QueueTerms, engine_busy
from dpsql.server.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from dpsql.dialects import Dialect
    from dpsql.engines import Column, Engine, Exact, PublicStatements, ResultEvaluator, Statement
    from dpsql.engines.base import Stop
    from dpsql.policy import EngineSettings

__all__ = ["SharedEngine", "SharedEvaluator", "SharedPublic"]

_WAIT = 0.5  # of the time limit: a statement that begins has at least the rest


class SharedEngine:
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
    def _enter(self, stop: Stop | None = None) -> Iterator[tuple[Place, float]]:
        """Run the body in the turn of the caller, or in a new one; yield its place, and when its time is over."""
        current: tuple[Place, float] | None = getattr(self._turn, "current", None)
        if current is not None:
            yield current
            return
        began = time.monotonic()
        with (
            self._queue.place(self._analyst, self._terms, stop=stop) as place,
            self._keep(place, began=began, stop=stop),
        ):
            self._turn.current = place, began + self._limit
            try:
                yield self._turn.current
            finally:
                self._turn.current = None

    @contextmanager
    def _keep(self, place: Place, *, began: float, stop: Stop | None) -> Iterator[None]:
        """Wait until the engine is ready, and keep it for the body; raise `engine-busy` if that takes too long."""

        def is_late() -> bool:
            return time.monotonic() - began > _WAIT * self._limit

        def should_stop() -> bool:
            return is_late() or (stop is not None and stop())

        is_kept = False
        waits = stop if math.isinf(self._limit) else should_stop
        try:
            with self._find_turn(place, waits):
                if not is_late():
                    is_kept = True
                    yield
        except EngineError:
            if is_kept or not is_late():
                raise
        if not is_kept:
            raise engine_busy("The engine was not ready in time.")

    def _find_turn(self, place: Place, stop: Stop | None) -> AbstractContextManager[None]:
        if isinstance(self._engine, EnginePool):
            return self._engine.turn(stop, place=place.number)
        return take_turn(self._engine, stop)

    def close(self) -> None:
        """Do nothing: the service closes the engine."""


class SharedPublic:
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


class SharedEvaluator:
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
