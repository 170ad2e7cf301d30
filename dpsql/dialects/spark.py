"""Spark SQL as dpsql's own sessions have it: no ANSI mode, so that little raises, UTC, TIMESTAMP without a zone.

Spark skips blocks of a Parquet file by their smallest and largest values, which ignore NaN and order -0.0 before 0.0. A
comparison of a stored DOUBLE would find a row depending on the rows beside it, and so on other units. Comparisons
therefore use x + 0, for which files have no statistics.
"""

from __future__ import annotations

from types import MappingProxyType

from dpsql.dialects.base import Dialect
from dpsql.dialects.spark_numbers import NUMBERS
from dpsql.dialects.spark_text import TEXTS
from dpsql.dialects.spark_time import TIMES
from dpsql.dialects.standard import STANDARD

__all__ = ["SPARK"]

_SIGNS = ("=", "<>", "<", "<=", ">", ">=")
_WINDOWS = {
    "row_number": "ROW_NUMBER()",
    "rank": "RANK()",
    "dense_rank": "DENSE_RANK()",
    "percent_rank": "PERCENT_RANK()",
    "cume_dist": "CUME_DIST()",
    "ntile": "NTILE(CAST({0} AS INT))",
    "lag": "LAG({0})",
    "lag/2": "LAG({0}, CAST({1} AS INT))",
    "lead": "LEAD({0})",
    "lead/2": "LEAD({0}, CAST({1} AS INT))",
    "first_value": "FIRST_VALUE({0})",
}
_ANY = {
    **{f"{sign} DOUBLE": f"(({{0}} + 0.0D) {sign} ({{1}} + 0.0D))" for sign in _SIGNS},
    "between DOUBLE": "(({0} + 0.0D) BETWEEN {1} AND {2})",
    "in DOUBLE": "(({0} + 0.0D) IN ({1*}))",
    "is_distinct": "(NOT ({0} <=> {1}))",
    "is_not_distinct": "({0} <=> {1})",
    "is_distinct DOUBLE": "(NOT (({0} + 0.0D) <=> ({1} + 0.0D)))",
    "is_not_distinct DOUBLE": "(({0} + 0.0D) <=> ({1} + 0.0D))",
    "order DOUBLE": "({0} + 0.0D)",
    "is_true": "({0} IS TRUE)",
    "is_false": "({0} IS FALSE)",
    "greatest": "greatest({*})",
    "least": "least({*})",
    "min": "MIN({0})",
    "max": "MAX({0})",
    "keyed_hash": "xxhash64({1}, {0})",
    "mix": "xxhash64({0}, {1})",
    "gather": "/*+ REPARTITION({0}) */ {*}",  # one shuffle, by unit, instead of one by pair and one by unit
    "lookup": "element_at(array({1*}), CAST({0} AS INT))",
}

SPARK = Dialect(
    "Spark",
    "spark",
    MappingProxyType({**STANDARD, **_ANY, **_WINDOWS, **NUMBERS, **TEXTS, **TIMES}),
    parameter=":p{n}",
    lacks=frozenset(["UTINYINT", "USMALLINT", "UINTEGER"]),
)
