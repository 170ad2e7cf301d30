"""Spark, in a session of its own or beside one of the user: only the few rows of the answer leave the cluster.

The answer of a statement is a function of the rows alone: it stays the same under other partitions, repeated tasks and
lost machines. Materialized tables are Parquet in a folder of the warehouse, which every machine of the cluster reaches.
Each build has folders of its own, and a row in the state then names them: a session finds one build or another, and
reads it to its end. Builds of which a later one took the place a day ago are emptied.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.dialects.spark import SPARK
from dpsql.engines.base import CsvFile, ListedTable, Registered, RemoteFiles, Statement
from dpsql.engines.lakes.folder import Folder
from dpsql.engines.remote import RemoteEngine
from dpsql.engines.spark.catalog import describe_view, list_tables, tables
from dpsql.engines.spark.session import beside, quiet, started, stopped
from dpsql.errors import EngineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


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


_KEPT = 86_400  # seconds that tables stay after their successors were made, for sessions that are open
_COLUMNS = "name string, description string, tables string, at bigint"


class SparkWriter:
    """Session that writes Parquet in the folder of `schema` in the warehouse."""

    def __init__(self, session: SparkSession, schema: str) -> None:
        self._session = session
        self.schema = schema

    def is_filtered(self, relation: tuple[str, ...]) -> bool:  # noqa: ARG002 - as the writer of PostgreSQL has it
        """Return False: Spark itself has no rights to rows."""
        return False

    def create(self, table: str, rows: tuple[str, list[object]]) -> tuple[str, ...]:
        """Write the rows of a SELECT, and return the path of a view of them."""
        place, done = f"{find_folder(self._session, self.schema)}/{table}", False
        named = {f"p{at}": value for at, value in enumerate(rows[1], start=1)}
        with suppress(Exception), quiet():
            self._session.sql(rows[0], args=named).write.parquet(place)
            self._session.read.parquet(place).createOrReplaceTempView(f"dpsqlnew_{table}")
            done = True
        if not done:
            raise _failed()
        return (f"dpsqlnew_{table}",)

    def publish(self, name: str, description: str, *, tables: Iterable[str]) -> None:
        """Name the tables as those of a table of the policy, and empty old ones."""
        folder, now, done = find_folder(self._session, self.schema), time.time_ns(), False
        with suppress(Exception), quiet():
            row = [(name, description, ",".join(tables), now)]
            self._session.createDataFrame(row, _COLUMNS).coalesce(1).write.mode("append").parquet(f"{folder}/{STATE}")
            done = True
        if not done:
            raise _failed()
        self._empty(name, folder)

    def _empty(self, name: str, folder: str) -> None:
        """Empty the tables of builds that have had a successor for long enough."""
        with suppress(Exception), quiet():
            states = self._session.read.parquet(f"{folder}/{STATE}").collect()
            builds = sorted((row for row in states if row["name"] == name), key=lambda row: int(row["at"]))
            for before, after in pairwise(builds):
                if time.time_ns() - int(after["at"]) > _KEPT * 10**9:
                    for table in str(before["tables"]).split(","):
                        place = f"{folder}/{table}"
                        self._session.read.parquet(place).limit(0).write.mode("overwrite").parquet(place)


@contextmanager
def open_writer(engine: SparkEngine, schema: str, *, owned: bool) -> Iterator[SparkWriter]:
    """Write by the session of an engine, and close that if it is `owned`."""
    with closing(engine) if owned else nullcontext(engine):
        yield SparkWriter(engine.session, schema)


def _failed() -> EngineError:
    reason = "The table could not be materialized; nothing was charged."
    hint = "See Spark's log. Its machines need to write in the folder that spark.sql.warehouse.dir names."
    return EngineError("prepare-failed", reason, hint=hint, place="source.materialized")
