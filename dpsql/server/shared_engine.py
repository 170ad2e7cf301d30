"""An engine that many sessions share, and how it is kept from telling one analyst how long another's statement ran.

Sessions hold their own answers back until a time of the policy's grid. That is not enough where they share an engine
that runs one statement at a time: whoever waits for it would learn when the one before was done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from dpsql.engines import read_confinement, turn_of
from dpsql.server.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpsql.dialects import Dialect
    from dpsql.engines import Column, Engine, Exact, PublicStatements, ResultEvaluator, Statement
    from dpsql.engines.base import Stop

__all__ = ["SharedDesk", "SharedEngine", "SharedPublic", "TimingGate", "step_of"]


class TimingGate:
    """Whose turn it is at an engine: with a grid, the next enters at a time of it; without one, as the engine says.

    Whoever has run one leaves at once: its session holds the answer back.
    """

    def __init__(self, grid_ms: int | None) -> None:
        self._grid = None if grid_ms is None else grid_ms / 1000
        self._lock = threading.Lock()
        self._free_at = 0.0

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Let the body ask the engine for what no row decides, when nobody's statement runs."""
        if self._grid is None:
            yield
            return
        with self._lock:
            time.sleep(max(0.0, self._free_at - time.monotonic()))
            yield

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let the body run a statement, and let nobody enter before a time of the grid."""
        with self.passed():
            began = time.monotonic()
            try:
                yield
            finally:
                if self._grid is not None:
                    self._free_at = began + step_of(self._grid, time.monotonic() - began)


def step_of(grid: float, seconds: float) -> float:
    """Return the first of 1, 2, 4, 8 ... times `grid` that is not below a time."""
    step = grid
    while step < seconds:
        step *= 2
    return step


class SharedEngine:
    """An engine that many sessions share: they may not close it, and its turns go round among the analysts."""

    def __init__(self, engine: Engine, gate: TimingGate, *, queue: FairQueue | None = None, analyst: str = "") -> None:
        self._engine = engine
        self._gate = gate
        self._queue = FairQueue(1) if queue is None else queue
        self._analyst = analyst
        self._turn = threading.local()

    @property
    def dialect(self) -> Dialect:
        """The SQL in which statements are written."""
        return self._engine.dialect

    @property
    def sealed(self) -> bool:
        """Whether dpsql opened it."""
        return self._engine.sealed

    @property
    def isolation(self) -> str:
        """Where the data is open."""
        return self._engine.isolation

    @property
    def confinement(self) -> tuple[str, ...]:
        """The measures in force against the process in which the data is open."""
        return read_confinement(self._engine)

    def relation(self, name: str) -> tuple[str, ...]:
        """Return the identifier of a table."""
        return self._engine.relation(name)

    def columns(self, name: str) -> tuple[Column, ...]:
        """Return the columns of a table."""
        return self._engine.columns(name)

    def unique(self, name: str, column: str) -> bool:
        """Return whether no value stands twice in a column."""
        with self._gate.passed():
            return self._engine.unique(name, column)

    def accepts_pattern(self, pattern: str) -> bool:
        """Return whether the engine compiles this regular expression."""
        with self._gate.passed():
            return self._engine.accepts_pattern(pattern)

    @contextmanager
    def turn(self, stop: Stop | None = None) -> Iterator[None]:
        """Wait for this analyst's turn at the engine, and keep the engine for the body."""
        with self._queue.place(self._analyst, stop=stop), self._gate.held(), turn_of(self._engine, stop):
            self._turn.has_begun = True
            try:
                yield
            finally:
                self._turn.has_begun = False

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT, in a turn."""
        with nullcontext() if getattr(self._turn, "has_begun", False) else self.turn():
            return self._engine.execute(statement) if stop is None else self._engine.execute(statement, stop=stop)

    def close(self) -> None:
        """Do nothing: the service closes the engine."""


class SharedPublic:
    """What runs statements over public tables for many sessions: analysts take turns at it."""

    def __init__(self, public: PublicStatements, queue: FairQueue, *, analyst: str) -> None:
        self._public, self._queue, self._analyst = public, queue, analyst

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT over public tables, in this analyst's turn."""
        with self._queue.place(self._analyst, stop=stop):
            return self._public.execute(statement, stop=stop)

    def close(self) -> None:
        """Do nothing: the service closes it."""


class SharedDesk:
    """What computes on released rows for many sessions: analysts take turns at it."""

    def __init__(self, desk: ResultEvaluator, queue: FairQueue, *, analyst: str) -> None:
        self._desk, self._queue, self._analyst = desk, queue, analyst

    def compute(
        self,
        tables: Mapping[tuple[str, str, str], pa.Table],
        statement: Statement,
        *,
        stop: Stop | None = None,
    ) -> pa.Table:
        """Run one SELECT over `tables`, in this analyst's turn."""
        with self._queue.place(self._analyst, stop=stop):
            return self._desk.compute(tables, statement, stop=stop)

    def close(self) -> None:
        """Do nothing: the service closes it."""
