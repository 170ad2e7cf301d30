"""Databricks SQL through its own connector: one session on a SQL warehouse, which hands over the answer in Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from dpsql.dialects.spark import DATABRICKS
from dpsql.engines.base import Statement
from dpsql.engines.warehouse import (
    CatalogWarehouse,
    Sources,
    list_texts,
    load_driver,
    open_tables,
    parse_address,
)
from dpsql.errors import EngineError

if TYPE_CHECKING:
    import pyarrow as pa

_SETTINGS = {  # of the session, as far as a SQL warehouse has them
    "ANSI_MODE": "false",
    "TIMEZONE": "UTC",
    "LEGACY_TIME_PARSER_POLICY": "CORRECTED",
    "USE_CACHED_RESULT": "false",  # the time of an answer would say whether rows have changed
}
_GRACE = 2.0  # seconds after its time limit until Databricks itself stops a statement, in case this process died
_COLUMNS = (
    "SELECT table_schema, table_name, column_name, full_data_type FROM information_schema.columns "
    "WHERE table_schema = :p1 AND table_name = :p2 ORDER BY ordinal_position"
)
_TYPES = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    **dict.fromkeys(["string", "string collate UTF8_BINARY"], "VARCHAR"),  # another collation is another type
    "date": "DATE",
    "timestamp": "TIMESTAMP",  # of UTC, as the session is
    "timestamp_ntz": "TIMESTAMP",
    "binary": "BLOB",
}


class DatabricksEngine(CatalogWarehouse):
    """Engine on a catalog of Unity Catalog; the tables stay there."""

    of = DATABRICKS
    engine = "Databricks"
    columns_sql = _COLUMNS

    @classmethod
    def open(
        cls, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None = None
    ) -> DatabricksEngine:
        """Open "databricks://token:TOKEN@host/catalog/schema?http_path=/sql/1.0/warehouses/...".

        Without a token, `options` name another way to log in: `auth_type` and `oauth_client_id` of the connector, or a
        `tls_trusted_ca_file`.
        Raises `EngineError` where the warehouse cannot be reached, or has not a table; `UsageError` without the
        connector, or with another option.
        """
        known = frozenset(["auth_type", "oauth_client_id", "tls_trusted_ca_file"])
        sql = load_driver("databricks.sql", sources, options=options, of=("Databricks", "databricks"), known=known)
        needed = {"http_path": "/sql/1.0/warehouses/ID"}
        address = parse_address(url, parts=("host", "catalog", "schema"), known=(), needed=needed)
        limit = {} if time_limit is None else {"STATEMENT_TIMEOUT": f"{max(1, round(time_limit + _GRACE)):d}"}
        named = {f"_{name}" if name.startswith("tls_") else name: value for name, value in options.items()}
        connect = partial(
            sql.connect,
            server_hostname=address.host,
            _port=address.port or 443,
            http_path=address.settings["http_path"],
            access_token=address.password,
            catalog=address.path[0],
            schema=address.path[1],
            session_configuration={**_SETTINGS, **limit},
            use_cloud_fetch=False,  # whatever is handed over comes from the host of the address
            enable_telemetry=False,
            user_agent_entry="dpsql",
            **named,
        )
        if address.password is None and not {"auth_type", "oauth_client_id"} & options.keys():
            hint = "Write databricks://token:TOKEN@HOST/..., or set auth_type in [source.options]."
            raise EngineError("engine-unreachable", "The address has no token.", hint=hint, place="source.url")
        warehouse = partial(cls, address.path, {}, connect=connect, time_limit=time_limit)
        return open_tables(warehouse, sources, engine="Databricks", client="the Databricks SQL CLI")

    def answer(self, cursor: Any, statement: Statement) -> pa.Table:  # noqa: ANN401 - of a driver without types
        """Run one SELECT, and return its answer."""
        values = {f"p{at}": value for at, value in enumerate(list_texts(statement.parameters), 1)}
        cursor.execute(statement.sql, values or None)
        return cursor.fetchall_arrow()

    def lives(self) -> bool:
        """Return whether the session still answers: one that was idle for long may have ended."""
        return self.answers()

    def name_type(self, name: str) -> str:
        """Return DuckDB's name of a type, or Databricks' for one that dpsql does not compute with."""
        return name.upper() if name.startswith("decimal(") else _TYPES.get(name, name)
