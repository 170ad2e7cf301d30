"""The tables of a PostgreSQL database as dpsql sees them: what this user may read, types by DuckDB's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.dialects import ENUM, quote_path
from dpsql.engines.base import Column, CsvFile, ListedTable, Registered, RemoteFiles, Statement
from dpsql.engines.lakes.folder import Folder
from dpsql.engines.remote import table_missing

if TYPE_CHECKING:
    import pyarrow as pa
    from adbc_driver_manager.dbapi import Connection

__all__ = ["list_tables", "registered"]

_TYPES = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "text": "VARCHAR",
    "varchar": "VARCHAR",
    "bpchar": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP",  # of UTC
    "time": "TIME",
    "timetz": "TIME WITH TIME ZONE",
    "interval": "INTERVAL",
    "uuid": "UUID",
    "bytea": "BLOB",
}
_WIDEST = 38  # digits of DuckDB's DECIMAL
_LEAST_TYPMOD = 4
_KINDS = ("r", "p", "v", "m", "f")  # tables, partitioned ones, views, materialised views, foreign tables
_Row = tuple[str, str, str, int, str, str, bool, str]
_COLUMNS = """
WITH RECURSIVE held AS (
    SELECT a.attnum, a.attname, a.atttypid AS type, a.atttypmod AS modifier, a.attcollation AS collated,
        a.atttypid AS declared
    FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
    WHERE c.oid = pg_catalog.to_regclass($1) AND c.relkind::text = ANY ($2::text[]) AND a.attnum > 0
        AND NOT a.attisdropped AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')
), based AS (
    SELECT * FROM held
    UNION ALL
    SELECT attnum, attname, t.typbasetype, CASE WHEN modifier = -1 THEN t.typtypmod ELSE modifier END, collated,
        declared
    FROM based JOIN pg_catalog.pg_type AS t ON t.oid = type WHERE t.typtype = 'd'
)
SELECT attname::text, n.nspname::text, t.typname::text, modifier, t.typtype::text, pg_catalog.format_type(t.oid, NULL),
    EXISTS (
        SELECT 1 FROM pg_catalog.pg_cast
        WHERE castsource = t.oid AND casttarget = 'text'::regtype AND castmethod = 'b' AND t.typcategory = 'S'
    ),
    CASE
        WHEN declared <> ALL (ARRAY['text'::regtype, 'varchar'::regtype]) THEN t.typname::text
        WHEN collated = 'pg_catalog."C"'::regcollation THEN ''
        WHEN collated = 'pg_catalog."default"'::regcollation AND (
            SELECT COALESCE(to_jsonb(d) ->> 'datlocprovider', 'c') = 'b' OR  -- which servers before 15 do not have
                COALESCE(to_jsonb(d) ->> 'datlocprovider', 'c') = 'c' AND d.datcollate IN ('C', 'POSIX')
            FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()
        ) THEN ''
        ELSE COALESCE((SELECT l.collname::text FROM pg_catalog.pg_collation AS l WHERE l.oid = collated), 'default')
    END
FROM based JOIN pg_catalog.pg_type AS t ON t.oid = type JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace
WHERE t.typtype <> 'd' ORDER BY attnum
"""

_TABLES = """
SELECT n.nspname::text AS schema, c.relname::text AS name FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
    AND EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped)
    AND n.nspname NOT LIKE 'pg_toast%' AND pg_catalog.has_table_privilege(c.oid, 'SELECT') ORDER BY 1, 2
""".strip()
_KEYS = """
SELECT n.nspname::text AS schema, c.relname::text AS name, k.contype::text AS kind, a.attname::text AS column,
    coalesce(m.nspname::text, '') AS target_schema, coalesce(t.relname::text, '') AS target
FROM pg_catalog.pg_constraint AS k JOIN pg_catalog.pg_class AS c ON c.oid = k.conrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.conkey[1]
LEFT JOIN pg_catalog.pg_class AS t ON t.oid = k.confrelid
LEFT JOIN pg_catalog.pg_namespace AS m ON m.oid = t.relnamespace
WHERE k.contype IN ('p', 'u', 'f') AND pg_catalog.cardinality(k.conkey) = 1
""".strip()


def registered(
    connection: Connection, name: str, *, source: Path | CsvFile | Folder | RemoteFiles | None
) -> Registered:
    """Return a table, "name" in the schema public or "schema.name". Raises `EngineError` if it cannot be read."""
    schema, dot, table = name.partition(".")
    relation = (schema, table) if dot else ("public", name)
    rows: list[_Row] = []
    with suppress(Exception), connection.cursor() as cursor:
        cursor.execute(_COLUMNS.replace("$2", "'{" + ",".join(_KINDS) + "}'"), (quote_path(relation),))
        rows = cursor.fetchall()
    if not rows or source is not None:
        raise table_missing(name, engine="PostgreSQL")
    return Registered(relation, tuple(_column(row) for row in rows))


def _column(row: _Row) -> Column:
    """Return a column; text that is not compared by its bytes has its collation, or the name of its type.

    Two collations that do not meet are an error of PostgreSQL's: only "C" and the one of the database are by bytes.
    """
    type_ = _type(row)
    return Column(row[0], type_, row[-1] if type_ == "VARCHAR" else "")


def list_tables(fetch: Callable[[Statement], pa.Table]) -> Iterator[ListedTable]:
    """Yield the tables that the user of a connection may read, with their keys; `fetch` runs one SELECT."""
    found = [(row["schema"], row["name"]) for row in fetch(Statement(_TABLES)).to_pylist()]
    names = {key: key[1] if key[0] == "public" else ".".join(key) for key in found}
    keys: dict[tuple[str, str], list[tuple[str, str, str]]] = {key: [] for key in found}
    for row in fetch(Statement(_KEYS)).to_pylist():
        if (key := (row["schema"], row["name"])) in keys:
            target = (row["target_schema"], row["target"])
            keys[key].append((row["kind"], row["column"], names.get(target, row["target"])))
    for key, own in keys.items():
        yield ListedTable(
            names[key],
            primary_key=tuple(column for kind, column, _ in own if kind == "p"),
            unique=frozenset(column for kind, column, _ in own if kind in {"p", "u"}),
            leads_to={column: target for kind, column, target in own if kind == "f"},
        )


def _type(row: _Row) -> str:
    """Return DuckDB's name of a type; the name that PostgreSQL writes for one that dpsql does not compute with."""
    _, schema, name, modifier, kind, written, as_text, _ = row
    if kind == "e":
        return ENUM
    if as_text:  # varchar, and citext too: as text it is compared by its bytes
        return "VARCHAR"
    if schema != "pg_catalog":
        return written
    if name == "numeric":
        return _decimal(modifier)
    return _TYPES.get(name, written)


def _decimal(modifier: int) -> str:
    """Return the DECIMAL of a NUMERIC; without a scale, equal values print differently, and so it is none."""
    width, scale = (modifier - _LEAST_TYPMOD) >> 16 & 0xFFFF, (modifier - _LEAST_TYPMOD) & 0x7FF
    if modifier < _LEAST_TYPMOD or width > _WIDEST or scale > width:  # a scale below zero is one beyond the width here
        return "NUMERIC"
    return f"DECIMAL({width},{scale})"
