"""Conformance suite for engines: what an adapter must answer, compared with DuckDB over tables that are hard to read.

A `Kit` loads the tables of the suite into an engine; see `docs/how-to/write-an-adapter.md`. The suite runs by
`python -m dpsql.testing` and by pytest. What needs Arrow or DuckDB is loaded when it is first used, because pytest
imports this package at each start.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.testing.kit import DUCKDB, Kit, create_duckdb, rename_tables
    from dpsql.testing.tables import TABLES, fit_table

__all__ = ["DUCKDB", "TABLES", "Kit", "create_duckdb", "fit_table", "rename_tables"]

_LATER = dict.fromkeys(("DUCKDB", "Kit", "create_duckdb", "rename_tables"), "dpsql.testing.kit")
_LATER |= dict.fromkeys(("TABLES", "fit_table"), "dpsql.testing.tables")


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'dpsql.testing' has no attribute {name!r}")
    value: object = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value
