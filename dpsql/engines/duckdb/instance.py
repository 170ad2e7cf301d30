"""Settings of DuckDB on which the meaning of a statement rests, each pinned on dpsql's own cursor.

A setting of the session is stronger than one of the instance: `SET GLOBAL` of the user who lent the connection, before
or after, changes nothing for the cursor. Where settings are locked, those that are right already cannot change.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import duckdb

from dpsql.dialects import release
from dpsql.errors import EngineError

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
_TROUBLE = (duckdb.Error, RuntimeError, ValueError)


def pin(connection: duckdb.DuckDBPyConnection) -> None:
    """Set all pinned settings for the connection alone. Raises `EngineError` where one is locked at another value."""
    release()
    known = _list_known(connection)
    _pin(connection, {name: values for name, values in PINNED.items() if name in known})


def pin_depth(connection: duckdb.DuckDBPyConnection) -> None:
    """Limit how deep the expressions of a statement may be nested."""
    _pin(connection, DEPTH)


def pin_search_path(connection: duckdb.DuckDBPyConnection) -> None:
    """Let operators and functions mean those of DuckDB, also where a macro has the name of one; tables are qualified.

    Where settings are locked, the path stays as it is, and macros were refused.
    """
    with suppress(*_TROUBLE):
        connection.execute("SET SESSION search_path = 'system.main'")


def pin_globally(connection: duckdb.DuckDBPyConnection) -> None:
    """Set all pinned settings for the instance, so that further cursors have them before it is locked."""
    known = _list_known(connection)
    for name, values in {**PINNED, **DEPTH}.items():
        for value in values if name in known else ():
            with suppress(*_TROUBLE):
                connection.execute(f"SET GLOBAL {name} = '{value}'")
                break


def has_pinned(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the connection runs statements, and all pinned settings have their values.

    Every turn of a borrowed connection asks this. Parsing would take most of the time, so it is done once.
    """
    with suppress(*_TROUBLE):
        names = sorted(_list_known(connection) & PINNED.keys())
        check = _CHECKS.get(duckdb.__version__)
        if check is None:
            columns = ", ".join(f"current_setting('{name}')" for name in names)
            check = _CHECKS[duckdb.__version__] = connection.extract_statements(f"SELECT {columns}")[0]
        (row,) = connection.execute(check).fetchall()
        return all(_is_right(value, PINNED[name]) for name, value in zip(names, row, strict=True))
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
        with suppress(*_TROUBLE):
            rows = connection.execute("SELECT name FROM system.main.duckdb_settings()").fetchall()
            known = _KNOWN[duckdb.__version__] = frozenset(name for (name,) in rows) & {*PINNED, *DEPTH}
    return known or frozenset()


_KNOWN: dict[str, frozenset[str]] = {}  # by the version of DuckDB, and so the checks
_CHECKS: dict[str, duckdb.Statement] = {}


def _pin(connection: duckdb.DuckDBPyConnection, settings: Mapping[str, tuple[str, ...]]) -> None:
    wrong = [name for name, values in settings.items() if not _set_or_find(connection, name, values=values)]
    if wrong:
        names = ", ".join(wrong)
        wanted = "; ".join(f"SET GLOBAL {name} = '{settings[name][0]}'" for name in wrong)
        raise EngineError(
            "engine-settings",
            f"The connection has locked settings by which statements would mean something else: {names}.",
            hint=f"Run {wanted} before settings are locked, or give dpsql the path of the file.",
        )


def _set_or_find(connection: duckdb.DuckDBPyConnection, name: str, *, values: tuple[str, ...]) -> bool:
    """Set a setting for the connection, or return whether it is locked at a value that is right."""
    for value in values:  # a release may know one of the words alone
        with suppress(*_TROUBLE):
            connection.execute(f"SET SESSION {name} = '{value}'")
            return True
    with suppress(*_TROUBLE):
        return _is_right(_read(connection, [name])[0], values)
    return False


def _read(connection: duckdb.DuckDBPyConnection, names: list[str]) -> tuple[object, ...]:
    columns = ", ".join(f"current_setting('{name}')" for name in names)
    (row,) = connection.execute(f"SELECT {columns}").fetchall()
    return tuple(row)


def _is_right(value: object, values: tuple[str, ...]) -> bool:
    return str(value).lower() in {each.lower() for each in values}
