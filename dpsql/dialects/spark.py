"""Spark SQL, in its ANSI mode off or on: forms that mean the same in both."""

from __future__ import annotations

from types import MappingProxyType

from dpsql.dialects.base import Dialect
from dpsql.dialects.standard import STANDARD

__all__ = ["SPARK"]

SPARK = Dialect(
    "Spark",
    "spark",
    MappingProxyType(
        {
            **STANDARD,
            "canonical TEXT": "({0} COLLATE UTF8_BINARY)",
            "md5 TEXT": "md5({0})",
            "lookup": "element_at(array({1*}), CAST({0} AS INT))",
            "isnan DOUBLE": "isnan({0})",
            "is_distinct": "(NOT ({0} <=> {1}))",
            "is_not_distinct": "({0} <=> {1})",
            "is_true": "({0} IS TRUE)",
            "is_false": "({0} IS FALSE)",
        }
    ),
    parameter=":p{n}",
)
