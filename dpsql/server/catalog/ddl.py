"""The tables of a policy as PostgreSQL's DDL: names and types, and nothing that rows could change.

There are no keys, no comments and no statistics: what the engine knows of those it knows from rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.sql.ir.catalog import Catalog as Tables
from dpsql.sql.ir.catalog import Table
from dpsql.sql.ir.types import Type, answered_as, read_as

__all__ = ["HOME", "definitions", "exposed", "sql_type"]

HOME = "main"  # as statements name it to the session
_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "UTINYINT": "smallint",
    "USMALLINT": "integer",
    "UINTEGER": "bigint",
    "UBIGINT": "numeric(20,0)",
    "HUGEINT": "numeric(39,0)",
    "UHUGEINT": "numeric(39,0)",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "BLOB": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamp without time zone",
}
_OF_POSTGRES = frozenset(["information_schema", "public"])
_SYSTEM_COLUMNS = frozenset("tableoid xmin cmin xmax cmax ctid".split())
_LONGEST_NAME = 63  # bytes
_MOST_COLUMNS = 1600


def definitions(tables: Tables) -> tuple[str, ...]:
    """Return the statements that make the tables, empty, and let everybody read that they are there.

    What PostgreSQL cannot name is left out: schemas of its own, its system columns, more than 1,600 columns, and names
    that are alike in their first 63 bytes.
    """
    paths = exposed(tables)
    schemas = sorted({schema for schema, _ in paths} | {HOME})
    made = [f"CREATE SCHEMA {_quoted(schema)}" for schema in schemas]
    made += [f"GRANT USAGE ON SCHEMA {_quoted(schema)} TO PUBLIC" for schema in schemas]
    for path, columns in paths.items():
        name = ".".join(map(_quoted, path))
        spelled = ", ".join(f"{_quoted(column)} {type_}" for column, type_ in columns.items())
        made += [f"CREATE TABLE {name} ({spelled})", f"GRANT SELECT ON {name} TO PUBLIC"]
    return tuple(made)


def exposed(tables: Tables) -> dict[tuple[str, str], dict[str, str]]:
    """Return schema and name of each table that PostgreSQL can name, and the types of its columns."""
    paths: dict[tuple[str, str], dict[str, str]] = {}
    for table in tables.tables:
        if _can_name(path := _path(table)):
            paths.setdefault(_cut(path), {column: sql_type(type_) for column, type_ in _columns(table)})
    return paths


def _path(table: Table) -> tuple[str, str]:
    """Return schema and name of a table, as statements may write them."""
    schema, dot, name = table.name.partition(".")
    return (schema, name) if dot else (HOME, schema)


def sql_type(type_: Type) -> str:
    """Return PostgreSQL's name of the type as which a column is answered.

    >>> from dpsql.sql.ir.types import of_column
    >>> sql_type(of_column("UINTEGER")), sql_type(of_column("DECIMAL(9,2)")), sql_type(of_column("UUID"))
    ('bigint', 'numeric(9,2)', 'text')
    """
    name = answered_as(read_as(type_)).name
    return name.lower().replace("decimal", "numeric") if name.startswith("DECIMAL(") else _TYPES.get(name, "text")


def _columns(table: Table) -> Iterator[tuple[str, Type]]:
    seen = set(_SYSTEM_COLUMNS)
    for name, type_ in table.columns[:_MOST_COLUMNS]:
        if (known := _kept(name)) not in seen:
            seen.add(known)
            yield known, type_


def _can_name(path: tuple[str, str]) -> bool:
    schema, name = path
    return bool(schema and name) and not schema.startswith("pg_") and schema not in _OF_POSTGRES


def _cut(path: tuple[str, str]) -> tuple[str, str]:
    """Return a path as PostgreSQL keeps it."""
    schema, name = map(_kept, path)
    return schema, name


def _kept(name: str) -> str:
    return name.encode()[:_LONGEST_NAME].decode(errors="ignore")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
