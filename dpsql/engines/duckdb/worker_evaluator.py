"""Evaluator of released rows in processes of its own, so that the one that holds the ledger computes on none of them.

A worker (`evaluate` of `worker/main.py`) has neither data nor ledger, and no network and no files where the system can
deny them. It is started by the first statement that needs it and serves further ones; it is killed at the time limit,
at a stop and after any failure, and the next statement finds another. A few workers serve several sessions at once, so
that one long statement does not hold up all others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from dpsql.confinement.measures import select_measures
from dpsql.engines.base import Statement
from dpsql.engines.duckdb.evaluator import MEMORY_LIMIT, SECONDS, build_failure, parse_bytes
from dpsql.engines.duckdb.worker import protocol
from dpsql.engines.duckdb.worker.process import WorkerProcess
from dpsql.engines.libraries import load_libraries
from dpsql.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.engines.base import ResultEvaluator, Stop

    Path = tuple[str, str, str]

_BEGIN = "import sys; sys.path[:] = sys.argv[1:]; from dpsql.engines.duckdb.worker.main import evaluate; evaluate()"
_WORKERS = 2
_LONGEST_START = 60.0  # seconds; it takes less than one


class WorkerEvaluator:
    """Computes on released and public rows in workers, at most two at once, within limits of memory and time.

    Statements beyond that wait. Threads may share it.
    """

    def __init__(self, memory_limit: str = MEMORY_LIMIT, seconds: float = SECONDS) -> None:
        self._memory_limit = memory_limit
        self._seconds = seconds
        self._places = threading.BoundedSemaphore(_WORKERS)
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._closed = False

    def compute(self, tables: Mapping[Path, pa.Table], statement: Statement, *, stop: Stop | None = None) -> pa.Table:
        """Run one SELECT over `tables`, which it finds at their paths; any failure is an `EngineError` of fixed words.

        The worker is killed at the time limit, and soon after `stop` returns True.
        """
        answer = self._compute(tables, statement, stop=stop)
        if answer is None:  # raised here and not where it was caught: no context hangs on it
            raise build_failure()
        return answer

    def close(self) -> None:
        """Kill the workers; one that is computing is killed when it has answered."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def _compute(self, tables: Mapping[Path, pa.Table], statement: Statement, *, stop: Stop | None) -> pa.Table | None:
        """Return the result, or None after any failure; an interrupt passes, and costs the worker."""
        load_libraries("pyarrow")  # start-up: Arrow
        with self._place(stop) as is_wanted:
            if not is_wanted:
                return None
            worker = self._taken()
            try:
                question = protocol.message(
                    limit=self._seconds,
                    sql=statement.sql,
                    parameters=protocol.encoded(statement.parameters),
                    tables=list(map(list, tables)),
                )
                frames: list[bytes | memoryview] = [question, *map(protocol.encode_table, tables.values())]
                worker = worker or _started(self._memory_limit, stop)[0]
                deadline = time.monotonic() + self._seconds
                answer = protocol.read_table(
                    worker.exchange(*frames, most=protocol.MOST_COMPUTED, deadline=deadline, stop=stop)
                )
            except Exception:  # noqa: BLE001 - words of a worker are not believed; the error is raised elsewhere
                answer = None
            except BaseException:
                if worker is not None:
                    worker.end()
                raise
            self._put_back(worker, is_sound=answer is not None)
            return answer

    @contextmanager
    def _place(self, stop: Stop | None) -> Iterator[bool]:
        """Hold one of the places while the body runs; say whether the answer is still wanted, looked at while waiting.

        Raises `UsageError` once the evaluator is closed.
        """
        while not self._places.acquire(timeout=protocol.STEP):
            self._check_open()
            if stop is not None and stop():
                yield False
                return
        try:
            self._check_open()
            yield stop is None or not stop()
        finally:
            self._places.release()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("engine-closed", "The engine is closed.", hint="Open a new session.")

    def _taken(self) -> WorkerProcess | None:
        """Return a worker that waits for a statement, and end those found dead or inherited by a fork."""
        while True:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            if worker is None or worker.usable:
                return worker
            worker.end()

    def _put_back(self, worker: WorkerProcess | None, *, is_sound: bool) -> None:
        """Let a worker serve further statements, unless it failed or the evaluator was closed meanwhile."""
        if worker is None:
            return
        with self._lock:
            if is_sound and not self._closed:
                self._idle.append(worker)
                return
        worker.end()


class SharedEvaluator:
    """An evaluator that several sessions use: when one of them closes it, it stays open for the others."""

    def __init__(self, evaluator: ResultEvaluator) -> None:
        self._evaluator = evaluator

    def compute(self, tables: Mapping[Path, pa.Table], statement: Statement, *, stop: Stop | None = None) -> pa.Table:
        """Run one SELECT over `tables`, which it finds at their paths."""
        return self._evaluator.compute(tables, statement, stop=stop)

    def close(self) -> None:
        """Do nothing: the owner closes the evaluator."""


def try_confinement() -> tuple[str, ...]:
    """Return the measures that a worker can take on this system, as one that is started for this reports them."""
    with suppress(Exception):
        worker, confinement = _started(MEMORY_LIMIT)
        worker.end()
        return confinement
    return ()


def _started(memory_limit: str, stop: Stop | None = None) -> tuple[WorkerProcess, tuple[str, ...]]:
    """Start a worker; return it with the measures in force; raise some `Exception` where that fails."""
    opening = protocol.message(memory=parse_bytes(memory_limit), memory_limit=memory_limit)
    worker = WorkerProcess(_BEGIN, place="/", threads=1, scratch=None)
    try:
        deadline = time.monotonic() + _LONGEST_START
        reply = protocol.heard(worker.exchange(opening, most=protocol.MOST_JSON, deadline=deadline, stop=stop))
        if reply.get("kind") != "ready":
            raise ValueError  # noqa: TRY301 - one kind of error for all that is no message
        return worker, select_measures(reply.get("confinement"))
    except BaseException:
        worker.end()
        raise
