"""Snowflake over ADBC: one session whose parameters are set; only the answer crosses it, in Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dpsql.dialects.warehouses import SNOWFLAKE
from dpsql.engines.base import ListedTable, Registered, Statement
from dpsql.engines.warehouse import (
    Address,
    ConnectedWarehouse,
    Sources,
    choose_table,
    import_driver,
    list_rows,
    list_texts,
    name_decimal,
    parse_address,
    refuse_files,
    refuse_options,
    unreachable,
)
from dpsql.errors import EngineError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SnowflakeEngine"]

_DRIVER = "adbc_driver_snowflake.dbapi"
_OPTION = "adbc.snowflake.sql."
_OURS = frozenset(
    f"{_OPTION}{name}"
    for name in (
        "account",
        "db",
        "schema",
        "client_option.use_high_precision",
        "client_option.max_timestamp_precision",
        "client_option.tracing",
    )
)
_SETTINGS = {  # parameters of the session; one that is set for the account or the user is overridden
    "TIMEZONE": "'UTC'",
    "WEEK_START": "1",
    "ROWS_PER_RESULTSET": "0",
    "QUOTED_IDENTIFIERS_IGNORE_CASE": "FALSE",
    "USE_CACHED_RESULT": "FALSE",  # the time of an answer would say whether rows have changed
    "ABORT_DETACHED_QUERY": "TRUE",
}
_GRACE = 2.0  # seconds after its time limit until Snowflake itself stops a statement, in case this process died
_COLUMNS = """
SELECT table_schema, table_name, column_name, data_type, numeric_precision, numeric_scale
FROM information_schema.columns WHERE UPPER(table_schema) = UPPER(:1) AND UPPER(table_name) = UPPER(:2)
ORDER BY table_schema, table_name, ordinal_position
"""
_TABLES = """
SELECT table_schema, table_name FROM information_schema.tables WHERE UPPER(table_schema) = UPPER(:1)
ORDER BY table_schema, table_name
""".strip()
_TYPES = {
    "TEXT": "VARCHAR",
    "FLOAT": "DOUBLE",
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "TIMESTAMP_NTZ": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP",  # of UTC, as the session is
    "BINARY": "BLOB",
}


class SnowflakeEngine(ConnectedWarehouse):
    """Engine on a database of Snowflake; the tables stay there."""

    def __init__(
        self,
        address: Address,
        sources: Sources,
        *,
        connect: Callable[[], Any],
        time_limit: float | None,
    ) -> None:
        self._database, *schema = address.path
        self.default_schema = "".join(schema)
        super().__init__(SNOWFLAKE, sources, connect=connect, time_limit=time_limit)

    @classmethod
    def open(
        cls, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None = None
    ) -> SnowflakeEngine:
        """Connect to "snowflake://user:password@account/database/schema?warehouse=...&role=...".

        `options` are those of the ADBC driver, "adbc.snowflake.sql.auth_type" and the like. Raises `EngineError` where
        the account cannot be reached, or has not a table; `UsageError` without the driver, or with an option that
        dpsql sets itself.
        """
        refuse_files(sources)
        dbapi = import_driver(_DRIVER, engine="Snowflake", extra="snowflake")
        hint = (
            f"Name an option of the driver, such as {_OPTION}auth_type; the address has account, database and schema."
        )
        refuse_options(options, known=lambda name: name.startswith(_OPTION) and name not in _OURS, hint=hint)
        address = parse_address(url, parts=("account", "database", "schema"), known=("warehouse", "role"))
        given = {"username": address.user, "password": address.password}
        given |= {f"{_OPTION}account": address.host, f"{_OPTION}db": address.path[0]}
        given |= {f"{_OPTION}schema": address.path[1]}
        given |= {f"{_OPTION}{name}": value for name, value in address.settings.items()}
        given |= {f"{_OPTION}client_option.{name}": value for name, value in _CLIENT.items()}
        wanted = {**{name: value for name, value in given.items() if value is not None}, **options}

        def connect() -> Any:  # noqa: ANN401 - of a driver without types
            connection: Any = None
            with suppress(Exception):
                connection = dbapi.connect(None, wanted, autocommit=True)
                _set(connection, time_limit)
                return connection
            if connection is not None:
                with suppress(Exception):
                    connection.close()
            raise unreachable("Snowflake", client="SnowSQL")

        return cls(address, sources, connect=connect, time_limit=time_limit)

    def answer(self, cursor: Any, statement: Statement) -> pa.Table:  # noqa: ANN401 - of a driver without types
        """Run one SELECT, and return its answer."""
        import pyarrow as pa

        texts = list_texts(statement.parameters)
        bound = pa.RecordBatch.from_arrays(
            [pa.array([each], pa.string()) for each in texts], [f"p{at}" for at in range(len(texts))]
        )
        cursor.execute(statement.sql, bound if texts else None)
        return cursor.fetch_arrow_table()

    def stop(self, cursor: Any) -> None:  # noqa: ANN401 - of a driver without types
        """Ask Snowflake to stop a statement."""
        cursor.adbc_cancel()

    def lives(self) -> bool:
        """Return whether the session still answers: one that was idle for long may have ended."""
        return self.answers()

    def found(self, name: str) -> Registered:
        """Return the table "name" or "schema.name", by its spelling or, where that is clear, in any case."""
        schema, _, table = name.rpartition(".")
        wanted = (schema or self.default_schema, table)
        rows = self._read_catalog(Statement(_COLUMNS.strip(), wanted))
        found = (
            ((self._database, *map(str, row[:2])), str(row[2]), _name_type(row[3], width=row[4], scale=row[5]))
            for row in rows
        )
        return choose_table(name, found, engine="Snowflake", wanted=wanted)

    def list_tables(self) -> Iterable[ListedTable]:
        """Return the tables and views of the schema of the address, or of those with that name in another case."""
        listed = self._read_catalog(Statement(_TABLES, (self.default_schema,)))
        exact = [table for schema, table in listed if schema == self.default_schema]
        return [ListedTable(str(name)) for name in exact or sorted({table for _, table in listed})]

    def _read_catalog(self, statement: Statement) -> list[tuple[Any, ...]]:
        """Return the rows of a statement of the catalog, the first one that a warehouse runs."""
        with suppress(Exception):
            return list_rows(self.fetch(statement))
        hint = "Check the database in the address, and name a warehouse that the role may use behind the schema: "
        hint += "?warehouse=NAME&role=NAME"
        reason = "Snowflake takes the login, but does not read its catalog for this user."
        raise EngineError("engine-unreachable", reason, hint=hint, place="source.url")


_CLIENT = {"use_high_precision": "true", "max_timestamp_precision": "microseconds"}


def _set(connection: Any, time_limit: float | None) -> None:  # noqa: ANN401 - of a driver without types
    limit = 0 if time_limit is None else max(1, round(time_limit + _GRACE))
    with connection.cursor() as cursor:
        for name, value in {**_SETTINGS, "STATEMENT_TIMEOUT_IN_SECONDS": f"{limit:d}"}.items():
            cursor.execute(f"ALTER SESSION SET {name} = {value}")
            cursor.fetch_arrow_table()


def _name_type(name: str, *, width: int | None, scale: int | None) -> str:
    """Return DuckDB's name of a type, or Snowflake's for one that dpsql does not compute with."""
    if name != "NUMBER" or width is None or scale is None:
        return _TYPES.get(name, name)
    return "BIGINT" if not scale else name_decimal(int(width), int(scale))
