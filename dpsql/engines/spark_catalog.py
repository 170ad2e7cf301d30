"""Tables as Spark has them: found by their names or read from Parquet, their types in DuckDB's words.

A column that dpsql could not ask for safely is given another form, in a view of dpsql's own session: text that Spark
would compare by a collation is compared by its bytes, and columns whose names differ in case alone are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.engines.base import Column, CsvFile, ListedTable, Registered, RemoteFiles
from dpsql.engines.lakes.folder import Folder
from dpsql.engines.spark.session import quiet
from dpsql.errors import EngineError, PolicyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
