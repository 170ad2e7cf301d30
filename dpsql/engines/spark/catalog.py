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

from dpsql.engines.base import Column, CsvFile, Registered
from dpsql.engines.lakes.folder import Folder
from dpsql.engines.remote import table_missing
from dpsql.engines.spark.session import quiet
from dpsql.errors import EngineError, PolicyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["describe_view", "tables"]

Sources = Mapping[str, Path | CsvFile | Folder | None]
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
_GLOB = re.compile(r"([{}\[\]*?\\])")


def tables(own: SparkSession, sources: Sources, *, lent: SparkSession | None = None) -> dict[str, Registered]:
    """Return the tables by the names of the policy; `lent` is a session of the user, which may have temporary views.

    Raises `EngineError` for a missing table, and `PolicyError` for a CSV file.
    """
    return {name: _registered(own, name, source=source, lent=lent) for name, source in sources.items()}


def _registered(
    own: SparkSession, name: str, *, source: Path | CsvFile | Folder | None, lent: SparkSession | None
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
        raise table_missing(name, engine="Spark")
    if lent is not None and _is_view_for_a_while(lent, relation) and _borrowed(own, lent, relation=relation, name=name):
        relation = (f"dpsql_{name}",)
    found = _fields(own, relation)
    if found is None:
        raise table_missing(name, engine="Spark")
    return _safe(own, relation, found=found, name=name)


def describe_view(own: SparkSession, view: str) -> Registered:
    """Return a view of dpsql's own as a table. Raises `EngineError` where there is none."""
    found = _fields(own, (view,))
    if found is None:
        raise table_missing(view, engine="Spark")
    return Registered((view,), tuple(Column(column, _type(kind)) for column, kind in found))


def _fields(session: SparkSession, relation: tuple[str, ...]) -> list[tuple[str, str]] | None:
    """Return the columns and their types in Spark's words; None where there is no such table."""
    with suppress(Exception), quiet():
        return [(field.name, field.dataType.simpleString()) for field in session.table(_quoted(relation)).schema.fields]
    return None


def _read(own: SparkSession, source: Path | Folder, *, quoted: str, name: str) -> None:
    """Make a view of Parquet, a file or a folder of them; which files these are is settled now."""
    folder, place = (source if isinstance(source, Folder) else None), f"table {name}"
    paths = [source.absolute()] if isinstance(source, Path) else [file.path for file in source.files]
    if not all(path.exists() for path in paths):
        hint = "A path in a policy counts from the policy's folder, on this machine and on those that compute."
        raise EngineError("source-missing", "The source is not there.", hint=hint, place=place)
    done = False
    with suppress(Exception), quiet():
        reader = own.read if folder is None else own.read.option("basePath", f"file:{folder.path}")
        escaped = (_GLOB.sub(r"\\\1", str(path)) for path in paths)
        reader.parquet(*(f"file:{path}" for path in escaped)).createOrReplaceTempView(quoted)
        done = True
    if not done:
        hint = "Give a Parquet file, or a folder of them."
        raise EngineError("source-unreadable", "Spark cannot read the source as Parquet.", hint=hint, place=place)


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
        raise table_missing(name, engine="Spark")
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
