"""Tables of an open DuckDB: their columns and collations, whether they are stored, and their keys; no row is read.

A text goes with another one of its own collation, or of none, and with no other: DuckDB decides that when it binds a
statement, before it looks at the data. So the collations that columns declare, which no catalog names, are found.

For a curator who writes a policy, the tables of a whole file, and the columns of a Parquet file, of which only the
metadata is read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from dpsql.dialects import quote_name, quote_path
from dpsql.engines.duckdb.instance import TROUBLE, attach, connect_sealed, lock
from dpsql.engines.scratch import ScratchFolder
from dpsql.engines.sources import Column, Registered
from dpsql.errors import EngineError

# The first two tell whether a column has any collation at all; the others are the commonest. For DuckDB nocase and
# NOCASE are two.
_NAMES = ("C", "NOCASE", "NOACCENT", "NOCASE.NOACCENT", "NOACCENT.NOCASE", "NFC", "POSIX")
_KNOWN = (*_NAMES, *(name.lower() for name in _NAMES))
_COMPUTED = re.compile(r"GENERATED ALWAYS AS")  # in the definition of a table


def collations(
    connection: duckdb.DuckDBPyConnection, relation: tuple[str, ...], *, columns: Sequence[str]
) -> dict[str, str]:
    """Return the collations of those columns of text that have one.

    A collation that is not among the known ones is taken for the column's own.
    """
    # A column without a collation goes with every one, and a column with one goes with that alone: two are enough to
    # tell.
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
    with suppress(*TROUBLE):
        connection.execute(f"SELECT {compared} FROM {quote_path(relation)} LIMIT 0")  # noqa: S608 - quoted
        return True
    return False


def describe(connection: duckdb.DuckDBPyConnection, name: str, *, relation: tuple[str, ...]) -> Registered:
    """Return the table `name` with its columns, or say that it is not there; not whether it is stored."""
    rows: list[tuple[str, ...]] = []
    with suppress(*TROUBLE):
        rows = connection.execute("DESCRIBE " + quote_path(relation)).fetchall()
    if not rows:
        raise EngineError(
            "table-missing",
            f'The database has no table or view "{name}" that can be read.',
            hint=f"{_propose(connection, name)}Name a table of the schema main, or schema.table; a view must not read "
            "files outside.",
            place=f"table {name}",
        )
    declared = collations(connection, relation, columns=[name for name, kind, *_ in rows if kind == "VARCHAR"])
    columns = tuple(Column(name, kind, declared.get(name, "")) for name, kind, *_ in rows)
    return Registered(relation, columns)


def _propose(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    """Return a question that proposes the table with the nearest name, with a space; "" if none is near."""
    from difflib import get_close_matches

    names = list[tuple[str, str]]()
    with suppress(*TROUBLE):
        listed = "SELECT table_schema, table_name FROM information_schema.tables"
        names = connection.execute(listed).fetchall()
    known = {(table if schema == "main" else f"{schema}.{table}").lower(): (schema, table) for schema, table in names}
    near = get_close_matches(name.lower(), known, 1) or [each for each in known if name.lower().endswith(f".{each}")]
    if not near:
        return ""
    schema, table = known[near[0]]
    return f"Did you mean {table if schema == 'main' else f'{schema}.{table}'}? "


def is_stored(connection: duckdb.DuckDBPyConnection, relation: tuple[str, ...]) -> bool:
    """Return whether a table has rows of its own, in which no column is computed; a view may change with the clock."""
    name = quote_path(relation)
    with suppress(*TROUBLE):  # DuckDB says no to the storage of a view; a computed column has a default
        connection.execute("SELECT 1 FROM system.main.pragma_storage_info($1) LIMIT 0", [name])
        defaults = "SELECT system.main.count(dflt_value) FROM system.main.pragma_table_info($1)"
        if connection.execute(defaults, [name]).fetchall() == [(0,)]:
            return True
    # The definition alone tells a computed column from a default. In a new instance this takes 10 ms, in which DuckDB
    # makes the views of its catalog.
    sql = """SELECT sql FROM system.main.duckdb_tables()
    WHERE lower(database_name) = lower($1) AND lower(schema_name) = lower($2) AND lower(table_name) = lower($3)"""
    with suppress(*TROUBLE):
        found = connection.execute(sql, list(relation)).fetchall()
        return len(found) == 1 and not _COMPUTED.search(found[0][0])
    return False


def repeated(table: Registered, column: str) -> str:
    """Return the SELECT that yields one row if a column has a duplicate value other than NULL; text by its bytes."""
    (kind,) = (known.type for known in table.columns if known.name == column)
    value = f"{quote_name(column)} COLLATE C" if kind == "VARCHAR" else quote_name(column)
    relation = quote_path(table.relation)
    return (
        f"SELECT 1 FROM {relation} WHERE {quote_name(column)} IS NOT NULL "  # noqa: S608 - quoted
        f"GROUP BY {value} HAVING system.main.count() > 1 LIMIT 1"
    )


def describe_file(path: Path) -> tuple[Column, ...]:
    """Return the columns of a Parquet file; raise `EngineError` for a file that cannot be read."""
    columns = None
    try:
        with duckdb.connect(":memory:") as connection:
            columns = connection.execute("DESCRIBE SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
    except TROUBLE:
        pass
    if columns is None:  # raised here and not where it was caught: no word of the engine hangs on it
        hint = "Check that it is a Parquet file."
        raise EngineError("source-unreadable", "The columns of the file cannot be read.", hint=hint, place=str(path))
    return tuple(Column(name, type_) for name, type_, *_ in columns)


_STORED = """
    SELECT schema_name, table_name FROM system.main.duckdb_tables() WHERE database_name = $1 AND NOT internal
    UNION ALL
    SELECT schema_name, view_name FROM system.main.duckdb_views() WHERE database_name = $1 AND NOT internal
    ORDER BY 1, 2
"""
_KEYS = """
    SELECT schema_name, table_name, constraint_type, constraint_column_names, referenced_table
    FROM system.main.duckdb_constraints()
    WHERE database_name = $1 AND constraint_type IN ('PRIMARY KEY', 'UNIQUE', 'FOREIGN KEY')
    ORDER BY constraint_index
"""
Name = tuple[str, str]
Key = tuple[str, tuple[str, ...], str | None]


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table or view with its columns and keys; of unique and foreign keys those of one column."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    unique: frozenset[str]
    leads_to: Mapping[str, str]

    @property
    def key(self) -> Name:
        """Schema and name."""
        return self.schema, self.name


@dataclass(frozen=True, slots=True)
class Schema:
    """All tables and views of a database, by schema and name; `unread` are the views that no longer bind."""

    tables: tuple[StoredTable, ...]
    unread: tuple[Name, ...]


def describe_schema(database: Path | str) -> Schema:
    """Return the schema of a database file, read in a sealed instance; raise what opening the file raises."""
    with (
        ScratchFolder() as folder,
        connect_sealed(str(folder.path), None, threads=None) as connection,
    ):
        home = attach(connection, database)
        lock(connection)
        try:
            names = connection.execute(_STORED, [home]).fetchall()
            keys = connection.execute(_KEYS, [home]).fetchall()
        except TROUBLE:
            names = None
        if names is None:  # raised here and not where it was caught: no word of the engine hangs on it
            hint = "Open the file with DuckDB itself, and see which of its views or tables is damaged."
            raise EngineError(
                "database-unreadable", "The tables of the database cannot be listed.", hint=hint, place=str(database)
            )
        found = {name: columns for name in names if (columns := _columns(connection, name, home=home))}
        by_table = _by_table(keys)
        tables = tuple(_make_stored_table(name, columns, keys=by_table[name]) for name, columns in found.items())
        return Schema(tables, tuple(name for name in names if name not in found))


def _columns(connection: duckdb.DuckDBPyConnection, name: Name, *, home: str) -> tuple[Column, ...]:
    """Return the columns as a session would see them, or none where a view does not bind."""
    with suppress(EngineError):
        return describe(connection, name[1], relation=(home, *name)).columns
    return ()


def _by_table(rows: list[tuple[str, str, str, list[str], str | None]]) -> Mapping[Name, list[Key]]:
    keys: dict[Name, list[Key]] = defaultdict(list)
    for schema, table, kind, columns, target in rows:
        keys[schema, table].append((kind, tuple(columns), target))
    return keys


def _make_stored_table(name: Name, columns: tuple[Column, ...], *, keys: list[Key]) -> StoredTable:
    return StoredTable(
        *name,
        columns=columns,
        primary_key=next((key for kind, key, _ in keys if kind == "PRIMARY KEY"), ()),
        unique=frozenset(key[0] for kind, key, _ in keys if kind != "FOREIGN KEY" and len(key) == 1),
        leads_to={key[0]: str(target) for kind, key, target in keys if kind == "FOREIGN KEY" and len(key) == 1},
    )
