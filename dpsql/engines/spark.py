"""Spark, by a session of its own or one that is given: what leaves the cluster are the few rows of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.dialects.spark import SPARK
from dpsql.engines.base import Column, CsvFile, Statement
from dpsql.engines.remote import Registered, RemoteEngine, table_missing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["SparkEngine"]

_TYPES = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "date": "DATE",
    "timestamp_ntz": "TIMESTAMP",
}
_TAG = "dpsql"


class SparkEngine(RemoteEngine):
    """Asks a Spark session; the tables stay where they are."""

    def __init__(
        self, session: SparkSession, tables: Mapping[str, Registered], *, owned: bool, time_limit: float | None
    ) -> None:
        super().__init__(SPARK, tables, time_limit=time_limit, sealed=owned)
        self._session = session
        self._owned = owned

    @classmethod
    def open(
        cls,
        url: str,
        sources: Mapping[str, Path | CsvFile | None],
        *,
        options: Mapping[str, str],
        time_limit: float | None = None,
    ) -> SparkEngine:
        """Start a session: "sc://host" is Spark Connect, and what stands behind "spark:" the name of a master."""
        from pyspark.sql import SparkSession

        rest = url.removeprefix("spark:")
        builder = SparkSession.builder.appName("dpsql")
        builder = (
            builder.remote(url) if url.startswith("sc:") else builder.master(url if rest.startswith("//") else rest)
        )
        for name, value in options.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        return cls(session, _tables(session, sources), owned=True, time_limit=time_limit)

    @classmethod
    def borrow(
        cls, session: SparkSession, sources: Mapping[str, Path | CsvFile | None], *, time_limit: float | None = None
    ) -> SparkEngine:
        """Use the session that the user has."""
        own = session.newSession()
        return cls(own, _tables(own, sources), owned=False, time_limit=time_limit)

    def fetch(self, statement: Statement) -> pa.Table:
        """Send one SELECT and return its answer."""
        named = {f"p{at}": value for at, value in enumerate(statement.parameters, start=1)}
        return self._session.sql(statement.sql, args=named).toArrow()

    def cancel(self) -> None:
        """Stop what runs."""
        self._session.interruptAll()

    def disconnect(self) -> None:
        """Stop the session, if it is ours."""
        if self._owned:
            self._session.stop()


def _tables(session: SparkSession, sources: Mapping[str, Path | CsvFile | None]) -> dict[str, Registered]:
    return {name: _registered(session, name, source) for name, source in sources.items()}


def _registered(session: SparkSession, name: str, source: Path | CsvFile | None) -> Registered:
    relation = tuple(name.split("."))
    if source is not None:
        relation = (f"dpsql_{name}",)
        session.read.parquet(str(source)).createOrReplaceTempView(f"`{relation[0]}`")
    found = None
    with suppress(Exception):
        quoted = ".".join("`" + part.replace("`", "``") + "`" for part in relation)
        found = session.table(quoted).schema.fields
    if found is None:
        raise table_missing(name, engine="Spark")
    kinds = ((field.name, field.dataType.simpleString()) for field in found)
    return Registered(relation, tuple(Column(column, _TYPES.get(kind, kind)) for column, kind in kinds))
