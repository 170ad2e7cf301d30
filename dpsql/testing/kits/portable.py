"""DuckDB as if it were another engine, with DuckDB's own functions as forms.

It tests the portable writer, and is the reference for groups that are drawn by MD5.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import duckdb
import pyarrow as pa

from dpsql.dialects import STANDARD, Dialect
from dpsql.engines import Column, Engine, Registered, Statement
from dpsql.engines.remote import RemoteEngine
from dpsql.testing.kit import Kit, create_duckdb

_UNITS = "microsecond millisecond second minute hour day week month quarter year".split()
_PARTS = "year month day dow isodow doy quarter week isoyear yearweek decade century millennium era".split()
_PARTS += "hour minute second millisecond microsecond epoch".split()
_PLAIN = "lower upper length strlen bit_length ascii unicode reverse strip_accents md5 sha1 sha256 translate concat "
_PLAIN += "concat_ws trim ltrim rtrim substring left right starts_with suffix contains strpos replace split_part pi "
_PLAIN += "regexp_matches regexp_full_match regexp_replace sqrt cbrt ln log2 log10 log exp sin cos tan cot asin acos "
_PLAIN += (
    "atan sinh cosh tanh radians degrees even atan2 pow sign isnan isinf isfinite ceil floor trunc greatest least "
)
_PLAIN += "xor try_strptime signbit count sum avg min max row_number rank dense_rank percent_rank cume_dist ntile lag "
_PLAIN += "lead first_value"
_RAISING = "abs round greatest_common_divisor least_common_multiple last_day dayname monthname "
_RAISING += "strftime time_bucket epoch_ms epoch_us epoch_ns regexp_extract"
_ADDED = "list_aggregate(list_sort(list({{0}}), 'ASC', 'NULLS FIRST'), '{}')"

PORTABLE = Dialect(
    "DuckDB as another engine",
    "duckdb",
    MappingProxyType(
        {
            **STANDARD,
            **{name: f"{name}({{*}})" for name in _PLAIN.split()},
            **{name: f"TRY({name}({{*}}))" for name in _RAISING.split()},
            **{sign: f"TRY({{0}} {sign} {{1}})" for sign in ("+", "-", "*", "/", "//", "%")},
            **{sign: f"({{0}} {sign} {{1}})" for sign in ("||", "&", "|")},
            **{f"date_part.{part}": f"TRY(date_part('{part}', {{0}}))" for part in _PARTS},
            **{f"date_trunc.{unit}": f"TRY(date_trunc('{unit}', {{0}}))" for unit in _UNITS},
            **{f"date_diff.{unit}": f"TRY(date_diff('{unit}', {{0}}, {{1}}))" for unit in _UNITS},
            **{f"date_sub.{unit}": f"TRY(date_sub('{unit}', {{0}}, {{1}}))" for unit in _UNITS},
            "neg": "TRY(-{0})",
            "~": "(~{0})",
            "cast": "TRY_CAST({0} AS {type})",
            "canonical TEXT": "({0} COLLATE C)",
            "lookup": "list_extract([{1*}], {0})",
            "is_distinct": "({0} IS DISTINCT FROM {1})",
            "is_not_distinct": "({0} IS NOT DISTINCT FROM {1})",
            "is_true": "({0} IS TRUE)",
            "is_false": "({0} IS FALSE)",
            "like": "({0} LIKE {1})",
            "ilike": "({0} ILIKE {1})",
            "like_escape": "({0} LIKE {1} ESCAPE {2})",
            "ilike_escape": "({0} ILIKE {1} ESCAPE {2})",
            "sum_sorted": _ADDED.format("sum"),
            "avg_sorted": _ADDED.format("avg"),
        }
    ),
    materialized=True,
)


class PortableEngine(RemoteEngine):
    """A DuckDB in this process, queried as if it were elsewhere."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, tables: Mapping[str, Registered]) -> None:
        super().__init__(PORTABLE, tables)
        self._connection = connection

    def fetch(self, statement: Statement) -> pa.Table:
        return self._connection.sql(statement.sql, params=list(statement.parameters)).to_arrow_table()

    def cancel(self) -> None:
        self._connection.interrupt()

    def disconnect(self) -> None:
        self._connection.close()


def _open(tables: Mapping[str, pa.Table]) -> Engine:
    connection = create_duckdb(tables)
    known = {
        name: Registered(
            ("memory", "main", name),
            tuple(Column(row[0], row[1]) for row in connection.execute(f'DESCRIBE "{name}"').fetchall()),
        )
        for name in tables
    }
    return PortableEngine(connection, known)


KIT = Kit("portable", _open, share=6)
