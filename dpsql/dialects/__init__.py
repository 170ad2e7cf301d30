"""Dialects: the SQL of each engine as data, which the rewriter reads and every engine names."""

from dpsql.dialects.base import DUCKDB, Dialect, find_family
from dpsql.dialects.duckdb_releases import release
from dpsql.dialects.proposals import propose_query, quote_name, quote_path, quote_text, write_name
from dpsql.dialects.shared_forms import STANDARD
from dpsql.dialects.type_names import ENUM, strip_type_details

__all__ = [
    "DUCKDB",
    "ENUM",
    "STANDARD",
    "Dialect",
    "find_family",
    "propose_query",
    "quote_name",
    "quote_path",
    "quote_text",
    "release",
    "strip_type_details",
    "write_name",
]
