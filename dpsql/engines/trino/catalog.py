"""The tables of a catalog of Trino or Athena as dpsql sees them: what this user may read, types by DuckDB's names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from dpsql.engines.base import Registered, Statement
from dpsql.engines.warehouse import choose_table, name_decimal

__all__ = ["find_table"]

_COLUMNS = (
    "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns "
    "WHERE table_schema = ?/*1*/ AND table_name = ?/*2*/ ORDER BY ordinal_position"
)
_TYPES = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "real": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "varbinary": "BLOB",
    "uuid": "UUID",
}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


def find_table(
    name: str, *, engine: str, place: Sequence[str], fetch: Callable[[Statement], list[Sequence[Any]]]
) -> Registered:
    """Return the table "name" or "schema.name"; names are lower-case. `place` is the catalog and the schema.

    `fetch` runs a statement and returns its rows. Raises `table_missing`.
    """
    schema, _, table = name.lower().rpartition(".")
    wanted = (schema or place[1].lower(), table)
    rows = fetch(Statement(_COLUMNS, wanted, ("VARCHAR",) * 4))
    found = (((place[0], str(row[0]), str(row[1])), str(row[2]), _name_type(str(row[3]))) for row in rows)
    return choose_table(name, found, engine=engine, wanted=wanted)


def _name_type(name: str) -> str:
    """Return DuckDB's name of a type, or Trino's for one that dpsql does not compute with."""
    if found := _DECIMAL.fullmatch(name):
        return name_decimal(int(found[1]), int(found[2]))
    plain = name.partition("(")[0]
    if plain == "varchar":
        return "VARCHAR"
    if plain == "timestamp" and not name.endswith("zone"):
        return "TIMESTAMP"
    return _TYPES.get(name, name)
