"""MariaDB and MySQL over PyMySQL: one read-only connection, whose settings the forms of the dialect need.

Values of parameters are variables of the session, set before the statement in hexadecimal where they are text: no text
of a value is part of a statement. A broken connection is replaced for the next statement.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from dpsql.dialects.mysql import MARIADB, MAX_KEY_LENGTH, MYSQL
from dpsql.engines.base import Statement
from dpsql.engines.remote import GRACE, ConnectedEngine, import_driver, table_missing
from dpsql.engines.sources import Column, CsvFile, Folder, Registered
from dpsql.errors import EngineError, PolicyError, UsageError

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

_PORT = 3_306
_SECONDS = 10  # that a server has to answer at all
_PARAMETERS = frozenset(["unix_socket", "ssl_ca", "ssl_cert", "ssl_key"])


def read_address(url: str) -> dict[str, Any]:
    """Return the arguments of `pymysql.connect` for "mysql://user:password@host:port/database?unix_socket=path".

    Without a password it is that of MYSQL_PWD, as for the server's own clients. With `ssl_ca` the certificate of the
    server and the name in it are checked. Raises `PolicyError`.
    """
    parts = urlsplit(url)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    database = unquote(parts.path.removeprefix("/"))
    hint = "Write it as mysql://user@host:3306/database, or mysql://user@/database?unix_socket=/run/mysqld/mysqld.sock."
    if "://" not in url or not database or "/" in database or parts.fragment:
        raise PolicyError("policy-source", "The address names no database.", hint=hint, place="source.url")
    for name in parameters:
        if name not in _PARAMETERS:
            known = f"It may have {', '.join(sorted(_PARAMETERS))}; variables of the session stand in [source.options]."
            reason = "The address has a parameter that is not known."
            raise PolicyError("policy-source", reason, hint=known, place="source.url")
    password = os.environ.get("MYSQL_PWD", "") if parts.password is None else unquote(parts.password)
    found: dict[str, Any] = {"database": database, "password": password, "connect_timeout": _SECONDS, **parameters}
    if parts.username is not None:
        found["user"] = unquote(parts.username)
    if "unix_socket" not in parameters:
        found |= {"host": parts.hostname or "localhost", "port": parts.port or _PORT}
    if "ssl_ca" in parameters:
        found |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
    return found


_INTEGER_CODES = frozenset([1, 2, 3, 8, 9, 13])  # TINY, SHORT, LONG, LONGLONG, INT24, YEAR
_DOUBLE_CODES = frozenset([4, 5])
_DECIMAL_CODES = frozenset([0, 246])


def build_table(cursor: Cursor) -> pa.Table:
    """Return all rows of a cursor; raise `pyarrow.ArrowInvalid` for a number that does not fit its type."""
    columns = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(cursor.description)
    arrays = [_array(values, field) for values, field in zip(columns, cursor.description, strict=True)]
    return pa.table(arrays, names=[f"c{at}" for at in range(len(arrays))])


def _array(values: tuple[Any, ...], field: tuple[Any, ...]) -> pa.Array:
    kind = field[1]
    if kind not in _INTEGER_CODES | _DOUBLE_CODES | _DECIMAL_CODES:
        has_bytes = any(isinstance(value, bytes) for value in values)
        return pa.array(values, pa.binary() if has_bytes else pa.string())
    texts = pa.array([None if value is None else str(value) for value in values], pa.string())
    if kind in _DECIMAL_CODES:
        return pa.array([None if value is None else Decimal(value) for value in values])
    # From text, the number 18446744073709551615 of an unsigned BIGINT is an error, and not -1.
    return texts.cast(pa.int64() if kind in _INTEGER_CODES else pa.float64())


_INTEGERS = {"tinyint": "TINYINT", "smallint": "SMALLINT", "mediumint": "INTEGER", "int": "INTEGER", "bigint": "BIGINT"}
_UNSIGNED = {"tinyint": "UTINYINT", "smallint": "USMALLINT", "mediumint": "INTEGER", "int": "UINTEGER"}
_TEXTS = ["char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"]
_SHORT = frozenset(["char", "varchar", "tinytext", "text"])
# utf8mb4_bin is none of them: it pads with spaces, so that 'a' = 'a '.
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


def find_table(connection: Connection[Any], name: str, *, database: str) -> Registered:
    """Return a table, "name" in the database of the address or "database.name". Raises `EngineError`."""
    before, dot, after = name.partition(".")
    relation = (before, after) if dot else (database, name)
    rows: list[tuple[str, str, str, str | None]] = []
    with suppress(Exception), connection.cursor() as cursor:
        cursor.execute(
            _COLUMNS.replace("%s", "{}").format(*(f"_utf8mb4 X'{part.encode().hex()}'" for part in relation))
        )
        rows = list(cursor.fetchall())
    if not rows:
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
    # Both servers store a BOOLEAN as tinyint(1).
    if whole.startswith("tinyint(1)") or whole == "bit(1)":
        return "BOOLEAN"
    if found := _DECIMAL.match(whole):
        width, scale = int(found[1]), int(found[2])
        return f"DECIMAL({width},{scale})" if width <= _WIDEST else "NUMERIC"
    if kind in _INTEGERS and "unsigned" in whole:
        return _UNSIGNED.get(kind, f"{kind} unsigned")
    return _INTEGERS.get(kind) or _TYPES.get(kind, kind)


_SETTINGS: Mapping[str, str] = {
    "autocommit": "1",
    "character_set_results": "utf8mb4",
    "div_precision_increment": "4",
    "lc_time_names": "'en_US'",
    "max_sort_length": str(MAX_KEY_LENGTH),  # of text no more is looked at to sort it
    "sort_buffer_size": str(64 << 20),  # MariaDB fails where it does not hold 15 rows of 64 such texts
    "sql_auto_is_null": "0",
    "sql_big_selects": "1",  # or a statement would fail by the rows that the server expects
    # 'a\' is a text of two characters, || joins texts, and 1 - 2 is -1 for unsigned numbers too, as in DuckDB.
    "sql_mode": "'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES,NO_UNSIGNED_SUBTRACTION,PIPES_AS_CONCAT'",
    "sql_select_limit": "18446744073709551615",
    "time_zone": "'+00:00'",
    "transaction_read_only": "1",
    "unique_checks": "1",
}
_OLD_NAMES = {"transaction_read_only": "tx_read_only"}  # of MariaDB before 11.1
_PINNED = frozenset([*_SETTINGS, *_OLD_NAMES.values(), "max_statement_time", "max_execution_time"])
_NAME = re.compile(r"[a-z_0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_MARIADB, _MYSQL = (10, 6), (8, 0, 31)  # the first that have all that statements use
Sources = Mapping[str, Path | CsvFile | Folder | None]


class MySQLEngine(ConnectedEngine):
    """Engine on a server of MariaDB or MySQL; the tables stay there."""

    survives_failure = True

    @classmethod
    def open(
        cls, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None = None
    ) -> MySQLEngine:
        """Connect to "mysql://user@host/database", with variables of the session as `options`.

        Raises `EngineError` where the server cannot be reached, is too old, or has not a table; `UsageError` without
        the driver, or with a variable that dpsql sets itself; `PolicyError` for another address.
        """
        _check(options)
        address = read_address(url)
        connect = partial(_connect, address, options, time_limit=time_limit)
        connection = connect()
        dialect = MARIADB if "MariaDB" in connection.get_server_info() else MYSQL
        engine = cls(dialect, {}, connect=connect, time_limit=time_limit)
        engine._connection, engine.default_schema = connection, str(address["database"])
        engine._tables = engine.look_up_sources(sources, engine="The database")
        return engine

    def answer(self, cursor: Cursor, statement: Statement) -> pa.Table:
        """Set the values of a statement, run it, and return its answer."""
        if statement.parameters:
            values = (f"@dpsql_{at} = {_literal(value)}" for at, value in enumerate(statement.parameters, start=1))
            cursor.execute(f"SET {', '.join(values)}")
        cursor.execute(statement.sql)
        return build_table(cursor)

    def found(self, name: str) -> Registered:
        """Return the table "name" in the database of the address, or "database.name"."""
        return find_table(self.open_connection(), name, database=self.default_schema)

    def stop(self, cursor: Cursor) -> None:
        """Ask the server, over a second connection, to stop what runs."""
        with closing(self._connect()) as other:
            # KILL QUERY ends the statement, KILL alone the connection.
            other.query(f"KILL QUERY {cursor.connection.thread_id():d}")


def _check(options: Mapping[str, str]) -> None:
    import_driver("pymysql", engine="MySQL and MariaDB", extra="mysql")
    for name in options:
        if name.lower() in _PINNED:
            reason, hint = f"dpsql sets the variable {name} itself.", "Leave it out of [source] options."
            raise UsageError("source-option", reason, hint=hint, place=f"source.options.{name}")


def _connect(address: Mapping[str, Any], options: Mapping[str, str], *, time_limit: float | None) -> Connection[Any]:
    import pymysql

    connection: Connection[Any] | None = None
    with suppress(Exception):
        # Without converters each value comes as its text: those of PyMySQL would fail on dates that Python lacks.
        connection = pymysql.connect(**address, charset="utf8mb4", autocommit=True, conv={}, local_infile=False)
    if connection is None:
        hint = "Check the address, the user and the password; the program mariadb or mysql says more."
        raise EngineError("engine-unreachable", "The database cannot be reached.", hint=hint, place="source.url")
    with ExitStack() as holds:
        holds.callback(connection.close)
        for name, value in options.items():
            written = value if _NUMBER.fullmatch(value) else _literal(value)
            if not _NAME.fullmatch(name) or not _set(connection, name, value=written):
                hint = "Name a variable of the session, such as join_buffer_size, and a value that it takes."
                reason = "The server does not take this variable."
                raise UsageError("source-option", reason, hint=hint, place=f"source.options.{name}")
        # After the options, so that none of them undoes a setting that the dialect relies on.
        _pin(connection, time_limit=time_limit)
        holds.pop_all()
    return connection


def _pin(connection: Connection[Any], *, time_limit: float | None) -> None:
    """Set what the forms of the dialect need, and the time limit of the server. Raises `EngineError`."""
    is_mariadb = "MariaDB" in connection.get_server_info()
    if _version(connection) < (_MARIADB if is_mariadb else _MYSQL):
        hint = "Use MariaDB 10.6 or newer, or MySQL 8.0.31 or newer."
        raise EngineError("engine-version", "The server is too old.", hint=hint, place="source.url")
    done = all(
        _set(connection, name, value=value) or (name in _OLD_NAMES and _set(connection, _OLD_NAMES[name], value=value))
        for name, value in _SETTINGS.items()
    )
    if time_limit is not None:
        seconds = time_limit + GRACE
        limit = (
            ("max_statement_time", f"{seconds:.3f}") if is_mariadb else ("max_execution_time", f"{seconds * 1e3:.0f}")
        )
        done = done and _set(connection, limit[0], value=limit[1])
    if not done:
        hint = "Connect to a server of MariaDB or MySQL, not to another that speaks their protocol."
        raise EngineError("engine-version", "The server does not take a setting.", hint=hint, place="source.url")


def _version(connection: Connection[Any]) -> tuple[int, ...]:
    # MariaDB 10 says "5.5.5-10.11.6-MariaDB", for clients that compare the version with that of MySQL.
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", connection.get_server_info().removeprefix("5.5.5-"))
    return tuple(map(int, found.groups())) if found else ()


def _set(connection: Connection[Any], name: str, *, value: str) -> bool:
    with suppress(Exception):
        connection.query(f"SET SESSION {name} = {value}")
        return True
    return False


def _literal(value: object) -> str:
    """Return a value as a literal that is read the same under every setting."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(int(value))
        case int():
            return f"{value:d}"
        case float():
            # 1.5 is a DECIMAL in MySQL, and 1.5e0 a DOUBLE.
            return f"{value!r}" if "e" in repr(value) else f"{value!r}e0"
        case Decimal():
            return f"{value:f}"
        case date():  # a time stamp, too
            return f"_utf8mb4 X'{str(value).encode().hex()}'"
    return f"_utf8mb4 X'{str(value).encode().hex()}'"
