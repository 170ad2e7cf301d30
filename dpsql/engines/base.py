"""The seam of the engines: what a statement is, what holds exact results, what every engine must do, and how it runs.

A statement runs in a background thread, beside which the calling thread can be interrupted at any point: DuckDB's own
handling of Ctrl-C, as that of many drivers, comes late and as an ordinary error.

An adapter's error may contain values of private rows, so it is shown to its author alone, with DPSQL_ADAPTER_DEBUG=1.
Whoever starts the process with this variable has the engine's credentials, and can read the rows anyway. A server has
other users: it refuses to start with the variable.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar, final, runtime_checkable
from weakref import WeakKeyDictionary

from dpsql.dialects import Dialect
from dpsql.errors import EngineError, Error, UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from dpsql.engines.sources import Column

Stop = Callable[[], bool]  # returns True once the caller no longer waits; called from the waiting thread

LOOK = 0.1  # seconds between two calls of a stop signal


@dataclass(frozen=True, slots=True, repr=False)
class Statement:
    """One SELECT in the engine's SQL, the values of its parameters in order, and the types of its columns.

    These are named as DuckDB names them; an engine with other types casts its answer (`arrow_types.py`).
    """

    sql: str
    parameters: tuple[object, ...] = ()
    types: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Statement({self.sql!r}, <{len(self.parameters)} parameters>)"


@final
class Exact:
    """Exact result, sealed: it cannot be printed, iterated, measured, copied or pickled.

    The object itself is empty; `open_exact` knows its table, and only a release calls that. Python keeps no secrets:
    this guards against accidents (a log line, a traceback with local variables), not against code in this process.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, table: pa.Table) -> None:
        _TABLES[self] = table

    def __repr__(self) -> str:
        return "<exact result, sealed>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled, which both ask this."""
        raise UsageError(
            "exact-sealed", "An exact result cannot be copied or pickled.", hint="Hand on the released answer instead."
        )


# Weak keys: a table is freed with its `Exact`, and what shows the attributes of the object, as a debugger does, shows
# none.
_TABLES: WeakKeyDictionary[Exact, pa.Table] = WeakKeyDictionary()


def open_exact(exact: Exact) -> pa.Table:
    """Return the table of an exact result: the one door, for a release only."""
    return _TABLES[exact]


class Engine(Protocol):
    """Something that holds the data, knows its tables by the names of the policy, and runs one SELECT at a time."""

    @property
    def dialect(self) -> Dialect:
        """The SQL in which its statements are written."""
        ...

    @property
    def sealed(self) -> bool:
        """Whether the engine was opened by dpsql, read-only and locked, and not by the user."""
        ...

    @property
    def isolation(self) -> str:
        """Place where the data is open: a separate "process", the analyst's own ("in_process"), or "remote"."""
        ...

    def relation(self, name: str) -> tuple[str, ...]:
        """Return the fully qualified identifier of the table that was registered as `name`."""
        ...

    def columns(self, name: str) -> tuple[Column, ...]:
        """Return the columns of the table that was registered as `name`, as they were when the engine opened.

        Their types are named as DuckDB names them; any other name is of a type that dpsql does not compute with.
        """
        ...

    def unique(self, name: str, column: str) -> bool:
        """Return whether all values but NULL are distinct in a column of the table registered as `name`.

        Text is compared by its bytes. Every failure is an `EngineError` with a fixed text.
        """
        ...

    def accepts_pattern(self, pattern: str) -> bool:
        """Return whether the engine compiles this regular expression; no data is near when it tries."""
        ...

    def turn(self, stop: Stop | None = None) -> AbstractContextManager[None]:
        """Wait until the engine runs nothing else, and keep it for the body.

        A session reserves budget inside the body, so that a statement which the engine never ran is never charged.
        Raises `engine-closed` if the engine cannot run, and `statement-stopped` if `stop` returns True during the wait.
        """
        ...

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT; every failure is an `EngineError` with a fixed text.

        A statement is interrupted, and fails, soon after `stop` returns True. Statements over private rows have none:
        whether one was stopped in time would depend on rows.
        """
        ...

    def close(self) -> None:
        """Let go of the data; closing twice is closing once."""
        ...


def take_turn(engine: Engine, stop: Stop | None = None) -> AbstractContextManager[None]:
    """Return the turn of an engine; one that has none, as an adapter written by hand may, is taken to be ready."""
    return engine.turn(stop) if hasattr(engine, "turn") else nullcontext()


class Lock(Protocol):
    """A lock of the standard library, reentrant or not."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as it is there
        """Take the lock; return whether that was possible in time."""
        ...

    def release(self) -> None:
        """Let go of the lock."""
        ...


@contextmanager
def holding(lock: Lock, stop: Stop | None) -> Iterator[None]:
    """Hold a lock during the body; raise `statement-stopped` if `stop` returns True while it is waited for."""
    while not lock.acquire(timeout=-1 if stop is None else LOOK):
        if stop is not None and stop():
            raise statement_stopped()
    try:
        yield
    finally:
        lock.release()


def statement_stopped() -> EngineError:
    """Return the error for a statement that was stopped because its client is gone."""
    return EngineError(
        "statement-stopped",
        "The statement was stopped; nothing was charged.",
        hint="Send it again to have it answered.",
    )


def engine_closed() -> UsageError:
    """Return the error of an engine that can run nothing: it was closed, or a statement of it could not be stopped."""
    return UsageError(
        "engine-closed",
        "The engine that has the data is closed, or still busy with a statement that could not be stopped.",
        hint="Nothing was charged. Ask again later, or open a new session.",
    )


def engine_failed() -> EngineError:
    """Return the one error of every statement that an engine could not answer."""
    return EngineError(
        "engine-failed",
        "The engine could not answer this statement.",
        hint="Ask the curator. The details may hold private values, so they are not stored.",
    )


@runtime_checkable
class Watchable(Protocol):
    """Engine that also reports the progress of a statement, which depends on rows, as running time does."""

    def progress(self) -> float | None:
        """Return the share of the statement that is done, 0 to 1, or None where that is not known; from any thread."""
        ...


@runtime_checkable
class Confined(Protocol):
    """An engine whose data is open in a process against which measures were taken."""

    @property
    def confinement(self) -> tuple[str, ...]:
        """The names of the measures in force, such as "files", of `dpsql.confinement.MEASURES`."""
        ...


def read_confinement(engine: Engine) -> tuple[str, ...]:
    """Return the measures in force against the process in which an engine has the data open; none of most engines."""
    return engine.confinement if isinstance(engine, Confined) else ()


@runtime_checkable
class Unchanging(Protocol):
    """Engine whose tables may have the same rows in all statements as long as it is open."""

    def data_version(self, name: str) -> str | None:
        """Return the digest of the versions of the files of a table as they were opened; None if rows may change.

        From then on no other version of these files is read, also where the engine opens them again.
        """
        ...


def find_data_version(engine: Engine, name: str) -> str | None:
    """Return the version of the files of a table whose rows stay what they are; None of most engines."""
    return engine.data_version(name) if isinstance(engine, Unchanging) else None


class PublicStatements(Protocol):
    """Something that runs statements over public tables, apart from the engine that reads private rows."""

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT; it fails at a time limit, and soon after `stop` returns True. Raises `EngineError`."""
        ...

    def close(self) -> None:
        """Close what was opened for it; closing twice is closing once."""
        ...


class ResultEvaluator(Protocol):
    """Something that computes on released and public rows, away from all data."""

    def compute(
        self,
        tables: Mapping[tuple[str, str, str], pa.Table],
        statement: Statement,
        *,
        stop: Stop | None = None,
    ) -> pa.Table:
        """Run one SELECT over `tables`, which it finds at their paths; what goes wrong is an `EngineError` of ours.

        It is interrupted, and fails, soon after `stop` returns True.
        """
        ...

    def close(self) -> None:
        """End what was started for it; closing twice is closing once."""
        ...


_NONE: Mapping[str, str] = MappingProxyType({})


@runtime_checkable
class SchemaReader(Protocol):
    """Engine that can also read the materialized tables in a schema of its database."""

    def read_role(self) -> str:
        """Return the name of the role that reads, which the writer gives its rights to; "" where there are no roles."""
        ...

    def open_schema(self, schema: str) -> Mapping[str, str]:
        """Read the descriptions of what is materialized, by the tables of the policy, and return them."""
        ...

    def register(self, schema: str, tables: Mapping[str, str]) -> None:
        """Look up tables of the schema, each by its name there and the name to be known by; leave out missing ones."""
        ...


@runtime_checkable
class _Described(Protocol):
    @property
    def descriptions(self) -> Mapping[str, str]: ...


def find_descriptions(engine: Engine) -> Mapping[str, str]:
    """Return the descriptions of what is materialized that an engine read as it was opened; none of most engines."""
    return engine.descriptions if isinstance(engine, _Described) else _NONE


_PATIENCE = 0.5  # seconds between two looks at a task; where waiting cannot be interrupted, this can
_HEARTBEAT = 0.05  # seconds between two requests that a task stop
Result = TypeVar("Result")


class BackgroundTask(Generic[Result]):
    """Act that runs once in a thread of its own; `done` is set once it has ended or was revoked.

    An interrupt can arrive while the thread starts, and it is then unknown whether it will ever run. Thread and caller
    therefore compete for one lock: the thread acts only if it gets the lock, and the caller revokes it with the lock.
    `outcome` is what the act returned; every exception of it is discarded.
    """

    def __init__(self, act: Callable[[], Result], *, name: str) -> None:
        self.done = threading.Event()
        self.outcome: Result | None = None
        self._first = threading.Lock()
        self._act = act
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; an exception leaves open whether the task will run."""
        self._thread.start()

    def revoke(self) -> bool:
        """Return True if the task has not begun, which it then never does."""
        if not self._first.acquire(blocking=False):
            return False
        self.done.set()
        return True

    def _run(self) -> None:
        if not self._first.acquire(blocking=False):
            return
        # An exception that left this thread would be printed by `threading`, with values of rows in its text.
        with suppress(BaseException):
            self.outcome = self._act()
        self.done.set()

    def finish(self, *, seconds: float | None, stop: Stop | None, end: Callable[[], object]) -> Result | None:
        """Run the task, and return its outcome; None after any failure, at the time limit, and soon after a stop.

        The calling thread waits meanwhile. Where the task has begun and has to stop, `end` is called once.
        """
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        step = _PATIENCE if stop is None else LOOK
        try:
            self._thread.start()
            while not self.done.wait(min(step, max(0.0, deadline - time.monotonic()))):
                if time.monotonic() >= deadline or (stop is not None and stop()):
                    raise TimeoutError  # noqa: TRY301 - to be stopped as an interrupt is
        except BaseException as reason:
            if not self.revoke():
                end()
            # Ctrl-C goes on once the statement has been told to stop; a time limit ends here.
            if not isinstance(reason, Exception):
                raise
            return None
        return self.outcome


def run_beside(
    act: Callable[[], Result], *, name: str, seconds: float | None, stop: Stop | None, interrupt: Callable[[], object]
) -> Result | None:
    """Return what `act` returns, run in a thread beside this one, or None as `BackgroundTask.finish` does.

    Where it has to stop, `interrupt` is called until it has ended.
    """
    task = BackgroundTask(act, name=name)

    def end() -> None:
        # Again and again: an interrupt that comes before the engine has begun the statement is lost.
        while not task.done.wait(_HEARTBEAT):
            interrupt()

    return task.finish(seconds=seconds, stop=stop, end=end)


NOT_LOADED = "not-loaded"  # the code of the error


def load_libraries(*names: str) -> None:
    """Import modules that are not imported yet; call this before anything is reserved for a statement.

    Raises `EngineError` for one that cannot be imported, as under a limit of memory.
    """
    for name in names:
        if name in sys.modules:
            continue
        loaded = False
        with suppress(ImportError, MemoryError, OSError):
            import_module(name)
            loaded = True
        if not loaded:  # raised here: no context with paths of this machine hangs on it
            package = name.partition(".")[0]
            hint = f"Give this process more memory (ulimit -v), or install {package} again."
            raise EngineError(NOT_LOADED, f"The package {package} cannot be loaded; nothing was charged.", hint=hint)


_VARIABLE = "DPSQL_ADAPTER_DEBUG"
_IS_SHOWN = os.environ.get(_VARIABLE, "") not in {"", "0"}  # as the process was started: nothing changes it later


@contextmanager
def show_adapter_errors() -> Iterator[None]:
    """Write an exception of the body that is not dpsql's own to standard error, if the process was started for that."""
    try:
        yield
    except BaseException as error:
        if _IS_SHOWN and not isinstance(error, Error):
            from traceback import print_exception

            print_exception(error, file=sys.stderr)
        raise


def refuse_adapter_debug() -> None:
    """Raise `UsageError` if the process was started to show the errors of adapters, as a server must not be."""
    if _IS_SHOWN:
        reason = f"With {_VARIABLE}, errors of the engine are shown, which may contain values of private rows."
        raise UsageError("adapter-debug", reason, hint=f"Unset {_VARIABLE} and start the server again.")
