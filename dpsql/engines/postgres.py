"""PostgreSQL, by ADBC: one connection that reads alone; what crosses is the answer, in Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.dialects.postgres import POSTGRES
from dpsql.engines.base import Column, CsvFile, Statement
from dpsql.engines.remote import Registered, RemoteEngine, table_missing
from dpsql.errors import EngineError

if TYPE_CHECKING:
    import pyarrow as pa
    from adbc_driver_manager.dbapi import Connection

__all__ = ["PostgresEngine"]

_TYPES = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "text": "VARCHAR",
    "varchar": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "uuid": "UUID",
}
_SETTINGS = (
    "SET default_transaction_read_only = on",
    "SET standard_conforming_strings = on",
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET IntervalStyle = 'postgres'",
    "SET extra_float_digits = 1",
    "SET search_path = pg_catalog",
)
_COLUMNS = """
    SELECT a.attname, t.typname, a.atttypmod
    FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
    WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


class PostgresEngine(RemoteEngine):
    """Asks a PostgreSQL server; the tables stay where they are."""

    def __init__(self, connection: Connection, tables: Mapping[str, Registered], *, time_limit: float | None) -> None:
        super().__init__(POSTGRES, tables, time_limit=time_limit)
        self._connection = connection

    @classmethod
    def open(
        cls,
        url: str,
        sources: Mapping[str, Path | CsvFile | None],
        *,
        options: Mapping[str, str],
        time_limit: float | None = None,
    ) -> PostgresEngine:
        """Connect to the database at `url`, as libpq reads it. Raises `EngineError`."""
        from adbc_driver_postgresql import dbapi

        connection = None
        with suppress(Exception):
            connection = dbapi.connect(url, autocommit=True)
        if connection is None:
            hint = "Check the address, the user and the password; psql says more."
            raise EngineError("engine-unreachable", "The database cannot be reached.", hint=hint, place="source.url")
        with ExitStack() as holds:
            holds.callback(connection.close)
            with connection.cursor() as cursor:
                for name, value in options.items():
                    cursor.execute("SELECT set_config($1, $2, false)", (name, value))
                for setting in _SETTINGS:
                    cursor.execute(setting)
            tables = {name: _registered(connection, name) for name in sources}
            holds.pop_all()
            return cls(connection, tables, time_limit=time_limit)

    def fetch(self, statement: Statement) -> pa.Table:
        """Send one SELECT and return its answer."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement.sql, statement.parameters or None)
            return cursor.fetch_arrow_table()

    def cancel(self) -> None:
        """Ask the server to stop what runs."""
        self._connection.adbc_cancel()

    def disconnect(self) -> None:
        """Close the connection."""
        self._connection.close()


def _registered(connection: Connection, name: str) -> Registered:
    schema, dot, table = name.partition(".")
    relation = (schema, table) if dot else ("public", name)
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in relation)
    rows: list[tuple[str, str, int]] = []
    with suppress(Exception), connection.cursor() as cursor:
        cursor.execute(_COLUMNS, (quoted,))
        rows = cursor.fetchall()
    if not rows:
        raise table_missing(name, engine="PostgreSQL")
    return Registered(relation, tuple(Column(column, _TYPES.get(kind, kind)) for column, kind, _ in rows))
