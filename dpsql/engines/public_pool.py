"""Engines for statements over public tables alone, apart from the one that reads private rows.

Such a statement is free and may be sent at will, so it must not delay a private one: it has engines, memory and threads
of its own, ends at a time limit, and is stopped when its client is gone. No private row is read here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.engines.base import LOOK, statement_stopped
from dpsql.engines.file_versions import file_versions
from dpsql.errors import EngineError, Error, UsageError

if TYPE_CHECKING:
    from dpsql.engines.base import Engine, Exact, Statement, Stop

__all__ = ["PublicEngines", "time_limit_reached", "within"]


class PublicEngines:
    """At most so many engines over the public tables, each opened when it is first needed; threads may share them.

    `open_engine` opens one. `loaded` are files that are read when an engine opens and never again: an engine that is
    opened after one of them has changed would answer of other rows than the first, so that is refused.
    """

    def __init__(
        self, open_engine: Callable[[], Engine], *, seconds: float, most: int = 2, loaded: tuple[Path, ...] = ()
    ) -> None:
        self._open, self._seconds, self._most, self._loaded = open_engine, seconds, most, loaded
        self._versions = file_versions(loaded)
        self._changed = threading.Condition()
        self._free: list[Engine] = []
        self._count = 0  # of engines that are open or being opened
        self._closed = False

    @property
    def seconds(self) -> float:
        """The time limit of a statement."""
        return self._seconds

    @property
    def most(self) -> int:
        """The number of statements that run at a time."""
        return self._most

    def open_first(self) -> None:
        """Open the first engine now; raises what opening it raises."""
        self._give_back(self._take(None), usable=True)

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT over public tables.

        Raises `EngineError`: `public-time-limit`, `statement-stopped`, or what the engine says; nothing is charged.
        """
        engine = self._take(stop)
        usable, began = False, time.monotonic()
        failure: Error | None = None
        try:
            exact = engine.execute(statement, stop=within(self._seconds, stop))
            usable = True
        except EngineError as error:
            usable, failure = True, error
        except UsageError as error:  # the engine is closed, or busy with a statement that did not end
            failure = error
        finally:
            self._give_back(engine, usable=usable)
        if failure is None:
            return exact
        if stop is not None and stop():
            raise statement_stopped()
        if time.monotonic() - began >= self._seconds:
            raise time_limit_reached(self._seconds)
        raise failure

    def close(self) -> None:
        """Close the engines, those that run a statement once it has ended; closing twice is closing once."""
        with self._changed:
            self._closed = True
            free, self._free = self._free, []
            self._changed.notify_all()
        for engine in free:
            engine.close()

    def _take(self, stop: Stop | None) -> Engine:
        """Return an engine that is free, or a new one; wait where all are busy, or where no further one opens."""
        engine = self._wait(stop, most=self._most)
        if engine is not None:
            return engine
        try:
            self._check_files()
            return self._open()
        except EngineError as error:
            self._forget()
            if error.code == "source-changed":
                raise
            failure = error
        except BaseException:
            self._forget()
            raise
        engine = self._wait(stop, most=1)
        if engine is None:
            self._forget()
            raise failure
        return engine

    def _wait(self, stop: Stop | None, *, most: int) -> Engine | None:
        """Return a free engine, once there is one; None, counted as one, where fewer than `most` are open."""
        with self._changed:
            while not self._free and self._count >= most and not self._closed:
                if stop is not None and stop():
                    raise statement_stopped()
                self._changed.wait(LOOK)
            if self._closed:
                raise UsageError("closed", "This session is closed.", hint="Open another with dpsql.connect.")
            if self._free:
                return self._free.pop()
            self._count += 1
            return None

    def _check_files(self) -> None:
        if file_versions(self._loaded) != self._versions:
            reason = "A file of a public table has changed since the session was opened."
            raise EngineError("source-changed", reason, hint="Open a new session.")

    def _give_back(self, engine: Engine, *, usable: bool) -> None:
        with self._changed:
            if usable and not self._closed:
                self._free.append(engine)
                self._changed.notify()
                return
        self._forget()
        engine.close()

    def _forget(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify()


def within(seconds: float, stop: Stop | None) -> Stop:
    """Return a stop signal that is also given when so many seconds have passed from now."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() >= deadline or (stop is not None and stop())


def time_limit_reached(seconds: float) -> EngineError:
    """Return the error of a public statement that took too long."""
    return EngineError(
        "public-time-limit",
        f"A statement over public tables may take {seconds:g} seconds, and this one took longer; nothing was charged.",
        hint="Read fewer rows, or ask the curator to raise public_time_limit in [engine] of the policy.",
    )
