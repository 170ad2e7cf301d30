"""Conformance suite for engines: what an adapter must answer, compared with DuckDB over tables that are hard to read.

A `Kit` lays the tables of the suite into an engine; see `docs/how-to/engines.md`.
"""

from dpsql.testing.kit import DUCKDB, Kit, create_duckdb
from dpsql.testing.tables import TABLES, fit_table

__all__ = ["DUCKDB", "TABLES", "Kit", "create_duckdb", "fit_table"]
