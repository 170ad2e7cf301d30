"""Opening of the engine that has the data: the part of the composition root that names engines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, cast

from dpsql.errors import EngineError, Error, PolicyError, UsageError
from dpsql.policy import (
    IN_MEMORY,
    DataSource,
    EngineSettings,
    Policy,
    PrivateTable,
    SourceUrl,
    Table,
    is_address,
    names_files,
    refuse_no_engine,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import duckdb
    from pyspark.sql import SparkSession

    from dpsql.engines import AttachedTable, CsvFile, Engine, RemoteFiles, ResultEvaluator
    from dpsql.engines.pool import EnginePool, PublicEngines
    from dpsql.engines.postgres_writer import PostgresWriter
    from dpsql.engines.sources import Folder
    from dpsql.engines.spark import SparkWriter

    Sources = Mapping[str, Path | CsvFile | Folder | RemoteFiles | None]

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/")  # that a shell has taken for a path, which lost one of its slashes
_PUBLIC_DUCKDBS = 2  # that statements over public tables have, each with a part of the memory
GROUP = "dpsql.engines"  # entry points of other packages: the word before the colon of a URL, and what opens it
_ENGINES = {
    "datafusion": "dpsql.engines.datafusion:DataFusionEngine.open",
    **dict.fromkeys(["mysql", "mariadb"], "dpsql.engines.mysql:MySQLEngine.open"),
    **dict.fromkeys(["postgresql", "postgres"], "dpsql.engines.postgres:PostgresEngine.open"),
    **dict.fromkeys(["spark", "sc"], "dpsql.engines.spark:SparkEngine.open"),
    "athena": "dpsql.engines.warehouses:AthenaEngine.open",
    "bigquery": "dpsql.engines.bigquery:BigQueryEngine.open",
    "databricks": "dpsql.engines.warehouses:DatabricksEngine.open",
    "redshift": "dpsql.engines.warehouses:RedshiftEngine.open",
    "snowflake": "dpsql.engines.warehouses:SnowflakeEngine.open",
    "trino": "dpsql.engines.warehouses:TrinoEngine.open",
}


_SPARK = {"spark", "sc"}


class _Open(Protocol):
    """Opener of an engine by its URL."""

    def __call__(
        self, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None
    ) -> Engine: ...


def open_engine(database: object, policy: Policy, *, isolation: str | None = None, materialized: bool = True) -> Engine:
    """Return the engine that has the tables of a policy, for sessions made with `connect.session_of`.

    `database` is the path of a DuckDB file, an open DuckDB connection, a Spark session, the URL of an engine, an
    open `Engine`, or None for the source in the policy. With `materialized`, DuckDB's files are opened together with
    their materialized tables. Raises as `dpsql.connect` does.
    """
    _check_database(database, policy)
    isolated = policy.engine.isolates(isolation)
    given = find_source(database, policy)
    try:
        is_session = type(database).__module__.startswith("pyspark.sql")
        sources = list_sources(policy, elsewhere=is_session or (given is not None and given.scheme in _SPARK))
        # An address of an engine; `given.path` is that of "duckdb:" and a file.
        if given is not None and given.path is None:
            _check_elsewhere(policy, isolated=isolated, scheme=given.scheme)
            return _open_remote(given, policy, sources=sources, materialized=materialized)
        if _is_engine(database):
            _check_open(database, policy, isolated=isolated)
            return database
        if is_session:
            _check_elsewhere(policy, isolated=isolated)
            from dpsql.engines.spark import SparkEngine

            return SparkEngine.borrow(cast("SparkSession", database), sources, time_limit=policy.engine.time_limit)
        place = cast("Path | None", database) if given is None else given.path
        if materialized and policy.materialized is not None and (place is None or isinstance(place, str | Path)):
            from dpsql.materialized.lookup import find_attached  # start-up: few policies materialize anything

            return _open_duckdb(
                place,
                policy.engine,
                sources={**sources, **find_attached(policy, place, sources=sources)},
                isolated=isolated,
            )
        return _open_duckdb(place, policy.engine, sources=sources, isolated=isolated)
    except (EngineError, PolicyError) as error:
        # the engine knows the table by its name; the curator wants its line
        named = {f"table {name}": f"tables.{name}" for name in policy.tables} | {"source.url": "source.url"}
        line = policy.where(named[error.place]) if error.place in named else error.place
        raise type(error)(error.code, error.reason, hint=error.hint, place=line) from None


def open_pool(database: str | Path | None, policy: Policy, *, isolation: str | None = None) -> tuple[EnginePool, int]:
    """Return an engine that runs several statements at a time, as `connections` of the policy says, and how many.

    In this process these are cursors of one DuckDB, which share its memory and threads; with isolation each has a
    process of its own and a part of the memory. Other engines are connected to several times.
    Raises as `open_engine` does.
    """
    from dpsql.engines import load_libraries

    load_libraries("duckdb")
    from dpsql.engines.duckdb.engine import DuckDBEngine
    from dpsql.engines.pool import EnginePool

    given = find_source(database, policy)
    of_duckdb = given is None or given.path is not None
    is_apart = of_duckdb and policy.engine.isolates(isolation)
    size = policy.engine.count_connections(of_duckdb=of_duckdb, is_apart=is_apart)
    settings = policy.engine.for_worker(size) if is_apart else policy.engine
    member = replace(policy, engine=settings)
    first = open_engine(database, member, isolation=isolation)
    # An engine of another package may allow fewer connections than the policy wants.
    size = min(size, getattr(first, "max_connections", None) or size)
    open_member = lambda: open_engine(database, member, isolation=isolation)  # noqa: E731
    if isinstance(first, DuckDBEngine):
        open_member = first.open_cursor
    open_patterns: Callable[[], Engine] | None = None
    if is_apart:
        from dpsql.engines.duckdb.worker_engine import open_pattern_worker

        open_patterns = open_pattern_worker
    with ExitStack() as closing:
        closing.callback(first.close)
        pool = EnginePool(first, open_member, size=size, names=tuple(policy.tables), open_patterns=open_patterns)
        closing.callback(pool.close)
        if settings.answer_grid_ms is not None:  # whether a statement has to wait for that depends on others
            pool.open_all()
        # The pool is open: its owner closes it, and not this block.
        closing.pop_all()
    return pool, size


def _open_remote(given: DataSource, policy: Policy, *, sources: Sources, materialized: bool) -> Engine:
    """Return the engine at an address, with the materialized tables in its database."""
    engine = open_url(given, sources, time_limit=policy.engine.time_limit)
    if materialized and given.materialized is not None:
        from dpsql.materialized.lookup import open_materialized  # start-up: few policies materialize anything

        try:
            open_materialized(engine, policy, schema=given.materialized)
        except BaseException:
            engine.close()
            raise
    return engine


def open_schema_writer(
    source: DataSource, engine: Engine, *, sources: Sources, url: str | None
) -> AbstractContextManager[PostgresWriter | SparkWriter]:
    """Return the writer of materialized tables in the database of a source: at its own address, or at another."""
    from dpsql.engines.base import SchemaReader

    address = source if url is None else DataSource(url, options=source.options)
    if not isinstance(engine, SchemaReader) or source.materialized is None or _find_ours(address) != _find_ours(source):
        reason = "This is no address of an engine that materializes tables."
        raise UsageError("database", reason, hint="Such as postgresql://curator@db.example/shop.", place="url")
    if engine.dialect.name == "Spark":
        from dpsql.engines.spark import SparkEngine
        from dpsql.engines.spark import open_writer as open_spark_writer

        other = engine if url is None else open_url(address, sources, time_limit=None)
        return open_spark_writer(cast("SparkEngine", other), source.materialized, owned=url is not None)
    from dpsql.engines.postgres_writer import open_writer

    return open_writer(address.url, address.options, schema=source.materialized, reader=engine.read_role())


def _find_ours(source: DataSource) -> str:
    """Return the engine of dpsql's own for an address, "" for none."""
    return _ENGINES.get(source.scheme, "")


def public_engines(
    database: object, policy: Policy, *, engine: Engine, isolation: str | None = None
) -> PublicEngines | None:
    """Return engines for statements over the public tables of a policy, apart from `engine`, opened when needed.

    `engine` is what `open_engine` returned for the same arguments. Returns None where there are no public tables, and
    where another one cannot be opened: an `Engine` that was given open runs all statements itself.
    """
    from dpsql.engines.pool import PublicEngines

    names = [name for name, table in policy.tables.items() if not isinstance(table, PrivateTable)]
    if not names or engine is database:
        return None
    public = policy.only(names)
    settings = policy.engine
    is_open = database is not None and not isinstance(database, str | Path)
    if engine.dialect.name == "DuckDB" and not is_open:
        settings = settings.for_public_tables()
    limited = replace(public, engine=replace(settings, time_limit=settings.public_time_limit))
    # These are the CSV files, which have types in the policy and are read into memory once.
    loaded = tuple(table.source for table in public.tables.values() if isinstance(table.source, Path) and table.types)
    engines = PublicEngines(
        lambda: open_engine(database, limited, isolation=isolation, materialized=False),
        seconds=settings.public_time_limit,
        most=_PUBLIC_DUCKDBS if engine.dialect.name == "DuckDB" else settings.count_connections(of_duckdb=False),
        loaded=loaded,
    )
    if is_open and engine.dialect.name == "DuckDB":  # while its owner has no statement under way on it
        engines.open_first()
    return engines


def open_evaluator(
    engine: Engine, policy: Policy, *, shared: ResultEvaluator | None = None, served: bool = False
) -> ResultEvaluator:
    """Return the evaluator of released rows for a session over an engine: in workers where that one has a worker.

    In a server, which runs the SQL of many analysts in it, it is in workers always. A statement has the policy's limits
    of time and memory, and never more than 1 GB. One that is `shared` with other sessions has the limits that it was
    made with, and stays open when the session closes it.
    """
    from dpsql.engines.duckdb.evaluator import (
        MEMORY_LIMIT,
        SECONDS,
        DuckDBEvaluator,
        SharedEvaluator,
        WorkerEvaluator,
        choose_smaller,
    )

    if shared is not None:
        return SharedEvaluator(shared)
    memory_limit = choose_smaller(policy.engine.memory_limit, MEMORY_LIMIT)
    seconds = SECONDS if policy.engine.time_limit is None else policy.engine.time_limit
    is_apart = served or engine.isolation == "process"
    return (WorkerEvaluator if is_apart else DuckDBEvaluator)(memory_limit, seconds)


def report_confinement(engine: Engine | None) -> tuple[str, ...]:
    """Return the measures in force against an engine's worker or, without one, those of a worker started for this."""
    from dpsql.engines import read_confinement
    from dpsql.engines.duckdb.evaluator import try_confinement

    return try_confinement() if engine is None else read_confinement(engine)


def is_engine_url(text: str) -> bool:
    """Say whether a text is the URL of an engine, of dpsql or of another package, and neither a path nor files."""
    scheme, colon, _ = text.partition(":")
    if is_address(text) and not names_files(text):
        return True
    known = colon and not Path(text).exists()
    return bool(known) and (scheme in _ENGINES or scheme in entry_points(group=GROUP).names)


def find_source(database: object, policy: Policy) -> DataSource | None:
    """Return the source of the data if `database` or the policy names one by URL, else None."""
    return (
        DataSource(database)
        if isinstance(database, str) and (is_address(database) or is_engine_url(database))
        else policy.source
    )


def list_sources(policy: Policy, *, elsewhere: bool = False) -> dict[str, Path | CsvFile | Folder | RemoteFiles | None]:
    """Return the file, folder or address of every table, and None for tables of the database.

    Of an engine that reads files `elsewhere`, paths that this machine does not have are left for it to find.
    """
    return {name: _find_table_source(name, table, elsewhere=elsewhere) for name, table in policy.tables.items()}


def _check_database(database: object, policy: Policy) -> None:
    if isinstance(database, str | Path) and str(database) == IN_MEMORY:
        hint = "Pass an open DuckDB connection, or None when all tables are files."
        raise UsageError("database", "A new in-memory database holds no tables.", hint=hint)
    if isinstance(database, str | Path) and str(database).lower().endswith((".parquet", ".csv", ".tsv")):
        reason = "These are files of one table, and not a database."
        hint = "Name them under the table in the policy, as its source, and leave the database out."
        raise UsageError("database", reason, hint=hint)
    if policy.source is not None and policy.source.path is not None and policy.source.options:
        reason, hint = "A DuckDB file has no options.", "Memory, threads and time are limited in [engine]."
        raise PolicyError("policy-source", reason, hint=hint, place=policy.where("source.options"))
    if isinstance(database, Path) and _ADDRESS.match(str(database)) and not database.exists():
        hint = 'Write [source] and below it url = "..." in the policy, and leave the database out.'
        raise UsageError("database", "The address of an engine belongs into the policy.", hint=hint)
    if policy.source is not None and database is not None:
        hint = "Leave the database out, or take [source] out of the policy."
        raise UsageError("source-twice", "The policy says where the data is.", hint=hint)


def _check_elsewhere(policy: Policy, *, isolated: bool, scheme: str = "") -> None:
    """Refuse settings of DuckDB for data in another engine."""
    if isolated and scheme == "datafusion":
        hint = "Leave isolation out, or leave [source] out: DuckDB reads Parquet files in a process of its own, too."
        raise UsageError("isolation-connection", "DataFusion reads the data in this process.", hint=hint)
    if isolated:
        hint = "Leave isolation out, and serve analysts with dpsql serve, which does not share the credentials."
        raise UsageError("isolation-remote", "The data is open in another program already.", hint=hint)
    for name in ("memory_limit", "threads"):
        if getattr(policy.engine, name) is not None:
            reason, place = f"The setting {name} is DuckDB's.", policy.where(f"engine.{name}")
            raise PolicyError("policy-source", reason, hint="Set limits in the engine that has the data.", place=place)


def _check_open(engine: Engine, policy: Policy, *, isolated: bool) -> None:
    """Refuse settings that cannot change on an open engine."""
    if isolated and engine.isolation != "process":
        reason = "An engine that is open in this process cannot be isolated from it."
        raise UsageError("isolation-connection", reason, hint="Let the policy's [source] name it, and serve analysts.")
    for name in ("memory_limit", "threads", "time_limit"):
        if getattr(policy.engine, name) is not None:
            reason, place = f"The setting {name} comes too late for an engine that is open.", f"engine.{name}"
            hint = "Give it to the engine where it is opened, and take it out of the policy."
            raise PolicyError("policy-source", reason, hint=hint, place=policy.where(place))


def open_url(source: DataSource, sources: Sources, *, time_limit: float | None) -> Engine:
    """Return the engine at an address; of what fails in opening it only dpsql's own errors are passed on."""
    from dpsql.engines.base import show_adapter_errors

    try:
        with show_adapter_errors():
            return _find_opener(source, sources)(source.url, sources, options=source.options, time_limit=time_limit)
    except Error:
        raise
    except ImportError as error:
        missing = error.name or "that it needs"
    except Exception:  # noqa: BLE001 - of another package, with a password perhaps
        missing = None
    if missing is not None:  # raised here and not where it was caught: no context hangs on it
        hint = f"docs/reference/sources.md says what to install for {source.scheme}:."
        raise UsageError("not-installed", f"This engine needs the package {missing}.", hint=hint, place="source.url")
    hint = "Check the address, the user and the password with a client of the engine. Its messages are not stored here."
    raise EngineError("engine-unreachable", "The engine cannot be opened.", hint=hint, place="source.url")


def _find_opener(source: DataSource, sources: Sources) -> _Open:
    """Find the opener for a URL's scheme, in dpsql or in the entry points of other packages."""
    ours = _ENGINES.get(source.scheme)
    if ours is not None:
        module, _, attributes = ours.partition(":")
        # "dpsql.engines.mysql:MySQLEngine.open" is a module, and attributes of it.
        found: Any = import_module(module)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
        return cast("_Open", found)
    others = entry_points(group=GROUP)
    if source.scheme not in others.names:
        refuse_no_engine(source.url)
        known = ", ".join(sorted({*_ENGINES, "duckdb", *others.names}))
        reason = f'There is no engine for addresses that begin with "{source.scheme}:".'
        raise PolicyError("policy-source", reason, hint=f"Known here: {known}.", place="source.url")
    opener = others[source.scheme].load()
    if any(file is not None for file in sources.values()) and not getattr(opener, "reads_files", False):
        reason = f"The engine for {source.scheme}: reads no files."
        hint = (
            "Load the file into the engine, and leave source out of the table. DuckDB, DataFusion and Spark read files."
        )
        raise PolicyError("policy-source", reason, hint=hint, place="source.url")
    return cast("_Open", opener)


def _is_engine(value: object) -> TypeGuard[Engine]:
    return all(hasattr(value, name) for name in ("dialect", "relation", "columns", "execute", "close"))


def _open_duckdb(
    database: str | Path | duckdb.DuckDBPyConnection | None,
    settings: EngineSettings,
    *,
    sources: Mapping[str, Path | CsvFile | Folder | RemoteFiles | AttachedTable | None],
    isolated: bool,
) -> Engine:
    limits = settings.memory_limit, settings.threads, settings.time_limit
    if isolated:
        from dpsql.engines import RemoteFiles

        local = {name: source for name, source in sources.items() if not isinstance(source, RemoteFiles)}
        if len(local) < len(sources):
            reason = "A process of its own has no network, and a table has an address as its source."
            hint = "Leave isolation out and serve analysts with dpsql serve, or copy the files to this machine."
            raise UsageError("isolation-network", reason, hint=hint)
        if database is not None and not isinstance(database, str | Path):
            reason = "An open connection is this process's, and cannot be isolated from it."
            raise UsageError("isolation-connection", reason, hint="Pass the path of the database file.")
        from dpsql.engines.duckdb.worker_engine import WorkerEngine

        return WorkerEngine.open(database, local, memory_limit=limits[0], threads=limits[1], time_limit=limits[2])
    from dpsql.engines import load_libraries

    load_libraries("duckdb")
    from dpsql.engines.duckdb.engine import DuckDBEngine

    if database is None or isinstance(database, str | Path):
        return DuckDBEngine.open(database, sources, memory_limit=limits[0], threads=limits[1], time_limit=limits[2])
    return DuckDBEngine.borrow(database, sources, time_limit=settings.time_limit)


def _find_table_source(name: str, table: Table, *, elsewhere: bool) -> Path | CsvFile | Folder | RemoteFiles | None:
    from dpsql.engines import Column, CsvFile, RemoteFiles

    if table.source is None:
        return None
    if isinstance(table.source, SourceUrl):
        return RemoteFiles(str(table.source))
    if table.columns is None or table.types is None:
        if table.source.suffix.lower() == ".parquet" and not table.source.is_dir():
            return table.source
        if elsewhere and not table.source.exists():
            return table.source
        from dpsql.engines.lakes import find_folder

        return find_folder(table.source, place=f"table {name}")
    return CsvFile(table.source, tuple(map(Column, table.columns, table.types)), table.csv)
