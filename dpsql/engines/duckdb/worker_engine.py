"""DuckDB in a process of its own: the process that serves analysts never opens the data, and survives every failure.

The worker (`worker.py`) has the data, read-only, and neither the ledger nor the network; this side has the ledger
and not the data. A statement that takes too long is killed with its process. So is one that fails in any way: the
cause may depend on one unit's rows, and may have damaged the instance. Every failure is the same error here, and the
next query gets a fresh worker.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dpsql.confinement import select_measures
from dpsql.dialects import DUCKDB
from dpsql.engines.base import Exact, Statement, engine_closed, engine_failed, holding, load_libraries
from dpsql.engines.duckdb import protocol
from dpsql.engines.duckdb.evaluator import parse_bytes
from dpsql.engines.duckdb.protocol import WorkerProcess
from dpsql.engines.scratch import ScratchFolder
from dpsql.engines.sources import (
    AttachedTable,
    Column,
    CsvFile,
    Folder,
    Registered,
    digest_versions,
    encode_folder,
    file_versions,
    open_exact_table,
)
from dpsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.engines.base import Stop

Sources = Mapping[str, Path | CsvFile | Folder | AttachedTable | None]
Tables = Mapping[str, Registered]

_BEGIN = "import sys; sys.path[:] = sys.argv[1:]; from dpsql.engines.duckdb.worker import main; main()"
_LONGEST_WORDS = 2_000


@dataclass(frozen=True, slots=True)
class _Recipe:
    """Configuration of a worker: what to open and how, from where, and the time limit of a statement in seconds."""

    opening: bytes
    folder: str
    names: tuple[str, ...]
    loaded: tuple[Path, ...]
    time_limit: float | None
    threads: int
    database: str | Path | None
    sources: Sources


class WorkerEngine:
    """Runs one SELECT at a time in another process; hands out its result sealed, and says nothing of a failure."""

    dialect = DUCKDB
    isolation = "process"
    sealed = True

    def __init__(self, recipe: _Recipe) -> None:
        """Use `open` instead."""
        self._recipe = recipe
        self._lock = threading.RLock()  # taken again by the statement of a turn
        self._closed = False
        self._versions = file_versions(recipe.loaded)
        self._patterns: WorkerEngine | None = None  # one without data, for regular expressions while this one is busy
        self._worker: WorkerProcess | None = None
        self._tables: Tables = {}
        self._idle = threading.Lock()
        self._confinement: tuple[str, ...] = ()
        # A table has a version only if its files did not change while the worker opened them: then these are the rows
        # it has.
        before = digest_versions(recipe.database, recipe.sources)
        self._worker, self._tables, self._confinement = _started(recipe)
        after = digest_versions(recipe.database, recipe.sources)
        self._data = {name: before[name] for name in before if after.get(name) == before[name]}
        self._unchanging = set[str]()  # tables of whose files no other version may be read

    @classmethod
    def open(
        cls,
        database: str | Path | None,
        sources: Sources,
        *,
        memory_limit: str | None = None,
        threads: int | None = None,
        time_limit: float | None = None,
    ) -> Self:
        """Open what `DuckDBEngine.open` opens, in a worker; a statement that takes longer than the limit is killed.

        A worker that replaces another loads CSV files again, and only if they have not changed since the engine opened.
        `time_limit` is in seconds. Raises what `DuckDBEngine.open` raises.
        """
        if not hasattr(os, "fork"):
            hint = "Leave isolation out, and let only trusted code near."
            raise UsageError("isolation-unavailable", "Processes are isolated on POSIX systems alone.", hint=hint)
        opening = protocol.message(
            database=None if database is None else str(database),
            sources={name: _encode_source(source) for name, source in sources.items()},
            memory=parse_bytes(memory_limit),
            memory_limit=memory_limit,
            threads=threads,
        )
        loaded = tuple(source.path for source in sources.values() if isinstance(source, CsvFile))
        most = threads or os.cpu_count() or 1
        place = None if database is None else Path(database).absolute()
        return cls(_Recipe(opening, str(Path.cwd()), tuple(sources), loaded, time_limit, most, place, sources))

    @property
    def confinement(self) -> tuple[str, ...]:
        """The measures in force against the worker, of `confine.MEASURES`, as the one that runs has reported them.

        It reports them before it opens data; one that is taken over afterwards cannot take them back.
        """
        return self._confinement

    def relation(self, name: str) -> tuple[str, ...]:
        """Return the fully qualified identifier of the table that was registered as `name`."""
        return open_exact_table(self._tables, name).relation

    def columns(self, name: str) -> tuple[Column, ...]:
        """Return the columns of the table that was registered as `name`, as they were when the engine opened."""
        return open_exact_table(self._tables, name).columns

    def data_version(self, name: str) -> str | None:
        """Return the digest of the versions of the files of a table; None where its rows may change.

        A worker that replaces another then opens the same files, or none.
        """
        if not open_exact_table(self._tables, name).is_stored or name not in self._data:
            return None
        self._unchanging.add(name)
        return self._data[name]

    def unique(self, name: str, column: str) -> bool:
        """Return whether all values but NULL are distinct in a column, as the worker says."""
        open_exact_table(self._tables, name)
        return self._judged(do="unique", name=name, column=column)

    def accepts_pattern(self, pattern: str) -> bool:
        """Return whether DuckDB compiles `pattern`, tried in a worker, and in an instance that has nothing in it.

        While a statement runs that is another worker, which has no data: nothing else waits for the statement.
        """
        # An engine without tables is the one for patterns itself, and `_asked` takes its lock.
        if not self._recipe.names or self._lock.acquire(blocking=False):
            try:
                return self._judged(do="accepts", pattern=pattern)
            finally:
                if self._recipe.names:
                    self._lock.release()
        with self._idle:
            if self._patterns is None:
                self._patterns = open_pattern_worker()
            return self._patterns.accepts_pattern(pattern)

    @contextmanager
    def turn(self, stop: Stop | None = None) -> Iterator[None]:
        """Keep the engine for the body, with a worker that lives; raise `engine-closed` where there can be none."""
        load_libraries("pyarrow")
        with holding(self._lock, stop):
            ready = False
            with suppress(Exception):
                ready = not self._closed and self._ready(stop) is not None
            if not ready:
                raise engine_closed()
            yield

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT once, to its end, to the limit or to the stop; any failure is one error, and a new worker."""
        table = self._run(statement, stop)
        if table is None:  # raised in a frame that holds neither values nor rows
            raise engine_failed()
        return Exact(table)

    def close(self) -> None:
        """Kill the worker, once no statement is running, and remove what it spilled."""
        with self._lock, self._idle:
            self._closed = True
            self._drop()
            if self._patterns is not None:
                self._patterns.close()

    def _judged(self, **words: object) -> bool:
        """Return the yes or no of the worker; a worker that says something else is discarded."""
        reply = self._asked(protocol.MOST_JSON, words)
        value: object = None
        with suppress(ValueError):
            value = None if reply is None else protocol.heard(reply).get("value")
        if not isinstance(value, bool):
            with self._lock:
                self._drop()
            raise engine_failed()
        return value

    def _run(self, statement: Statement, stop: Stop | None) -> pa.Table | None:
        try:
            parameters = protocol.encoded(statement.parameters)
        except TypeError:
            return None
        words = {"do": "execute", "sql": statement.sql, "parameters": parameters}
        reply = self._asked(protocol.MOST_TABLE, words, stop=stop)
        return None if reply is None else self._table(reply)

    def _asked(self, most: int, words: Mapping[str, object], *, stop: Stop | None = None) -> bytearray | None:
        """Return the reply of at most `most` bytes, or None after any failure; an interrupt is passed on."""
        with holding(self._lock, stop):
            if self._closed:
                raise engine_closed()
            if stop is not None and stop():
                return None
            limit = self._recipe.time_limit
            try:
                worker = self._ready(stop)
                question = protocol.message(limit=limit, **words)
                deadline = None if limit is None else time.monotonic() + limit
                return worker.exchange(question, most=most, deadline=deadline, stop=stop)
            except Exception:  # noqa: BLE001 - words of it may hold private values; the error is raised elsewhere
                self._drop()
            except BaseException:
                self._drop()
                raise
            return None

    def _table(self, reply: bytearray) -> pa.Table | None:
        """Return the table of a reply; a worker that sends something else is discarded."""
        with suppress(Exception):
            return protocol.read_table(reply)
        with self._lock:
            self._drop()
        return None

    def _ready(self, stop: Stop | None) -> WorkerProcess:
        """Return a worker that lives and is this process's own; start one if there is none."""
        if self._worker is not None and self._worker.usable:
            return self._worker
        self._drop()
        if file_versions(self._recipe.loaded) != self._versions or not self._has_same_data():
            raise ValueError
        worker, tables, confinement = _started(self._recipe, stop)
        # Catalog and stored answers are of the tables that the first worker found.
        if tables != self._tables or not self._has_same_data():
            worker.end()
            raise ValueError
        self._worker, self._confinement = worker, confinement
        return worker

    def _has_same_data(self) -> bool:
        """Return whether the files of tables that must not change are those that were opened first."""
        if not self._unchanging:
            return True
        found = digest_versions(self._recipe.database, self._recipe.sources)
        return all(found.get(name) == self._data[name] for name in self._unchanging)

    def _drop(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None


def open_pattern_worker() -> WorkerEngine:
    """Return an engine without data that compiles regular expressions."""
    return WorkerEngine.open(None, {}, memory_limit="512MB", threads=1, time_limit=10)


def _started(recipe: _Recipe, stop: Stop | None = None) -> tuple[WorkerProcess, Tables, tuple[str, ...]]:
    """Start a worker; return it with the tables that it found and the measures in force.

    Raises the error with which the worker refused to open the data.
    """
    worker, tables, refusal = None, None, None
    confinement: tuple[str, ...] = ()
    try:
        worker = WorkerProcess(_BEGIN, place=recipe.folder, threads=recipe.threads, scratch=ScratchFolder())
        reply = protocol.heard(worker.exchange(recipe.opening, most=protocol.MOST_JSON, deadline=None, stop=stop))
        tables = _tables(reply, recipe.names) if reply.get("kind") == "opened" else None
        confinement = select_measures(reply.get("confinement"))
        refusal = _refusal(reply.get("error"))
    except Exception:  # noqa: BLE001, S110 - the content of a wrong reply is ignored
        pass
    except BaseException:
        if worker is not None:
            worker.end()
        raise
    if worker is None or tables is None:
        if worker is not None:
            worker.end()
        raise refusal or EngineError(
            "worker-failed",
            "The process that reads the data could not be started, or ended before it had opened it.",
            hint="See that the memory limit leaves room for the data to be opened and, if this process runs as root, "
            "that data and Python's packages belong to root or may be read by all: a worker has no root's privileges.",
        )
    return worker, tables, confinement


def _tables(reply: Mapping[str, object], names: tuple[str, ...]) -> Tables:
    """Return the tables of a reply, which has every name."""
    found = reply["tables"]
    if not isinstance(found, dict):
        raise ValueError  # noqa: TRY004 - one kind of error for all that is no message
    tables = {}
    for name in names:
        relation, columns, *rest = found[name]
        described = tuple(Column(*map(str, column)) for column in columns)
        tables[name] = Registered(tuple(map(str, relation)), described, rest == [True])
    return tables


def _refusal(words: object) -> EngineError | None:
    """Return the error that the worker was refused with: of our kind, and of our length."""
    match words:
        case [str(code), str(reason), str(hint), str() | None as place]:
            cut = (reason[:_LONGEST_WORDS], hint[:_LONGEST_WORDS], place and place[:_LONGEST_WORDS])
            return EngineError(code[:_LONGEST_WORDS], cut[0], hint=cut[1], place=cut[2])
    return None


def _encode_source(source: Path | CsvFile | Folder | AttachedTable | None) -> object:
    if isinstance(source, AttachedTable):
        return {"path": str(source.path), "table": source.table}
    if isinstance(source, Folder):
        return encode_folder(source)
    if isinstance(source, CsvFile):
        return [str(source.path), *source.describe()]
    return None if source is None else str(source)
