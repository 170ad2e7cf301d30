"""The tables of a policy as PostgreSQL's DDL: names and types only.

There are no keys, comments or statistics, which the engine could only know from rows.
"""

from __future__ import annotations

from dpsql.sql.ir.catalog import Catalog as Tables
from dpsql.sql.ir.types import Type, find_answer_type, find_read_type

__all__ = ["HOME", "create_definitions", "list_tables", "sql_type"]

HOME = "main"  # the schema of unqualified names in the session
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
_RESERVED_SCHEMAS = frozenset(["information_schema", "public"])
_SYSTEM_COLUMNS = frozenset("tableoid xmin cmin xmax cmax ctid".split())
_MAX_NAME = 63  # bytes
_MAX_COLUMNS = 1600


def create_definitions(tables: Tables) -> tuple[str, ...]:
    """Return the statements that create the tables, empty, and let every role read them.

    Tables and columns that PostgreSQL cannot name are left out: those in its own schemas, its system columns, columns
    after the first 1,600, and names with the same first 63 bytes as another.
    """
    paths = list_tables(tables)
    schemas = sorted({schema for schema, _ in paths} | {HOME})
    statements = [f"CREATE SCHEMA {_quote(schema)}" for schema in schemas]
    statements += [f"GRANT USAGE ON SCHEMA {_quote(schema)} TO PUBLIC" for schema in schemas]
    for path, columns in paths.items():
        name = ".".join(map(_quote, path))
        definition = ", ".join(f"{_quote(column)} {type_}" for column, type_ in columns.items())
        statements += [f"CREATE TABLE {name} ({definition})", f"GRANT SELECT ON {name} TO PUBLIC"]
    return tuple(statements)


def list_tables(tables: Tables) -> dict[tuple[str, str], dict[str, str]]:
    """Return the schema and name of each table that PostgreSQL can name, with the types of its columns."""
    paths: dict[tuple[str, str], dict[str, str]] = {}
    for table in tables.tables:
        schema, dot, name = table.name.partition(".")
        schema, name = (schema, name) if dot else (HOME, schema)
        if schema and name and not schema.startswith("pg_") and schema not in _RESERVED_SCHEMAS:
            columns: dict[str, str] = {}
            for column, type_ in table.columns[:_MAX_COLUMNS]:
                if (short := _truncate(column)) not in _SYSTEM_COLUMNS:
                    columns.setdefault(short, sql_type(type_))
            paths.setdefault((_truncate(schema), _truncate(name)), columns)
    return paths


def sql_type(type_: Type) -> str:
    """Return PostgreSQL's name for the type in which answers return a column.

    >>> from dpsql.sql.ir.types import parse_type
    >>> sql_type(parse_type("UINTEGER")), sql_type(parse_type("DECIMAL(9,2)")), sql_type(parse_type("UUID"))
    ('bigint', 'numeric(9,2)', 'text')
    """
    name = find_answer_type(find_read_type(type_)).name
    return name.lower().replace("decimal", "numeric") if name.startswith("DECIMAL(") else _TYPES.get(name, "text")


def _truncate(name: str) -> str:
    """Return a name as PostgreSQL truncates it."""
    return name.encode()[:_MAX_NAME].decode(errors="ignore")


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
