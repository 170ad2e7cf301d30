"""Instances and cursors of DuckDB: opened with nothing to load, pinned to the settings of dpsql, and locked.

Errors here depend on files and names alone, and only texts of our own are passed on.

The meaning of a statement rests on settings, each of which is pinned on dpsql's own cursor. A setting of the session is
stronger than one of the instance: `SET GLOBAL` of the user who lent the connection, before or after, changes nothing
for the cursor. Where settings are locked, those that are right already cannot change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path

import duckdb

from dpsql.dialects import quote_name, quote_text, write_name
from dpsql.dialects.duckdb_releases import release
from dpsql.errors import EngineError, UsageError

ATTACHED = "dpsql_data"
TROUBLE = (duckdb.Error, RuntimeError, ValueError)  # ValueError: engine words that are not UTF-8

# Each with the value that is set, and with other words for the same. Every setting of a supported DuckDB by which a
# statement could mean something else, or fail because of one row, is here: a test tries them all.
PINNED: Mapping[str, tuple[str, ...]] = {
    "Calendar": ("gregorian",),
    "TimeZone": ("UTC", "Etc/UTC"),
    "arrow_large_buffer_size": ("true",),  # an Arrow column without a limit of 2 GiB
    "arrow_lossless_conversion": ("false",),
    "arrow_output_list_view": ("false",),
    "arrow_output_version": ("1.0",),
    "binary_as_string": ("false",),
    "default_collation": ("",),
    "default_null_order": ("NULLS_LAST",),
    "default_order": ("ASC", "ASCENDING"),
    "dialect_compatibility_mode": ("NONE",),
    "disable_timestamptz_casts": ("false",),
    "error_on_division_by_zero": ("true",),
    "ieee_floating_point_ops": ("true",),  # without, the square root of -1 fails the statement
    "integer_division": ("false",),
    "legacy_disable_null_type": ("false",),
    "max_execution_time": ("0",),
    "old_implicit_casting": ("false",),
    "order_by_non_integer_literal": ("false",),
    "preserve_identifier_case": ("preserve_case", "true"),
    "produce_arrow_string_view": ("false",),
    "regex_match_operator_semantics": ("partial",),
    "scalar_subquery_error_on_multiple_rows": ("true",),
}
DEPTH = {"max_expression_depth": ("500",)}  # far above any statement of dpsql, far below what the stack carries
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:")  # of the address of an engine
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
    with suppress(*TROUBLE):  # here and below: our error is raised where no word of the engine can hang on it
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
        hint = "Check the path; in Python, an open DuckDB connection is taken for a database in memory."
        if found := _SCHEME.match(place):
            hint = f'Check the path; to name an engine, install the package that opens "{found[0]}".'
        raise EngineError("database-missing", "There is no database file at this path.", hint=hint, place=place)
    file = quote_text(Path(database).resolve())
    trouble = find_trouble(connection, f"ATTACH {file} AS {ATTACHED} (READ_ONLY, TYPE duckdb)")
    if trouble == "locked":
        hint = "Close the other connection, or pass it instead of the path if it is in this process."
        raise EngineError("database-locked", "The database is open for writing elsewhere.", hint=hint, place=place)
    if trouble:
        hint = "Give a database file of this or an earlier version of DuckDB, and the right to read it."
        raise EngineError("database-unreadable", "The file is no database DuckDB can read.", hint=hint, place=place)
    return ATTACHED


def find_trouble(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Run `sql`; return "" if it went well, else one word of ours: "locked" or "failed"."""
    try:
        connection.execute(sql)
    except TROUBLE as error:
        told = f"{type(error).__name__}: {error}"
        return "locked" if any(sign in told for sign in _LOCKED) else "failed"
    return ""


def pin(connection: duckdb.DuckDBPyConnection) -> None:
    """Set all pinned settings for the connection alone. Raises `EngineError` where one is locked at another value."""
    release()
    known = _list_known(connection)
    _pin(connection, {name: values for name, values in PINNED.items() if name in known})


def _pin(connection: duckdb.DuckDBPyConnection, settings: Mapping[str, tuple[str, ...]]) -> None:
    wrong = [
        name
        for name, values in settings.items()
        if not _set(connection, name, values=values, scope="SESSION") and not _has(connection, name, values=values)
    ]
    if wrong:
        names = ", ".join(wrong)
        wanted = "; ".join(f"SET GLOBAL {name} = '{settings[name][0]}'" for name in wrong)
        raise EngineError(
            "engine-settings",
            f"The connection has locked settings by which statements would mean something else: {names}.",
            hint=f"Run {wanted} before settings are locked, or give dpsql the path of the file.",
        )


def _set(connection: duckdb.DuckDBPyConnection, name: str, *, values: tuple[str, ...], scope: str) -> bool:
    """Set a setting; return whether that was possible. A release may know one of the words for a value alone."""
    for value in values:
        with suppress(*TROUBLE):
            connection.execute(f"SET {scope} {name} = '{value}'")
            return True
    return False


def _has(connection: duckdb.DuckDBPyConnection, name: str, *, values: tuple[str, ...]) -> bool:
    """Return whether a setting has one of these values."""
    with suppress(*TROUBLE):
        ((found,),) = connection.execute(f"SELECT current_setting('{name}')").fetchall()
        return str(found).lower() in {value.lower() for value in values}
    return False


def pin_search_path(connection: duckdb.DuckDBPyConnection) -> None:
    """Let operators and functions mean those of DuckDB, also where a macro has the name of one; tables are qualified.

    Where settings are locked, the path stays as it is, and macros were refused.
    """
    with suppress(*TROUBLE):
        connection.execute("SET SESSION search_path = 'system.main'")


def has_pinned(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the connection runs statements, and all pinned settings have their values.

    Every turn of a borrowed connection asks this. Parsing would take most of the time, so it is done once.
    """
    with suppress(*TROUBLE):
        if duckdb.__version__ not in _CHECKS:
            names = sorted(_list_known(connection) & PINNED.keys())
            columns = ", ".join(f"current_setting('{name}')" for name in names)
            wanted = [frozenset(value.lower() for value in PINNED[name]) for name in names]
            _CHECKS[duckdb.__version__] = connection.extract_statements(f"SELECT {columns}")[0], wanted
        check, wanted = _CHECKS[duckdb.__version__]
        (row,) = connection.execute(check).fetchall()
        return all(str(value).lower() in values for value, values in zip(row, wanted, strict=True))
    return False


def changed() -> EngineError:
    """Return the error for a cursor whose pinned settings were changed; nothing was charged."""
    return EngineError(
        "engine-settings",
        "A setting of the connection was changed, by which statements would mean something else.",
        hint="Close the session, and call dpsql.connect again.",
    )


def _list_known(connection: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Return the names of the pinned settings that this DuckDB has."""
    known = _KNOWN.get(duckdb.__version__)
    if known is None:
        with suppress(*TROUBLE):
            rows = connection.execute("SELECT name FROM system.main.duckdb_settings()").fetchall()
            known = _KNOWN[duckdb.__version__] = frozenset(name for (name,) in rows) & {*PINNED, *DEPTH}
    return known or frozenset()


_KNOWN: dict[str, frozenset[str]] = {}  # by the version of DuckDB, and so the checks
_CHECKS: dict[str, tuple[duckdb.Statement, list[frozenset[str]]]] = {}


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Close the instance: no files but those already allowed, and no setting can change any more."""
    known = _list_known(connection)
    for name, values in {**PINNED, **DEPTH}.items():  # for the instance, so that further cursors have them, too
        if name in known:
            _set(connection, name, values=values, scope="GLOBAL")
    make_quiet(connection)
    check_cursor(connection)
    # `lock_configuration` is the last one: behind it no setting can change.
    for statement in _LAST_SETTINGS:
        require_setting(connection, statement)


def check_cursor(cursor: duckdb.DuckDBPyConnection) -> None:
    """Raise `EngineError` unless a cursor of a locked instance has the settings that statements rely on."""
    if not has_pinned(cursor):
        raise _refused_setting()
    _pin(cursor, DEPTH)


def make_quiet(connection: duckdb.DuckDBPyConnection) -> None:
    """Let DuckDB draw nothing over what others draw, and tell how far a statement is where it can."""
    try:
        _see_to(connection, _TOLD)
    except EngineError:
        _see_to(connection, _QUIET)


def _see_to(connection: duckdb.DuckDBPyConnection, wanted: Mapping[str, bool]) -> None:
    """Set, for the connection alone, what is not so already."""
    for name, value in wanted.items():
        with suppress(*TROUBLE):
            if connection.execute("SELECT current_setting($1)", [name]).fetchall() == [(value,)]:
                continue
        require_setting(connection, f"SET SESSION {name} = {str(value).lower()}")


def require_setting(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Run a statement that makes a setting; raise `EngineError` if DuckDB refuses it."""
    if find_trouble(connection, statement):
        raise _refused_setting()


def _refused_setting() -> EngineError:
    return EngineError(
        "engine-settings",
        "DuckDB refused a setting that dpsql needs.",
        hint="Install a version of DuckDB that dpsql supports.",
    )


def resident_database(connection: duckdb.DuckDBPyConnection) -> str:
    """Return the current database of the user's connection, which only that connection itself knows."""
    name = ""
    with suppress(*TROUBLE):
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
    with suppress(*TROUBLE):
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
    with suppress(*TROUBLE):
        bare.execute("SELECT system.main.regexp_matches(text, $1) FROM (VALUES ('')) AS v(text)", [pattern]).fetchall()
        accepted = True
    return accepted


def load_frames(frames: Mapping[str, object]) -> duckdb.DuckDBPyConnection:
    """Return a connection to a copy of the tables, by name; later changes of a frame do not reach it.

    Raises `UsageError` for an object that is no table of Arrow's PyCapsule protocol, or that DuckDB cannot read.
    """
    import pyarrow as pa

    connection = duckdb.connect(":memory:")
    for name, frame in frames.items():
        if not hasattr(frame, "__arrow_c_stream__") or not isinstance(name, str):
            connection.close()
            hint = 'Pass tables by name, such as {"reads": frame}.'
            raise UsageError("database", "A table is a frame of pandas or polars, or an Arrow table.", hint=hint)
        try:
            connection.register("dpsql_frame", pa.table(frame))
            connection.execute(f"CREATE TABLE {write_name(name)} AS SELECT * FROM dpsql_frame")  # noqa: S608 - quoted
            connection.unregister("dpsql_frame")
            is_read = True
        except Exception:  # noqa: BLE001 - its text may hold values
            is_read = False
        if not is_read:  # raised here and not where it was caught: no context hangs on it
            connection.close()
            hint = "Give each column one type, and each table a name of its own."
            raise UsageError("database", "A table cannot be read.", hint=hint, place=name)
    return connection
