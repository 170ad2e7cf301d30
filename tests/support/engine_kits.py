"""Every engine as the tests of conformance use it: a name, and how an engine over given tables is opened.

A kit of another engine stands in a module of its own, which `_MODULES` names: it has a KIT. To try one alone:
`pytest -n0 tests/engines/conformance -k postgres`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module

import duckdb
import pyarrow as pa

from dpsql.engines import Engine
from dpsql.engines.duckdb.engine import DuckDBEngine

__all__ = ["DUCKDB_KIT", "KITS", "Kit", "kit_of", "with_tables"]

Tables = Mapping[str, pa.Table]
_MODULES = {
    "bigquery": "support.engine_kit_bigquery",
    "clickhouse": "support.engine_kit_clickhouse",
    "portable": "support.engine_kit_portable",
    "postgres": "support.engine_kit_postgres",
    "snowflake": "support.engine_kit_snowflake",
    "spark": "support.engine_kit_spark",
    "sqlite": "support.engine_kit_sqlite",
}
KITS = tuple(_MODULES)  # all but DuckDB, by whose answers they are held


def _as_it_is(table: pa.Table) -> pa.Table:
    return table


@dataclass(frozen=True)
class Kit:
    """An engine for tests: `open` lays tables, by name, into a new engine; `fit` makes a table one that it can store.

    What `fit` returns is also what the DuckDB has that the engine is compared with, so that it may make of a value
    without a counterpart NULL, and of a type without one another. It may not make two values one. `reach` makes NULL,
    in what DuckDB computes, the dates and time stamps that the engine's calendar does not reach. `own` are the queries
    in which the engine draws other groups, as many, since it prints a value otherwise. `types` are those of the
    engine's forms that the tables have not; its own tests look after them. Where a statement takes long, tests that ask
    each query several times ask one in `share`, and the comparison of answers one in `every`: DPSQL_WHOLE=1 asks all.
    """

    name: str
    open: Callable[[Tables], Engine]
    fit: Callable[[pa.Table], pa.Table] = _as_it_is
    reach: Callable[[pa.Table], pa.Table] = _as_it_is
    share: int = 1
    every: int = 1
    own: frozenset[str] = frozenset()
    types: tuple[str, ...] = ()


@cache
def kit_of(name: str) -> Kit:
    """Return a kit by its name."""
    found = import_module(_MODULES[name]).KIT
    assert isinstance(found, Kit)
    return found


def with_tables(tables: Tables) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB in memory that has the tables."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for name, table in tables.items():
        connection.register("given", table)
        connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM given')
        connection.unregister("given")
    return connection


def _duckdb(tables: Tables) -> Engine:
    return DuckDBEngine.borrow(with_tables(tables), dict.fromkeys(tables))


DUCKDB_KIT = Kit("duckdb", _duckdb)
