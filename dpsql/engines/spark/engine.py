"""Spark, in a session of its own or beside one of the user: only the few rows of the answer leave the cluster.

The answer of a statement is a function of the rows alone: it stays the same under other partitions, repeated tasks and
lost machines.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.dialects.spark import SPARK
from dpsql.engines.base import CsvFile, ListedTable, Registered, RemoteFiles, Statement
from dpsql.engines.lakes.folder import Folder
from dpsql.engines.remote import RemoteEngine
from dpsql.engines.spark.catalog import describe_view, list_tables, tables
from dpsql.engines.spark.session import beside, quiet, started, stopped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["STATE", "SparkEngine", "find_folder", "read_states"]

STATE = "dpsql_state"


def find_folder(session: SparkSession, schema: str) -> str:
    """Return the folder of a schema in the warehouse of a session."""
    warehouse = session.conf.get("spark.sql.warehouse.dir") or "spark-warehouse"
    return f"{warehouse.rstrip('/')}/{schema}"


def read_states(session: SparkSession, schema: str) -> Mapping[str, tuple[str, int]]:
    """Return the last description of each table of the policy and its time in nanoseconds; none without a folder."""
    found: dict[str, tuple[str, int]] = {}
    with suppress(Exception), quiet():
        for row in session.read.parquet(f"{find_folder(session, schema)}/{STATE}").collect():
            if found.get(row["name"], ("", -1))[1] < row["at"]:
                found[row["name"]] = row["description"], row["at"]
    return found


_POOLS = itertools.count(1)  # of Spark's scheduler, which shares the executors among them


class SparkEngine(RemoteEngine):
    """Engine on a Spark session; the tables stay there."""

    def __init__(
        self, session: SparkSession, known: Mapping[str, Registered], *, owned: bool, time_limit: float | None
    ) -> None:
        super().__init__(SPARK, known, time_limit=time_limit, sealed=owned)
        self._session = session
        self._owned = owned
        self._pool = f"dpsql-{next(_POOLS)}"
        self.descriptions: Mapping[str, str] = {}

    @property
    def session(self) -> SparkSession:
        """The session, for a curator's writer."""
        return self._session

    def read_role(self) -> str:
        """Return "": Spark itself has no roles."""
        return ""

    def open_schema(self, schema: str) -> Mapping[str, str]:
        """Read the descriptions of what is materialized in a folder of the warehouse; none if it is not there."""
        self.descriptions = {name: text for name, (text, _) in read_states(self._session, schema).items()}
        return self.descriptions

    def register(self, schema: str, tables: Mapping[str, str]) -> None:
        """Make views of tables in the folder, each by its name there and the name to be known by."""
        folder = find_folder(self._session, schema)
        for table, name in tables.items():
            with suppress(Exception), quiet():
                view = f"dpsqlstored_{table}"
                self._session.read.parquet(f"{folder}/{table}").createOrReplaceTempView(view)
                self._tables[name] = describe_view(self._session, view)

    @classmethod
    def open(
        cls,
        url: str,
        sources: Mapping[str, Path | CsvFile | Folder | RemoteFiles | None],
        *,
        options: Mapping[str, str],
        time_limit: float | None = None,
    ) -> SparkEngine:
        """Start a session: "sc://host" is Spark Connect, and "spark:" is followed by the name of a master.

        Raises `EngineError` if Spark or a table is missing, `UsageError` for a missing package, and `PolicyError` for
        settings and sources that are not allowed.
        """
        session = started(url, options)
        try:
            return cls(session, tables(session, sources), owned=True, time_limit=time_limit)
        except BaseException:
            stopped(session)
            raise

    @classmethod
    def borrow(
        cls,
        session: SparkSession,
        sources: Mapping[str, Path | CsvFile | Folder | RemoteFiles | None],
        *,
        time_limit: float | None = None,
    ) -> SparkEngine:
        """Ask beside the session that the user has, which stays as it is. Raises `EngineError` and `PolicyError`."""
        own = beside(session)
        return cls(own, tables(own, sources, lent=session), owned=False, time_limit=time_limit)

    def fetch(self, statement: Statement) -> pa.Table:
        """Send one SELECT and return its answer."""
        named = {f"p{at}": value for at, value in enumerate(statement.parameters, start=1)}
        with quiet():
            if hasattr(self._session, "_jsparkSession"):  # else this session's tasks would wait for those of another
                self._session.sparkContext.setLocalProperty("spark.scheduler.pool", self._pool)
            return self._session.sql(statement.sql, args=named).toArrow()

    def found(self, name: str) -> Registered:
        """Return a table by its name in the policy."""
        return tables(self._session, {name: None})[name]

    def list_tables(self) -> Iterable[ListedTable]:
        """Return the tables and views of all databases of the current catalog."""
        return list_tables(self._session)

    def cancel(self) -> None:
        """Stop the running statement of this session, and of no other."""
        with quiet():
            self._session.interruptAll()

    def disconnect(self) -> None:
        """Let go of the session, and of Spark if dpsql started it."""
        with quiet():
            if self._owned:
                stopped(self._session)
