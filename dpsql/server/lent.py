"""An engine that many sessions share, and how it is kept from telling one analyst how long another's statement ran.

Sessions hold their own answers back until a time of the policy's grid. That is not enough where they share an engine
that runs one statement at a time: whoever waits for it would learn when the one before was done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpsql.engines import read_confinement

if TYPE_CHECKING:
    from dpsql.dialects import Dialect
    from dpsql.engines import Column, Engine, Exact, Statement

__all__ = ["Gate", "Lent", "step_of"]


class Gate:
    """Whose turn it is at an engine: with a grid, the next enters at a time of it; without one, as the engine says.

    Which statements read private rows is not known here, so that those of public tables are held as well. Whoever has
    run one leaves at once: its session holds the answer back.
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


class Lent:
    """An engine that many sessions share: they may not close it."""

    def __init__(self, engine: Engine, gate: Gate) -> None:
        self._engine = engine
        self._gate = gate

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

    def execute(self, statement: Statement) -> Exact:
        """Run one SELECT."""
        with self._gate.held():
            return self._engine.execute(statement)

    def close(self) -> None:
        """Do nothing: whoever lent it closes it."""
