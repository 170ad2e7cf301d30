"""Kits of the engines that are tested here, each in a module; DPSQL_WHOLE=1 asks each everything."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module

from support.fuzzing import WHOLE
from support.snowflake_kit import PYTHON

from dpsql.testing import Kit

__all__ = ["KITS", "kit_of"]

_PLACES = {
    "clickhouse": "support.engine_kit_clickhouse:KIT",
    "datafusion": "dpsql.testing.kits:DATAFUSION",
    "mariadb": "support.engine_kit_mysql:MARIADB",
    "mysql": "support.engine_kit_mysql:MYSQL",
    "portable": "dpsql.testing.kit:PORTABLE_KIT",
    "postgres": "support.engine_kit_postgres:KIT",
    "redshift": "support.engine_kit_redshift:KIT",
    "spark": "support.engine_kit_spark:KIT",
    "sqlite": "support.engine_kit_sqlite:KIT",
}
if PYTHON.exists():
    _PLACES["snowflake"] = "support.engine_kit_snowflake:KIT"
if "DPSQL_ZETASQL" in os.environ:
    _PLACES["bigquery"] = "support.engine_kit_bigquery:KIT"
KITS = tuple(_PLACES)  # all but DuckDB, with whose answers theirs are compared


@cache
def kit_of(name: str) -> Kit:
    """Return a kit by its name."""
    module, _, attribute = _PLACES[name].partition(":")
    found = getattr(import_module(module), attribute)
    assert isinstance(found, Kit)
    return found.sample(1) if WHOLE else found
