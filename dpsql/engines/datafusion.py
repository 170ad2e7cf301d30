"""DataFusion in this process: Parquet files and folders, read by its own threads.

The data is open in this process, as that of a DuckDB without a worker is: the isolation is "in_process".

Tables of DataFusion: Parquet files and folders, their types in DuckDB's words.

Which files a folder has is settled when the engine opens: DataFusion, which would list a folder again for each
statement, is given folders of links to them.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.dialects import quote_name, quote_text
from dpsql.dialects.datafusion import DATAFUSION
from dpsql.engines.base import Statement
from dpsql.engines.remote import RemoteEngine
from dpsql.engines.sources import Column, CsvFile, DataFile, Folder, Registered, RemoteFiles
from dpsql.errors import EngineError, PolicyError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from datafusion import DataFrame, ScalarUDF, SessionContext

_TYPES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "large_string": "VARCHAR",
    "string_view": "VARCHAR",
    "binary": "BLOB",
    "binary_view": "BLOB",
    "date32[day]": "DATE",
    "timestamp[us]": "TIMESTAMP",
}
_DECIMAL = re.compile(r"decimal\d+\((\d+), (\d+)\)")
_ZONED = re.compile(r"timestamp\[\w+, tz=.*\]")
_MOST_PARTITIONS = 1_000


class FolderLinks:
    """Temporary folders of symbolic links to the files of tables; they go with the engine."""

    def __init__(self) -> None:
        self._root: Path | None = None

    def add(self, files: list[Path]) -> Path:
        """Return a new folder of links to files, in their order."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="dpsql-datafusion-"))
        folder = Path(tempfile.mkdtemp(dir=self._root))
        for at, file in enumerate(files):
            # Numbers for names, since files of several folders may have one name.
            (folder / f"{at:06}.parquet").symlink_to(file)
        return folder

    def close(self) -> None:
        """Remove the folders; closing twice is closing once."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None


def register(
    context: SessionContext, name: str, *, source: Path | CsvFile | Folder | RemoteFiles | None, links: FolderLinks
) -> Registered:
    """Return a table by its name in the policy. Raises `EngineError` and `PolicyError`."""
    place = f"table {name}"
    if source is None:
        hint = f'Write source = "{name}.parquet" for it, or the folder of its Parquet files.'
        raise EngineError("table-missing", f'DataFusion has no table "{name}".', hint=hint, place=place)
    if isinstance(source, CsvFile):
        hint = "Write it as Parquet first: dpsql reads CSV files by a grammar of its own, into DuckDB."
        raise PolicyError(
            "policy-source", "CSV files are not supported with DataFusion.", hint=hint, place=f"tables.{name}.source"
        )
    if isinstance(source, RemoteFiles):
        hint = "Leave [source] out: DuckDB reads addresses. Or copy the files to this machine."
        raise PolicyError(
            "policy-source", "DataFusion reads local files, not addresses.", hint=hint, place=f"tables.{name}.source"
        )
    if isinstance(source, Folder) and source.kind != "parquet":
        reason, hint = "Tables of Delta Lake and Iceberg are read by DuckDB.", "Leave [source] out of the policy."
        raise PolicyError("policy-source", reason, hint=hint, place=f"tables.{name}.source")
    groups = _groups(source, place=place)
    found: list[pa.Field] | None = None
    with suppress(Exception):
        found = _register(context, name, groups=groups, links=links, source=source)
    if found is None:
        hint = "Give a Parquet file, or a folder of them with the same columns."
        raise EngineError("source-unreadable", "DataFusion cannot read the source as Parquet.", hint=hint, place=place)
    # Names ignore case in the language: of two columns a and A neither can be named, and neither exists for analysts.
    times = Counter(field.name.lower() for field in found)
    columns = tuple(Column(field.name, _type(str(field.type))) for field in found if times[field.name.lower()] == 1)
    return Registered((name,), columns)


def _groups(source: Path | Folder, *, place: str) -> dict[tuple[str | None, ...], list[Path]]:
    """Return the files by the values that their folders have for all rows of them."""
    files = [DataFile(source.absolute())] if isinstance(source, Path) else source.files
    if not all(file.path.is_file() for file in files):
        hint = "Check the path; in a policy file it is relative to the policy file."
        raise EngineError("source-missing", "There is no such file.", hint=hint, place=place)
    groups: dict[tuple[str | None, ...], list[Path]] = {}
    for file in files:
        groups.setdefault(file.values, []).append(file.path)
    if len(groups) > _MOST_PARTITIONS:
        reason, hint = (
            f"The folder has more than {_MOST_PARTITIONS} partitions.",
            "Leave [source] out: DuckDB reads it.",
        )
        raise EngineError("source-files", reason, hint=hint, place=place)
    return groups


def _register(
    context: SessionContext,
    name: str,
    *,
    groups: dict[tuple[str | None, ...], list[Path]],
    links: FolderLinks,
    source: Path | Folder,
) -> list[pa.Field]:
    """Register a table of the files of each group, all of them under one name; return its columns."""
    partitions = source.partitions if isinstance(source, Folder) else ()
    if not partitions:
        (files,) = groups.values()
        context.register_parquet(quote_name(name), links.add(files))
        return list(context.table(quote_name(name)).schema())
    selects = []
    for at, (values, files) in enumerate(groups.items()):
        part = f"{name}/{at}"
        context.register_parquet(quote_name(part), links.add(files))
        fixed = (
            # NULL alone has no type, and the parts of a UNION ALL must have the same types.
            f"CAST({_text(value)} AS VARCHAR) AS {quote_name(key)}"
            for key, value in zip(partitions, values, strict=True)
        )
        stored = [field.name for field in context.table(quote_name(part)).schema() if field.name not in partitions]
        selects.append(f"SELECT {', '.join([*map(quote_name, stored), *fixed])} FROM {quote_name(part)}")  # noqa: S608 - quoted
    whole = context.sql(" UNION ALL ".join(selects))
    context.register_view(quote_name(name), whole)
    return list(whole.schema())


def _type(kind: str) -> str:
    """Return DuckDB's name of a type of Arrow's, and Arrow's own for one that dpsql does not compute with."""
    if found := _DECIMAL.fullmatch(kind):
        return f"DECIMAL({found[1]},{found[2]})"
    return "TIMESTAMP WITH TIME ZONE" if _ZONED.fullmatch(kind) else _TYPES.get(kind, kind)


def _text(value: str | None) -> str:
    return "NULL" if value is None else quote_text(value)


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
            # No other call of an event loop may come from another thread; `task.cancel` itself would not wake the loop.
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
