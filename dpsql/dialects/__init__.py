"""What the SQL of each engine can say: data alone, that the rewriter reads and every engine names."""

from dpsql.dialects.base import DUCKDB, Dialect, family_of
from dpsql.dialects.duckdb_releases import release
from dpsql.dialects.standard import STANDARD
from dpsql.dialects.type_names import ENUM, plain_type

__all__ = ["DUCKDB", "ENUM", "STANDARD", "Dialect", "family_of", "plain_type", "release"]
