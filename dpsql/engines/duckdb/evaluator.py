"""Evaluator of released rows: a DuckDB instance with those rows in it and nothing else.

Public rows that a statement joins with them are put there too. There is no file, no setting and no other table within
its reach. The rows are in a transaction that is rolled back, so the next statement finds the instance empty.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

from dpsql.dialects import quote_name
from dpsql.engines.background import BackgroundTask
from dpsql.engines.base import LOOK, Statement
from dpsql.engines.libraries import load_libraries
from dpsql.errors import EngineError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from dpsql.engines.base import Stop

    Path = tuple[str, str, str]

__all__ = ["MEMORY_LIMIT", "SECONDS", "DuckDBEvaluator", "SuccessiveInstances", "build_failure"]

MEMORY_LIMIT, SECONDS = "1GB", 60.0  # of a statement, where the policy allows as much
_ROWS = "dpsql_rows"
_STATE = (  # parts of the names of what reads or changes the state of an instance, which others would notice
    "connection_id", "query_id", "transaction_id", "txid", "random", "uuid", "seed", "sample", "reservoir", "nextval",
    "currval", "setval", "write_log",
)  # fmt: skip
_HEARTBEAT = 0.05  # seconds between two requests that a statement stop


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
        answer = self._compute(tables, statement, stop=stop)
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

    def _instance(self, statement: Statement) -> duckdb.DuckDBPyConnection:
        """Return an instance with nothing in it."""
        from dpsql.engines.duckdb.catalog import connect_bare  # start-up: most statements have no outer SELECT

        if _uses_state(statement):
            return connect_bare(self._memory_limit)
        with self._lock:
            empty, self._empty = self._empty, None
        return connect_bare(self._memory_limit) if empty is None else empty

    def _put_back(self, instance: duckdb.DuckDBPyConnection) -> None:
        with self._lock:
            if self._empty is None and not self._closed:
                self._empty = instance
                return
        instance.close()

    def _compute(self, tables: Mapping[Path, pa.Table], statement: Statement, *, stop: Stop | None) -> pa.Table | None:
        """Return the result, or None after any failure; an interrupt passes.

        The statement runs in a thread while this one waits where Python can be interrupted.
        """
        load_libraries("duckdb", "pyarrow")
        outcome: list[pa.Table] = []
        deadline = time.monotonic() + self._seconds
        instance: duckdb.DuckDBPyConnection | None = None
        with suppress(Exception):
            instance = self._instance(statement)
        if instance is None:
            return None

        def run() -> None:
            outcome.append(_selected(instance, tables, statement=statement))

        task = BackgroundTask(run, name="dpsql-evaluation")
        is_late, is_empty = False, False
        try:
            try:
                task.start()
                while not is_late and not task.done.wait(min(LOOK, max(0.0, deadline - time.monotonic()))):
                    is_late = time.monotonic() >= deadline or (stop is not None and stop())
            finally:
                while not task.revoke() and not task.done.wait(_HEARTBEAT):
                    instance.interrupt()
            is_empty = bool(outcome) and not is_late and not _uses_state(statement)
        finally:
            if is_empty:
                self._put_back(instance)
            else:
                instance.close()
        return outcome[0] if outcome and not is_late else None


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
        from dpsql.engines.duckdb.catalog import connect_bare

        if _uses_state(statement):
            with closing(connect_bare(self._memory_limit)) as own:
                return _selected(own, tables, statement=statement)
        self.open_next()
        instance, self._instance = self._instance, None
        assert instance is not None  # noqa: S101 - it was opened
        with ExitStack() as failure:
            failure.callback(instance.close)
            answer = _selected(instance, tables, statement=statement)
            failure.pop_all()
        self._instance = instance
        return answer

    def open_next(self) -> None:
        """Open the instance if there is none."""
        from dpsql.engines.duckdb.catalog import connect_bare

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


def _selected(
    instance: duckdb.DuckDBPyConnection, tables: Mapping[Path, pa.Table], *, statement: Statement
) -> pa.Table:
    """Return the result, and leave the instance without the tables; after an exception it may not be used again."""
    import duckdb

    (only,) = instance.extract_statements(statement.sql)
    if only.type != duckdb.StatementType.SELECT:
        raise ValueError
    instance.begin()
    for path, table in tables.items():
        _lay(instance, table, path=path)
    answer = instance.sql(statement.sql, params=list(statement.parameters)).to_arrow_table()
    instance.rollback()
    return answer


def _lay(instance: duckdb.DuckDBPyConnection, table: pa.Table, *, path: Path) -> None:
    """Copy the rows into a table at `path`: DuckDB would filter an Arrow table by other rules than its own.

    A HUGEINT, as sums of whole numbers are, is one there, too: Arrow has a DECIMAL(38, 0) for it.
    """
    import pyarrow as pa

    home, schema, name = map(quote_name, path)
    instance.execute(f"CREATE SCHEMA IF NOT EXISTS {home}.{schema}")
    instance.register(_ROWS, table)
    instance.execute(f"CREATE TABLE {home}.{schema}.{name} AS FROM temp.main.{_ROWS}")
    instance.unregister(_ROWS)
    if pa.decimal128(38, 0) in table.schema.types:
        found = instance.table(f"{home}.{schema}.{name}")
        for column in (
            each for each, type_ in zip(found.columns, found.types, strict=True) if type_ == "DECIMAL(38,0)"
        ):
            instance.execute(f"ALTER TABLE {home}.{schema}.{name} ALTER {quote_name(column)} TYPE HUGEINT")
