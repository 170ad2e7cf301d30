"""PostgreSQL over ADBC: one read-only connection; only the answer crosses it, in Arrow.

The connection is PostgreSQL's own client's: the address may leave out what PGPASSWORD, a password file or a service
says. Its settings apply to every statement: it is read-only, names of functions and operators are those of pg_catalog,
clock and dates are UTC and ISO. A broken connection is replaced before the next statement is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.dialects.postgres import POSTGRES
from dpsql.engines.base import CsvFile, ListedTable, Registered, RemoteFiles, Statement
from dpsql.engines.lakes.folder import Folder
from dpsql.engines.postgres.catalog import list_tables, registered
from dpsql.engines.single_connection import SingleConnectionEngine
from dpsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from adbc_driver_manager.dbapi import Connection

__all__ = ["PostgresEngine", "connect_writer"]

_SETTINGS = {
    "default_transaction_read_only": "on",
    "search_path": "pg_catalog, pg_temp",
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "client_min_messages": "error",
    "row_security": "on",
}
_PINNED = frozenset([*_SETTINGS, "transaction_read_only", "statement_timeout", "session_authorization"])
_GRACE = 2.0  # seconds after its time limit until the server itself stops a statement, in case this process died
_ENDS = "CASE {{0}} WHEN 'infinity' THEN {last} WHEN '-infinity' THEN -{last} ELSE {since} END"
_SENT = {  # dates and time stamps as numbers, since Arrow counts from another day and has no room for the infinite
    "DATE": _ENDS.format(last=2**31 - 1, since="{0} - DATE '1970-01-01'"),
    "TIMESTAMP": _ENDS.format(last=2**63 - 1, since=POSTGRES.forms["epoch_us TIMESTAMP"]),
}
Sources = Mapping[str, Path | CsvFile | Folder | RemoteFiles | None]


class PostgresEngine(SingleConnectionEngine["Connection"]):
    """Engine on a PostgreSQL server; the tables stay there."""

    def __init__(
        self, connect: Callable[[], Connection], tables: Mapping[str, Registered], *, time_limit: float | None
    ) -> None:
        super().__init__(POSTGRES, tables, connect=connect, time_limit=time_limit)
        self.descriptions: Mapping[str, str] = {}

    @classmethod
    def open(
        cls, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None = None
    ) -> PostgresEngine:
        """Connect to the database at `url`, as libpq reads it, with run-time settings as `options`.

        Raises `EngineError` where the server cannot be reached, or has not a table; `UsageError` without the driver,
        or with a setting that dpsql makes itself.
        """
        _check(options)

        def connect() -> Connection:
            return _connected(url, options, time_limit=time_limit)

        with ExitStack() as holds:
            connection = connect()
            holds.callback(connection.close)
            _check_encoding(connection)
            engine = cls(
                connect,
                {name: registered(connection, name, source=source) for name, source in sources.items()},
                time_limit=time_limit,
            )
            engine._connection = connection
            holds.pop_all()
            return engine

    def read_role(self) -> str:
        """Return the name of the role that reads the tables."""
        ((role,),) = self._look("SELECT CAST(current_user AS text)")
        return str(role)

    def open_schema(self, schema: str) -> Mapping[str, str]:
        """Read the descriptions of what is materialized in a schema; none if it is not there or cannot be read."""
        sql = f'SELECT name, description FROM "{schema}".dpsql_state'  # noqa: S608 - the policy has checked the name
        self.descriptions = {}
        with suppress(Exception):
            self.descriptions = {str(name): str(description) for name, description in self._look(sql)}
        return self.descriptions

    def register(self, schema: str, tables: Mapping[str, str]) -> None:
        """Look up tables of a schema, each by its name there and the name to be known by."""
        with closing(self._connect()) as connection:
            for table, name in tables.items():
                with suppress(EngineError):
                    self._tables[name] = registered(connection, f"{schema}.{table}", source=None)

    def _look(self, sql: str) -> list[tuple[object, ...]]:
        """Return the rows of a statement that reads no data."""
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    def answer(self, connection: Connection, statement: Statement) -> pa.Table:
        """Run one SELECT, and return its answer."""
        return _answer(connection, statement)

    def answers(self, connection: Connection) -> bool:
        """Return whether the server still answers on a connection."""
        with suppress(Exception), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return len(cursor.fetchall()) == 1
        return False

    def found(self, name: str) -> Registered:
        """Return a table by its name in the policy."""
        return registered(self.open_connection(), name, source=None)

    def list_tables(self) -> Iterable[ListedTable]:
        """Return the tables that this user may read, with their keys."""
        return list_tables(self.fetch)

    def cancel(self) -> None:
        """Ask the server to stop what runs."""
        if self._connection is not None:
            self._connection.adbc_cancel()


def connect_writer(url: str, options: Mapping[str, str]) -> Connection:
    """Return a connection that may write, with the other settings of an engine's. Raises as `PostgresEngine.open`."""
    _check(options)
    connection = _connected(url, options, time_limit=None)
    with ExitStack() as holds:
        holds.callback(connection.close)
        _check_encoding(connection)
        _set(connection, {"default_transaction_read_only": "off"})
        holds.pop_all()
    return connection


def _check(options: Mapping[str, str]) -> None:
    try:
        import adbc_driver_postgresql.dbapi  # noqa: F401 - whether it is there
    except ImportError:
        reason, hint = "The driver of PostgreSQL is not installed.", "pip install 'dpsql[postgres]'"
        raise UsageError("not-installed", reason, hint=hint) from None
    for name in options:
        if name.lower() in _PINNED:
            reason, hint = f"dpsql sets {name} itself.", "Leave it out of [source] options."
            raise UsageError("source-option", reason, hint=hint, place=f"source.options.{name}")


def _connected(url: str, options: Mapping[str, str], *, time_limit: float | None) -> Connection:
    from adbc_driver_postgresql import dbapi

    connection: Connection | None = None
    with suppress(Exception):
        connection = dbapi.connect(url, autocommit=True)
    if connection is None:
        hint = "Check the address, the user and the password; psql says more."
        raise EngineError("engine-unreachable", "The database cannot be reached.", hint=hint, place="source.url")
    with ExitStack() as holds:
        holds.callback(connection.close)
        limit = "0" if time_limit is None else f"{max(1, round((time_limit + _GRACE) * 1_000)):d}"
        _set(connection, {**_SETTINGS, "statement_timeout": limit})
        for name, value in options.items():
            if not _set(connection, {name: value}):
                hint = "Name a run-time setting of the server, such as work_mem, and a value that it takes."
                reason = "PostgreSQL does not take this setting."
                raise UsageError("source-option", reason, hint=hint, place=f"source.options.{name}")
        holds.pop_all()
    return connection


def _set(connection: Connection, settings: Mapping[str, str]) -> bool:
    """Make settings for the session; say whether the server took them."""
    with suppress(Exception), connection.cursor() as cursor:
        for name, value in settings.items():
            cursor.execute("SELECT pg_catalog.set_config($1, $2, false)", (name, value))
            cursor.fetch_arrow_table()
        return True
    return False


def _check_encoding(connection: Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_catalog.current_setting('server_encoding')")
        ((encoding,),) = cursor.fetchall()
    if encoding != "UTF8":
        reason, hint = "The database is not in UTF8, so that its text has other bytes.", "Use a database in UTF8."
        raise EngineError("engine-encoding", reason, hint=hint, place="source.url")


def _answer(connection: Connection, statement: Statement) -> pa.Table:
    sql = statement.sql
    with connection.cursor() as cursor:
        if not _SENT.keys().isdisjoint(statement.types):
            sql = _sent(
                sql, names=cursor.adbc_execute_schema(sql, statement.parameters or None).names, types=statement.types
            )
        cursor.execute(sql, statement.parameters or None)
        return cursor.fetch_arrow_table()


def _sent(sql: str, *, names: list[str], types: tuple[str, ...]) -> str:
    """Return a statement whose answer has the same columns, but numbers for what `_SENT` names, in the same order."""
    outputs = [
        f'{_SENT.get(type_, "{0}").replace("{0}", f"c{at}")} AS "{name}"'
        for at, (name, type_) in enumerate(zip(names, types, strict=True), start=1)
    ]
    columns = ", ".join(f"c{at}" for at in range(1, len(names) + 1))
    return f"SELECT {', '.join(outputs)} FROM ({sql}) AS dpsql_answer({columns})"  # noqa: S608 - what dpsql wrote
