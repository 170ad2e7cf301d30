"""Kits: engines as the conformance suite opens them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from dpsql.engines import Engine
from dpsql.engines.duckdb.engine import DuckDBEngine

__all__ = ["DUCKDB", "Kit", "create_duckdb"]

Tables = Mapping[str, pa.Table]


def _unchanged(table: pa.Table) -> pa.Table:
    return table


@dataclass(frozen=True)
class Kit:
    """An engine for the suite: `open` loads tables, by name, into a new engine; `fit` makes a table storable there.

    The DuckDB that the engine is compared with reads what `fit` returns too. `fit` may therefore replace a type that
    the engine lacks by another, and a value without a counterpart by NULL; it may not make two values equal. `reach`
    replaces, in what DuckDB computes, the dates and time stamps outside the engine's calendar by NULL. `own` are the
    queries for which the engine draws other groups, but as many, because it prints a value differently. `types` are
    types of the engine's forms that are not in the tables of the suite, to be tested elsewhere. For slow engines, a
    sampled run compares one query in `every` with DuckDB, and one in `share` with and without a privacy unit.
    """

    name: str
    open: Callable[[Tables], Engine]
    fit: Callable[[pa.Table], pa.Table] = _unchanged
    reach: Callable[[pa.Table], pa.Table] = _unchanged
    share: int = 1
    every: int = 1
    own: frozenset[str] = frozenset()
    types: tuple[str, ...] = ()


def create_duckdb(tables: Tables) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB in memory that has the tables."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for name, table in tables.items():
        connection.register("given", table)
        connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM given')
        connection.unregister("given")
    return connection


def _open_duckdb(tables: Tables) -> Engine:
    return DuckDBEngine.borrow(create_duckdb(tables), dict.fromkeys(tables))


DUCKDB = Kit("duckdb", _open_duckdb)
