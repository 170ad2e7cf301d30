"""Common part of engines outside this process: one statement at a time, sealed answers, no error texts of theirs.

An engine is a class below this one that says how a statement is sent, how a running one is stopped, and what there is
to close; `docs/how-to/write-an-adapter.md` shows some. Code that runs in this process can use its connection, which is
the curator's.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpsql.dialects import Dialect, find_family
from dpsql.engines.arrow_types import conformed
from dpsql.engines.base import (
    BackgroundTask,
    Exact,
    Statement,
    engine_closed,
    engine_failed,
    holding,
    show_adapter_errors,
)
from dpsql.engines.sources import Column, ListedTable, Registered, open_exact_table
from dpsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.engines.base import Stop

_PATIENCE = 0.5  # seconds between two looks at a statement that runs; where waiting cannot be interrupted, this can
_TOUCH = 5.0  # seconds in which a connection has to say that it lives
_SYSTEM_SCHEMAS = frozenset(["information_schema", "mysql", "performance_schema", "pg_catalog", "sys", "system"])
_LAST_WAIT = 10.0  # seconds that a statement has to end after a cancel


class RemoteEngine(ABC):
    """Engine that runs one SELECT at a time elsewhere, seals its result, and does not say why one failed.

    `tables` are all the tables it may read, by the names of the policy. A statement that takes longer than
    `time_limit` seconds is stopped, and fails; so does one that is interrupted.
    """

    isolation = "remote"
    reads_files = False  # whether tables of the policy may have a `source`, for engines that entry points open
    max_connections: int | None = None  # that a process can have open to the engine; None for no bound
    default_schema = ""

    def __init__(
        self,
        dialect: Dialect,
        tables: Mapping[str, Registered],
        *,
        time_limit: float | None = None,
        sealed: bool = True,
    ) -> None:
        self._dialect = dialect
        self._tables = dict(tables)
        self._time_limit = time_limit
        self._sealed = sealed
        self._lock = threading.RLock()  # taken again by the statement of a turn
        self._patterns = threading.Lock()
        self._closed = False
        # ends with the last statement; one that could not be stopped may use what `fetch` uses until then
        self._done = threading.Event()
        self._done.set()
        self._bare: Any = None

    @abstractmethod
    def fetch(self, statement: Statement) -> pa.Table:
        """Send one SELECT and return its whole answer; runs in a thread of its own, and may raise anything."""

    def found(self, name: str) -> Registered:
        """Return a table by its name in the policy; raise `table_missing` if it is not there. For `look_up`."""
        raise NotImplementedError

    def list_tables(self) -> Iterable[ListedTable]:
        """Return the tables and views that this user may read, for `dpsql init`; may raise anything.

        By default those of information_schema.tables. Tables of `default_schema` are named without it.
        """
        sql = "SELECT table_schema, table_name FROM information_schema.tables ORDER BY table_schema, table_name"
        for schema, table in zip(
            *self.fetch(Statement(sql, (), ("VARCHAR", "VARCHAR"))).to_pydict().values(), strict=True
        ):
            if str(schema).lower() not in _SYSTEM_SCHEMAS:
                yield ListedTable(str(table) if schema == self.default_schema else f"{schema}.{table}")

    def cancel(self) -> None:  # noqa: B027 - an engine without one waits until its statement ends
        """Stop the statement that runs, if there is one; called from another thread, and may raise anything."""

    def lives(self) -> bool:
        """Return whether what `fetch` uses still answers; called before budget is reserved, and may raise anything."""
        return True

    def reconnect(self) -> bool:
        """Leave what `fetch` uses to a statement that does not end, open it again, and return whether that was done.

        Called between two statements, also where `lives` returned False; may raise anything. An engine that has no
        such method runs nothing until the statement ends.
        """
        return False

    @abstractmethod
    def disconnect(self) -> None:
        """Let go of what `fetch` uses; called once."""

    def look_up(self, names: Iterable[str]) -> dict[str, Registered]:
        """Return the tables of these names, for `__init__`; let go of what is open if one of them is not there."""
        try:
            return {name: self.found(name) for name in names}
        except BaseException:
            with suppress(Exception):
                self.disconnect()
            raise

    @property
    def dialect(self) -> Dialect:
        """The SQL in which its statements are written."""
        return self._dialect

    @property
    def sealed(self) -> bool:
        """Whether dpsql opened the connection itself, to read alone."""
        return self._sealed

    def relation(self, name: str) -> tuple[str, ...]:
        """Return the qualified identifier of the table that was registered as `name`."""
        return open_exact_table(self._tables, name).relation

    def columns(self, name: str) -> tuple[Column, ...]:
        """Return the columns of the table that was registered as `name`, as they were when the engine opened."""
        return open_exact_table(self._tables, name).columns

    def unique(self, name: str, column: str) -> bool:
        """Return whether all values but NULL are distinct in a column of the table registered as `name`."""
        from sqlglot.expressions import to_identifier

        table, dialect = open_exact_table(self._tables, name), self._dialect
        quoted = [
            str(to_identifier(each, quoted=True).sql(dialect=dialect.sqlglot)) for each in (column, *table.relation)
        ]
        (kind,) = (known.type for known in table.columns if known.name == column)
        # SELECT 1 AS one FROM "public"."users" WHERE "id" IS NOT NULL GROUP BY ("id" by its bytes) HAVING COUNT(*) > 1
        # LIMIT 1
        forms = [dialect.form(form, (find_family(kind),)) or "{0}" for form in ("column", "canonical")]
        read = forms[0].replace("{0}", quoted[0])
        sql = (
            f"SELECT 1 AS one FROM {'.'.join(quoted[1:])} WHERE {read} IS NOT NULL "  # noqa: S608 - quoted
            f"GROUP BY {forms[1].replace('{0}', read)} HAVING COUNT(*) > 1 LIMIT 1"
        )
        return len(self._answer(Statement(sql))) == 0

    def accepts_pattern(self, pattern: str) -> bool:
        """Return whether DuckDB, whose language it is, compiles this regular expression."""
        duckdb = import_module("dpsql.engines.duckdb.instance")  # by its name: to import this package takes no DuckDB
        with self._patterns:
            if self._bare is None:
                self._bare = duckdb.connect_bare()
            return bool(duckdb.compiles(self._bare, pattern))

    @contextmanager
    def turn(self, stop: Stop | None = None) -> Iterator[None]:
        """Keep the engine for the body; raise `engine-closed` if it is closed, or busy and cannot be opened again."""
        with holding(self._lock, stop):
            self._require_ready(touch=True)
            yield

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT once, to its end; no word of the engine is passed on, since they may carry cell values."""
        return Exact(self._answer(statement, stop))

    def close(self) -> None:
        """Let go of the connection, once no statement is running; closing twice is closing once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with self._patterns:
                if self._bare is not None:
                    self._bare.close()
            # A statement that could not be stopped still uses what `disconnect` would close.
            if self._done.is_set():
                with suppress(Exception):
                    self.disconnect()

    def _require_ready(self, *, touch: bool = False) -> None:
        if self._closed:
            raise engine_closed()
        if not self._done.is_set() or (touch and not self._still_lives()):
            again = False
            with suppress(Exception):
                again = self.reconnect()
            if not again:
                raise engine_closed()
            self._done = threading.Event()  # of no statement
            self._done.set()

    def _still_lives(self) -> bool:
        """Return whether the connection answers in time; one that does not may hang for minutes."""
        # The check that every engine has by default needs no thread.
        if type(self).lives is RemoteEngine.lives:
            return True
        task = BackgroundTask(self.lives, name="dpsql-touch")
        task.start()
        task.done.wait(_TOUCH)
        return task.outcome is True

    def _answer(self, statement: Statement, stop: Stop | None = None) -> pa.Table:
        with self._lock:
            self._require_ready()
            table = self._run(statement, stop)
        if table is None:  # raised here and not where it was caught: no context hangs on it
            raise engine_failed()
        return table

    def _run(self, statement: Statement, stop: Stop | None) -> pa.Table | None:
        """Return the answer, or None after any failure; wait where an interrupt can be received."""

        def answer() -> pa.Table:
            with show_adapter_errors():
                return conformed(self.fetch(statement), statement.types)

        task = BackgroundTask(answer, name="dpsql-statement")
        self._done = task.done

        def end() -> None:
            with suppress(Exception):
                self.cancel()
            # A cancel is a request: a statement that goes on keeps `_done` unset, and the next one opens another
            # connection.
            task.done.wait(_LAST_WAIT)

        return task.finish(seconds=self._time_limit, stop=stop, end=end)


def table_missing(name: str, *, engine: str) -> EngineError:
    """Return the error for a table that the engine does not have, or does not show to this user."""
    reason = f'{engine} has no table or view "{name}" that can be read.'
    hint = "Name it as table or schema.table, in the spelling that it was made with, and see that it may be read."
    return EngineError("table-missing", reason, hint=hint, place=f"table {name}")


def import_driver(module: str, *, engine: str, extra: str) -> Any:  # noqa: ANN401 - a module of another package
    """Return the module of a driver. Raises `UsageError` where it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        reason, hint = f"The driver of {engine} is not installed.", f"pip install 'dpsql[{extra}]'"
        raise UsageError("not-installed", reason, hint=hint) from None


ONE_SELECT = re.compile(r"(?:SELECT|WITH)\b")


GRACE = 2.0  # seconds after its time limit until the engine itself stops a statement, in case this process died


def count_limit(time_limit: float | None, *, per_second: int = 1) -> int | None:
    """Return the limit that an engine is given for a statement, in its whole unit of time; None for none."""
    return None if time_limit is None else max(1, round((time_limit + GRACE) * per_second))


class ConnectedEngine(RemoteEngine):
    """Engine behind one connection of its driver, whose cursors run one statement each.

    `connect` opens another connection, with all settings on which the statements rely. A statement that fails takes the
    connection with it, unless `survives_failure` and the connection still answers.
    """

    survives_failure = False

    def __init__(
        self,
        dialect: Dialect,
        tables: Mapping[str, Registered],
        *,
        connect: Callable[[], Any],
        time_limit: float | None,
    ) -> None:
        super().__init__(dialect, tables, time_limit=time_limit)
        self._connect = connect
        self._connection: Any = None
        self._running: Any = None

    @abstractmethod
    def answer(self, cursor: Any, statement: Statement) -> pa.Table:  # noqa: ANN401 - of any driver
        """Run one SELECT over a cursor of the driver, and return its answer."""

    def stop(self, cursor: Any) -> None:  # noqa: ANN401 - of any driver
        """Stop the statement of a cursor, called from another thread."""
        cursor.cancel()

    def open_connection(self) -> Any:  # noqa: ANN401 - of any driver
        """Return the connection, a new one where the last one broke."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def look_up_sources(self, sources: Mapping[str, object], *, engine: str) -> dict[str, Registered]:
        """Return the tables of a policy as `look_up` does; one that is a file is missing in a server."""
        for name, source in sources.items():
            if source is not None:
                self.disconnect()
                raise table_missing(name, engine=engine)
        return self.look_up(sources)

    def fetch(self, statement: Statement) -> pa.Table:
        """Send one SELECT and return its answer."""
        if ONE_SELECT.match(statement.sql) is None:
            raise ValueError
        connection = self.open_connection()
        try:
            return self._fetch_over(connection, statement)
        except BaseException:
            # A connection with an aborted transaction, or that has rows still to be read, does not answer.
            is_usable = self.survives_failure and _answers(connection)
            if not is_usable and self._connection is connection:  # and no other was opened for the next statement
                self._connection = None
            raise
        finally:
            self._close_former(connection)

    def _fetch_over(self, connection: Any, statement: Statement) -> pa.Table:  # noqa: ANN401 - of any driver
        cursor = self._running = connection.cursor()
        try:
            return self.answer(cursor, statement)
        finally:
            if self._running is cursor:
                self._running = None
            with suppress(Exception):
                cursor.close()

    def _close_former(self, connection: Any) -> None:  # noqa: ANN401 - of any driver
        """Close a connection that broke, or was replaced because its statement took too long."""
        if self._connection is not connection:
            with suppress(Exception):
                connection.close()

    def cancel(self) -> None:
        """Stop the statement that runs."""
        running = self._running
        if running is not None:
            self.stop(running)

    def lives(self) -> bool:
        """Return whether the server still answers on the connection: one that was idle for long may have ended."""
        connection = self._connection
        if connection is None:
            return False
        does_answer = _answers(connection)
        if not does_answer and self._connection is connection:
            self._connection = None
        self._close_former(connection)
        return does_answer

    def reconnect(self) -> bool:
        """Leave the connection, which broke or has a statement that does not end, and open another."""
        self._connection = self._running = None
        self._connection = self._connect()
        return True

    def disconnect(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _answers(connection: Any) -> bool:  # noqa: ANN401 - of any driver
    with suppress(Exception), closing(connection.cursor()) as cursor:
        cursor.execute("SELECT 1")
        return len(cursor.fetchall()) == 1
    return False
