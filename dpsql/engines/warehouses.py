"""Trino through its own client, and Athena, which runs Trino's SQL, through PyAthena.

With Trino each statement is one query of the cluster, with settings of the session sent along; with Athena one query
execution, billed by the bytes that it scans, and the tables stay in S3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from logging import CRITICAL, getLogger
from typing import TYPE_CHECKING, Any

from dpsql.dialects import quote_text
from dpsql.dialects.warehouses import ATHENA, TRINO
from dpsql.engines.base import Statement
from dpsql.engines.warehouse import (
    CatalogWarehouse,
    Sources,
    build_table,
    import_driver,
    list_rows,
    list_texts,
    load_driver,
    name_decimal,
    open_tables,
    parse_address,
    put_in_order,
    unreachable,
)
from dpsql.errors import EngineError

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = (
    "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns "
    "WHERE table_schema = ?/*1*/ AND table_name = ?/*2*/ ORDER BY ordinal_position"
)
_TYPES = {
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
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_GRACE = 2.0  # seconds after its time limit until Trino itself stops a query, in case this process died
_ATHENA_VARIABLES = ("AWS_ATHENA_WORK_GROUP", "AWS_ATHENA_S3_STAGING_DIR")  # which PyAthena reads


class TrinoEngine(CatalogWarehouse):
    """Engine on a catalog of Trino; the tables stay there."""

    of = TRINO
    engine = "Trino"
    columns_sql = _COLUMNS

    @classmethod
    def open(
        cls, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None = None
    ) -> TrinoEngine:
        """Open "trino://user:password@host:port/catalog/schema?scheme=https&token=...".

        `options` are properties of the session. With a password or a token, the scheme is https. Raises `EngineError`
        where the cluster cannot be reached, or has not a table; `UsageError` without the driver, or with a property
        that dpsql sets itself.
        """
        hint = "Name a property of the session."
        dbapi = load_driver(
            "trino.dbapi", sources, options=options, of=("Trino", "trino"), known="query_max_run_time".__ne__, hint=hint
        )
        address = parse_address(url, parts=("host", "catalog", "schema"), known=("scheme", "token", "verify"))
        limit = {} if time_limit is None else {"query_max_run_time": f"{max(1, round(time_limit + _GRACE))}s"}
        is_secret = address.password is not None or "token" in address.settings
        scheme = address.settings.get("scheme", "https" if is_secret else "http")
        auth = import_driver("trino.auth", engine="Trino", extra="trino")
        login = None
        if "token" in address.settings:
            login = auth.JWTAuthentication(address.settings["token"])
        elif address.password is not None:
            login = auth.BasicAuthentication(address.user, address.password)
        connect = partial(
            dbapi.connect,
            host=address.host,
            port=address.port or (443 if scheme == "https" else 8080),
            user=address.user or "dpsql",
            catalog=address.path[0],
            schema=address.path[1],
            source="dpsql",
            http_scheme=scheme,
            verify=address.settings.get("verify", True),
            auth=login,
            session_properties={**options, **limit},
            timezone="UTC",
            legacy_primitive_types=True,  # texts, since Python's own types do not reach as far
        )
        if is_secret and scheme != "https":
            raise unreachable("Trino over http with a password", client="the Trino CLI")
        engine = cls(address.path, {}, connect=connect, time_limit=time_limit)
        try:
            engine.fetch(Statement("SELECT 1"))
        except Exception:  # noqa: BLE001 - its words may hold the address
            raise unreachable("Trino", client="the Trino CLI") from None
        engine._tables = engine.look_up(sources)
        return engine

    def answer(self, cursor: Any, statement: Statement) -> pa.Table:  # noqa: ANN401 - of a driver without types
        """Run one SELECT, and return its answer."""
        sql, values = put_in_order(statement.sql, list_texts(statement.parameters, of_java=True))
        cursor.execute(sql, values or None)
        rows = cursor.fetchall()
        return build_table(rows, statement.types, width=len(cursor.description))

    def name_type(self, name: str) -> str:
        """Return DuckDB's name of a type, or Trino's for one that dpsql does not compute with."""
        if found := _DECIMAL.fullmatch(name):
            return name_decimal(int(found[1]), int(found[2]))
        plain = name.partition("(")[0]
        if plain == "varchar":
            return "VARCHAR"
        if plain == "timestamp" and not name.endswith("zone"):
            return "TIMESTAMP"
        return _TYPES.get(name, name)


class AthenaEngine(TrinoEngine):
    """Engine on a database of Athena; the tables stay in S3."""

    of = ATHENA
    engine = "Athena"

    @classmethod
    def open(
        cls, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None = None
    ) -> AthenaEngine:
        """Open "athena://region/catalog/database?work_group=...&s3_staging_dir=s3://...&profile_name=...".

        Credentials are those of boto3: its environment variables, profiles and roles. `options` are `endpoint_url` and
        `poll_interval`, in seconds. Raises `EngineError` where Athena cannot be used, or has not a table; `UsageError`
        without the driver, or with another option.
        """
        known = frozenset(["endpoint_url", "poll_interval"])
        pyathena = load_driver("pyathena", sources, options=options, of=("Athena", "athena"), known=known)
        getLogger("pyathena").setLevel(CRITICAL + 1)  # it logs the errors of Athena, which may hold values
        places = ("work_group", "s3_staging_dir")
        address = parse_address(url, parts=("region", "catalog", "database"), known=(*places, "profile_name"))
        if not address.settings.keys() & {*places} and not any(map(os.environ.get, _ATHENA_VARIABLES)):
            hint = "Add ?work_group=NAME or ?s3_staging_dir=s3://BUCKET/FOLDER/ to it."
            reason = "The address of the data does not say where Athena puts its answers."
            raise EngineError("engine-unreachable", reason, hint=hint, place="source.url")
        endpoint = {name: options[name] for name in ("endpoint_url",) if name in options}
        # Values stay texts as Athena writes them, since Python's types do not reach as far.
        converter = import_driver("pyathena.converter", engine="Athena", extra="athena").DefaultTypeConverter()
        for type_ in [*converter.mappings]:
            converter.set(type_, lambda value: value)
        connect = partial(
            pyathena.connect,
            region_name=address.host,
            catalog_name=address.path[0],
            schema_name=address.path[1],
            converter=converter,
            poll_interval=float(options.get("poll_interval", "0.5")),
            **endpoint,
            **address.settings,
        )
        warehouse = partial(cls, address.path, {}, connect=connect, time_limit=time_limit)
        return open_tables(warehouse, sources, engine="Athena", client="aws athena")

    def answer(self, cursor: Any, statement: Statement) -> pa.Table:  # noqa: ANN401 - of a driver without types
        """Run one SELECT, and return its answer."""
        sql, values = put_in_order(statement.sql, list_texts(statement.parameters, of_java=True))
        literals = ["NULL" if value is None else quote_text(value) for value in values]
        cursor.execute(sql, literals or None, paramstyle="qmark", result_reuse_enable=False)
        rows = cursor.fetchall()
        return build_table(rows, statement.types, width=len(cursor.description))

    def read_catalog(self, statement: Statement) -> list[tuple[Any, ...]]:
        """Return the rows of a statement of the catalog, the first one that shows whether the credentials are right."""
        try:
            return list_rows(self.fetch(statement))
        except Exception:  # noqa: BLE001 - its words may hold the address
            raise unreachable("Athena", client="aws athena") from None
