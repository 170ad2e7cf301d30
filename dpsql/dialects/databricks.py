"""Databricks SQL: the forms of Spark that need no setting which a SQL warehouse lacks; ANSI mode is off, the zone UTC.

TIMESTAMP is an instant there, so that time stamps without a zone have their own name.
"""

from __future__ import annotations

from types import MappingProxyType

from dpsql.dialects.base import Dialect
from dpsql.dialects.spark import SPARK

__all__ = ["DATABRICKS"]

_LEFT_OUT = frozenset(
    ["sum_sorted", "avg_sorted", "sqrt", "round", "sign", "/", "%", "signbit", "dayname", "monthname"]
)


def _is_shared(name: str) -> bool:
    function, *families = name.split()
    return function not in _LEFT_OUT and "INTERVAL" not in families and "epoch" not in function


DATABRICKS = Dialect(
    "Databricks",
    "databricks",
    MappingProxyType(
        {
            **{name: form for name, form in SPARK.forms.items() if _is_shared(name)},
            "% INTEGER INTEGER": SPARK.forms["% INTEGER INTEGER"],
            "column TIMESTAMP": "CAST({0} AS TIMESTAMP_NTZ)",
        }
    ),
    parameter=":p{n}",
    lacks=SPARK.lacks,
    types=MappingProxyType({"TIMESTAMP": "TIMESTAMP_NTZ"}),
)
