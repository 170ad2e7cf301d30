"""Materialized tables of Spark as sessions find them: a folder of the warehouse, and a state that names its tables."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from dpsql.engines.spark.session import quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["STATE", "find_folder", "read_states"]

STATE = "dpsql_state"


def find_folder(session: SparkSession, schema: str) -> str:
    """Return the folder of a schema in the warehouse of a session."""
    warehouse = session.conf.get("spark.sql.warehouse.dir") or "spark-warehouse"
    return f"{warehouse.rstrip('/')}/{schema}"


def read_states(session: SparkSession, schema: str) -> Mapping[str, tuple[str, int]]:
    """Return the last description of each table of the policy and its time in nanoseconds; none without a folder."""
    found: dict[str, tuple[str, int]] = {}
    with suppress(Exception), quiet():
        for row in session.read.parquet(f"{find_folder(session, schema)}/{STATE}").collect():
            if found.get(row["name"], ("", -1))[1] < row["at"]:
                found[row["name"]] = row["description"], row["at"]
    return found
