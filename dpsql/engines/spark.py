"""Spark, in a session of its own or beside one of the user: only the few rows of the answer leave the cluster.

The answer of a statement is a function of the rows alone: it stays the same under other partitions, repeated tasks and
lost machines. Materialized tables are Parquet in a folder of the warehouse, which every machine of the cluster reaches.
Each build has folders of its own, and a row in the state then names them: a session finds one build or another, and
reads it to its end. Builds of which a later one took the place a day ago are emptied.

Tables as Spark has them: found by their names or read from Parquet, their types in DuckDB's words.

A column that dpsql could not ask for safely is given another form, in a view of dpsql's own session: text that Spark
would compare by a collation is compared by its bytes, and columns whose names differ in case alone are left out.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.dialects.spark import SPARK
from dpsql.engines.base import Statement
from dpsql.engines.remote import RemoteEngine
from dpsql.engines.sources import Column, CsvFile, Folder, ListedTable, Registered, RemoteFiles
from dpsql.engines.spark_session import beside, quiet, started, stopped
from dpsql.errors import EngineError, PolicyError

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
            # A name has a row for each build, in no order: that of the latest counts.
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


Sources = Mapping[str, Path | CsvFile | Folder | RemoteFiles | None]
_TYPES = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp_ntz": "TIMESTAMP",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_GLOB, _ESCAPED = re.compile(r"([{}\[\]*?\\])"), r"\\\1"
_NO_FILE_SYSTEM = ("No FileSystem for scheme", "ClassNotFoundException", "UNSUPPORTED_FILE_SYSTEM")
_SOME_JAR = "Add the jar of that file system to the jars of Spark, or name the table as a catalog of Spark knows it."
_HADOOP = {"s3a": "hadoop-aws", "abfss": "hadoop-azure", "abfs": "hadoop-azure"}
_FILE_SYSTEMS = {
    "s3": "Write s3a:// in place of s3://, as Spark calls it.",
    "s3n": "Write s3a:// in place of s3n://, as Spark calls it.",
    "https": "Spark reads no files from web servers: copy them to a file system of the cluster.",
    "http": "Spark reads no files from web servers: copy them to a file system of the cluster.",
}


def tables(own: SparkSession, sources: Sources, *, lent: SparkSession | None = None) -> dict[str, Registered]:
    """Return the tables by the names of the policy; `lent` is a session of the user, which may have temporary views.

    Raises `EngineError` for a missing table, and `PolicyError` for a CSV file.
    """
    return {name: _registered(own, name, source=source, lent=lent) for name, source in sources.items()}


def list_tables(own: SparkSession) -> list[ListedTable]:
    """Return the tables and views of the current catalog; a database that may not be listed has none."""
    found: list[ListedTable] = []
    with quiet():
        present = str(own.catalog.currentDatabase())
        for database in [str(row[0]) for row in own.sql("SHOW DATABASES").collect()]:
            with suppress(Exception):
                rows = own.sql(f"SHOW TABLES IN {_quoted(tuple(database.split('.')))}").collect()
                names = [str(row["tableName"]) for row in rows if not row["isTemporary"]]
                found += [ListedTable(name if database == present else f"{database}.{name}") for name in names]
    return found


def _registered(
    own: SparkSession, name: str, *, source: Path | CsvFile | Folder | RemoteFiles | None, lent: SparkSession | None
) -> Registered:
    relation = tuple(name.split(".")) if source is None else (f"dpsql_{name}",)
    if isinstance(source, CsvFile):
        hint = "Write it as Parquet first: dpsql reads CSV files by a grammar of its own, into DuckDB."
        raise PolicyError("policy-source", "Spark is given no CSV file.", hint=hint, place=f"tables.{name}.source")
    if isinstance(source, Folder) and source.kind != "parquet":
        hint = "Name the table as a catalog of Spark knows it, and leave the source out."
        reason = "Spark reads tables of Delta Lake and Iceberg by its catalogs."
        raise PolicyError("policy-source", reason, hint=hint, place=f"tables.{name}.source")
    if source is not None:
        _read(own, source, quoted=_quoted(relation), name=name)
    elif len(relation) == 1 and name.lower().startswith("dpsql"):  # a view of dpsql's own would be found in its place
        raise _missing(name)
    if lent is not None and _is_view_for_a_while(lent, relation) and _borrowed(own, lent, relation=relation, name=name):
        relation = (f"dpsql_{name}",)
    found = _fields(own, relation)
    if found is None:
        raise _missing(name)
    return _safe(own, relation, found=found, name=name)


def describe_view(own: SparkSession, view: str) -> Registered:
    """Return a view of dpsql's own as a table. Raises `EngineError` where there is none."""
    found = _fields(own, (view,))
    if found is None:
        raise _missing(view)
    return Registered((view,), tuple(Column(column, _type(kind)) for column, kind in found))


def _fields(session: SparkSession, relation: tuple[str, ...]) -> list[tuple[str, str]] | None:
    """Return the columns and their types in Spark's words; None where there is no such table."""
    with suppress(Exception), quiet():
        return [(field.name, field.dataType.simpleString()) for field in session.table(_quoted(relation)).schema.fields]
    return None


def _read(own: SparkSession, source: Path | Folder | RemoteFiles, *, quoted: str, name: str) -> None:
    """Make a view of Parquet: a file, a folder or an address; Spark finds out now which files these are, and where."""
    base = None
    match source:
        case RemoteFiles(url=url):
            paths = [url]
        case Folder(path=path, files=files):
            # With a base path, key=value folders above files that are named one by one are columns.
            paths, base = [_write_local(file.path) for file in files], f"file:{path}"
        case _:
            paths = [_write_local(source.absolute())]
    trouble: BaseException | None = None
    try:
        with quiet():
            reader = own.read if base is None else own.read.option("basePath", base)
            reader.parquet(*paths).createOrReplaceTempView(quoted)
    except Exception as error:  # noqa: BLE001 - of Spark, whose words stay here
        trouble = error
    if trouble is None:
        return
    refusal = _explain(own, trouble, source=source, name=name)
    # This frame is in the traceback of the refusal, and would show Spark's words there.
    del trouble
    raise refusal


def _advise_jar(own: SparkSession, scheme: str) -> str:
    """Return what to do about a file system that Spark does not have."""
    if scheme in _HADOOP:
        version = "with the version of the Hadoop in it"
        with suppress(Exception):
            java: Any = own
            version = str(java._jvm.org.apache.hadoop.util.VersionInfo.getVersion())  # noqa: SLF001 - nothing public says it
        jar = f"org.apache.hadoop:{_HADOOP[scheme]}:{version}"
        return f'Start Spark with that jar: "spark.jars.packages" = "{jar}", in [source.options] if dpsql starts it.'
    return _FILE_SYSTEMS.get(scheme, _SOME_JAR)


def _write_local(path: Path) -> str:
    # Hadoop takes every path for a pattern.
    return f"file:{_GLOB.sub(_ESCAPED, str(path))}"


def _explain(
    own: SparkSession, trouble: BaseException, *, source: Path | Folder | RemoteFiles, name: str
) -> EngineError:
    """Return what is wrong with a source by the kind of Spark's error; of its text no word is passed on."""
    place, told = f"table {name}", f"{getattr(trouble, 'getCondition', str)()} {trouble}"
    if "PATH_NOT_FOUND" in told:
        hint = "Check the address; Spark looks for it from the machines that compute."
        if not isinstance(source, RemoteFiles):
            hint = "A path in a policy counts from the policy's folder, on this machine and on those that compute."
        return EngineError("source-missing", "The source is not there.", hint=hint, place=place)
    if isinstance(source, RemoteFiles) and any(sign in told for sign in _NO_FILE_SYSTEM):
        scheme = source.url.partition(":")[0]
        reason = f"Spark has no file system for addresses that begin with {scheme}:."
        return EngineError("source-unreadable", reason, hint=_advise_jar(own, scheme), place=place)
    if not isinstance(source, RemoteFiles):
        hint = "Give a Parquet file, or a folder of them."
        return EngineError("source-unreadable", "Spark cannot read the source as Parquet.", hint=hint, place=place)
    reason = "The address cannot be read: no connection, no access, or no Parquet."
    hint = "Read it in spark-sql with the same master and settings: SELECT * FROM parquet.`address` LIMIT 1."
    return EngineError("source-unreadable", reason, hint=hint, place=place)


def _missing(name: str) -> EngineError:
    reason = f'Spark has no table or view "{name}" that can be read.'
    hint = "Name it as table, database.table or catalog.database.table, as SHOW TABLES lists it, or give it a source."
    return EngineError("table-missing", reason, hint=hint, place=f"table {name}")


def _is_view_for_a_while(lent: SparkSession, relation: tuple[str, ...]) -> bool:
    """Say whether a name means such a view in the user's session, where it comes before a table of that name."""
    with suppress(Exception), quiet():
        return lent.catalog.getTable(_quoted(relation)).isTemporary
    return False


def _borrowed(own: SparkSession, lent: SparkSession, *, relation: tuple[str, ...], name: str) -> bool:
    """Make a view of what the user's session alone has, a view for a while; say whether there was one."""
    ours: Any = own
    with suppress(Exception), quiet():
        plan = lent.table(_quoted(relation))._jdf.queryExecution().analyzed()  # noqa: SLF001 - Spark's own session state
        # A temporary view is in the catalog of the user's session alone; the plan behind it is bound to none.
        rows = ours._jvm.org.apache.spark.sql.classic.Dataset.ofRows(ours._jsparkSession, plan)  # noqa: SLF001 - as above
        rows.createOrReplaceTempView(_quoted((f"dpsql_{name}",)))
        return True
    return False


def _safe(own: SparkSession, relation: tuple[str, ...], *, found: list[tuple[str, str]], name: str) -> Registered:
    """Return the table, or a view of it where some column cannot be read as it is."""
    spelled = Counter(column.lower() for column, _ in found)
    kept = [(column, kind) for column, kind in found if spelled[column.lower()] == 1]
    columns = tuple(Column(column, _type(kind)) for column, kind in kept)
    if kept == found and not any(_is_collated(kind) for _, kind in kept):
        return Registered(relation, columns)
    outputs = ", ".join(
        f"{_quoted((column,))} COLLATE UTF8_BINARY AS {_quoted((column,))}"
        if _is_collated(kind)
        else _quoted((column,))
        for column, kind in kept
    )
    view = (f"dpsqlbytes_{name}",)  # which no view of another table is called
    made = False
    with suppress(Exception), quiet():
        rows = own.sql(f"SELECT {outputs} FROM {_quoted(relation)}")  # noqa: S608 - quoted
        rows.createOrReplaceTempView(_quoted(view))
        made = True
    if not made:
        raise _missing(name)
    return Registered(view, columns)


def _type(kind: str) -> str:
    """Return DuckDB's name of a type of Spark's, and Spark's own for one that dpsql does not compute with."""
    if found := _DECIMAL.fullmatch(kind):
        return f"DECIMAL({found[1]},{found[2]})"
    return "VARCHAR" if _is_collated(kind) else _TYPES.get(kind, kind)


def _is_collated(kind: str) -> bool:
    return kind.startswith("string collate ")


def _quoted(parts: tuple[str, ...]) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
