"""Materialized tables of Spark: Parquet in a folder of the warehouse, which every machine of the cluster reaches.

Each build has folders of its own, and a row in the state then names them: a session finds one build or another, and
reads it to its end. Builds of which a later one took the place a day ago are emptied.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from dpsql.engines.spark.engine import STATE, find_folder
from dpsql.engines.spark.session import quiet
from dpsql.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dpsql.engines.spark.engine import SparkEngine

__all__ = ["SparkWriter", "open_writer"]

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
