"""Athena through PyAthena: each statement is one query execution, billed by the bytes that it scans."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from logging import CRITICAL, getLogger
from typing import TYPE_CHECKING, Any

from dpsql.dialects import quote_text
from dpsql.dialects.warehouses import ATHENA
from dpsql.engines.base import Registered, Statement
from dpsql.engines.trino import find_table
from dpsql.engines.warehouse import (
    CatalogWarehouse,
    Sources,
    build_table,
    import_driver,
    list_rows,
    list_texts,
    open_tables,
    parse_address,
    put_in_order,
    refuse_files,
    refuse_options,
    unreachable,
)
from dpsql.errors import EngineError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AthenaEngine"]

_DRIVER = "pyathena"
_OPTIONS = frozenset(["endpoint_url", "poll_interval"])
_ANSWERS = frozenset(["work_group", "s3_staging_dir"])
_VARIABLES = ("AWS_ATHENA_WORK_GROUP", "AWS_ATHENA_S3_STAGING_DIR")  # which PyAthena reads


class AthenaEngine(CatalogWarehouse):
    """Engine on a database of Athena; the tables stay in S3."""

    of = ATHENA

    @classmethod
    def open(
        cls, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None = None
    ) -> AthenaEngine:
        """Open "athena://region/catalog/database?work_group=...&s3_staging_dir=s3://...&profile_name=...".

        Credentials are those of boto3: its environment variables, profiles and roles. `options` are `endpoint_url` and
        `poll_interval`, in seconds. Raises `EngineError` where Athena cannot be used, or has not a table; `UsageError`
        without the driver, or with another option.
        """
        refuse_files(sources)
        pyathena = import_driver(_DRIVER, engine="Athena", extra="athena")
        getLogger(_DRIVER).setLevel(CRITICAL + 1)  # it logs the errors of Athena, which may hold values
        hint = f"The options are {', '.join(sorted(_OPTIONS))}."
        refuse_options(options, known=_OPTIONS.__contains__, hint=hint)
        known = ("work_group", "s3_staging_dir", "profile_name")
        address = parse_address(url, parts=("region", "catalog", "database"), known=known)
        if not _ANSWERS.intersection(address.settings) and not any(map(os.environ.get, _VARIABLES)):
            hint = "Add ?work_group=NAME or ?s3_staging_dir=s3://BUCKET/FOLDER/ to it."
            reason = "The address of the data does not say where Athena puts its answers."
            raise EngineError("engine-unreachable", reason, hint=hint, place="source.url")
        endpoint = {name: options[name] for name in ("endpoint_url",) if name in options}
        connect = partial(
            pyathena.connect,
            region_name=address.host,
            catalog_name=address.path[0],
            schema_name=address.path[1],
            converter=_create_converter(),
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

    def found(self, name: str) -> Registered:
        """Return the table "name" or "database.name" of the catalog; names are lower-case."""
        return find_table(name, engine="Athena", place=self._place, fetch=self._list_rows)

    def _list_rows(self, statement: Statement) -> list[Any]:
        """Return the rows of a statement of the catalog, the first one that shows whether the credentials are right."""
        try:
            return list_rows(self.fetch(statement))
        except Exception:  # noqa: BLE001 - its words may hold the address
            raise unreachable("Athena", client="aws athena") from None


def _create_converter() -> object:
    """Return a converter of PyAthena's that leaves values as texts, since Python's types do not reach as far."""
    made = import_driver("pyathena.converter", engine="Athena", extra="athena").DefaultTypeConverter()
    for type_ in [*made.mappings]:
        made.set(type_, _keep)
    return made


def _keep(value: str | None) -> str | None:
    """Return the text of a value as Athena writes it."""
    return value
