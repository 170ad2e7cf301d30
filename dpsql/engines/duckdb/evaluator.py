"""Evaluators of released rows: a DuckDB instance with those rows in it and nothing else, here or in a worker.

Public rows that a statement joins with them are put there too. There is no file, no setting and no other table within
its reach. The rows are in a transaction that is rolled back, so the next statement finds the instance empty.

A worker (`evaluate` of `worker.py`) has neither data nor ledger, and no network and no files where the system can deny
them, so that the process that holds the ledger computes on no rows. It is started by the first statement that needs it
and serves further ones; it is killed at the time limit, at a stop and after any failure, and the next statement finds
another. A few workers serve several sessions at once, so that one long statement does not hold up all others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from dpsql.confinement import select_measures
from dpsql.dialects import quote_name
from dpsql.engines.base import Statement, load_libraries, run_beside
from dpsql.engines.duckdb import protocol
from dpsql.engines.duckdb.protocol import WorkerProcess
from dpsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from dpsql.engines.base import ResultEvaluator, Stop

    Path = tuple[str, str, str]

MEMORY_LIMIT, SECONDS = "1GB", 60.0  # of a statement, where the policy allows as much
_ROWS = "dpsql_rows"
_STATE = (  # parts of the names of what reads or changes the state of an instance, which others would notice
    "connection_id", "query_id", "transaction_id", "txid", "random", "uuid", "seed", "sample", "reservoir", "nextval",
    "currval", "setval", "write_log", "duckdb_", "pg_", "sqlite_",  # the catalog numbers what was ever created
)  # fmt: skip


class DuckDBEvaluator:
    """Computes on released and public rows in this process, on one thread, within limits of memory and time.

    The instance of a statement that went well is used again, empty, but a statement that reads or changes the state of
    its instance has one of its own.
    """

    def __init__(self, memory_limit: str = MEMORY_LIMIT, seconds: float = SECONDS) -> None:
        self._memory_limit = memory_limit
        self._seconds = seconds
        self._lock = threading.Lock()
        self._empty: duckdb.DuckDBPyConnection | None = None
        self._closed = False

    def compute(self, tables: Mapping[Path, pa.Table], statement: Statement, *, stop: Stop | None = None) -> pa.Table:
        """Run one SELECT over `tables`, which it finds at their paths; any failure is an `EngineError` of fixed words.

        After the time limit, and soon after `stop` returns True, DuckDB is interrupted.
        """
        load_libraries("duckdb", "pyarrow")
        from dpsql.engines.duckdb.instance import connect_bare  # start-up: most statements have no outer SELECT

        is_reused, answer = not _uses_state(statement), None
        instance: duckdb.DuckDBPyConnection | None = None
        if is_reused:
            with self._lock:
                # It is taken away while it is used: a second thread finds none, and opens one of its own.
                instance, self._empty = self._empty, None
        try:
            with suppress(Exception):
                if instance is None:
                    instance = connect_bare(self._memory_limit)
                answer = run_beside(
                    partial(_select, instance, tables, statement=statement),
                    name="dpsql-evaluation",
                    seconds=self._seconds,
                    stop=stop,
                    interrupt=instance.interrupt,
                )
            if is_reused and answer is not None:
                with self._lock:
                    if self._empty is None and not self._closed:
                        self._empty, instance = instance, None
        finally:
            if instance is not None:
                instance.close()
        if answer is None:  # raised here and not where it was caught: no context hangs on it
            raise build_failure()
        return answer

    def close(self) -> None:
        """Close the instance that is used again."""
        with self._lock:
            self._closed = True
            empty, self._empty = self._empty, None
        if empty is not None:
            empty.close()


class SuccessiveInstances:
    """An instance of DuckDB for statements that come one after the other, opened before it is needed.

    After a failure there is a new one, which `open_next` opens. A statement that reads or changes the state of its
    instance, such as random(), has one of its own.
    """

    def __init__(self, memory_limit: str) -> None:
        self._memory_limit = memory_limit
        self._instance: duckdb.DuckDBPyConnection | None = None
        self.open_next()

    def compute(self, tables: Mapping[Path, pa.Table], statement: Statement) -> pa.Table:
        """Return the result of one SELECT; raise some `Exception` where there is none."""
        from dpsql.engines.duckdb.instance import connect_bare

        if _uses_state(statement):
            with closing(connect_bare(self._memory_limit)) as own:
                return _select(own, tables, statement=statement)
        self.open_next()
        instance, self._instance = self._instance, None
        assert instance is not None  # noqa: S101 - it was opened
        with ExitStack() as failure:
            # After a failure the instance may be in an aborted transaction or damaged: it is closed, and not put back.
            failure.callback(instance.close)
            answer = _select(instance, tables, statement=statement)
            failure.pop_all()
        self._instance = instance
        return answer

    def open_next(self) -> None:
        """Open the instance if there is none."""
        from dpsql.engines.duckdb.instance import connect_bare

        if self._instance is None:
            self._instance = connect_bare(self._memory_limit)


def _uses_state(statement: Statement) -> bool:
    text = statement.sql.lower()
    return any(name in text for name in _STATE)


def build_failure() -> EngineError:
    """Return the one error of a SELECT that could not be computed."""
    return EngineError(
        "wrapping-failed",
        "The SELECT around the private query could not be computed.",
        hint="The private answer is stored: ask for less of it, at no further cost.",
    )


def _select(instance: duckdb.DuckDBPyConnection, tables: Mapping[Path, pa.Table], *, statement: Statement) -> pa.Table:
    """Return the result, and leave the instance without the tables; after an exception it may not be used again."""
    import duckdb
    import pyarrow as pa

    (only,) = instance.extract_statements(statement.sql)
    if only.type != duckdb.StatementType.SELECT:
        raise ValueError
    # The rollback below takes the tables, their schema and all that the SELECT may have made away.
    instance.begin()
    for path, table in tables.items():
        # The rows are copied: DuckDB would filter an Arrow table by other rules than its own.
        home, schema, name = map(quote_name, path)
        instance.execute(f"CREATE SCHEMA IF NOT EXISTS {home}.{schema}")
        instance.register(_ROWS, table)
        instance.execute(f"CREATE TABLE {home}.{schema}.{name} AS FROM temp.main.{_ROWS}")
        instance.unregister(_ROWS)
        if pa.decimal128(38, 0) in table.schema.types:  # a HUGEINT in Arrow, as sums of whole numbers are
            copied = instance.table(f"{home}.{schema}.{name}")
            for column, type_ in zip(copied.columns, copied.types, strict=True):
                if type_ == "DECIMAL(38,0)":
                    instance.execute(f"ALTER TABLE {home}.{schema}.{name} ALTER {quote_name(column)} TYPE HUGEINT")
    answer = instance.sql(statement.sql, params=list(statement.parameters)).to_arrow_table()
    instance.rollback()
    return answer


_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SHARE = 0.8  # of the machine's memory, which DuckDB takes where it is given no limit


def parse_bytes(memory_limit: str | None) -> int:
    """Return a memory limit in bytes; a share of the machine's for None, and for a text that DuckDB will refuse."""
    with suppress(ValueError, KeyError):
        text = (memory_limit or "").replace(" ", "").upper()
        number = text.rstrip("KMGTIB")
        return int(float(number) * _UNITS[text[len(number) :]])
    return int(_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def choose_smaller(memory_limit: str | None, other: str) -> str:
    """Return the smaller of two limits, where the first may be None."""
    return memory_limit if memory_limit is not None and parse_bytes(memory_limit) < parse_bytes(other) else other


_BEGIN = "import sys; sys.path[:] = sys.argv[1:]; from dpsql.engines.duckdb.worker import evaluate; evaluate()"
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
            # A worker whose answer was not read to its end would give it to the next statement.
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
