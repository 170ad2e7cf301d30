"""Set-up of the PostgreSQL that dpsql starts: the tables of a policy, empty, and a role that can only read catalogs.

Tables have names, types, and comments of what the policy says, but no keys or statistics, which the engine could only
know from rows. Of the functions with effects, and of those that run SQL themselves, the role may only call those that
tools use and that change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dpsql.dialects import quote_name, quote_path, quote_text, write_name
from dpsql.policy import ColumnBounds, PrivateTable
from dpsql.policy.tables import Table as PolicyTable
from dpsql.sql.ir.catalog import DATABASE, HOME, Table
from dpsql.sql.ir.catalog import Catalog as Tables
from dpsql.sql.ir.types import Type, find_answer_type, find_read_type
from dpsql.sql.lexer import ascii_lower

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


# From template1. Tools take a database with an OID above 16383 for one of a user, and postgres for one of the system.
DATABASE_STATEMENTS = (f"CREATE DATABASE {DATABASE} TEMPLATE template0", "DROP DATABASE postgres")

_HARMLESS = """
    array_sample array_shuffle clock_timestamp current_query gen_random_uuid pg_available_extensions pg_blocking_pids
    pg_collation_actual_version pg_current_wal_flush_lsn pg_current_wal_insert_lsn pg_current_wal_lsn
    pg_database_collation_actual_version pg_database_size pg_indexes_size pg_is_in_recovery pg_is_wal_replay_paused
    pg_jit_available pg_last_wal_receive_lsn pg_last_wal_replay_lsn pg_last_xact_replay_timestamp pg_lock_status
    pg_partition_ancestors pg_partition_tree pg_prepared_xact pg_relation_size pg_safe_snapshot_blocking_pids
    pg_sequence_last_value pg_table_size pg_tablespace_size pg_total_relation_size random random_normal set_config
    timeofday txid_status uuidv4 uuidv7
""".split()
# Volatile functions have effects; functions for the XML of a table run SQL whose tables the check of locks misses.
_REVOKE = f"""
DO $$
DECLARE called regprocedure;
BEGIN
  FOR called IN
    SELECT p.oid FROM pg_catalog.pg_proc p
    WHERE (p.provolatile = 'v' OR p.proname LIKE '%to\\_xml%')
      AND p.proname <> ALL ('{{{",".join(_HARMLESS)}}}'::text[])
      AND p.proname NOT LIKE 'pg\\_stat\\_get%' AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
      AND p.prokind IN ('f', 'p', 'w')
  LOOP
    EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', called);
  END LOOP;
END $$
"""  # noqa: S608 - constant names
# Tools call set_config for settings without effect here; it is also the only way to change the role in a SELECT.
_SET_NOTHING = """
CREATE OR REPLACE FUNCTION pg_catalog.set_config(text, text, boolean) RETURNS text
LANGUAGE sql AS 'SELECT $2'
"""
# pg_dump writes the rights on functions of the system that differ from those that the server began with.
_RECORD_RIGHTS = """
SET LOCAL allow_system_table_mods = on;
DELETE FROM pg_catalog.pg_init_privs WHERE classoid = 'pg_proc'::regclass;
INSERT INTO pg_catalog.pg_init_privs (objoid, classoid, objsubid, privtype, initprivs)
  SELECT oid, 'pg_proc'::regclass, 0, 'i', proacl FROM pg_catalog.pg_proc WHERE proacl IS NOT NULL;
SET LOCAL allow_system_table_mods = off
"""


def lockdown(definitions: Sequence[str]) -> tuple[str, ...]:
    """Return the statements that create the tables of `definitions` in a new database and revoke all other rights."""
    return (
        "DROP SCHEMA public",
        *definitions,
        _SET_NOTHING,
        _REVOKE,
        _RECORD_RIGHTS,
        f"REVOKE TEMPORARY ON DATABASE {DATABASE} FROM PUBLIC",
        "ALTER DATABASE template1 ALLOW_CONNECTIONS false",
    )
