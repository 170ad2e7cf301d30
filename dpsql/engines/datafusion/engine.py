"""DataFusion in this process: Parquet files and folders, read by its own threads.

The data is open in this process, as that of a DuckDB without a worker is: the isolation is "in_process".
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.dialects.datafusion import DATAFUSION
from dpsql.engines.base import CsvFile, Registered, RemoteFiles, Statement
from dpsql.engines.datafusion.catalog import FolderLinks, register
from dpsql.engines.lakes.folder import Folder
from dpsql.engines.remote import RemoteEngine
from dpsql.errors import PolicyError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from datafusion import DataFrame, ScalarUDF, SessionContext

__all__ = ["PINNED", "DataFusionEngine"]

PINNED: Mapping[str, str] = {
    "datafusion.catalog.create_default_catalog_and_schema": "true",
    "datafusion.catalog.default_catalog": "datafusion",
    "datafusion.catalog.default_schema": "public",
    "datafusion.catalog.information_schema": "false",
    "datafusion.execution.collect_statistics": "false",  # the least and greatest of a file leave NaN out
    "datafusion.execution.enable_ansi_mode": "false",
    "datafusion.execution.parquet.binary_as_string": "false",
    "datafusion.execution.time_zone": "UTC",
    "datafusion.optimizer.enable_dynamic_filter_pushdown": "false",  # they skip blocks by values found in others
    "datafusion.optimizer.skip_failed_rules": "false",
    "datafusion.sql_parser.default_null_ordering": "nulls_last",
    "datafusion.sql_parser.dialect": "generic",
    "datafusion.sql_parser.enable_ident_normalization": "true",
    "datafusion.sql_parser.parse_float_as_decimal": "false",
    "datafusion.sql_parser.recursion_limit": "1000",
}
_URLS = frozenset(["datafusion:", "datafusion://"])


class DataFusionEngine(RemoteEngine):
    """Engine on a session of DataFusion, which dpsql has for itself."""

    isolation = "in_process"

    def __init__(
        self,
        context: SessionContext,
        tables: Mapping[str, Registered],
        *,
        links: FolderLinks,
        time_limit: float | None = None,
    ) -> None:
        from datafusion import SQLOptions

        super().__init__(DATAFUSION, tables, time_limit=time_limit)
        self._context = context
        self._links = links
        options = SQLOptions().with_allow_ddl(False)  # noqa: FBT003 - as it is there
        self._reading = options.with_allow_dml(False).with_allow_statements(False)  # noqa: FBT003 - as above
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[list[pa.RecordBatch]]] | None = None

    @classmethod
    def open(
        cls,
        url: str,
        sources: Mapping[str, Path | CsvFile | Folder | RemoteFiles | None],
        *,
        options: Mapping[str, str],
        time_limit: float | None = None,
    ) -> DataFusionEngine:
        """Start a session over the files of the policy, with settings of DataFusion as `options`.

        Raises `UsageError` for a missing package and for settings, `EngineError` for files that cannot be read, and
        `PolicyError` for sources that are not Parquet.
        """
        if url not in _URLS:
            hint = 'Write url = "datafusion:", and the file of each table as its source.'
            raise PolicyError("policy-source", "DataFusion has no address.", hint=hint, place="source.url")
        context, links = _start(options), FolderLinks()
        try:
            tables = {name: register(context, name, source=source, links=links) for name, source in sources.items()}
            return cls(context, tables, links=links, time_limit=time_limit)
        except BaseException:
            links.close()
            raise

    def fetch(self, statement: Statement) -> pa.Table:
        """Run one SELECT and return its answer; in an event loop, the one way to stop DataFusion from outside."""
        import pyarrow as pa

        values: dict[str, Any] = {f"p{at}": value for at, value in enumerate(statement.parameters, start=1)}
        frame = self._context.sql_with_options(statement.sql, self._reading, param_values=values or None)
        loop = asyncio.new_event_loop()
        try:
            task = loop.create_task(_collect(frame))
            self._running = loop, task
            batches = loop.run_until_complete(task)
        finally:
            self._running = None
            loop.close()
        return pa.Table.from_batches(batches, schema=batches[0].schema if batches else frame.schema())

    def cancel(self) -> None:
        """Stop the running statement: its tasks end at the next batch of rows."""
        if (running := self._running) is not None:
            loop, task = running
            loop.call_soon_threadsafe(task.cancel)

    def disconnect(self) -> None:
        """Close the session and remove its links."""
        del self._context
        self._links.close()


async def _collect(frame: DataFrame) -> list[pa.RecordBatch]:
    return [batch.to_pyarrow() async for batch in frame.execute_stream()]


def _start(options: Mapping[str, str]) -> SessionContext:
    try:
        from datafusion import SessionConfig, SessionContext
    except ImportError:
        reason, hint = "DataFusion is not installed.", "pip install 'dpsql[datafusion]'"
        raise UsageError("not-installed", reason, hint=hint) from None
    config = SessionConfig()
    for name, value in PINNED.items():
        config.set(name, value)
    context = SessionContext(config)
    context.register_udf(_read_hash())
    for name, value in options.items():
        place = f"source.options.{name}"
        if name in PINNED:
            reason, hint = f"dpsql sets {name} itself.", "Leave it out of [source] options."
            raise UsageError("source-option", reason, hint=hint, place=place)
        if not _set(context, name, value=value):
            hint = "Name a setting of DataFusion, such as datafusion.runtime.memory_limit, and a value that it takes."
            raise UsageError("source-option", "DataFusion does not take this setting.", hint=hint, place=place)
    return context


def _read_hash() -> ScalarUDF:
    """Return xxhash64, which is one of DataFusion's functions for Spark; others of these would replace its own."""
    from datafusion import SessionContext

    functions = SessionContext()
    functions.enable_spark_functions()
    return functions.udf("xxhash64")


def _set(context: SessionContext, name: str, *, value: str) -> bool:
    """Make a setting; say whether DataFusion took it."""
    if not name.replace(".", "").replace("_", "").isalnum():
        return False
    with suppress(Exception):
        context.sql(f"SET {name} = '{value.replace(chr(39), chr(39) * 2)}'").collect()
        return True
    return False
