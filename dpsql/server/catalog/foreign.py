"""A PostgreSQL of the user's as the catalog: a database without another use, by a role with no power.

Our schemas in it carry a mark, and only what carries it is ever replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq.abc import PGconn

from dpsql.errors import UsageError
from dpsql.server.catalog.protocol import CatalogError
from dpsql.server.catalog.shadow import Shadow, connect, run
from dpsql.sql.ir.catalog import HOME

__all__ = ["open_foreign"]

_MARK = "Made by dpsql serve, which makes it again at every start"
_OTHERS = f"""
SELECT EXISTS (
  SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.oid >= 16384 AND n.nspname !~ '^pg_'
    AND coalesce(pg_catalog.obj_description(n.oid, 'pg_namespace'), '') <> '{_MARK}'
)
"""  # noqa: S608 - our own words
_SCHEMAS = f"""
SELECT n.nspname FROM pg_catalog.pg_namespace n WHERE pg_catalog.obj_description(n.oid, 'pg_namespace') = '{_MARK}'
"""  # noqa: S608 - our own words
_PUBLIC = '"public"'
_POWERFUL = "SELECT pg_catalog.current_setting('is_superuser') = 'on'"


def open_foreign(url: str, definitions: Sequence[str]) -> Shadow:
    """Make the tables of `definitions` in the database at `url`, and return it as a catalog.

    Raises `UsageError` where it cannot be reached, is not ours alone, or is entered by a superuser, whom nothing stops.
    """
    conninfo = _conninfo(url)
    connection = connect(conninfo)
    try:
        if _value(connection, _POWERFUL) == b"t":
            hint = "Give the address of a role that owns the database and is no superuser."
            raise UsageError("catalog-superuser", "The role of the catalog is a superuser.", hint=hint)
        run(connection, "BEGIN", "SELECT pg_catalog.pg_advisory_xact_lock(1146114880)")
        if _value(connection, _OTHERS) == b"t":
            hint = "Name a database that has no other use: CREATE DATABASE dpsql_catalog OWNER ..."
            raise UsageError(
                "catalog-in-use", "The database of the catalog has tables that are not dpsql's.", hint=hint
            )
        run(connection, *_replace_tables(connection, definitions), "COMMIT")
    except (CatalogError, psycopg.Error):
        hint = "The role must own the database: CREATE DATABASE dpsql_catalog OWNER ..."
        raise UsageError("catalog-unavailable", "The tables cannot be made there.", hint=hint) from None
    finally:
        connection.finish()
    return Shadow(conninfo, becoming=False, place=" at the address in the policy")


def _conninfo(url: str) -> str:
    given = {"client_encoding": "UTF8", "connect_timeout": "10", "application_name": "dpsql", "gssencmode": "disable"}
    try:
        if conninfo_to_dict(url).get("gssencmode") == "require":
            hint = "Leave gssencmode out, and write sslmode=verify-full."
            raise UsageError("catalog-url", "The catalog cannot be reached with encryption by GSSAPI.", hint=hint)
        return make_conninfo(url, options=f"-c search_path={HOME}", **given)
    except psycopg.Error:  # its words may quote the address
        hint = "Such as postgresql://user@host/database."
        raise UsageError("catalog-url", "The address of the catalog cannot be read.", hint=hint) from None


def _replace_tables(connection: PGconn, definitions: Sequence[str]) -> list[str]:
    """Return the statements that put the tables in place of those that were made before."""
    found = connection.exec_(_SCHEMAS.encode())
    quote = pq.Escaping(connection).escape_identifier
    before = [quote(found.get_value(at, 0) or b"").decode() for at in range(found.ntuples)]
    schemas = [made.removeprefix("CREATE ") for made in definitions if made.startswith("CREATE SCHEMA ")]
    dropped = [f"DROP SCHEMA {schema} CASCADE" for schema in before]
    if f"SCHEMA {_PUBLIC}" in schemas and _PUBLIC not in before:
        dropped.append(f"DROP SCHEMA IF EXISTS {_PUBLIC}")  # every database begins with one, which is empty here
    return [*dropped, *definitions, *(f"COMMENT ON {schema} IS '{_MARK}'" for schema in schemas)]


def _value(connection: PGconn, statement: str) -> bytes | None:
    found = connection.exec_(statement.encode())
    return found.get_value(0, 0) if found.ntuples else None
