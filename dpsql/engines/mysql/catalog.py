"""The tables of a database of MariaDB or MySQL: what this user may read, types by DuckDB's names."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.engines.base import Column, CsvFile, Registered
from dpsql.engines.lakes.folder import Folder
from dpsql.engines.remote import table_missing

if TYPE_CHECKING:
    from pymysql.connections import Connection

__all__ = ["find_table"]

_INTEGERS = {"tinyint": "TINYINT", "smallint": "SMALLINT", "mediumint": "INTEGER", "int": "INTEGER", "bigint": "BIGINT"}
_UNSIGNED = {"tinyint": "UTINYINT", "smallint": "USMALLINT", "mediumint": "INTEGER", "int": "UINTEGER"}
_TEXTS = ["char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"]
_SHORT = frozenset(["char", "varchar", "tinytext", "text"])
_BY_BYTES = frozenset(["utf8mb4_nopad_bin", "utf8mb4_0900_bin"])
_BYTES = ["binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"]
_TYPES = {
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "datetime": "TIMESTAMP",
    "timestamp": "TIMESTAMP",  # of UTC, in which the session is
    **dict.fromkeys(_TEXTS, "VARCHAR"),
    **dict.fromkeys(_BYTES, "BLOB"),
}
_WIDEST = 38  # digits of DuckDB's DECIMAL
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_COLUMNS = """
SELECT column_name, data_type, column_type, collation_name FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""


def find_table(
    connection: Connection[Any], name: str, *, database: str, source: Path | CsvFile | Folder | None
) -> Registered:
    """Return a table, "name" in the database of the address or "database.name". Raises `EngineError`."""
    before, dot, after = name.partition(".")
    relation = (before, after) if dot else (database, name)
    rows: list[tuple[str, str, str, str | None]] = []
    with suppress(Exception), connection.cursor() as cursor:
        cursor.execute(
            _COLUMNS.replace("%s", "{}").format(*(f"_utf8mb4 X'{part.encode().hex()}'" for part in relation))
        )
        rows = list(cursor.fetchall())
    if not rows or source is not None:
        raise table_missing(name, engine="The database")
    columns = (
        Column(column, _type(kind.lower(), whole.lower()), _collation(kind.lower(), collation))
        for column, kind, whole, collation in rows
    )
    return Registered(relation, tuple(columns))


def _collation(kind: str, collation: str | None) -> str:
    """Return the collation of a column; none where it is compared by its bytes, all of which are looked at."""
    return "" if collation in _BY_BYTES and kind in _SHORT else collation or ""


def _type(kind: str, whole: str) -> str:
    """Return DuckDB's name of a type; the server's own for one that dpsql does not compute with."""
    if whole.startswith("tinyint(1)") or whole == "bit(1)":
        return "BOOLEAN"
    if found := _DECIMAL.match(whole):
        width, scale = int(found[1]), int(found[2])
        return f"DECIMAL({width},{scale})" if width <= _WIDEST else "NUMERIC"
    if kind in _INTEGERS and "unsigned" in whole:
        return _UNSIGNED.get(kind, f"{kind} unsigned")
    return _INTEGERS.get(kind) or _TYPES.get(kind, kind)
