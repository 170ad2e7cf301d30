"""Where DuckDB finds the tables of a policy: in its database, in files beside it, or as views and tables of files.

Errors here depend on files and names, and on rows only while a CSV file is loaded; only texts of our own are passed on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import duckdb

from dpsql.dialects import quote_name, quote_path, quote_text
from dpsql.engines.duckdb.folder_scan import scan_folder, scan_remote_folder
from dpsql.engines.duckdb.instance import TROUBLE, find_trouble, require_setting
from dpsql.engines.sources import AttachedTable, CsvFile, Folder, RemoteFiles, RemoteFolder
from dpsql.errors import EngineError, PolicyError

BESIDE = "dpsql_materialized"
_BLOCK = "dpsql_block"
_SIGN = re.compile(r"[*?[]")  # of a pattern of names


def place(
    connection: duckdb.DuckDBPyConnection,
    sources: Mapping[str, Path | CsvFile | Folder | RemoteFiles | AttachedTable | None],
    *,
    home: str | None,
    sealed: bool,
) -> dict[str, tuple[str, ...]]:
    """Return the fully qualified identifier of every table; a view of its Parquet files, or a table of its CSV file.

    A sealed connection may read the Parquet files and no others; in a borrowed one views and tables are temporary.
    """
    paths = _beside(connection, {name: each for name, each in sources.items() if isinstance(each, AttachedTable)})
    remote = _list_remote(connection, sources, sealed=sealed)
    given = {name: each for name, each in sources.items() if isinstance(each, Path | CsvFile | Folder)}
    files = {name: _file(source, name) for name, source in given.items() if not isinstance(source, Folder)}
    views = [file for name, file in files.items() if not isinstance(sources[name], CsvFile)]
    views += [_alone(file) for file in views]
    views += [file.path for source in given.values() if isinstance(source, Folder) for file in source.files]
    read: list[Path | str] = [*views, *(file.path for folder in remote.values() for file in folder.files)]
    # Before the instance is locked: no path can be added then.
    if sealed and read:
        require_setting(connection, f"SET GLOBAL allowed_paths = [{', '.join(quote_text(each) for each in read)}]")
    for name, source in sources.items():
        if isinstance(source, AttachedTable):
            continue
        if source is not None:
            paths[name] = ("memory" if sealed else "temp", "main", name)
            kind = "VIEW" if sealed else "TEMP VIEW"
            if isinstance(source, CsvFile):
                _make_table(connection, paths[name], file=CsvFile(files[name], source.columns, source.form))
            elif isinstance(source, Folder):
                _make_folder_view(connection, name, folder=source, kind=kind)
            elif isinstance(source, RemoteFiles):
                _make_remote_view(connection, name, folder=remote[name], kind=kind)
            else:
                _make_view(connection, name, file=files[name], kind=kind)
        elif home is None:
            hint = (
                'Name it: --db FILE on the command line, $DPSQL_DB, or dpsql.connect("FILE"). Or write a file as the '
                'source of the table into the policy: source = "reads.parquet"'
            )
            reason = f'There is no database in which the table "{name}" could be.'
            raise EngineError("table-missing", reason, hint=hint, place=f"table {name}")
        else:
            schema, dot, table = name.partition(".")
            paths[name] = (home, schema, table) if dot else (home, "main", name)
    return paths


def _beside(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, AttachedTable]) -> dict[str, tuple[str, ...]]:
    """Attach the files that stand beside the data, for reading only, and return where their tables are."""
    files = {
        each.path: f"{BESIDE}_{at}" for at, each in enumerate({each.path: each for each in tables.values()}.values())
    }
    for path, name in files.items():
        if find_trouble(connection, f"ATTACH {quote_text(path.resolve())} AS {name} (READ_ONLY, TYPE duckdb)"):
            reason, hint = "A materialized table cannot be read.", "Run dpsql materialize."
            raise EngineError("prepared-unreadable", reason, hint=hint)
    return {name: (files[each.path], "main", each.table) for name, each in tables.items()}


def _file(source: Path | CsvFile, name: str) -> Path:
    file = Path(source.path if isinstance(source, CsvFile) else source).resolve()
    if not file.is_file():
        hint = "Check the path; in a policy file it is relative to the policy file."
        if "*" in str(file):
            hint = "Name the folder of the files: patterns with * are for addresses such as s3://."
        raise EngineError("source-missing", f'There is no file "{file.name}".', hint=hint, place=f"table {name}")
    return file


def _alone(file: Path) -> Path:
    """Return the path as DuckDB reads it, which takes every path for a pattern: this one matches itself alone."""
    return Path(_SIGN.sub(r"[\g<0>]", str(file)))


def _make_table(connection: duckdb.DuckDBPyConnection, relation: tuple[str, ...], *, file: CsvFile) -> None:
    misnamed, loaded = _load(connection, relation, file=file)
    place = f"table {relation[-1]}"
    if misnamed is not None:
        raise EngineError(
            "source-columns",
            f'The first line of the file "{file.path.name}" does not name the column "{misnamed}" once.',
            hint="It names every declared column once; upper and lower case are the same.",
            place=place,
        )
    if not loaded:
        raise EngineError(
            "source-unreadable",
            f'The file "{file.path.name}" cannot be loaded as CSV with the declared types.',
            hint="docs/reference/sources.md has the rules; in the folder of the file, DuckDB finds most of the lines "
            f"that break them: {_write_rejects(file)}; FROM reject_errors",
            place=place,
        )


def _write_rejects(file: CsvFile) -> str:
    """Return a statement of DuckDB that stores the lines of a file that break its declared types and format."""
    types = ", ".join(f"{quote_text(column.name)}: {quote_text(column.type)}" for column in file.columns)
    marks = {"delim": ",", "quote": '"', "header": True, **({} if file.form is None else file.form.written())}
    marks.pop("new_line", None)  # which DuckDB finds by itself
    options = ", ".join(f"{key} = {_write_option(value)}" for key, value in marks.items())
    others = "auto_type_candidates = ['VARCHAR']"
    path = quote_text(_alone(Path(file.path.name)))
    return f"FROM read_csv({path}, types = {{{types}}}, {options}, {others}, store_rejects = true)"


def _write_option(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(quote_text, value))}]"
    return quote_text(value.replace("\t", "\\t")) if isinstance(value, str) else str(value).lower()


def _load(
    connection: duckdb.DuckDBPyConnection, relation: tuple[str, ...], *, file: CsvFile
) -> tuple[str | None, bool]:
    """Fill a new table from the file; return the declared column that is not named once, and whether all went well.

    The data that was read stays in this frame, which ends before an error of ours is raised. After an error, close the
    connection, and with it the loaded rows.
    """
    from dpsql.engines.duckdb import csv_file  # start-up: Arrow

    table = quote_path(relation)
    kind = "TEMP TABLE" if relation[0] == "temp" else "TABLE"
    columns = ", ".join(f"{quote_name(column.name)} {column.type}" for column in file.columns)
    form = file.form
    with suppress(*TROUBLE, *csv_file.TROUBLE), csv_file.open_csv(file.path, form) as stream:
        names = csv_file.header(stream, form)
        found = {column.name: csv_file.positions(names, column.name) for column in file.columns}
        misnamed = [name for name, positions in found.items() if len(positions) != 1]
        if misnamed:
            return misnamed[0], False
        connection.execute(f"CREATE {kind} {table} ({columns})")
        wanted = [position for (position,) in found.values()]
        values = ", ".join(
            csv_file.cast_column(str(position), column.type, form=form)
            for position, column in zip(wanted, file.columns, strict=True)
        )
        for block in csv_file.tables(stream, wanted, width=len(names), form=form):
            connection.register(_BLOCK, block)
            connection.execute(f"INSERT INTO {table} SELECT {values} FROM temp.main.{_BLOCK}")  # noqa: S608 - quoted
        connection.unregister(_BLOCK)
        return None, True
    return None, False


def _make_view(connection: duckdb.DuckDBPyConnection, name: str, *, file: Path, kind: str) -> None:
    rows = f"SELECT * FROM system.main.read_parquet({quote_text(_alone(file))}, hive_partitioning = false)"  # noqa: S608 - quoted
    if find_trouble(connection, f"CREATE {kind} {quote_name(name)} AS {rows}"):
        hint = "Write it again as Parquet, and see that it may be read."
        reason = f'The file "{file.name}" is no Parquet file DuckDB can read.'
        raise EngineError("source-unreadable", reason, hint=hint, place=f"table {name}")


def _make_folder_view(connection: duckdb.DuckDBPyConnection, name: str, *, folder: Folder, kind: str) -> None:
    rows = scan_folder(connection, folder, place=f"table {name}")
    if find_trouble(connection, f"CREATE {kind} {quote_name(name)} AS {rows}"):
        hint = "See that its files may be read, and that DuckDB reads them."
        raise EngineError(
            "source-unreadable", "The folder cannot be read as one table.", hint=hint, place=f"table {name}"
        )


def _list_remote(
    connection: duckdb.DuckDBPyConnection,
    sources: Mapping[str, Path | CsvFile | Folder | RemoteFiles | AttachedTable | None],
    *,
    sealed: bool,
) -> dict[str, RemoteFolder]:
    """Return the files at the addresses of tables; a connection of the user has httpfs as the user loaded it."""
    given = {name: each for name, each in sources.items() if isinstance(each, RemoteFiles)}
    if not given:
        return {}
    from dpsql.engines.duckdb.folder_scan import check_url, list_remote_files, load_network

    for name, each in given.items():
        check_url(each.url, name=name)
    if sealed:
        load_network(connection)
    found = {name: list_remote_files(connection, each, name=name) for name, each in given.items()}
    owners: dict[str, str] = {}
    for name, folder in found.items():
        for file in folder.files:
            if owners.setdefault(file.path, name) != name:
                reason = f'A file is in both the table "{owners[file.path]}" and the table "{name}".'
                hint = "Declare every table, and every source, once."
                raise PolicyError("policy-duplicate-table", reason, hint=hint, place=f"table {name}")
    return found


def _make_remote_view(connection: duckdb.DuckDBPyConnection, name: str, *, folder: RemoteFolder, kind: str) -> None:
    from dpsql.engines.duckdb.folder_scan import unreadable

    rows = scan_remote_folder(connection, folder, place=f"table {name}")
    if rows is None or find_trouble(connection, f"CREATE {kind} {quote_name(name)} AS {rows}"):
        raise unreadable(f"table {name}")
