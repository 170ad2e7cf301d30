"""What the SQL of each engine can say: data alone, that the rewriter reads and every engine names."""

from dpsql.dialects.base import DUCKDB, Dialect, family_of
from dpsql.dialects.duckdb_releases import release
from dpsql.dialects.standard import STANDARD

__all__ = ["DUCKDB", "STANDARD", "Dialect", "family_of", "release"]
