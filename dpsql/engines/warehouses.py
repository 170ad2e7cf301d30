"""Warehouses behind a driver: Snowflake, Redshift, Databricks, Trino and Athena, each by what it has otherwise.

The tables stay there, and only the answer crosses the connection. Snowflake, Redshift and Databricks have a session
whose settings are made when it opens. With Trino each statement is one query of the cluster, with settings sent along;
with Athena, which runs Trino's SQL, one query execution, billed by the bytes that it scans. No results are taken from a
cache: the time of an answer would say whether rows have changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from logging import CRITICAL, getLogger
from typing import TYPE_CHECKING, Any

from dpsql.dialects import quote_text
from dpsql.dialects.spark import DATABRICKS
from dpsql.dialects.warehouses import ATHENA, REDSHIFT, SNOWFLAKE, TRINO
from dpsql.engines.base import Statement
from dpsql.engines.remote import count_limit
from dpsql.engines.sources import ListedTable
from dpsql.engines.warehouse import (
    Address,
    Product,
    Warehouse,
    build_table,
    list_rows,
    list_texts,
    name_decimal,
    open_session,
    put_in_order,
)
from dpsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

_SNOWFLAKE_OPTION = "adbc.snowflake.sql."
_SNOWFLAKE_CLIENT = {"use_high_precision": "true", "max_timestamp_precision": "microseconds"}
_SNOWFLAKE_OURS = frozenset(
    _SNOWFLAKE_OPTION + name
    for name in ("account", "db", "schema", "client_option.tracing", *(f"client_option.{o}" for o in _SNOWFLAKE_CLIENT))
)
_SNOWFLAKE_SETTINGS = {  # parameters of the session; one that is set for the account or the user is overridden
    "TIMEZONE": "'UTC'",
    "WEEK_START": "1",
    "ROWS_PER_RESULTSET": "0",
    "QUOTED_IDENTIFIERS_IGNORE_CASE": "FALSE",
    "USE_CACHED_RESULT": "FALSE",
    "ABORT_DETACHED_QUERY": "TRUE",
}
_SNOWFLAKE_TABLES = """
SELECT table_schema, table_name FROM information_schema.tables WHERE UPPER(table_schema) = UPPER(:1)
ORDER BY table_schema, table_name
""".strip()
_SNOWFLAKE_TYPES = {
    "TEXT": "VARCHAR",
    "FLOAT": "DOUBLE",
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "TIMESTAMP_NTZ": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP",  # of UTC, as the session is
    "BINARY": "BLOB",
}


class SnowflakeEngine(Warehouse):
    """Engine on a database of Snowflake, over ADBC.

    Its address is "snowflake://user:password@account/database/schema?warehouse=...&role=...". `options` are those of
    the ADBC driver, "adbc.snowflake.sql.auth_type" and the like.
    """

    product = Product(
        "Snowflake",
        "snowflake",
        "adbc_driver_snowflake.dbapi",
        "SnowSQL",
        parts=("account", "database", "schema"),
        settings=("warehouse", "role"),
        options=lambda name: name.startswith(_SNOWFLAKE_OPTION) and name not in _SNOWFLAKE_OURS,
        hint=f"Name an option of the driver, such as {_SNOWFLAKE_OPTION}auth_type; "
        "the address has account, database and schema.",
    )
    of = SNOWFLAKE
    folds_names = False  # a table is found by its spelling or, where that is clear, in any case
    columns_sql = """
SELECT table_schema, table_name, column_name, data_type, numeric_precision, numeric_scale
FROM information_schema.columns WHERE UPPER(table_schema) = UPPER(:1) AND UPPER(table_name) = UPPER(:2)
ORDER BY table_schema, table_name, ordinal_position
""".strip()

    @classmethod
    def connector(
        cls,
        driver: Any,  # noqa: ANN401 - a module of another package
        address: Address,
        *,
        options: Mapping[str, str],
        time_limit: float | None,
    ) -> Callable[[], Any]:
        """Return what opens a session, and sets its parameters."""
        named = {"account": address.host, "db": address.path[0], "schema": address.path[1], **address.settings}
        named |= {f"client_option.{name}": value for name, value in _SNOWFLAKE_CLIENT.items()}
        login = {"username": address.user, "password": address.password}
        wanted = {
            **{name: value for name, value in login.items() if value is not None},
            **{_SNOWFLAKE_OPTION + name: value for name, value in named.items()},
            **options,
        }
        settings = {**_SNOWFLAKE_SETTINGS, "STATEMENT_TIMEOUT_IN_SECONDS": f"{count_limit(time_limit) or 0:d}"}
        statements = [f"ALTER SESSION SET {name} = {value}" for name, value in settings.items()]
        connect = partial(driver.connect, None, wanted, autocommit=True)
        return partial(open_session, connect, statements, finish=lambda cursor: cursor.fetch_arrow_table())

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

    def list_tables(self) -> Iterable[ListedTable]:
        """Return the tables and views of the schema of the address, or of those with that name in another case."""
        listed = self.read_catalog(Statement(_SNOWFLAKE_TABLES, (self.default_schema,)))
        exact = [table for schema, table in listed if schema == self.default_schema]
        return [ListedTable(str(name)) for name in exact or sorted({table for _, table in listed})]

    def read_catalog(self, statement: Statement) -> list[tuple[Any, ...]]:
        """Return the rows of a statement of the catalog, the first one that a warehouse runs."""
        with suppress(Exception):
            return list_rows(self.fetch(statement))
        hint = "Check the database in the address, and name a warehouse that the role may use behind the schema: "
        hint += "?warehouse=NAME&role=NAME"
        reason = "Snowflake takes the login, but does not read its catalog for this user."
        raise EngineError("engine-unreachable", reason, hint=hint, place="source.url")

    def name_type(self, name: str, *digits: int | None) -> str:
        """Return DuckDB's name of a type."""
        width, scale = digits
        if name != "NUMBER" or width is None or scale is None:
            return _SNOWFLAKE_TYPES.get(name, name)
        # Snowflake stores every whole number, INTEGER too, as NUMBER(38, 0).
        return name_decimal(int(width), int(scale)) if scale else "BIGINT"


_REDSHIFT_SETTINGS = {"timezone": "'UTC'", "datestyle": "'ISO, YMD'"}
_REDSHIFT_TRIED = {"enable_result_cache_for_session": "off", "enable_case_sensitive_identifier": "true"}
_REDSHIFT_TABLES = (
    "SELECT CAST(table_schema AS VARCHAR) AS s, CAST(table_name AS VARCHAR) AS t FROM information_schema.tables "
    "ORDER BY 1, 2"
)
_REDSHIFT_TYPES = {
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


class RedshiftEngine(Warehouse):
    """Engine on a database of Redshift, over ADBC by the protocol of PostgreSQL.

    Its address is "redshift://user:password@host:5439/database?sslmode=verify-full", with the parameters of libpq.
    """

    product = Product(
        "Redshift",
        "redshift",
        "adbc_driver_postgresql.dbapi",
        "psql",
        options=frozenset(["query_group", "wlm_query_slot_count"]),
    )
    of = REDSHIFT
    default_schema = "public"
    folds_names = False
    columns_sql = """
SELECT CAST(table_schema AS VARCHAR) AS s, CAST(table_name AS VARCHAR) AS t, CAST(column_name AS VARCHAR) AS c,
    CAST(data_type AS VARCHAR) AS d, numeric_precision AS p, numeric_scale AS n
FROM information_schema.columns WHERE table_schema = CAST($1 AS VARCHAR) AND table_name = CAST($2 AS VARCHAR)
ORDER BY ordinal_position
""".strip()

    @classmethod
    def parse_address(cls, url: str) -> Address:
        """Return the address as the host: libpq reads it. A name of a table has no catalog."""
        return Address("postgresql" + url.removeprefix("redshift"), None, ())

    @classmethod
    def connector(
        cls,
        driver: Any,  # noqa: ANN401 - a module of another package
        address: Address,
        *,
        options: Mapping[str, str],
        time_limit: float | None,
    ) -> Callable[[], Any]:
        """Return what opens a session, and sets what every release has, then what another may not have."""
        limit = f"{count_limit(time_limit, per_second=1_000) or 0:d}"
        set_, tried = (
            [f"SET {name} TO {value}" for name, value in settings.items()]
            for settings in (
                {**_REDSHIFT_SETTINGS, "statement_timeout": limit},
                {**_REDSHIFT_TRIED, **{name: quote_text(text) for name, text in options.items()}},
            )
        )
        return partial(open_session, partial(driver.connect, address.host, autocommit=True), set_, tried=tried)

    def answer(self, cursor: Any, statement: Statement) -> pa.Table:  # noqa: ANN401 - of a driver without types
        """Run one SELECT, and return its answer."""
        cursor.execute(statement.sql, tuple(list_texts(statement.parameters)) or None)
        return cursor.fetch_arrow_table()

    def stop(self, cursor: Any) -> None:  # noqa: ANN401 - of a driver without types
        """Ask Redshift to stop a statement."""
        cursor.adbc_cancel()

    def list_tables(self) -> Iterable[ListedTable]:
        """Return the tables and views of all schemas but the system's, those of public without it."""
        for schema, table in list_rows(self.fetch(Statement(_REDSHIFT_TABLES))):
            if schema != "information_schema" and not schema.startswith("pg_"):
                yield ListedTable(table if schema == self.default_schema else f"{schema}.{table}")

    def name_type(self, name: str, *digits: int | None) -> str:
        """Return DuckDB's name of a type."""
        width, scale = digits
        if name == "numeric" and width is not None:
            return name_decimal(width, scale or 0)
        return _REDSHIFT_TYPES.get(name, name)


_DATABRICKS_SETTINGS = {  # of the session, as far as a SQL warehouse has them
    "ANSI_MODE": "false",
    "TIMEZONE": "UTC",
    "LEGACY_TIME_PARSER_POLICY": "CORRECTED",
    "USE_CACHED_RESULT": "false",
}
_DATABRICKS_TYPES = {
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


class DatabricksEngine(Warehouse):
    """Engine on a catalog of Unity Catalog, by Databricks' own connector: a session on a SQL warehouse.

    Its address is "databricks://token:TOKEN@host/catalog/schema?http_path=/sql/1.0/warehouses/...". Without a token,
    `options` name another way to log in: `auth_type` and `oauth_client_id` of the connector, or `tls_trusted_ca_file`.
    """

    product = Product(
        "Databricks",
        "databricks",
        "databricks.sql",
        "the Databricks SQL CLI",
        parts=("host", "catalog", "schema"),
        needed={"http_path": "/sql/1.0/warehouses/ID"},
        options=frozenset(["auth_type", "oauth_client_id", "tls_trusted_ca_file"]),
    )
    of = DATABRICKS
    columns_sql = (
        "SELECT table_schema, table_name, column_name, full_data_type FROM information_schema.columns "
        "WHERE table_schema = :p1 AND table_name = :p2 ORDER BY ordinal_position"
    )

    @classmethod
    def connector(
        cls,
        driver: Any,  # noqa: ANN401 - a module of another package
        address: Address,
        *,
        options: Mapping[str, str],
        time_limit: float | None,
    ) -> Callable[[], Any]:
        """Return what opens a session. Raises `EngineError` for an address without a token."""
        if address.password is None and not {"auth_type", "oauth_client_id"} & options.keys():
            hint = "Write databricks://token:TOKEN@HOST/..., or set auth_type in [source.options]."
            raise EngineError("engine-unreachable", "The address has no token.", hint=hint, place="source.url")
        limit = count_limit(time_limit)
        return partial(
            driver.connect,
            server_hostname=address.host,
            _port=address.port or 443,
            http_path=address.settings["http_path"],
            access_token=address.password,
            catalog=address.path[0],
            schema=address.path[1],
            session_configuration={
                **_DATABRICKS_SETTINGS,
                **({} if limit is None else {"STATEMENT_TIMEOUT": f"{limit:d}"}),
            },
            use_cloud_fetch=False,  # whatever is handed over comes from the host of the address
            enable_telemetry=False,
            user_agent_entry="dpsql",
            # The connector has an underscore before the names of its arguments for TLS.
            **{f"_{name}" if name.startswith("tls_") else name: value for name, value in options.items()},
        )

    def answer(self, cursor: Any, statement: Statement) -> pa.Table:  # noqa: ANN401 - of a driver without types
        """Run one SELECT, and return its answer."""
        values = {f"p{at}": value for at, value in enumerate(list_texts(statement.parameters), 1)}
        cursor.execute(statement.sql, values or None)
        return cursor.fetchall_arrow()

    def name_type(self, name: str, *_: int | None) -> str:
        """Return DuckDB's name of a type."""
        return name.upper() if name.startswith("decimal(") else _DATABRICKS_TYPES.get(name, name)


_TRINO_TYPES = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "real": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "varbinary": "BLOB",
    "uuid": "UUID",
}
_TRINO_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


class TrinoEngine(Warehouse):
    """Engine on a catalog of Trino, by its own client.

    Its address is "trino://user:password@host:port/catalog/schema?scheme=https&token=..."; with a password or a token,
    the scheme is https. `options` are properties of the session.
    """

    product = Product(
        "Trino",
        "trino",
        "trino.dbapi",
        "the Trino CLI",
        parts=("host", "catalog", "schema"),
        settings=("scheme", "token", "verify"),
        # Any property but the time limit, which dpsql sets.
        options="query_max_run_time".__ne__,
        hint="Name a property of the session.",
    )
    of = TRINO
    columns_sql = (
        "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = ?/*1*/ AND table_name = ?/*2*/ ORDER BY ordinal_position"
    )

    @classmethod
    def connector(
        cls,
        driver: Any,  # noqa: ANN401 - a module of another package
        address: Address,
        *,
        options: Mapping[str, str],
        time_limit: float | None,
    ) -> Callable[[], Any]:
        """Return what makes a client. Raises `EngineError` for a password that would be sent without https."""
        limit = count_limit(time_limit)
        is_secret = address.password is not None or "token" in address.settings
        scheme = address.settings.get("scheme", "https" if is_secret else "http")
        if is_secret and scheme != "https":
            raise cls.product.unreachable(" over http with a password")
        auth = cls.product.import_part("trino.auth")
        login = None
        if "token" in address.settings:
            login = auth.JWTAuthentication(address.settings["token"])
        elif address.password is not None:
            login = auth.BasicAuthentication(address.user, address.password)
        return partial(
            driver.connect,
            host=address.host,
            port=address.port or (443 if scheme == "https" else 8080),
            user=address.user or "dpsql",
            catalog=address.path[0],
            schema=address.path[1],
            source="dpsql",
            http_scheme=scheme,
            verify=address.settings.get("verify", True),
            auth=login,
            session_properties={**options, **({} if limit is None else {"query_max_run_time": f"{limit}s"})},
            timezone="UTC",
            legacy_primitive_types=True,  # texts, since Python's own types do not reach as far
        )

    def try_connection(self) -> None:
        """Run a statement: the client itself contacts nobody."""
        self.fetch(Statement("SELECT 1"))

    def lives(self) -> bool:
        """Return True: there is no session that could end."""
        return True

    def answer(self, cursor: Any, statement: Statement) -> pa.Table:  # noqa: ANN401 - of a driver without types
        """Run one SELECT, and return its answer."""
        sql, values = put_in_order(statement.sql, list_texts(statement.parameters, of_java=True))
        cursor.execute(sql, values or None)
        rows = cursor.fetchall()
        return build_table(rows, statement.types, width=len(cursor.description))

    def name_type(self, name: str, *_: int | None) -> str:
        """Return DuckDB's name of a type."""
        if found := _TRINO_DECIMAL.fullmatch(name):
            return name_decimal(int(found[1]), int(found[2]))
        plain = name.partition("(")[0]
        if plain == "varchar":
            return "VARCHAR"
        if plain == "timestamp" and not name.endswith("zone"):
            return "TIMESTAMP"
        return _TRINO_TYPES.get(name, name)


_ATHENA_PLACES = ("work_group", "s3_staging_dir")  # that say where Athena puts its answers
_ATHENA_VARIABLES = ("AWS_ATHENA_WORK_GROUP", "AWS_ATHENA_S3_STAGING_DIR")  # which PyAthena reads in their place


def _read_seconds(text: str) -> float:
    """Return the seconds between two questions whether a statement has ended."""
    if not re.fullmatch(r"\d{1,4}(\.\d{1,9})?", text, re.ASCII) or not float(text):
        hint, place = 'Such as poll_interval = "0.5".', "source.options.poll_interval"
        raise UsageError("source-option", "poll_interval is a number of seconds above 0.", hint=hint, place=place)
    return float(text)


class AthenaEngine(TrinoEngine):
    """Engine on a database of Athena, by PyAthena.

    Its address is "athena://region/catalog/database?work_group=...&s3_staging_dir=s3://...&profile_name=...".
    Credentials are those of boto3: its environment variables, profiles and roles. `poll_interval` is in seconds.
    """

    product = Product(
        "Athena",
        "athena",
        "pyathena",
        "aws athena",
        parts=("region", "catalog", "database"),
        settings=(*_ATHENA_PLACES, "profile_name"),
        options=frozenset(["endpoint_url", "poll_interval"]),
    )
    of = ATHENA

    @classmethod
    def connector(
        cls,
        driver: Any,  # noqa: ANN401 - a module of another package
        address: Address,
        *,
        options: Mapping[str, str],
        time_limit: float | None,  # noqa: ARG003 - Athena has a limit of its own for a work group
    ) -> Callable[[], Any]:
        """Return what makes a client. Raises `EngineError` where nothing says where Athena puts its answers."""
        getLogger("pyathena").setLevel(CRITICAL + 1)  # it logs the errors of Athena, which may hold values
        if not address.settings.keys() & {*_ATHENA_PLACES} and not any(map(os.environ.get, _ATHENA_VARIABLES)):
            hint = "Add ?work_group=NAME or ?s3_staging_dir=s3://BUCKET/FOLDER/ to it."
            reason = "The address of the data does not say where Athena puts its answers."
            raise EngineError("engine-unreachable", reason, hint=hint, place="source.url")
        # Values stay texts as Athena writes them, since Python's types do not reach as far.
        converter = cls.product.import_part("pyathena.converter").DefaultTypeConverter()
        for type_ in [*converter.mappings]:
            converter.set(type_, lambda value: value)
        return partial(
            driver.connect,
            region_name=address.host,
            catalog_name=address.path[0],
            schema_name=address.path[1],
            converter=converter,
            poll_interval=_read_seconds(options.get("poll_interval", "0.5")),
            **{name: options[name] for name in ("endpoint_url",) if name in options},
            **address.settings,
        )

    def try_connection(self) -> None:
        """Make the client alone: the first statement of the catalog shows whether the credentials are right."""
        self.open_connection()

    def answer(self, cursor: Any, statement: Statement) -> pa.Table:  # noqa: ANN401 - of a driver without types
        """Run one SELECT, and return its answer."""
        sql, values = put_in_order(statement.sql, list_texts(statement.parameters, of_java=True))
        # A parameter of Athena is the text of an expression: 'DE' with its quotes.
        literals = ["NULL" if value is None else quote_text(value) for value in values]
        cursor.execute(sql, literals or None, paramstyle="qmark", result_reuse_enable=False)
        rows = cursor.fetchall()
        return build_table(rows, statement.types, width=len(cursor.description))

    def read_catalog(self, statement: Statement) -> list[tuple[Any, ...]]:
        """Return the rows of a statement of the catalog. Raises `EngineError` where it fails."""
        with suppress(Exception):
            return list_rows(self.fetch(statement))
        raise self.product.unreachable()
