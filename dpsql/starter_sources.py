"""Tables that a starter policy can name: files, folders of files or of a lake table, and those of another engine."""

from __future__ import annotations

import os
import re
from contextlib import closing, suppress
from pathlib import Path

from dpsql.engines import Column, Engine, Statement
from dpsql.engines.duckdb.file_schema import describe_file
from dpsql.errors import EngineError, UsageError
from dpsql.open_engine import open_engine, open_url
from dpsql.plan.registration import may_be_unit
from dpsql.policy import Budget, DataSource, Policy, PublicTable
from dpsql.policy.starter import FoundColumn, FoundTable
from dpsql.sql.ir.types import Family, find_read_type, parse_type

__all__ = ["describe_column", "describe_engine", "describe_files"]

_FILES = {".parquet", ".csv"}
_LISTS = {
    "postgresql": """
        SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
            AND EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped)
            AND n.nspname NOT LIKE 'pg_toast%' AND pg_catalog.has_table_privilege(c.oid, 'SELECT') ORDER BY 1, 2
    """,
    "spark": "SHOW TABLES",
}
_KEYS = """
    SELECT n.nspname::text, c.relname::text, k.contype::text, a.attname::text, coalesce(t.relname::text, '')
    FROM pg_catalog.pg_constraint AS k JOIN pg_catalog.pg_class AS c ON c.oid = k.conrelid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.conkey[1]
    LEFT JOIN pg_catalog.pg_class AS t ON t.oid = k.confrelid
    WHERE k.contype IN ('p', 'u', 'f') AND pg_catalog.cardinality(k.conkey) = 1
"""


def describe_files(path: Path, beside: Path) -> tuple[FoundTable, ...]:
    """Return the tables in a file or folder, with paths relative to `beside`; raise `EngineError` if there are none.

    A folder is one table if it is one of Delta Lake or Iceberg, or if all of its Parquet files have the same columns;
    otherwise each file is a table.
    """
    if not path.is_dir():
        return (_describe_file(path, beside),)
    if (path / "_delta_log").is_dir() or (path / "metadata").is_dir():
        return (_describe_folder(path, beside),)
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in _FILES and file.is_file())
    tables = tuple(_describe_file(file, beside) for file in files)
    is_whole = len(tables) > 1 and all(file.suffix.lower() == ".parquet" for file in files)
    if is_whole and len({table.columns for table in tables}) == 1:
        return (_describe_folder(path, beside),)
    if not tables and any(path.rglob("*.parquet")):
        return (_describe_folder(path, beside),)
    if not tables:
        hint = "Name a DuckDB file, a Parquet or CSV file, a folder of them, or the URL of an engine."
        raise EngineError("source-missing", "The folder holds no Parquet and no CSV file.", hint=hint, place=str(path))
    return tables


def _describe_file(path: Path, beside: Path) -> FoundTable:
    if not path.is_file():
        hint = "Check the path."
        raise EngineError("source-missing", f'There is no file "{path.name}".', hint=hint, place=str(path))
    columns = tuple(map(describe_column, describe_file(path)))
    source = _write_path(path, beside)
    return FoundTable(_name_table(path.stem), columns, source=source, guessed=path.suffix.lower() == ".csv")


def _describe_folder(path: Path, beside: Path) -> FoundTable:
    """Return the table that a folder is, whose columns the engine itself names."""
    name = _name_table(path.resolve().name)
    policy = Policy(Budget(1, "1e-6"), {name: PublicTable(source=path)})
    with closing(open_engine(None, policy)) as engine:
        columns = tuple(map(describe_column, engine.columns(name)))
    return FoundTable(name, columns, source=_write_path(path, beside))


def _write_path(path: Path, beside: Path) -> str:
    return Path(os.path.relpath(path.resolve(), beside.resolve())).as_posix()


def _name_table(stem: str) -> str:
    """Return a name for a table that SQL can write without quotes."""
    name = re.sub(r"\W+", "_", stem).strip("_").lower()
    return name if re.match(r"[a-z_]", name) else f"t_{name}"


def describe_engine(url: str) -> tuple[FoundTable, ...]:
    """Return the tables of a PostgreSQL database or of Spark that this user may read; no row of them is read."""
    source = DataSource(url)
    scheme = {"postgres": "postgresql", "sc": "spark"}.get(source.scheme, source.scheme)
    if scheme == "duckdb":
        raise UsageError("database", "This is a DuckDB file.", hint="Name it by its path.", place="source.url")
    if scheme not in _LISTS:
        hint = "Write the policy by hand: docs/how-to/engines.md has an example."
        raise UsageError("database", "The tables of this engine cannot be listed.", hint=hint, place="source.url")
    with closing(open_url(source, {}, time_limit=None)) as engine:
        rows = _fetch_catalog(engine, _LISTS[scheme])
        keys = _fetch_catalog(engine, _KEYS) if scheme == "postgresql" else []
    found = [tuple(row.values())[:2] for row in rows]
    plain = "public" if scheme == "postgresql" else "default"
    names = {(schema, table): table if schema in {plain, ""} else f"{schema}.{table}" for schema, table in found}
    if not names:
        hint = "Check which database and which user the URL names."
        raise EngineError("source-missing", "This user can read no table there.", hint=hint, place="source.url")
    with closing(open_url(source, dict.fromkeys(names.values()), time_limit=None)) as engine:
        return tuple(
            _make_table(name, engine.columns(name), key=key, names=names, keys=keys) for key, name in names.items()
        )


def _fetch_catalog(engine: Engine, text: str) -> list[dict[str, str]]:
    """Return rows of an engine's own catalog; the texts of its errors are not passed on."""
    with suppress(Exception):
        rows: list[dict[str, str]] = engine.fetch(Statement(text.strip())).to_pylist()  # type: ignore[attr-defined]
        return rows
    hint = "Check with a client of the engine that this user may read its catalog."
    raise EngineError("engine-failed", "The tables of the engine cannot be listed.", hint=hint, place="source.url")


def _make_table(
    name: str,
    columns: tuple[Column, ...],
    *,
    key: tuple[str, str],
    names: dict[tuple[str, str], str],
    keys: list[dict[str, str]],
) -> FoundTable:
    own = [tuple(row.values())[2:] for row in keys if tuple(row.values())[:2] == key]
    return FoundTable(
        name,
        tuple(map(describe_column, columns)),
        primary_key=tuple(column for kind, column, _ in own if kind == "p"),
        unique=frozenset(column for kind, column, _ in own if kind in {"p", "u"}),
        leads_to={column: names.get((key[0], target), target) for kind, column, target in own if kind == "f"},
    )


def describe_column(column: Column) -> FoundColumn:
    """Return a column with what a policy can do with its type."""
    readable = find_read_type(parse_type(column.type)).family is not Family.OPAQUE
    return FoundColumn(column.name, column.type, readable, may_be_unit(column.type))
