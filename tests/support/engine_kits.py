"""Kits of the engines that are tested here, each the KIT of a module; DPSQL_WHOLE=1 asks each everything."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module

from support.fuzzing import WHOLE
from support.snowflake_kit import PYTHON

from dpsql.testing import Kit

__all__ = ["KITS", "kit_of"]

_MODULES = {
    "clickhouse": "support.engine_kit_clickhouse",
    "datafusion": "dpsql.testing.kits.datafusion",
    "mariadb": "support.engine_kit_mariadb",
    "portable": "dpsql.testing.kits.portable",
    "postgres": "support.engine_kit_postgres",
    "redshift": "support.engine_kit_redshift",
    "spark": "support.engine_kit_spark",
    "sqlite": "support.engine_kit_sqlite",
}
if PYTHON.exists():
    _MODULES["snowflake"] = "support.engine_kit_snowflake"
if "DPSQL_ZETASQL" in os.environ:
    _MODULES["bigquery"] = "support.engine_kit_bigquery"
KITS = tuple(_MODULES)  # all but DuckDB, with whose answers theirs are compared


@cache
def kit_of(name: str) -> Kit:
    """Return a kit by its name."""
    found = import_module(_MODULES[name]).KIT
    assert isinstance(found, Kit)
    return found.sample(1) if WHOLE else found
