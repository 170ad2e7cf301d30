"""Writer of materialized tables: a DuckDB instance that reads the data and writes one file beside it.

Only curators use it, who may read the data; it runs no statement of an analyst. Its errors do not show DuckDB's texts,
which can carry cell values into a terminal or its history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from dpsql.engines.duckdb.instance import ATTACHED, TROUBLE, attach, connect_sealed, pin
from dpsql.engines.duckdb.placement import place
from dpsql.engines.scratch import ScratchFolder
from dpsql.engines.sources import CsvFile, Folder, RemoteFiles
from dpsql.errors import EngineError

MADE = "dpsql_made"  # DuckDB's name for the file that is written


@dataclass(frozen=True, slots=True, repr=False)
class MaterializationWriter:
    """Open DuckDB instance; `paths` are those of the data's tables, by their names in the policy."""

    connection: duckdb.DuckDBPyConnection
    paths: Mapping[str, tuple[str, ...]]

    def run(self, statements: Iterable[tuple[str, list[object]]]) -> None:
        """Run statements, all or none; raise `EngineError` if one fails."""
        hint = ""
        try:
            self.connection.execute("BEGIN")
            for sql, parameters in statements:
                self.connection.execute(sql, parameters)
            self.connection.execute("COMMIT")
        except (duckdb.OperationalError, duckdb.FatalException):
            hint = "Free space on the disk, or raise the policy's memory_limit."
        except TROUBLE:
            hint = "Leave materialized out of the policy for this table: queries then read its rows."
        if hint:  # raised here: no context with DuckDB's text hangs on it
            with suppress(duckdb.Error):
                self.connection.execute("ROLLBACK")
            raise EngineError("prepare-failed", "The table could not be materialized.", hint=hint)

    def row(self, sql: str) -> tuple[object, ...] | None:
        """Return the only row of a SELECT, or None if it has no row or fails."""
        with suppress(*TROUBLE):
            found: tuple[object, ...] | None = self.connection.execute(sql).fetchone()
            return found
        return None

    def is_table(self, path: tuple[str, ...]) -> bool:
        """Check whether DuckDB itself stores the table, and hence numbers its rows."""
        sql = "SELECT 1 FROM system.main.duckdb_tables() WHERE (database_name, schema_name, table_name) = ($1, $2, $3)"
        return path[0] == ATTACHED and len(self.connection.execute(sql, list(path)).fetchall()) == 1

    def definitions(self) -> dict[str, str]:
        """Return the CREATE TABLE statements of the file that is written, by table name."""
        sql = "SELECT table_name, sql FROM system.main.duckdb_tables() WHERE database_name = $1"
        return dict(self.connection.execute(sql, [MADE]).fetchall())


@contextmanager
def open_writer(
    database: str | Path | None,
    sources: Mapping[str, Path | CsvFile | Folder | RemoteFiles | None],
    *,
    file: Path,
    memory_limit: str | None,
    threads: int | None,
) -> Iterator[MaterializationWriter]:
    """Open the data for reading and `file` for writing, which is created if needed.

    When the context ends, all rows have been written to the file. Raises `EngineError` if the data or the file cannot
    be opened.
    """
    with ScratchFolder() as folder:
        connection = connect_sealed(str(folder.path), memory_limit, threads=threads)
        with connection:
            home = None if database is None else attach(connection, database)
            paths = place(connection, sources, home=home, sealed=False)
            pin(connection)
            writer = MaterializationWriter(connection, paths)
            attached = False
            with suppress(duckdb.Error, RuntimeError, OSError):
                connection.execute(f"ATTACH '{str(file).replace(chr(39), chr(39) * 2)}' AS {MADE} (TYPE duckdb)")
                file.chmod(0o600)  # before the first row is written
                attached = True
            if not attached:
                hint = "Free space on the disk, and let this user write in the policy's folder."
                raise EngineError("prepare-failed", "The file of a materialized table cannot be written.", hint=hint)
            yield writer
            writer.run([(f"DETACH {MADE}", [])])
