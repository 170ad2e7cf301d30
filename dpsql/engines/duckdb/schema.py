"""Names, types and keys of the tables in a DuckDB file, from its catalog alone; no row is read or counted.

Names and types of the columns of Parquet and CSV files, as DuckDB reads them.

Of a Parquet file only its metadata is read. Types of a CSV file are guessed from its first rows, so they are for the
curator, who decides what becomes public.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from dpsql.engines.base import Column
from dpsql.engines.duckdb import catalog
from dpsql.engines.scratch import ScratchFolder
from dpsql.errors import EngineError


def describe_file(path: Path) -> tuple[Column, ...]:
    """Return the columns of a Parquet or CSV file; raise `EngineError` for a file that cannot be read."""
    reader = "read_parquet" if path.suffix.lower() == ".parquet" else "read_csv"
    columns = None
    try:
        with duckdb.connect(":memory:") as connection:
            columns = connection.execute(f"DESCRIBE SELECT * FROM {reader}(?)", [str(path)]).fetchall()  # noqa: S608 - one of two words
    except (duckdb.Error, RuntimeError, ValueError):
        pass
    if columns is None:  # raised here and not where it was caught: no word of the engine hangs on it
        hint = "Check that it is a Parquet file, or CSV with a header."
        raise EngineError("source-unreadable", "The columns of the file cannot be read.", hint=hint, place=str(path))
    return tuple(Column(name, type_) for name, type_, *_ in columns)


_NAMES = """
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
        catalog.connect_sealed(str(folder.path), None, threads=None) as connection,
    ):
        home = catalog.attach(connection, database)
        catalog.lock(connection)
        try:
            names = connection.execute(_NAMES, [home]).fetchall()
            keys = connection.execute(_KEYS, [home]).fetchall()
        except (duckdb.Error, RuntimeError, ValueError):
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
        return catalog.describe(connection, name[1], relation=(home, *name)).columns
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
