"""Dialects: the SQL of each engine as data, which the rewriter reads and every engine names."""

from dpsql.dialects.base import DUCKDB, STANDARD, Dialect, find_family
from dpsql.dialects.csv_format import CsvFormat
from dpsql.dialects.names import ENUM, propose_query, quote_name, quote_path, quote_text, strip_type_details, write_name

__all__ = [
    "DUCKDB",
    "ENUM",
    "STANDARD",
    "CsvFormat",
    "Dialect",
    "find_family",
    "propose_query",
    "quote_name",
    "quote_path",
    "quote_text",
    "strip_type_details",
    "write_name",
]
