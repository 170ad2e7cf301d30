"""DuckDB in a process of its own: the one that answers analysts never opens the data, and outlives whatever happens.

The worker (`worker_main`) has the data, read-only, and neither the ledger nor the network; this side has the ledger and
not the data. A statement that takes too long is killed with its process. So is one that fails in any way: what went
wrong may depend on one unit's rows, may have damaged the instance, and is the same one error out here. The next
question finds a fresh worker.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dpsql.dialects import DUCKDB
from dpsql.engines import wire
from dpsql.engines.base import Beside, Column, CsvFile, Exact, Registered, Statement, table_of
from dpsql.engines.folder import Folder, spelled
from dpsql.errors import EngineError, UsageError
from dpsql.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["WorkerEngine"]

Sources = Mapping[str, Path | CsvFile | Folder | Beside | None]
Tables = Mapping[str, Registered]
Versions = Mapping[str, tuple[int, int, int]]

_BEGIN = "import sys; sys.path[:] = sys.argv[1:]; from dpsql.engines.worker_main import main; main()"
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SHARE = 0.8  # of the machine's memory, which DuckDB takes where it is given no limit
_LONGEST_WORDS = 2_000


@dataclass(frozen=True, slots=True)
class _Recipe:
    """All that a worker is told: what to open and how, from where; and how long a statement may take, in seconds."""

    opening: bytes
    folder: str
    names: tuple[str, ...]
    loaded: tuple[Path, ...]
    time_limit: float | None
    threads: int


class WorkerEngine:
    """Runs one SELECT at a time in another process; hands out its result sealed, and says nothing of a failure."""

    dialect = DUCKDB
    isolation = "process"
    sealed = True

    def __init__(self, recipe: _Recipe) -> None:
        """Use `open` instead."""
        self._recipe = recipe
        self._lock = threading.Lock()
        self._closed = False
        self._versions = _versions(recipe.loaded)
        self._worker: _Worker | None = None
        self._tables: Tables = {}
        self._worker, self._tables = _started(recipe)

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

        A worker that replaces another loads CSV files again, and only if they are as they were when the engine opened:
        by then nobody knows any more what stood in them. `time_limit` is in seconds. Raises what `DuckDBEngine.open`
        raises.
        """
        if not hasattr(os, "fork"):
            hint = "Leave isolation out, and let only trusted code near."
            raise UsageError("isolation-unavailable", "Processes are isolated on POSIX systems alone.", hint=hint)
        opening = wire.message(
            database=None if database is None else str(database),
            sources={name: _spelled(source) for name, source in sources.items()},
            memory=_bytes_of(memory_limit),
            memory_limit=memory_limit,
            threads=threads,
        )
        loaded = tuple(source.path for source in sources.values() if isinstance(source, CsvFile))
        most = threads or os.cpu_count() or 1
        return cls(_Recipe(opening, str(Path.cwd()), tuple(sources), loaded, time_limit, most))

    def relation(self, name: str) -> tuple[str, ...]:
        """Return the fully qualified identifier of the table that was registered as `name`."""
        return table_of(self._tables, name).relation

    def columns(self, name: str) -> tuple[Column, ...]:
        """Return the columns of the table that was registered as `name`, as they were when the engine opened."""
        return table_of(self._tables, name).columns

    def unique(self, name: str, column: str) -> bool:
        """Return whether no value but NULL stands twice in a column, asked in the worker."""
        table_of(self._tables, name)
        return self._judged(do="unique", name=name, column=column)

    def accepts_pattern(self, pattern: str) -> bool:
        """Return whether DuckDB compiles `pattern`, tried in the worker, and in an instance that has nothing in it."""
        return self._judged(do="accepts", pattern=pattern)

    def execute(self, statement: Statement) -> Exact:
        """Run one SELECT once, to its end or to the limit; whatever goes wrong is the same error, and a new worker."""
        table = self._run(statement)
        if table is None:  # raised in a frame that holds neither values nor rows
            raise _failed()
        return Exact(table)

    def close(self) -> None:
        """Kill the worker, once no statement is running, and remove what it spilled."""
        with self._lock:
            self._closed = True
            self._drop()

    def _judged(self, **words: object) -> bool:
        """Return the worker's yes or no; one that says something else is not asked again."""
        reply = self._asked(wire.MOST_JSON, **words)
        value: object = None
        with suppress(ValueError):
            value = None if reply is None else wire.heard(reply).get("value")
        if not isinstance(value, bool):
            with self._lock:
                self._drop()
            raise _failed()
        return value

    def _run(self, statement: Statement) -> pa.Table | None:
        try:
            parameters = wire.encoded(statement.parameters)
        except TypeError:
            return None
        reply = self._asked(wire.MOST_TABLE, do="execute", sql=statement.sql, parameters=parameters)
        return None if reply is None else self._table(reply)

    def _asked(self, most: int, **words: object) -> bytearray | None:
        """Return the reply of at most `most` bytes, or None, whatever went wrong; an interrupt passes."""
        with self._lock:
            if self._closed:
                raise UsageError("engine-closed", "The engine is closed.", hint="Open a new session.")
            limit = self._recipe.time_limit
            try:
                worker = self._ready()
                question = wire.message(limit=limit, **words)
                return worker.asked(question, most, deadline=None if limit is None else time.monotonic() + limit)
            except Exception:  # noqa: BLE001 - words of it may hold private values; the error is raised elsewhere
                self._drop()
            except BaseException:
                self._drop()
                raise
            return None

    def _table(self, reply: bytearray) -> pa.Table | None:
        """Return the table of a reply; a worker that sends something else is not asked again."""
        from dpsql.engines import received

        with suppress(Exception):
            return received.table_of(reply)
        with self._lock:
            self._drop()
        return None

    def _ready(self) -> _Worker:
        """Return a worker that lives and is this process's own; start one if there is none."""
        if self._worker is not None and self._worker.usable:
            return self._worker
        self._drop()
        if _versions(self._recipe.loaded) != self._versions:
            raise ValueError
        worker, tables = _started(self._recipe)
        if tables != self._tables:
            worker.end()
            raise ValueError
        self._worker = worker
        return worker

    def _drop(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None


class _Worker:
    """A process, the pipes to and from it, and the folder into which it spills."""

    def __init__(self, folder: str, threads: int) -> None:
        self._spilled = tempfile.mkdtemp(prefix="dpsql-")
        self._owner = os.getpid()
        try:
            self._process = _process(folder, spilled=self._spilled, threads=threads)
        except BaseException:
            shutil.rmtree(self._spilled, ignore_errors=True)
            raise
        self.end = weakref.finalize(self, _end, self._process, self._spilled, owner=self._owner)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                wire.widen(pipe.fileno())

    @property
    def usable(self) -> bool:
        """Whether it lives, and was not inherited by a fork: two fronts at one pipe would read each other's answers."""
        return self._owner == os.getpid() and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The worker's process."""
        return self._process.pid

    def asked(self, question: bytes, most: int, *, deadline: float | None) -> bytearray:
        """Send a question and return the reply of at most `most` bytes."""
        questions, answers = self._process.stdin, self._process.stdout
        if questions is None or answers is None:
            raise OSError
        wire.send(questions.fileno(), question, deadline=deadline)
        return wire.receive(answers.fileno(), most, deadline=deadline)


def _process(folder: str, *, spilled: str, threads: int) -> subprocess.Popen[bytes]:
    """Start a worker.

    Its addresses are bounded by what it may hold, so nothing may set them aside that does not use them: by themselves
    the allocator of the C library takes 64 MiB for every thread there ever was, Arrow's a whole GiB at first use, and
    DuckDB's keeps those of all that it has given back.
    """
    memory = {
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "DUCKDB_JE_MALLOC_CONF": "retain:false",
        "MALLOC_ARENA_MAX": str(threads),
    }
    return subprocess.Popen(  # noqa: S603 - this Python and our own words
        [sys.executable, "-I", "-c", _BEGIN, *_paths()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd=folder,
        env={"TMPDIR": spilled, "HOME": spilled, **memory},
        start_new_session=True,  # a Ctrl-C in the terminal is for the front
    )


def _end(process: subprocess.Popen[bytes], spilled: str, *, owner: int) -> None:
    """Kill a worker with what it started, wait for it, and remove its folder.

    A fork that inherited it only lets go of the pipes. Whatever left the worker's session is not found here.
    """
    mine = owner == os.getpid()
    if mine:
        if process.poll() is None:  # until it is waited for, the group of its session is nobody else's
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    if mine:
        shutil.rmtree(spilled, ignore_errors=True)


def _started(recipe: _Recipe) -> tuple[_Worker, Tables]:
    """Start a worker and return it with the tables that it found; raise the error that it was refused with."""
    worker, tables, refusal = None, None, None
    try:
        worker = _Worker(recipe.folder, recipe.threads)
        reply = wire.heard(worker.asked(recipe.opening, wire.MOST_JSON, deadline=None))
        tables = _tables(reply, recipe.names) if reply.get("kind") == "opened" else None
        refusal = _refusal(reply.get("error"))
    except Exception:  # noqa: BLE001, S110 - what it sent instead is nobody's business
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
            hint="See that the memory limit leaves room for the data to be opened.",
        )
    return worker, tables


def _tables(reply: Mapping[str, object], names: tuple[str, ...]) -> Tables:
    """Return the tables of a reply, of which every name is there."""
    found = reply["tables"]
    if not isinstance(found, dict):
        raise ValueError  # noqa: TRY004 - one kind of error for all that is no message
    tables = {}
    for name in names:
        relation, columns = found[name]
        described = tuple(Column(*map(str, column)) for column in columns)
        tables[name] = Registered(tuple(map(str, relation)), described)
    return tables


def _refusal(words: object) -> EngineError | None:
    """Return the error that the worker was refused with: of our kind, and of our length."""
    match words:
        case [str(code), str(reason), str(hint), str() | None as place]:
            cut = (reason[:_LONGEST_WORDS], hint[:_LONGEST_WORDS], place and place[:_LONGEST_WORDS])
            return EngineError(code[:_LONGEST_WORDS], cut[0], hint=cut[1], place=cut[2])
    return None


def _failed() -> EngineError:
    return EngineError(
        "engine-failed",
        "The engine could not answer this statement.",
        hint="Ask the curator: the details may hold private values and are not kept.",
    )


def _paths() -> list[str]:
    """Return where Python finds packages here, this one first if it was found in another way; nothing relative."""
    paths = [path for path in sys.path if Path(path).is_absolute()]
    own = str(Path(__file__).parents[2])
    return paths if own in paths else [own, *paths]


def _spelled(source: Path | CsvFile | Folder | Beside | None) -> object:
    if isinstance(source, Beside):
        return {"path": str(source.path), "table": source.table}
    if isinstance(source, Folder):
        return spelled(source)
    if isinstance(source, CsvFile):
        return [str(source.path), [[column.name, column.type] for column in source.columns]]
    return None if source is None else str(source)


def _versions(files: tuple[Path, ...]) -> Versions:
    """Return what tells whether a file is still the one that was loaded; nothing in it is read."""
    found = {}
    for file in files:
        with suppress(OSError):
            status = file.stat()
            found[str(file)] = status.st_ino, status.st_size, status.st_mtime_ns
    return found


def _bytes_of(memory_limit: str | None) -> int:
    """Return a memory limit in bytes; what is none is DuckDB's to refuse; by default a share of all."""
    with suppress(ValueError, KeyError):
        text = (memory_limit or "").replace(" ", "").upper()
        number = text.rstrip("KMGTIB")
        return int(float(number) * _UNITS[text[len(number) :]])
    return int(_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
