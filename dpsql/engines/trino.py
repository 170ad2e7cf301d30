"""Trino through its own client: each statement is one query of the cluster, with settings of the session sent along.

The tables are those of a catalog that this user may read, their types by DuckDB's names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from dpsql.dialects.warehouses import TRINO
from dpsql.engines.base import Registered, Statement
from dpsql.engines.warehouse import (
    Address,
    CatalogWarehouse,
    Sources,
    build_table,
    choose_table,
    import_driver,
    list_rows,
    list_texts,
    name_decimal,
    parse_address,
    put_in_order,
    refuse_files,
    refuse_options,
    unreachable,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TrinoEngine", "find_table"]

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


def find_table(
    name: str, *, engine: str, place: Sequence[str], fetch: Callable[[Statement], list[Sequence[Any]]]
) -> Registered:
    """Return the table "name" or "schema.name"; names are lower-case. `place` is the catalog and the schema.

    `fetch` runs a statement and returns its rows. Raises `table_missing`.
    """
    schema, _, table = name.lower().rpartition(".")
    wanted = (schema or place[1].lower(), table)
    rows = fetch(Statement(_COLUMNS, wanted, ("VARCHAR",) * 4))
    found = (((place[0], str(row[0]), str(row[1])), str(row[2]), _name_type(str(row[3]))) for row in rows)
    return choose_table(name, found, engine=engine, wanted=wanted)


def _name_type(name: str) -> str:
    """Return DuckDB's name of a type, or Trino's for one that dpsql does not compute with."""
    if found := _DECIMAL.fullmatch(name):
        return name_decimal(int(found[1]), int(found[2]))
    plain = name.partition("(")[0]
    if plain == "varchar":
        return "VARCHAR"
    if plain == "timestamp" and not name.endswith("zone"):
        return "TIMESTAMP"
    return _TYPES.get(name, name)


_DRIVER = "trino.dbapi"
_OURS = frozenset(["query_max_run_time"])
_GRACE = 2.0  # seconds after its time limit until Trino itself stops a query, in case this process died


class TrinoEngine(CatalogWarehouse):
    """Engine on a catalog of Trino; the tables stay there."""

    of = TRINO

    @classmethod
    def open(
        cls, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None = None
    ) -> TrinoEngine:
        """Open "trino://user:password@host:port/catalog/schema?scheme=https&token=...".

        `options` are properties of the session. With a password or a token, the scheme is https. Raises `EngineError`
        where the cluster cannot be reached, or has not a table; `UsageError` without the driver, or with a property
        that dpsql sets itself.
        """
        refuse_files(sources)
        dbapi = import_driver(_DRIVER, engine="Trino", extra="trino")
        refuse_options(options, known=lambda name: name not in _OURS, hint="Name a property of the session.")
        address = parse_address(url, parts=("host", "catalog", "schema"), known=("scheme", "token", "verify"))
        limit = {} if time_limit is None else {"query_max_run_time": f"{max(1, round(time_limit + _GRACE))}s"}
        is_secret = address.password is not None or "token" in address.settings
        scheme = address.settings.get("scheme", "https" if is_secret else "http")
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
            auth=_authenticate(address),
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

    def found(self, name: str) -> Registered:
        """Return the table "name" or "schema.name" of the catalog; names are lower-case."""
        return find_table(name, engine="Trino", place=self._place, fetch=self._list_rows)

    def _list_rows(self, statement: Statement) -> list[Any]:
        with suppress(Exception):
            return list_rows(self.fetch(statement))
        return []


def _authenticate(address: Address) -> object:
    auth = import_driver("trino.auth", engine="Trino", extra="trino")
    if "token" in address.settings:
        return auth.JWTAuthentication(address.settings["token"])
    return None if address.password is None else auth.BasicAuthentication(address.user, address.password)
