"""PostgreSQL over ADBC: one read-only connection; only the answer crosses it, in Arrow.

The connection is PostgreSQL's own client's: the address may leave out what PGPASSWORD, a password file or a service
says. Its settings apply to every statement: it is read-only, names of functions and operators are those of pg_catalog,
clock and dates are UTC and ISO. A broken connection is replaced before the next statement is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from dpsql.dialects import ENUM, quote_path
from dpsql.dialects.postgres import POSTGRES
from dpsql.engines.base import Statement
from dpsql.engines.remote import ConnectedEngine, count_limit, import_driver, table_missing
from dpsql.engines.sources import Column, CsvFile, Folder, ListedTable, Registered, RemoteFiles
from dpsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from adbc_driver_manager.dbapi import Connection, Cursor

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
# `held` has the columns that this user may read, and `based` each again with the type under its domain, and so on under
# domains of domains. The last output is the collation: '' where text is compared by its bytes, which is "C", and the
# one of the database where that is C.
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


def find_table(connection: Connection, name: str) -> Registered:
    """Return a table, "name" in the schema public or "schema.name". Raises `EngineError` if it cannot be read."""
    schema, dot, table = name.partition(".")
    relation = (schema, table) if dot else ("public", name)
    rows: list[_Row] = []
    with suppress(Exception), connection.cursor() as cursor:
        cursor.execute(_COLUMNS.replace("$2", "'{" + ",".join(_KINDS) + "}'"), (quote_path(relation),))
        rows = cursor.fetchall()
    if not rows:
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
    # NUMERIC(10, 2) has the modifier (10 << 16 | 2) + 4, and NUMERIC alone -1.
    width, scale = (modifier - _LEAST_TYPMOD) >> 16 & 0xFFFF, (modifier - _LEAST_TYPMOD) & 0x7FF
    if modifier < _LEAST_TYPMOD or width > _WIDEST or scale > width:  # a scale below zero is one beyond the width here
        return "NUMERIC"
    return f"DECIMAL({width},{scale})"


_SETTINGS = {
    "default_transaction_read_only": "on",
    # A path without pg_temp begins with it, so that a temporary table could hide one of pg_catalog.
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
# DuckDB has 'infinity' and '-infinity' at these numbers: the lower one is -(2^31 - 1), not -2^31.
_ENDS = "CASE {{0}} WHEN 'infinity' THEN {last} WHEN '-infinity' THEN -{last} ELSE {since} END"
_SENT = {  # dates and time stamps as numbers, since Arrow counts from another day and has no room for the infinite
    "DATE": _ENDS.format(last=2**31 - 1, since="{0} - DATE '1970-01-01'"),
    "TIMESTAMP": _ENDS.format(last=2**63 - 1, since=POSTGRES.forms["epoch_us TIMESTAMP"]),
}
Sources = Mapping[str, Path | CsvFile | Folder | RemoteFiles | None]


class PostgresEngine(ConnectedEngine):
    """Engine on a PostgreSQL server; the tables stay there."""

    survives_failure = True
    descriptions: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def open(
        cls, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None = None
    ) -> PostgresEngine:
        """Connect to the database at `url`, as libpq reads it, with run-time settings as `options`.

        Raises `EngineError` where the server cannot be reached, or has not a table; `UsageError` without the driver,
        or with a setting that dpsql makes itself.
        """
        _check(options)
        connect = partial(_connected, url, options, time_limit=time_limit)
        engine = cls(POSTGRES, {}, connect=connect, time_limit=time_limit)
        engine.open_connection()
        engine._tables = engine.look_up_sources(sources, engine="PostgreSQL")
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
                    self._tables[name] = find_table(connection, f"{schema}.{table}")

    def _look(self, sql: str) -> list[tuple[object, ...]]:
        """Return the rows of a statement that reads no data."""
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            rows: list[tuple[object, ...]] = cursor.fetchall()
            return rows

    def answer(self, cursor: Cursor, statement: Statement) -> pa.Table:
        """Run one SELECT, and return its answer."""
        sql, values = statement.sql, statement.parameters or None
        if not _SENT.keys().isdisjoint(statement.types):
            # The server says the names of the columns without running the statement.
            sql = _sent(sql, names=cursor.adbc_execute_schema(sql, values).names, types=statement.types)
        cursor.execute(sql, values)
        return cursor.fetch_arrow_table()

    def found(self, name: str) -> Registered:
        """Return a table by its name in the policy."""
        return find_table(self.open_connection(), name)

    def list_tables(self) -> Iterable[ListedTable]:
        """Return the tables that this user may read, with their keys."""
        return list_tables(self.fetch)

    def stop(self, cursor: Cursor) -> None:
        """Ask the server to stop what runs."""
        cursor.connection.adbc_cancel()


def connect_writer(url: str, options: Mapping[str, str]) -> Connection:
    """Return a connection that may write, with the other settings of an engine's. Raises as `PostgresEngine.open`."""
    _check(options)
    connection = _connected(url, options, time_limit=None)
    _set(connection, {"default_transaction_read_only": "off"})
    return connection


def _check(options: Mapping[str, str]) -> None:
    import_driver("adbc_driver_postgresql.dbapi", engine="PostgreSQL", extra="postgres")
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
        limit = count_limit(time_limit, per_second=1_000) or 0
        _set(connection, {**_SETTINGS, "statement_timeout": f"{limit:d}"})
        for name, value in options.items():
            if not _set(connection, {name: value}):
                hint = "Name a run-time setting of the server, such as work_mem, and a value that it takes."
                reason = "PostgreSQL does not take this setting."
                raise UsageError("source-option", reason, hint=hint, place=f"source.options.{name}")
        _check_encoding(connection)
        holds.pop_all()
    return connection


def _set(connection: Connection, settings: Mapping[str, str]) -> bool:
    """Make settings for the session; say whether the server took them."""
    with suppress(Exception), connection.cursor() as cursor:
        for name, value in settings.items():
            # SET takes no parameters, so that a value would become part of its text.
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


def _sent(sql: str, *, names: list[str], types: tuple[str, ...]) -> str:
    """Return a statement whose answer has the same columns, but numbers for what `_SENT` names, in the same order."""
    # SELECT CASE c1 WHEN 'infinity' THEN 2147483647 ... ELSE c1 - DATE '1970-01-01' END AS "day"
    # FROM (sql) AS dpsql_answer(c1)
    outputs = [
        f'{_SENT.get(type_, "{0}").replace("{0}", f"c{at}")} AS "{name}"'
        for at, (name, type_) in enumerate(zip(names, types, strict=True), start=1)
    ]
    columns = ", ".join(f"c{at}" for at in range(1, len(names) + 1))
    return f"SELECT {', '.join(outputs)} FROM ({sql}) AS dpsql_answer({columns})"  # noqa: S608 - what dpsql wrote
