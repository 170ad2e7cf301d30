"""Tables that a starter policy can name: files, folders of files or of a lake table, and those of another engine."""

from __future__ import annotations

import os
import re
import shlex
from contextlib import closing, suppress
from pathlib import Path

from dpsql.engines import Column, Engine, ListedTable, RemoteEngine
from dpsql.engines.base import show_adapter_errors
from dpsql.engines.duckdb.catalog import describe_file
from dpsql.errors import EngineError, Error, UsageError
from dpsql.open_engine import open_engine, open_url
from dpsql.policy import Budget, DataSource, Policy, PublicTable, SourceUrl
from dpsql.policy.starter import FoundColumn, FoundTable
from dpsql.registration import may_be_unit
from dpsql.sql.ir.tree import Family, find_read_type, parse_type

_FILES = {".parquet", ".csv"}
_STATE = "dpsql_state"  # table of every schema that `dpsql materialize` writes


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


def describe_engine(source: DataSource) -> tuple[tuple[FoundTable, ...], tuple[str, ...]]:
    """Return the tables of an engine that this user may read, and names of those that cannot be; no row is read."""
    if source.scheme == "duckdb":
        hint = f"Name it by its path: dpsql init {shlex.quote(str(source.path))}"
        raise UsageError("database", "This is a DuckDB file.", hint=hint, place="source.url")
    if source.scheme == "datafusion":
        hint = 'Name a Parquet file or a folder; then add [source] and url = "datafusion:" to the policy.'
        raise UsageError("database", "DataFusion has no tables of its own.", hint=hint, place="source.url")
    with closing(open_url(source, {}, time_limit=None)) as engine:
        listed = _list_tables(engine)
        columns = {table.name: _find_columns(engine, table.name) for table in listed}
    tables = tuple(
        FoundTable(
            table.name,
            tuple(map(describe_column, found)),
            primary_key=table.primary_key,
            unique=table.unique,
            leads_to=table.leads_to,
        )
        for table in listed
        if (found := columns[table.name])
    )
    if not tables:
        hint = "Check which database, schema and user the URL names."
        if source.scheme in {"spark", "sc"}:
            hint = "Run dpsql init with the path of the Parquet files, and add [source] with this url to the policy."
        raise EngineError("source-missing", "This user can read no table there.", hint=hint, place="source.url")
    return tables, tuple(table.name for table in listed if not columns[table.name])


def _list_tables(engine: Engine) -> list[ListedTable]:
    """Return what an engine's own catalog lists; the texts of its errors are not passed on."""
    if isinstance(engine, RemoteEngine):
        try:
            with show_adapter_errors():
                return _leave_out_stored(list(engine.list_tables()))
        except Error:
            raise
        except Exception:  # noqa: BLE001, S110 - its words may hold the address
            pass
    hint = "Check with a client of the engine that this user may read its catalog, or write the policy by hand."
    raise EngineError("engine-failed", "The tables of the engine cannot be listed.", hint=hint, place="source.url")


def _leave_out_stored(listed: list[ListedTable]) -> list[ListedTable]:
    """Return the tables but for those in schemas of `dpsql materialize`."""
    stored = tuple(table.name.removesuffix(_STATE) for table in listed if table.name.endswith(f".{_STATE}"))
    return [table for table in listed if not table.name.startswith(stored)] if stored else listed


def _find_columns(engine: Engine, name: str) -> tuple[Column, ...]:
    """Return the columns of a table, or none where it cannot be read, such as a view of what is no longer there."""
    with suppress(Exception):
        return engine.found(name).columns if isinstance(engine, RemoteEngine) else ()
    return ()


def describe_address(url: str) -> tuple[FoundTable, ...]:
    """Return the table of the Parquet files at an address, which DuckDB reads; no row is read."""
    source = SourceUrl(url)
    known = [part for part in url.partition("://")[2].split("/") if part and not set("*?[{=") & set(part)]
    name = _name_table(known[-1].rpartition(".")[0] or known[-1]) if known else "events"
    policy = Policy(Budget(1, "1e-6"), {name: PublicTable(source=source)})
    with closing(open_engine(None, policy)) as engine:
        columns = tuple(map(describe_column, engine.columns(name)))
    return (FoundTable(name, columns, source=url),)


def describe_column(column: Column) -> FoundColumn:
    """Return a column with what a policy can do with its type."""
    readable = find_read_type(parse_type(column.type)).family is not Family.OPAQUE
    return FoundColumn(column.name, column.type, readable, may_be_unit(column.type))
