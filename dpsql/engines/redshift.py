"""Redshift over ADBC, by the protocol of PostgreSQL: one session; only the answer crosses it, in Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from dpsql.dialects import quote_text
from dpsql.dialects.warehouses import REDSHIFT
from dpsql.engines.base import ListedTable, Registered, Statement
from dpsql.engines.warehouse import (
    ConnectedWarehouse,
    Sources,
    choose_table,
    import_driver,
    list_rows,
    list_texts,
    name_decimal,
    open_tables,
    refuse_files,
    refuse_options,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RedshiftEngine"]

_DRIVER = "adbc_driver_postgresql.dbapi"
_SETTINGS = {"timezone": "'UTC'", "datestyle": "'ISO, YMD'"}
_OF_REDSHIFT = {
    "enable_result_cache_for_session": "off",  # the time of an answer would say whether rows have changed
    "enable_case_sensitive_identifier": "true",
}
_OPTIONS = frozenset(["query_group", "wlm_query_slot_count"])
_GRACE = 2.0  # seconds after its time limit until Redshift itself stops a statement, in case this process died
_COLUMNS = """
SELECT CAST(table_schema AS VARCHAR) AS s, CAST(table_name AS VARCHAR) AS t, CAST(column_name AS VARCHAR) AS c,
    CAST(data_type AS VARCHAR) AS d, numeric_precision AS p, numeric_scale AS n
FROM information_schema.columns WHERE table_schema = CAST($1 AS VARCHAR) AND table_name = CAST($2 AS VARCHAR)
ORDER BY ordinal_position
"""
_TABLES = (
    "SELECT CAST(table_schema AS VARCHAR) AS s, CAST(table_name AS VARCHAR) AS t FROM information_schema.tables "
    "ORDER BY 1, 2"
)
_TYPES = {
    "boolean": "BOOLEAN",
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "character varying": "VARCHAR",
    "character": "VARCHAR",
    "date": "DATE",
    "timestamp without time zone": "TIMESTAMP",
}


class RedshiftEngine(ConnectedWarehouse):
    """Engine on a database of Redshift; the tables stay there."""

    default_schema = "public"

    @classmethod
    def open(
        cls, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None = None
    ) -> RedshiftEngine:
        """Open "redshift://user:password@host:5439/database?sslmode=verify-full", with the parameters of libpq.

        `options` are `query_group` and `wlm_query_slot_count`. Raises `EngineError` where the cluster cannot be
        reached, or has not a table; `UsageError` without the driver, or with another option.
        """
        refuse_files(sources)
        dbapi = import_driver(_DRIVER, engine="Redshift", extra="redshift")
        hint = f"The options are {', '.join(sorted(_OPTIONS))}."
        refuse_options(options, known=_OPTIONS.__contains__, hint=hint)
        limit = 0 if time_limit is None else max(1, round((time_limit + _GRACE) * 1_000))
        address = "postgresql" + url.removeprefix("redshift")

        def connect() -> Any:  # noqa: ANN401 - of a driver without types
            connection = dbapi.connect(address, autocommit=True)
            try:
                _set(connection, {**_SETTINGS, "statement_timeout": f"{limit:d}"})
                for name, value in {
                    **_OF_REDSHIFT,
                    **{name: quote_text(text) for name, text in options.items()},
                }.items():
                    with suppress(Exception):  # another release may not have them
                        _set(connection, {name: value})
            except BaseException:
                connection.close()
                raise
            return connection

        warehouse = partial(cls, REDSHIFT, {}, connect=connect, time_limit=time_limit)
        return open_tables(warehouse, sources, engine="Redshift", client="psql")

    def answer(self, cursor: Any, statement: Statement) -> pa.Table:  # noqa: ANN401 - of a driver without types
        """Run one SELECT, and return its answer."""
        cursor.execute(statement.sql, tuple(list_texts(statement.parameters)) or None)
        return cursor.fetch_arrow_table()

    def stop(self, cursor: Any) -> None:  # noqa: ANN401 - of a driver without types
        """Ask Redshift to stop a statement."""
        cursor.adbc_cancel()

    def lives(self) -> bool:
        """Return whether the session still answers: one that was idle for long may have ended."""
        return self.answers()

    def found(self, name: str) -> Registered:
        """Return the table "name" of the schema public, or "schema.name"."""
        schema, _, table = name.rpartition(".")
        wanted = (schema or self.default_schema, table)
        rows: list[tuple[Any, ...]] = []
        with suppress(Exception):
            rows = list_rows(self.fetch(Statement(_COLUMNS.strip(), wanted)))
        found = (
            ((str(row[0]), str(row[1])), str(row[2]), _name_type(row[3], width=row[4], scale=row[5])) for row in rows
        )
        return choose_table(name, found, engine="Redshift", wanted=wanted)

    def list_tables(self) -> Iterable[ListedTable]:
        """Return the tables and views of all schemas but the system's, those of public without it."""
        for schema, table in list_rows(self.fetch(Statement(_TABLES))):
            if schema != "information_schema" and not schema.startswith("pg_"):
                yield ListedTable(table if schema == self.default_schema else f"{schema}.{table}")


def _set(connection: Any, settings: Mapping[str, str]) -> None:  # noqa: ANN401 - as above
    with connection.cursor() as cursor:
        for name, value in settings.items():
            cursor.execute(f"SET {name} TO {value}")


def _name_type(name: str, *, width: int | None, scale: int | None) -> str:
    """Return DuckDB's name of a type, or Redshift's for one that dpsql does not compute with."""
    if name == "numeric" and width is not None:
        return name_decimal(width, scale or 0)
    return _TYPES.get(name, name)
