"""Fixtures of a small DuckDB file and its engine."""

from support.duckdb_kit import database, parquet, sealed

__all__ = ["database", "parquet", "sealed"]
