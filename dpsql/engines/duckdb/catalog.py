"""Opening of DuckDB and queries about its tables, before any query of the data.

Errors here depend on files and names, and on rows only while a CSV file is loaded; only texts of our own are passed on.

The collations that columns of DuckDB declare, which no catalog of it names; no row is read to find them.

A text goes with another one of its own collation, or of none, and with no other: DuckDB decides that when it binds a
statement, before it looks at the data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path

import duckdb

from dpsql.dialects import quote_name, quote_path, quote_text
from dpsql.dialects.duckdb_releases import release
from dpsql.engines.base import AttachedTable, Column, CsvFile, Registered, RemoteFiles
from dpsql.engines.duckdb import settings
from dpsql.engines.duckdb.folder_scan import scan_folder, scan_remote_folder
from dpsql.engines.lakes.folder import Folder, RemoteFolder
from dpsql.errors import EngineError, PolicyError, UsageError

# The first two tell whether a column has any collation at all; the others are the commonest. For DuckDB nocase and
# NOCASE are two.
_NAMES = ("C", "NOCASE", "NOACCENT", "NOCASE.NOACCENT", "NOACCENT.NOCASE", "NFC", "POSIX")
_KNOWN = (*_NAMES, *(name.lower() for name in _NAMES))


def collations(
    connection: duckdb.DuckDBPyConnection, relation: tuple[str, ...], *, columns: Sequence[str]
) -> dict[str, str]:
    """Return the collations of those columns of text that have one.

    A collation that is not among the known ones is taken for the column's own.
    """
    if not columns or all(_go_with(connection, relation, columns=columns, collation=each) for each in _KNOWN[:2]):
        return {}
    found = {}
    for column in columns:
        fits = [each for each in _KNOWN if _go_with(connection, relation, columns=[column], collation=each)]
        if len(fits) < len(_KNOWN):
            found[column] = fits[0] if fits else f"that of {'.'.join((*relation, column))}"
    return found


def _go_with(
    connection: duckdb.DuckDBPyConnection, relation: tuple[str, ...], *, columns: Sequence[str], collation: str
) -> bool:
    """Say whether the columns may be compared with a text of a collation."""
    compared = ", ".join(f"{quote_name(column)} = ('' COLLATE {collation})" for column in columns)
    with suppress(duckdb.Error, RuntimeError, ValueError):
        connection.execute(f"SELECT {compared} FROM {quote_path(relation)} LIMIT 0")  # noqa: S608 - quoted
        return True
    return False


ATTACHED = "dpsql_data"
BESIDE = "dpsql_materialized"
_BLOCK = "dpsql_block"
_COMPUTED = re.compile(r"GENERATED ALWAYS AS")  # in the definition of a table
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:")  # of the address of an engine
_SIGN = re.compile(r"[*?[]")  # of a pattern of names
_TROUBLE = (duckdb.Error, RuntimeError, ValueError)  # ValueError: engine words that are not UTF-8

# Nothing is loaded, downloaded or looked up outside. Spilling stays on: large tables need it, in a private folder.
_SETTINGS: Mapping[str, str] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_extension_repositories": "forbidden",
    "allow_persistent_secrets": "false",
    "allow_unredacted_secrets": "false",
    "python_enable_replacements": "false",
    "python_scan_all_frames": "false",
}
# Only with its bar on does DuckDB know how far it is. In a notebook where it cannot draw one it refuses to set any of
# this, even to draw nothing, and the bar is off there.
_TOLD, _QUIET = {"enable_progress_bar_print": False, "enable_progress_bar": True}, {"enable_progress_bar": False}
# Kind or text of DuckDB's errors for a file that another process has open for writing.
_LOCKED = ("ResourceInUseException", "Could not set lock", "Unique file handle conflict")
_LAST_SETTINGS = (
    "SET GLOBAL enable_logging = false",
    "SET GLOBAL enable_external_access = false",
    "SET GLOBAL lock_configuration = true",
)

# Functions that SQL calls by syntax, so that no schema can be written before them; operators are symbols.
_CALLED_BY_SYNTAX = frozenset(
    """
    array_agg count_star date_part ilike_escape like_escape list_apply list_value map not_ilike_escape not_like_escape
    nullif overlay position regexp_full_match regexp_matches row struct_pack substring timezone to_centuries to_days
    to_decades to_hours to_microseconds to_milliseconds to_millennia to_minutes to_months to_quarters to_seconds
    to_weeks to_years trim trunc unnest
    """.split()
)


def connect_sealed(folder: str, memory_limit: str | None, *, threads: int | None) -> duckdb.DuckDBPyConnection:
    """Return an in-memory instance that loads nothing and spills into `folder`; not locked yet."""
    config: dict[str, str | bool | int | float | list[str]] = {**_settings(), "temp_directory": folder}
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    if threads is not None:
        config["threads"] = threads
    connection = None
    with suppress(*_TROUBLE):  # here and below: our error is raised where no word of the engine can hang on it
        connection = duckdb.connect(":memory:", config=config)
    if connection is None:
        raise EngineError(
            "engine-settings",
            "DuckDB does not accept this memory limit or number of threads.",
            hint='Write a memory limit such as "4GB" and a number of threads of at least 1.',
        )
    return connection


def _settings() -> dict[str, str]:
    """Return those of the settings that this DuckDB has."""
    return {name: value for name, value in _SETTINGS.items() if name not in release().lacks}


def connect_bare(memory_limit: str = "1GB") -> duckdb.DuckDBPyConnection:
    """Return a locked instance with nothing in it, to try things on; it spills nothing."""
    config: dict[str, str | bool | int | float | list[str]] = {**_settings(), "threads": 1, "temp_directory": ""}
    connection = duckdb.connect(":memory:", config={**config, "memory_limit": memory_limit})
    lock(connection)
    return connection


def attach(connection: duckdb.DuckDBPyConnection, database: Path | str) -> str:
    """Attach a database file for reading only and return its name inside."""
    if not isinstance(database, str | PathLike):
        raise UsageError("not-a-path", "The database must be the path of a file.", hint='Such as "events.duckdb".')
    place = str(database)
    if not Path(database).exists():
        hint = "Check the path; pass an open DuckDB connection itself to use a database in memory."
        if found := _SCHEME.match(place):
            hint = f'Check the path; to name an engine, install the package that opens "{found[0]}".'
        raise EngineError("database-missing", "There is no database file at this path.", hint=hint, place=place)
    file = quote_text(Path(database).resolve())
    trouble = _trouble(connection, f"ATTACH {file} AS {ATTACHED} (READ_ONLY, TYPE duckdb)")
    if trouble == "locked":
        hint = "Close the other connection, or pass it instead of the path if it is in this process."
        raise EngineError("database-locked", "The database is open for writing elsewhere.", hint=hint, place=place)
    if trouble:
        hint = "Give a database file of this or an earlier version of DuckDB, and the right to read it."
        raise EngineError("database-unreadable", "The file is no database DuckDB can read.", hint=hint, place=place)
    return ATTACHED


def _trouble(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Run `sql`; return "" if it went well, else one word of ours."""
    try:
        connection.execute(sql)
    except _TROUBLE as error:
        told = f"{type(error).__name__}: {error}"
        return "locked" if any(sign in told for sign in _LOCKED) else "failed"
    return ""


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
    if sealed and read:
        _set(connection, f"SET GLOBAL allowed_paths = [{', '.join(quote_text(each) for each in read)}]")
    for name, source in sources.items():
        if isinstance(source, AttachedTable):
            continue
        if source is not None:
            paths[name] = ("memory" if sealed else "temp", "main", name)
            kind = "VIEW" if sealed else "TEMP VIEW"
            if isinstance(source, CsvFile):
                _make_table(connection, paths[name], file=CsvFile(files[name], source.columns))
            elif isinstance(source, Folder):
                _make_folder_view(connection, name, folder=source, kind=kind)
            elif isinstance(source, RemoteFiles):
                _make_remote_view(connection, name, folder=remote[name], kind=kind)
            else:
                _make_view(connection, name, file=files[name], kind=kind)
        elif home is None:
            hint = "Give the database, or give the table a Parquet or CSV file or a folder as its source."
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
        if _trouble(connection, f"ATTACH {quote_text(path.resolve())} AS {name} (READ_ONLY, TYPE duckdb)"):
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
            hint="docs/reference/csv-files.md has the rules; DuckDB finds most of the rows that break them: "
            "FROM read_csv(..., columns = {...}, store_rejects = true), then FROM reject_errors.",
            place=place,
        )


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
    with suppress(*_TROUBLE, *csv_file.TROUBLE), file.path.open("rb") as stream:
        names = csv_file.header(stream)
        found = {column.name: csv_file.positions(names, column.name) for column in file.columns}
        misnamed = [name for name, positions in found.items() if len(positions) != 1]
        if misnamed:
            return misnamed[0], False
        connection.execute(f"CREATE {kind} {table} ({columns})")
        for block in csv_file.tables(stream, [position for (position,) in found.values()], width=len(names)):
            connection.register(_BLOCK, block)
            connection.execute(f"INSERT INTO {table} FROM temp.main.{_BLOCK}")
        connection.unregister(_BLOCK)
        return None, True
    return None, False


def _make_view(connection: duckdb.DuckDBPyConnection, name: str, *, file: Path, kind: str) -> None:
    rows = f"SELECT * FROM system.main.read_parquet({quote_text(_alone(file))}, hive_partitioning = false)"  # noqa: S608 - quoted
    if _trouble(connection, f"CREATE {kind} {quote_name(name)} AS {rows}"):
        hint = "Write it again as Parquet, and see that it may be read."
        reason = f'The file "{file.name}" is no Parquet file DuckDB can read.'
        raise EngineError("source-unreadable", reason, hint=hint, place=f"table {name}")


def _make_folder_view(connection: duckdb.DuckDBPyConnection, name: str, *, folder: Folder, kind: str) -> None:
    rows = scan_folder(connection, folder, place=f"table {name}")
    if _trouble(connection, f"CREATE {kind} {quote_name(name)} AS {rows}"):
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
    if rows is None or _trouble(connection, f"CREATE {kind} {quote_name(name)} AS {rows}"):
        raise unreadable(f"table {name}")


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Close the instance: no files but those already allowed, and no setting can change any more."""
    settings.pin_globally(connection)  # further cursors have these, too
    make_quiet(connection)
    check_cursor(connection)
    for statement in _LAST_SETTINGS:
        _set(connection, statement)


def check_cursor(cursor: duckdb.DuckDBPyConnection) -> None:
    """Raise `EngineError` unless a cursor of a locked instance has the settings that statements rely on."""
    if not settings.has_pinned(cursor):
        raise _refused_setting()
    settings.pin_depth(cursor)


def make_quiet(connection: duckdb.DuckDBPyConnection) -> None:
    """Let DuckDB draw nothing over what others draw, and tell how far a statement is where it can."""
    try:
        _see_to(connection, _TOLD)
    except EngineError:
        _see_to(connection, _QUIET)


def _see_to(connection: duckdb.DuckDBPyConnection, wanted: Mapping[str, bool]) -> None:
    """Set, for the connection alone, what is not so already."""
    for name, value in wanted.items():
        with suppress(*_TROUBLE):
            if connection.execute("SELECT current_setting($1)", [name]).fetchall() == [(value,)]:
                continue
        _set(connection, f"SET SESSION {name} = {str(value).lower()}")


def _set(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    if _trouble(connection, statement):
        raise _refused_setting()


def _refused_setting() -> EngineError:
    return EngineError(
        "engine-settings",
        "DuckDB refused a setting that dpsql needs.",
        hint="Install a version of DuckDB that dpsql supports.",
    )


def describe(connection: duckdb.DuckDBPyConnection, name: str, *, relation: tuple[str, ...]) -> Registered:
    """Return the table `name` with its columns, or say that it is not there; not whether it is stored."""
    rows: list[tuple[str, ...]] = []
    with suppress(*_TROUBLE):
        rows = connection.execute("DESCRIBE " + quote_path(relation)).fetchall()
    if not rows:
        raise EngineError(
            "table-missing",
            f'The database has no table or view "{name}" that can be read.',
            hint="Name a table of the schema main, or schema.table; a view must not read files outside.",
            place=f"table {name}",
        )
    declared = collations(connection, relation, columns=[name for name, kind, *_ in rows if kind == "VARCHAR"])
    columns = tuple(Column(name, kind, declared.get(name, "")) for name, kind, *_ in rows)
    return Registered(relation, columns)


def is_stored(connection: duckdb.DuckDBPyConnection, relation: tuple[str, ...]) -> bool:
    """Return whether a table has rows of its own, in which no column is computed; a view may change with the clock."""
    name = quote_path(relation)
    with suppress(*_TROUBLE):  # DuckDB says no to the storage of a view; a computed column has a default
        connection.execute("SELECT 1 FROM system.main.pragma_storage_info($1) LIMIT 0", [name])
        defaults = "SELECT system.main.count(dflt_value) FROM system.main.pragma_table_info($1)"
        if connection.execute(defaults, [name]).fetchall() == [(0,)]:
            return True
    # In a new instance this takes 10 ms, in which DuckDB makes the views of its catalog.
    sql = """SELECT sql FROM system.main.duckdb_tables()
    WHERE lower(database_name) = lower($1) AND lower(schema_name) = lower($2) AND lower(table_name) = lower($3)"""
    with suppress(*_TROUBLE):
        found = connection.execute(sql, list(relation)).fetchall()
        return len(found) == 1 and not _COMPUTED.search(found[0][0])
    return False


def resident_database(connection: duckdb.DuckDBPyConnection) -> str:
    """Return the current database of the user's connection, which only that connection itself knows."""
    name = ""
    with suppress(*_TROUBLE):
        name = connection.sql("SELECT system.main.current_database()").fetchall()[0][0]
    if not name:
        raise _unusable()
    return name


def _unusable() -> EngineError:
    return EngineError(
        "connection-unusable",
        "The connection is closed, in a failed transaction, or has a result that was not fetched to its end.",
        hint="Fetch the result or roll back first, or pass connection.cursor().",
    )


def refuse_macros(connection: duckdb.DuckDBPyConnection) -> None:
    """Refuse macros that change what an operator or a piece of syntax means: no schema can be written before those."""
    names: list[str] | None = None
    with suppress(*_TROUBLE):
        found = connection.execute(
            "SELECT function_name FROM system.main.duckdb_functions() "
            "WHERE NOT internal AND function_type IN ('macro', 'table_macro') ORDER BY function_name"
        )
        names = [name for (name,) in found.fetchall()]
    if names is None:
        raise _unusable()
    for name in names:
        if not re.search(r"\w", name) or name.lower() in _CALLED_BY_SYNTAX:
            raise EngineError(
                "macros",
                f"The database has a macro named {quote_name(name)}, which changes what SQL itself means.",
                hint=f"DROP MACRO {quote_name(name)}, or give it another name.",
            )


def compiles(bare: duckdb.DuckDBPyConnection, pattern: str) -> bool:
    """Return whether DuckDB accepts the regular expression."""
    accepted = False
    with suppress(*_TROUBLE):
        bare.execute("SELECT system.main.regexp_matches(text, $1) FROM (VALUES ('')) AS v(text)", [pattern]).fetchall()
        accepted = True
    return accepted


def repeated(table: Registered, column: str) -> str:
    """Return the SELECT that yields one row if a column has a duplicate value other than NULL; text by its bytes."""
    (kind,) = (known.type for known in table.columns if known.name == column)
    value = f"{quote_name(column)} COLLATE C" if kind == "VARCHAR" else quote_name(column)
    relation = quote_path(table.relation)
    return (
        f"SELECT 1 FROM {relation} WHERE {quote_name(column)} IS NOT NULL "  # noqa: S608 - quoted
        f"GROUP BY {value} HAVING system.main.count() > 1 LIMIT 1"
    )
