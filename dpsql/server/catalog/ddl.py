"""The tables of a policy as PostgreSQL's DDL: names, types and comments.

There are no keys or statistics, which the engine could only know from rows. The comments are what the policy says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dpsql.dialects import quote_name, quote_path, quote_text, write_name
from dpsql.policy import ColumnBounds, PrivateTable
from dpsql.policy.tables import Table as PolicyTable
from dpsql.sql.ir.catalog import HOME, Table
from dpsql.sql.ir.catalog import Catalog as Tables
from dpsql.sql.ir.types import Type, find_answer_type, find_read_type
from dpsql.sql.lexer import ascii_lower

__all__ = ["create_definitions", "sql_type"]

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
_RESERVED_SCHEMAS = frozenset(["information_schema"])
_SYSTEM_COLUMNS = frozenset("tableoid xmin cmin xmax cmax ctid".split())
_MAX_NAME = 63  # bytes
_MAX_COLUMNS = 1600


def create_definitions(tables: Tables, policy: Mapping[str, PolicyTable] | None = None) -> tuple[str, ...]:
    """Return the statements that create the tables, empty, and let every role read them.

    Comments say what an analyst may do with a table and its columns; bounds are those of the tables of the `policy`.
    Tables and columns that PostgreSQL cannot name are left out: those in its own schemas, its system columns, columns
    after the first 1,600, and names with the same first 63 bytes as another.
    """
    paths = _list_tables(tables)
    schemas = sorted({schema for schema, _ in paths} | {HOME})
    statements = [f"CREATE SCHEMA {quote_name(schema)}" for schema in schemas]
    statements += [f"GRANT USAGE ON SCHEMA {quote_name(schema)} TO PUBLIC" for schema in schemas]
    for path, table in paths.items():
        name = quote_path(path)
        columns = _list_columns(table)
        definition = ", ".join(f"{quote_name(column)} {type_}" for column, type_ in columns.items())
        statements += [f"CREATE TABLE {name} ({definition})", f"GRANT SELECT ON {name} TO PUBLIC"]
        statements.append(f"COMMENT ON TABLE {name} IS {quote_text(_describe_table(table))}")
        for column, comment in _describe_columns(table, (policy or {}).get(table.name)):
            if column in columns:
                statements.append(f"COMMENT ON COLUMN {name}.{quote_name(column)} IS {quote_text(comment)}")
    return tuple(statements)


def _list_tables(tables: Tables) -> dict[tuple[str, str], Table]:
    """Return the tables that PostgreSQL can name, by schema and name."""
    paths: dict[tuple[str, str], Table] = {}
    for table in tables.tables:
        schema, dot, name = table.name.partition(".")
        schema, name = (schema, name) if dot else (HOME, schema)
        if schema and name and not schema.startswith("pg_") and schema not in _RESERVED_SCHEMAS:
            paths.setdefault((_truncate(schema), _truncate(name)), table)
    return paths


def _list_columns(table: Table) -> dict[str, str]:
    """Return the columns that PostgreSQL can name, with their types."""
    columns: dict[str, str] = {}
    for column, type_ in table.columns[:_MAX_COLUMNS]:
        if (short := _truncate(column)) not in _SYSTEM_COLUMNS:
            columns.setdefault(short, sql_type(type_))
    return columns


def _describe_table(table: Table) -> str:
    """Return the comment on a table: whose rows it has, and how it is queried."""
    if table.privacy_unit is None:
        return "Public: any SELECT is answered exactly."
    return f"Private: the privacy unit is {write_name(table.privacy_unit)}. End a query with TOP 10 PRIVATE."


def _describe_columns(table: Table, declared: PolicyTable | None) -> Iterator[tuple[str, str]]:
    """Yield the columns of a private table that are more than a group key, each with a comment."""
    unit = table.privacy_unit
    if unit is None:
        return
    for column, _ in table.columns:
        if ascii_lower(column) == ascii_lower(unit):
            yield column, f"The privacy unit: COUNT(DISTINCT {write_name(column)}) counts it."
        elif isinstance(declared, PrivateTable) and (bounds := declared.bounds.find(column)) is not None:
            yield column, f"A measure for SUM and AVG: {_describe_bounds(bounds)}."


def _describe_bounds(bounds: ColumnBounds) -> str:
    """Return in words what one unit and one row add to a group."""
    parts = []
    if bounds.max is not None:
        parts.append(f"one unit adds {float(bounds.min or 0):g} to {float(bounds.max):g} to a group")
    parts += [] if bounds.each is None else [f"each row has {float(bounds.each[0]):g} to {float(bounds.each[1]):g}"]
    return ", and ".join(parts)


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
