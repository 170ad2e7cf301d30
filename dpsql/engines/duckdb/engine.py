"""DuckDB: opened by dpsql, read-only and sealed, or passed in by the user and used through a fresh cursor."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import duckdb

from dpsql.dialects import DUCKDB
from dpsql.engines.base import Exact, Statement, engine_closed, engine_failed, holding, run_beside
from dpsql.engines.duckdb import catalog, instance, placement
from dpsql.engines.scratch import ScratchFolder
from dpsql.engines.sources import (
    AttachedTable,
    Column,
    CsvFile,
    Folder,
    Registered,
    RemoteFiles,
    digest_versions,
    open_exact_table,
)
from dpsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.engines.base import Stop

Sources = Mapping[str, Path | CsvFile | Folder | RemoteFiles | AttachedTable | None]
Tables = Mapping[str, Registered]


class DuckDBEngine:
    """Engine that runs one SELECT at a time, seals its result, and never passes on the texts of DuckDB's errors.

    The lock of a sealed instance is defence in depth: DuckDB could still overwrite the files that it may read. A
    statement that is not a single SELECT is therefore not run at all.
    """

    dialect = DUCKDB
    isolation = "in_process"

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        tables: Tables,
        *,
        sealed: bool,
        holds: ExitStack,
        time_limit: float | None = None,
        versions: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Use `open` or `borrow` instead: they know what must be true of a connection and what it `holds`."""
        self._connection = connection
        self._tables = dict(tables)
        self.sealed = sealed  # whether it was opened, not borrowed
        self._holds = holds
        self._time_limit = time_limit
        self._versions = versions
        self._lock = threading.RLock()  # taken again by the statement of a turn
        self._watch = threading.Lock()  # asking for the progress of a statement must not wait for its end
        self._patterns = threading.Lock()  # nor does who tries a regular expression
        self._bare: duckdb.DuckDBPyConnection | None = None
        self._release = weakref.finalize(self, _close, holds, os.getpid())

    @classmethod
    def open(
        cls,
        database: str | Path | None,
        sources: Sources,
        *,
        memory_limit: str | None = None,
        threads: int | None = None,
        time_limit: float | None = None,
        spill: Path | None = None,
    ) -> DuckDBEngine:
        """Open a database file, files of tables or both; `sources` names every table, and its file if it has its own.

        A path is that of a Parquet file, which every statement reads again, as it does the files of a `Folder`. A
        `CsvFile` is read once, here. An `AttachedTable` is in a database of its own, which is attached.
        The instance is in memory and attaches the database, so that several instances can read one file side by side.
        Data that does not fit in memory is spilled into a private folder that is removed with the engine, or into the
        folder `spill`, which the caller removes.
        A statement that takes longer than the limit, in seconds, is interrupted and fails; some go on for long.
        """
        before = digest_versions(database, sources)
        with ExitStack() as holds:
            folder = spill or holds.enter_context(ScratchFolder()).path
            connection = holds.enter_context(instance.connect_sealed(str(folder), memory_limit, threads=threads))
            home = None if database is None else instance.attach(connection, database)
            paths = placement.place(connection, sources, home=home, sealed=True)
            # From here on the instance opens no other file, and keeps its settings.
            instance.lock(connection)
            tables = {
                name: replace(
                    catalog.describe(connection, name, relation=path), is_stored=catalog.is_stored(connection, path)
                )
                for name, path in paths.items()
            }
            after = digest_versions(database, sources)
            # Files that changed while they were opened have no version.
            versions = {name: before[name] for name in before if after.get(name) == before[name]}
            return cls(connection, tables, sealed=True, holds=holds.pop_all(), time_limit=time_limit, versions=versions)

    @classmethod
    def borrow(
        cls, connection: duckdb.DuckDBPyConnection, sources: Sources, *, time_limit: float | None = None
    ) -> DuckDBEngine:
        """Use the connection that the user has open, through a cursor of its own; the user's settings stay as they are.

        Tables are those of the connection's current database; temporary ones belong to the connection alone and cannot
        be used. Parquet files become temporary views that only the cursor sees, CSV files its temporary tables. The
        settings that decide what a statement means are dpsql's own for the cursor, whatever those of the user are.
        """
        if not isinstance(connection, duckdb.DuckDBPyConnection):
            raise UsageError("not-a-connection", "An open DuckDB connection is needed.", hint="duckdb.connect(...)")
        home = instance.resident_database(connection)
        with ExitStack() as holds:
            cursor = holds.enter_context(connection.cursor())
            instance.refuse_macros(cursor)
            instance.pin(cursor)
            with suppress(EngineError):  # the settings of a user's connection may be locked
                instance.make_quiet(cursor)
            paths = placement.place(cursor, sources, home=home, sealed=False)
            tables = {name: catalog.describe(cursor, name, relation=path) for name, path in paths.items()}
            instance.pin_search_path(cursor)
            return cls(cursor, tables, sealed=False, holds=holds.pop_all(), time_limit=time_limit)

    def open_cursor(self) -> DuckDBEngine:
        """Return an engine on a further cursor of this sealed instance, whose memory and threads both share.

        Close it first: this one has the files. Raises `EngineError`.
        """
        with ExitStack() as holds:
            cursor = holds.enter_context(self._connection.cursor())
            instance.check_cursor(cursor)
            return type(self)(
                cursor,
                self._tables,
                sealed=self.sealed,
                holds=holds.pop_all(),
                time_limit=self._time_limit,
                versions=self._versions,
            )

    def relation(self, name: str) -> tuple[str, ...]:
        """Return the fully qualified identifier of the table that was registered as `name`."""
        return open_exact_table(self._tables, name).relation

    def columns(self, name: str) -> tuple[Column, ...]:
        """Return the columns of the table that was registered as `name`, as they were when the engine opened."""
        return open_exact_table(self._tables, name).columns

    def is_stored(self, name: str) -> bool:
        """Return whether a table has rows of its own, and is no view."""
        return open_exact_table(self._tables, name).is_stored

    def data_version(self, name: str) -> str | None:
        """Return the digest of the versions of the files of a table; None where its rows may change."""
        return self._versions.get(name) if self.is_stored(name) else None

    def unique(self, name: str, column: str) -> bool:
        """Return whether all values but NULL are distinct in a column; no value leaves DuckDB."""
        return len(self._run(Statement(catalog.repeated(open_exact_table(self._tables, name), column)))) == 0

    def accepts_pattern(self, pattern: str) -> bool:
        """Return whether DuckDB compiles `pattern`, tried as a bound value in an instance that has nothing in it."""
        with self._patterns:
            if not self._release.alive:
                raise engine_closed()
            if self._bare is None:
                self._bare = self._holds.enter_context(instance.connect_bare())
            return instance.compiles(self._bare, pattern)

    @contextmanager
    def turn(self, stop: Stop | None = None) -> Iterator[None]:
        """Keep the engine for the body; raise `engine-closed` if it is closed, or DuckDB has given the instance up."""
        with holding(self._lock, stop):
            # The settings of a sealed instance are locked: below, it has to show only that it lives.
            is_ready = self._release.alive and not self.sealed and instance.has_pinned(self._connection)
            if not is_ready:
                lives = False  # after an internal error DuckDB refuses all statements of an instance
                with suppress(duckdb.Error, RuntimeError):
                    lives = self._release.alive and self._connection.execute("SELECT 1").fetchall() == [(1,)]
                if not lives:
                    raise engine_closed()
                if not self.sealed:
                    raise instance.changed()
            yield

    def execute(self, statement: Statement, *, stop: Stop | None = None) -> Exact:
        """Run one SELECT once, to its end; DuckDB's words carry cell values, so not one of them is passed on."""
        return Exact(self._run(statement, stop))

    def progress(self) -> float | None:
        """Return the share of the statement that is done, as DuckDB guesses it from rows; None where it does not."""
        share = -1.0
        with self._watch, suppress(duckdb.Error):
            if self._release.alive:
                share = self._connection.query_progress()
        return min(share, 100.0) / 100 if share >= 0 else None

    def close(self) -> None:
        """Let go of the data, the cursor and the spill folder, once no statement is running."""
        with self._lock, self._watch, self._patterns:
            self._release()

    def _run(self, statement: Statement, stop: Stop | None = None) -> pa.Table:
        """Return the result; every failure is one error, whose context has nothing of DuckDB's."""

        def fetch() -> pa.Table:  # no local variable has a word of the engine: errors show this frame
            # Two statements raise here, before one of them runs.
            (only,) = self._connection.extract_statements(statement.sql)
            if only.type != duckdb.StatementType.SELECT:
                raise ValueError
            return self._connection.sql(only, params=list(statement.parameters)).to_arrow_table()

        with self._lock:
            if not self._release.alive:
                raise engine_closed()
            table = run_beside(
                fetch,
                name="dpsql-statement",
                seconds=self._time_limit,
                stop=stop,
                interrupt=self._connection.interrupt,
            )
        if table is None:
            raise engine_failed()
        return table


_OF_PARENT = list[ExitStack]()


def _close(holds: ExitStack, process: int) -> None:
    """Let go of what an engine holds; in a fork keep it, since DuckDB would wait for threads of its parent."""
    if os.getpid() == process:
        holds.close()
    else:
        _OF_PARENT.append(holds)
