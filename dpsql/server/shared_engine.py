"""Engines shared by many sessions, without revealing to one analyst how long another's statement ran.

Sessions delay their own answers to a time of the policy's grid. That is not enough for a shared engine that runs one
statement at a time: the next session in line would learn when the previous statement ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from dpsql.engines import find_data_version, read_confinement, take_turn
from dpsql.engines.schema_reader import find_descriptions
from dpsql.server.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpsql.dialects import Dialect
    from dpsql.engines import Column, Engine, Exact, PublicStatements, ResultEvaluator, Statement
    from dpsql.engines.base import Stop

__all__ = ["SharedEngine", "SharedEvaluator", "SharedPublic", "TimingGate", "round_to_grid"]


class TimingGate:
    """Gate of an engine: with a grid, the next session enters at a time of the grid; without one, at once.

    A session leaves as soon as its statement ends, as it delays its own answer.
    """

    def __init__(self, grid_ms: int | None) -> None:
        self._grid = None if grid_ms is None else grid_ms / 1000
        self._lock = threading.Lock()
        self._free_at = 0.0

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Run the body, which depends on no row, while no statement runs."""
        if self._grid is None:
            yield
            return
        with self._lock:
            time.sleep(max(0.0, self._free_at - time.monotonic()))
            yield

    @contextmanager
    def run_statement(self) -> Iterator[None]:
        """Run a statement in the body, and admit the next session at a time of the grid."""
        with self.enter():
            began = time.monotonic()
            try:
                yield
            finally:
                if self._grid is not None:
                    self._free_at = began + round_to_grid(self._grid, time.monotonic() - began)


def round_to_grid(grid: float, seconds: float) -> float:
    """Return the least of 1, 2, 4, 8 ... times `grid` that is at least `seconds`."""
    step = grid
    while step < seconds:
        step *= 2
    return step


class SharedEngine:
    """One session's view of a shared engine: it cannot close it, and analysts take turns."""

    def __init__(self, engine: Engine, gate: TimingGate, *, queue: FairQueue | None = None, analyst: str = "") -> None:
        self._engine = engine
        self._gate = gate
        self._queue = FairQueue(1) if queue is None else queue
        self._analyst = analyst
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
        with self._gate.enter():
            return self._engine.unique(name, column)

    def accepts_pattern(self, pattern: str) -> bool:
        """Return whether the engine compiles this regular expression."""
        with self._gate.enter():
            return self._engine.accepts_pattern(pattern)

    @contextmanager
    def turn(self, stop: Stop | None = None) -> Iterator[None]:
        """Wait for this analyst's turn, and run the body in it."""
        with self._queue.place(self._analyst, stop=stop), self._gate.run_statement(), take_turn(self._engine, stop):
            self._turn.has_begun = True
            try:
                yield
            finally:
                self._turn.has_begun = False

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT, in the turn of the caller or in one of its own."""
        with nullcontext() if getattr(self._turn, "has_begun", False) else self.turn():
            return self._engine.execute(statement) if stop is None else self._engine.execute(statement, stop=stop)

    def close(self) -> None:
        """Do nothing: the service closes the engine."""


class SharedPublic:
    """One session's view of the shared engine of public tables; analysts take turns."""

    def __init__(self, public: PublicStatements, queue: FairQueue, *, analyst: str) -> None:
        self._public, self._queue, self._analyst = public, queue, analyst

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT over public tables, in this analyst's turn."""
        with self._queue.place(self._analyst, stop=stop):
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
