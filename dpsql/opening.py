"""Which engine has the data, and how it is opened: the part of the composition root that names engines."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, cast

from dpsql.errors import EngineError, PolicyError, UsageError
from dpsql.policy import DataSource, EngineSettings, Policy, Table, is_address

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from dpsql.engines import CsvFile, Engine
    from dpsql.engines.folder import Folder

    Sources = Mapping[str, Path | CsvFile | Folder | None]

__all__ = ["IN_MEMORY", "engine_of"]

IN_MEMORY = ":memory:"
GROUP = "dpsql.engines"  # entry points of other packages: the word before the colon of a URL, and what opens it
_ENGINES = {
    **dict.fromkeys(["postgresql", "postgres"], "dpsql.engines.postgres:PostgresEngine.open"),
    **dict.fromkeys(["spark", "sc"], "dpsql.engines.spark:SparkEngine.open"),
}


class _Open(Protocol):
    """What opens an engine by its URL."""

    def __call__(
        self, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None
    ) -> Engine: ...


def engine_of(database: object, policy: Policy, *, isolation: str | None = None) -> Engine:
    """Return the engine that has the tables of a policy, for sessions made with `connect.session_of`.

    `database` is the path of a DuckDB file, an open DuckDB connection, a Spark session, the URL of an engine, an
    `Engine` that is open, or None for what the policy itself names. Raises as `dpsql.connect` does.
    """
    _check(database, policy)
    isolated = policy.engine.isolates(isolation)
    given = DataSource(database) if isinstance(database, str) and is_address(database) else policy.source
    try:
        sources = {name: _source(name, table) for name, table in policy.tables.items()}
        if given is not None and given.path is None:
            _check_elsewhere(policy, isolated=isolated)
            return _opener(given)(given.url, sources, options=given.options, time_limit=policy.engine.time_limit)
        if _is_engine(database):
            return database
        if type(database).__module__.startswith("pyspark.sql"):
            _check_elsewhere(policy, isolated=isolated)
            from dpsql.engines.spark import SparkEngine

            return SparkEngine.borrow(cast("SparkSession", database), sources, time_limit=policy.engine.time_limit)
        place = cast("Path | None", database) if given is None else given.path
        return _opened(place, policy.engine, sources=sources, isolated=isolated)
    except EngineError as error:
        # the engine knows the table by its name; the curator wants its line
        named = [f"tables.{name}" for name in policy.tables if error.place == f"table {name}"]
        place_ = policy.where(named[0]) if named else error.place
        raise EngineError(error.code, error.reason, hint=error.hint, place=place_) from None


def _check(database: object, policy: Policy) -> None:
    if isinstance(database, str | Path) and str(database) == IN_MEMORY:
        hint = "Pass an open DuckDB connection, or None when all tables are files."
        raise UsageError("database", "A new in-memory database holds no tables.", hint=hint)
    if policy.source is not None and database is not None:
        hint = "Leave the database out, or take [source] out of the policy."
        raise UsageError("source-twice", "The policy says where the data is.", hint=hint)


def _check_elsewhere(policy: Policy, *, isolated: bool) -> None:
    """Refuse settings that are DuckDB's for data that another program has."""
    if isolated:
        hint = "Leave isolation out, and serve analysts with dpsql serve, which keeps the credentials to itself."
        raise UsageError("isolation-remote", "The data is open in another program already.", hint=hint)
    for name in ("memory_limit", "threads"):
        if getattr(policy.engine, name) is not None:
            reason, place = f"The setting {name} is DuckDB's.", policy.where(f"engine.{name}")
            raise PolicyError("policy-source", reason, hint="Set limits in the engine that has the data.", place=place)


def _opener(source: DataSource) -> _Open:
    """Return what opens an engine of this kind: one of ours, or that of another package which says it can."""
    ours = _ENGINES.get(source.scheme)
    if ours is not None:
        module, _, attributes = ours.partition(":")
        found: Any = import_module(module)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
        return cast("_Open", found)
    others = entry_points(group=GROUP, name=source.scheme)
    if not others:
        known = ", ".join(sorted({*_ENGINES, "duckdb", *entry_points(group=GROUP).names}))
        reason = f'There is no engine for addresses that begin with "{source.scheme}:".'
        raise PolicyError("policy-source", reason, hint=f"Known here: {known}.", place="source.url")
    return cast("_Open", next(iter(others)).load())


def _is_engine(value: object) -> TypeGuard[Engine]:
    return all(hasattr(value, name) for name in ("dialect", "relation", "columns", "execute", "close"))


def _opened(
    database: str | Path | duckdb.DuckDBPyConnection | None,
    settings: EngineSettings,
    *,
    sources: Sources,
    isolated: bool,
) -> Engine:
    limits = settings.memory_limit, settings.threads, settings.time_limit
    if isolated:
        if database is not None and not isinstance(database, str | Path):
            reason = "An open connection is this process's, and cannot be isolated from it."
            raise UsageError("isolation-connection", reason, hint="Pass the path of the database file.")
        from dpsql.engines.worker import WorkerEngine

        return WorkerEngine.open(database, sources, memory_limit=limits[0], threads=limits[1], time_limit=limits[2])
    from dpsql.engines.duckdb import DuckDBEngine

    if database is None or isinstance(database, str | Path):
        return DuckDBEngine.open(database, sources, memory_limit=limits[0], threads=limits[1], time_limit=limits[2])
    return DuckDBEngine.borrow(database, sources, time_limit=settings.time_limit)


def _source(name: str, table: Table) -> Path | CsvFile | Folder | None:
    from dpsql.engines import Column, CsvFile

    if table.source is None:
        return None
    if table.columns is None or table.types is None:
        if table.source.suffix.lower() == ".parquet" and not table.source.is_dir():
            return table.source
        from dpsql.engines.folders import folder_of

        return folder_of(table.source, place=f"table {name}")
    return CsvFile(table.source, tuple(map(Column, table.columns, table.types)))
