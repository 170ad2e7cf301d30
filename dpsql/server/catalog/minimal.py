"""The small catalog that is built in: the system relations that tools ask first, in a database of SQLite's in memory.

It answers drivers, and lists of schemas, tables and columns; what it does not know it says so of. SQLite may read there
and call what is listed here, in a bounded time and space; it holds the names of tables and columns, and nothing else.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpsql.server.catalog.ddl import HOME
from dpsql.server.catalog.minimal_sql import BUILT_IN, PREFIX, Translated, cannot, translated
from dpsql.server.catalog.minimal_tables import DATABASE, RELATIONS, TYPES, read_rows, type_named
from dpsql.server.catalog.query_result import CatalogError, CatalogRows, Column, Description, Parameter
from dpsql.server.catalog.statement_guard import MAX_BYTES, MAX_ROWS, check_statement, too_large_error
from dpsql.server.catalog.value_formats import decode_parameter, encode_value
from dpsql.sql.ir.catalog import Catalog as Tables

__all__ = ["Minimal"]

_VERSION = "18.0"
_LONGEST = 32 * 1024  # characters
_TIME = 2.0  # seconds; what tools ask takes milliseconds
_STEPS = 10_000  # of SQLite's machine between two looks at the clock
_SETTINGS = {
    "server_version": _VERSION,
    "server_version_num": "180000",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "search_path": HOME,
    "standard_conforming_strings": "on",
    "integer_datetimes": "on",
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "bytea_output": "hex",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "transaction_isolation": "read committed",
    "transaction_read_only": "on",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "on",
    "lc_collate": "C",
    "lc_ctype": "C",
    "is_superuser": "off",
    "jit": "off",
    "statement_timeout": "0",
}
_WHOLE = frozenset([16, 20, 21, 23, 26])  # types whose columns are never NULL in a system relation
_PATTERN = re.compile(r"(\^?)\(?([\w ]+(?:\|[\w ]+)*)\)?(\$?)")
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 4 * _LONGEST,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
_ROLE = {"rolname": "name", "usename": "name", "oid": "10", "usesysid": "10", "rolcanlogin": "1", "rolinherit": "1"}
_ROLE |= {"rolconnlimit": "-1", "rolvaliduntil": "NULL", "rolconfig": "NULL", "useconfig": "NULL"}


@dataclass(frozen=True, slots=True)
class _Function:
    """A function of ours: the OID of its type, and what it returns."""

    type_oid: int
    call: Callable[..., str | int | None]


class Minimal:
    """Statements over the built-in relations; one is answered at a time."""

    version = _VERSION

    def __init__(self, tables: Tables) -> None:
        """Make the database; it cannot fail for what a policy says."""
        self._lock = threading.Lock()
        self._user = ""
        self._deadline = 0.0
        self._rows = read_rows(tables)
        self._oids = {str(row["relname"]): int(str(row["oid"])) for row in self._rows.get("pg_class", ())}
        self._functions = self._made()
        self._types = {name: function.type_oid for name, function in self._functions.items()}
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._fill()

    def describe(self, sql: str, types: Sequence[int] = (), *, user: str) -> Description:
        """Return what one statement takes and gives. Raises `CatalogError`."""
        if (shown := _shown(sql)) is not None:
            return Description((), shown.columns)
        asked = self._translated(sql, tuple(types))
        with self._lock:
            cursor = self._run(asked, (None,) * len(asked.parameters), user=user)
            return Description(asked.parameters, _columns(asked, cursor))

    def execute(
        self, sql: str, parameters: Sequence[Parameter] = (), *, user: str, formats: Sequence[int] = ()
    ) -> CatalogRows:
        """Answer one statement. Raises `CatalogError`."""
        if (shown := _shown(sql)) is not None:
            return shown
        asked = self._translated(sql, tuple(each.type_oid for each in parameters))
        values = [decode_parameter(each, oid) for each, oid in zip(parameters, asked.parameters, strict=False)]
        with self._lock:
            cursor = self._run(asked, values, user=user)
            columns = _columns(asked, cursor)
            codes = _codes(formats, len(columns))
            rows = self._fetched(cursor)
        told = [
            tuple(
                encode_value(cell, column.type_oid, code=code)
                for cell, column, code in zip(row, columns, codes, strict=True)
            )
            for row in rows
        ]
        return CatalogRows(columns, told, f"SELECT {len(told)}")

    def close(self) -> None:
        """Forget the tables; closing twice is closing once."""
        with self._lock:
            self._database.close()

    def _translated(self, sql: str, types: tuple[int, ...]) -> Translated:
        text = check_statement(sql).decode()
        if len(text) > _LONGEST:
            raise cannot()
        return translated(text.rstrip().rstrip(";"), self._types, tables=self._oids, given=types)

    def _run(self, asked: Translated, values: Sequence[object], *, user: str) -> sqlite3.Cursor:
        self._user, self._deadline = user, time.monotonic() + _TIME
        named = {f"p{at}": value for at, value in enumerate(values, 1)}
        missing = {f"p{at}": None for at in range(1, len(asked.parameters) + 1)}
        try:
            return self._database.execute(asked.sql, missing | named)
        except (sqlite3.Error, sqlite3.Warning, OverflowError):  # its words are SQLite's, of another statement
            raise cannot() from None

    def _fetched(self, cursor: sqlite3.Cursor) -> list[tuple[object, ...]]:
        try:
            rows: list[tuple[object, ...]] = cursor.fetchmany(MAX_ROWS + 1)
        except sqlite3.Error:
            raise cannot() from None
        finally:
            cursor.close()
        if len(rows) > MAX_ROWS or sum(len(str(cell)) for row in rows for cell in row) > MAX_BYTES:
            raise too_large_error()
        return rows

    def _fill(self) -> None:
        """Make the relations, then let nothing but reading be done."""
        run = self._database.execute
        run("PRAGMA case_sensitive_like = ON")
        for name, function in self._functions.items():
            self._database.create_function(f"{PREFIX}{name}", -1, function.call)
        rows = self._rows
        rows["pg_settings"] = [{"name": name, "setting": setting} for name, setting in _SETTINGS.items()]
        for relation, columns in RELATIONS.items():
            if relation in {"pg_roles", "pg_user"}:
                run(f'CREATE VIEW "{relation}" AS SELECT ' + ", ".join(map(_of_role, columns)))
                continue
            spelled = ", ".join(
                f'"{name}" {"TEXT" if oid in {18, 19, 25} else "INTEGER"}' for name, oid in columns.items()
            )
            run(f'CREATE TABLE "{relation}" ({spelled})')
            zeros = {name: 0 for name, oid in columns.items() if oid in _WHOLE and "." not in relation}
            for row in (zeros | known for known in rows.get(relation, ())):
                names, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
                run(f'INSERT INTO "{relation}" ({names}) VALUES ({marks})', tuple(row.values()))  # noqa: S608 - our names
        for limit, most in _LIMITS.items():
            self._database.setlimit(limit, most)
        self._database.set_progress_handler(lambda: time.monotonic() > self._deadline, _STEPS)
        self._database.set_authorizer(_authorized)

    def _made(self) -> dict[str, _Function]:
        """Return the functions of PostgreSQL that there are, so far as a catalog without rows knows them."""
        nothing, name, true, zero = (lambda *_: None), (lambda *_: self._user), (lambda *_: 1), (lambda *_: 0)
        made = {each: _Function(25, nothing) for each in _UNKNOWN}
        made |= {each: _Function(19, name) for each in ("current_user", "session_user")}
        made |= {each: _Function(16, true) for each in _ALWAYS}
        made |= {each: _Function(20, zero) for each in _NEVER}
        return made | {
            "pg_is_in_recovery": _Function(16, zero),
            "pg_backend_pid": _Function(23, true),
            "version": _Function(25, lambda: f"PostgreSQL {_VERSION} (the built-in catalog of dpsql)"),
            "current_schema": _Function(19, lambda: HOME),
            "current_database": _Function(19, lambda: DATABASE),
            "current_setting": _Function(25, lambda name, *_: _SETTINGS.get(str(name).lower())),
            "set_config": _Function(25, lambda _, value, *__: value),
            "pg_get_userbyid": _Function(19, lambda _: DATABASE),
            "pg_encoding_to_char": _Function(19, lambda _: "UTF8"),
            "format_type": _Function(25, _format_type),
            "quote_ident": _Function(25, lambda text: text),
            "regexp": _Function(16, _matches),
            "getdatabaseencoding": _Function(19, lambda: "UTF8"),
            "pg_is_wal_replay_paused": _Function(16, zero),
            "pg_size_pretty": _Function(25, lambda _: "0 bytes"),
            "regclass": _Function(26, self._table_oid),
            "to_regclass": _Function(26, self._table_oid),
            "regproc": _Function(25, lambda value: value),
            "regnamespace": _Function(26, _namespace_oid),
            "regtype": _Function(26, _type_oid),
            "to_regtype": _Function(26, _type_oid),
        }

    def _table_oid(self, value: object) -> str | int | None:
        """Return the OID of a table by its name, or its name by its OID; those of the system all have the OID 1."""
        if value is None or isinstance(value, int):
            return next((name for name, oid in self._oids.items() if oid == value), None)
        name = str(value).rpartition(".")[2].strip('"')
        return self._oids.get(name, 1 if name in RELATIONS else None)


_UNKNOWN = """
    obj_description col_description shobj_description pg_get_expr pg_get_constraintdef pg_get_indexdef pg_get_viewdef
    pg_get_partkeydef pg_get_serial_sequence pg_get_functiondef pg_tablespace_location array_to_string json_build_object
    generate_subscripts array_length array_upper array_lower pg_get_function_sqlbody pg_get_statisticsobjdef_columns
    pg_get_function_result pg_get_function_arguments pg_get_function_identity_arguments pg_get_statisticsobjdef
""".split()
_ALWAYS = """
    pg_table_is_visible pg_type_is_visible pg_function_is_visible has_table_privilege has_schema_privilege
    has_database_privilege has_column_privilege has_any_column_privilege has_function_privilege pg_collation_is_visible
""".split()
_NEVER = "pg_total_relation_size pg_relation_size pg_table_size pg_database_size txid_current pg_my_temp_schema".split()


def _of_role(column: str) -> str:
    """Return a column of the only role, which is the current user."""
    value = _ROLE.get(column, "0" if column.startswith(("rol", "use")) else "NULL")
    return f'{f"{PREFIX}current_user()" if value == "name" else value} AS "{column}"'


def _authorized(action: int, *named: str | None) -> int:
    """Say what SQLite may do: read, and call what tools use."""
    if action == sqlite3.SQLITE_FUNCTION:
        called = named[1]
        known = called is not None and (called.startswith(PREFIX) or called.lower() in BUILT_IN)
        return sqlite3.SQLITE_OK if known else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _columns(asked: Translated, cursor: sqlite3.Cursor) -> tuple[Column, ...]:
    names = [str(told[0]) for told in cursor.description]
    if asked.names is not None and len(asked.names) == len(names):
        paired = zip(asked.names, asked.types, strict=True)
    else:  # a star: SQLite knows its columns
        paired = zip(names, [asked.by_name.get(name, 25) for name in names], strict=True)
    return tuple(Column(name, oid, TYPES[oid].size if oid in TYPES else -1, -1) for name, oid in paired)


def _codes(formats: Sequence[int], width: int) -> list[int]:
    """Return the format of every column."""
    codes = list(formats) if len(formats) > 1 else [*formats, *[0] * (not formats)] * width
    if len(codes) != width or not {*codes} <= {0, 1}:
        raise CatalogError("08P01", "The formats of the results do not fit the columns.")
    return codes


def _shown(sql: str) -> CatalogRows | None:
    """Return the answer to SHOW of one setting, or None for another statement."""
    words = sql.strip().rstrip(";").split()
    if not words or words[0].lower() != "show":
        return None
    name = "_".join(words[1:]).lower().replace("time_zone", "timezone").replace("isolation_level", "isolation")
    if name not in _SETTINGS:
        raise CatalogError("42704", "There is no such setting.")
    column = Column(name, 25, -1, -1)
    return CatalogRows((column,), [(_SETTINGS[name].encode(),)], "SHOW")


def _matches(text: object, pattern: object) -> int | None:
    """Say whether a plain pattern is found in a text: one of several words, at its start, its end or anywhere."""
    if text is None or pattern is None:
        return None
    found = _PATTERN.fullmatch(str(pattern))
    if found is None:
        raise ValueError
    begins, words, ends = found.groups()
    if begins and ends:
        return int(str(text) in words.split("|"))
    if begins:
        return int(str(text).startswith(tuple(words.split("|"))))
    return int(any(str(text).endswith(word) if ends else word in str(text) for word in words.split("|")))


def _format_type(oid: object, modifier: object = None) -> str | None:
    if not isinstance(oid, int):
        return None
    known = TYPES.get(oid)
    if known is None:
        return "???"
    if known.name == "numeric" and isinstance(modifier, int) and modifier > 0:
        return f"numeric({(modifier - 4) >> 16},{(modifier - 4) & 0xFFFF})"
    return _SPOKEN.get(known.name, known.name)


def _namespace_oid(value: object) -> str | int | None:
    """Return the OID of a schema by its name, or its name by its OID."""
    oids: dict[object, str | int] = {"main": 2200, "pg_catalog": 11, 2200: "main", 11: "pg_catalog"}
    return oids.get(value)


def _type_oid(value: object) -> str | int | None:
    """Return the OID of a type by its name, or its name by its OID."""
    if isinstance(value, int):
        return _format_type(value)
    known = None if value is None else type_named(str(value))
    return known.oid if known else None


_SPOKEN = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "varchar": "character varying",
}
