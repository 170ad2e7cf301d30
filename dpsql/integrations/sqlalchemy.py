"""A dialect of SQLAlchemy, 1.4 and 2, over `dpsql.dbapi`; needs the extra dpsql[sqlalchemy].

    engine = sqlalchemy.create_engine("dpsql:///events.duckdb?policy=policy.toml&analyst=ana")

The connections of one engine share a session, and with it a ledger: a pool is no second budget. What can be inspected
is what SHOW TABLES and DESCRIBE say. Nothing is written, so that a transaction has nothing to commit and nothing to
roll back; a statement that would write is refused by the session, in its own words.
"""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import exc, types
from sqlalchemy.engine import default
from sqlalchemy.sql import compiler, operators

from dpsql import dbapi, errors
from dpsql.dbapi.errors import translate_errors

if TYPE_CHECKING:
    from sqlalchemy.engine import URL, Connection

__all__ = ["DPSQLDialect"]

_SETTINGS = frozenset(["analyst", "consent", "implicit", "isolation", "ledger", "policy"])
_FLAGS = {"true": True, "false": False}
_MAIN = "main"
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_TYPES: dict[str, types.TypeEngine[Any]] = {
    "BOOLEAN": types.Boolean(),
    "TINYINT": types.SmallInteger(),
    "SMALLINT": types.SmallInteger(),
    "UTINYINT": types.SmallInteger(),
    "INTEGER": types.Integer(),
    "USMALLINT": types.Integer(),
    "BIGINT": types.BigInteger(),
    "UINTEGER": types.BigInteger(),
    "UBIGINT": types.Numeric(20, 0),
    "FLOAT": types.Float(24),
    "DOUBLE": types.Float(53),
    "VARCHAR": types.String(),
    "UUID": types.String(),
    "BLOB": types.LargeBinary(),
    "DATE": types.Date(),
    "TIMESTAMP": types.DateTime(),
}


class _Compiler(compiler.SQLCompiler):
    """Compiler that writes ILIKE, which others write as LIKE of lower(...)."""

    def visit_ilike_op_binary(self, binary: Any, operator: Any, **settings: Any) -> str:
        if operator is not operators.ilike_op:  # of icontains and others, which have applied lower
            return str(super().visit_ilike_op_binary(binary, operator, **settings))  # type: ignore[no-untyped-call]
        return self._write_ilike(binary, "ILIKE", settings=settings)

    def visit_not_ilike_op_binary(self, binary: Any, operator: Any, **settings: Any) -> str:
        if operator is not operators.not_ilike_op:
            return str(super().visit_not_ilike_op_binary(binary, operator, **settings))  # type: ignore[no-untyped-call]
        return self._write_ilike(binary, "NOT ILIKE", settings=settings)

    def _write_ilike(self, binary: Any, operator: str, *, settings: dict[str, Any]) -> str:
        left, right = (self.process(side, **settings) for side in (binary.left, binary.right))
        escape = binary.modifiers.get("escape")
        end = "" if escape is None else f" ESCAPE {self.render_literal_value(escape, types.String())}"
        return f"{left} {operator} {right}{end}"


class DPSQLDialect(default.DefaultDialect):
    """Dialect of SQLAlchemy for dpsql: its plain SQL, with ? for parameters."""

    name = "dpsql"
    driver = "duckdb"
    statement_compiler = _Compiler
    default_paramstyle = "qmark"
    default_schema_name = _MAIN
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._turn = threading.Lock()
        self._latest: dbapi.Connection | None = None
        self._process = os.getpid()

    @classmethod
    def import_dbapi(cls) -> Any:
        """Return the DB-API module."""
        return dbapi

    @classmethod
    def dbapi(cls) -> Any:  # type: ignore[override]
        """Return the DB-API module."""
        return dbapi

    @translate_errors
    def create_connect_args(self, url: URL) -> tuple[list[str], dict[str, Any]]:
        """Return the arguments of `dpsql.dbapi.connect` that a URL names; raise `InterfaceError` for what it cannot."""
        hint = (
            "dpsql:///events.duckdb?policy=policy.toml, with analyst=, consent=true, implicit=true, isolation= or "
            "ledger= if need be."
        )
        if url.host or url.username or url.password or url.port:
            reason = "The URL names a host, a user or a password, and the database is a file."
            raise errors.UsageError("url", reason, hint=f"Three slashes for a relative path: {hint}")
        given = dict(url.query)
        if not _SETTINGS.issuperset(given) or not all(isinstance(value, str) for value in given.values()):
            reason = "The URL has a setting that is not known, or one of them twice."
            raise errors.UsageError("url", reason, hint=hint)
        settings: dict[str, Any] = {"database": url.database or None, **given}
        for name in {"consent", "implicit"} & given.keys():
            if given[name] not in _FLAGS:
                raise errors.UsageError("url", f"{name} is true or false.", hint=hint)
            settings[name] = _FLAGS[str(given[name])]
        return [], settings

    def connect(self, *arguments: Any, **settings: Any) -> Any:
        """Return a connection to the session of this engine, which is opened for the first and closed with the last."""
        with self._turn:
            # After fork() a child opens a session of its own: it must not use connections of SQLite that the parent
            # opened.
            if self._latest is not None and self._process == os.getpid():
                try:
                    return self._latest.another()
                # All its connections were closed, and the session with the last.
                except dbapi.InterfaceError:
                    pass
            self._latest, self._process = dbapi.connect(*arguments, **settings), os.getpid()
            return self._latest

    def do_ping(self, dbapi_connection: Any) -> bool:
        """Return whether a connection is open."""
        return not dbapi_connection.closed

    def is_disconnect(self, e: Exception, connection: Any, cursor: Any) -> bool:  # noqa: ARG002
        """Return whether an error came because the connection was closed beneath SQLAlchemy."""
        return isinstance(e, dbapi.InterfaceError) and connection is not None and bool(connection.closed)

    def get_isolation_level_values(self, dbapi_connection: Any) -> list[Literal["AUTOCOMMIT"]]:  # noqa: ARG002
        """Return the one level that there is."""
        return ["AUTOCOMMIT"]

    def get_isolation_level(self, dbapi_connection: Any) -> Literal["AUTOCOMMIT"]:  # noqa: ARG002
        """Return the one level that there is."""
        return "AUTOCOMMIT"

    def set_isolation_level(self, dbapi_connection: Any, level: str) -> None:
        """Do nothing: there is one level."""

    def _get_server_version_info(self, connection: Connection) -> tuple[int, ...]:  # noqa: ARG002
        from importlib.metadata import version

        return tuple(int(part) for part in re.findall(r"\d+", version("dpsql"))[:3])

    def _get_default_schema_name(self, connection: Connection) -> str:  # noqa: ARG002
        return _MAIN

    def get_schema_names(self, connection: Connection, **_: object) -> list[str]:
        """Return the schemas of the policy's tables, main first."""
        return [_MAIN, *sorted({schema for schema, _ in _tables(connection)} - {_MAIN})]

    def get_table_names(self, connection: Connection, schema: str | None = None, **_: object) -> list[str]:
        """Return the tables that the policy exposes, private and public."""
        return [name for home, name in _tables(connection) if home == (schema or _MAIN)]

    def has_table(self, connection: Connection, table_name: str, schema: str | None = None, **_: object) -> bool:
        """Return whether the policy exposes a table of that name."""
        return (schema or _MAIN, table_name) in _tables(connection)

    def get_columns(self, connection: Connection, table_name: str, schema: str | None = None, **_: object) -> list[Any]:
        """Return the columns that exist for analysts, with their types; the privacy unit's comment says that it is."""
        _find_table(connection, table_name, schema=schema)
        named = ".".join('"' + part.replace('"', '""') + '"' for part in (schema or _MAIN, table_name))
        return [
            {
                "name": column.column_name,
                "type": _type(column.column_type),
                "nullable": True,
                "default": None,
                "autoincrement": False,
                "comment": "the privacy unit" if column.is_privacy_unit else None,
            }
            for column in connection.exec_driver_sql(f"DESCRIBE {named}")
        ]

    def get_table_comment(self, connection: Connection, table_name: str, schema: str | None = None, **_: object) -> Any:
        """Return whose rows a table holds."""
        unit = _find_table(connection, table_name, schema=schema).privacy_unit
        return {"text": "public" if unit is None else f"private; the privacy unit is {unit}"}

    def get_pk_constraint(self, connection: Connection, table_name: str, schema: str | None = None, **_: object) -> Any:
        """Return no key: whether one holds is a fact of the data."""
        _find_table(connection, table_name, schema=schema)
        return {"constrained_columns": [], "name": None}

    def _nothing(self, connection: Connection, table_name: str, schema: str | None = None, **_: object) -> list[Any]:
        """Return no constraint and no index: whether one holds is a fact of the data."""
        _find_table(connection, table_name, schema=schema)
        return []

    get_foreign_keys = get_indexes = get_unique_constraints = get_check_constraints = _nothing

    def get_view_names(self, connection: Connection, schema: str | None = None, **_: object) -> list[str]:  # noqa: ARG002
        """Return none: whether a table of the policy is a view in its database is not shown."""
        return []

    def get_materialized_view_names(self, connection: Connection, schema: str | None = None, **_: object) -> list[str]:  # noqa: ARG002
        """Return none, for the same reason."""
        return []

    def get_sequence_names(self, connection: Connection, schema: str | None = None, **_: object) -> list[str]:  # noqa: ARG002
        """Return none: sequences are not shown."""
        return []


def _tables(connection: Connection) -> dict[tuple[str, str], Any]:
    """Return the rows of SHOW TABLES by schema and name; a policy's "web.reads" is reads in the schema web."""
    rows = {}
    for row in connection.exec_driver_sql("SHOW TABLES"):
        schema, dot, name = row.name.partition(".")
        rows[(schema, name) if dot else (_MAIN, row.name)] = row
    return rows


def _find_table(connection: Connection, table_name: str, *, schema: str | None) -> Any:
    """Return the row of SHOW TABLES for a table that must be there."""
    row = _tables(connection).get((schema or _MAIN, table_name))
    if row is None:
        raise exc.NoSuchTableError(f"{schema}.{table_name}" if schema else table_name)
    return row


def _type(name: str) -> types.TypeEngine[Any]:
    """Return SQLAlchemy's type for DuckDB's name of one; what is answered as text is one."""
    if (found := _DECIMAL.fullmatch(name)) is not None:
        return types.Numeric(int(found[1]), int(found[2]))
    if name in {"HUGEINT", "UHUGEINT"}:
        return types.Numeric(39, 0)
    return _TYPES.get(name, types.String())
