"""Where materialized tables are made: a DuckDB instance that reads the data and writes one file beside it.

It is the curator's, who has the data anyway; no statement of an analyst comes near. What goes wrong is told in our own
words all the same, since the terminal may be somebody else's and its history a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from dpsql.engines.base import CsvFile
from dpsql.engines.duckdb import catalog
from dpsql.engines.lakes.folder import Folder
from dpsql.engines.scratch import ScratchFolder
from dpsql.errors import EngineError

__all__ = ["MADE", "MaterializationWriter", "workshop"]

MADE = "dpsql_made"  # the name inside of the file that is written


@dataclass(frozen=True, slots=True, repr=False)
class MaterializationWriter:
    """An open instance: `paths` are those of the data's tables, by the names of the policy."""

    connection: duckdb.DuckDBPyConnection
    paths: Mapping[str, tuple[str, ...]]

    def run(self, statements: Iterable[tuple[str, list[object]]]) -> None:
        """Run statements, all or none; raise `EngineError` if one fails."""
        done = False
        with suppress(duckdb.Error, RuntimeError, ValueError):
            self.connection.execute("BEGIN")
            for sql, parameters in statements:
                self.connection.execute(sql, parameters)
            self.connection.execute("COMMIT")
            done = True
        if not done:
            with suppress(duckdb.Error):
                self.connection.execute("ROLLBACK")
            raise _failed()

    def row(self, sql: str) -> tuple[object, ...] | None:
        """Return the only row of a SELECT; None where there is none, or where DuckDB cannot answer it."""
        with suppress(duckdb.Error, RuntimeError, ValueError):
            found: tuple[object, ...] | None = self.connection.execute(sql).fetchone()
            return found
        return None

    def is_table(self, path: tuple[str, ...]) -> bool:
        """Say whether a table is stored by DuckDB itself, which then numbers its rows."""
        sql = "SELECT 1 FROM system.main.duckdb_tables() WHERE (database_name, schema_name, table_name) = ($1, $2, $3)"
        return path[0] == catalog.ATTACHED and len(self.connection.execute(sql, list(path)).fetchall()) == 1

    def definitions(self) -> dict[str, str]:
        """Return the CREATE TABLE of every table in the file that is written, by its name."""
        sql = "SELECT table_name, sql FROM system.main.duckdb_tables() WHERE database_name = $1"
        return dict(self.connection.execute(sql, [MADE]).fetchall())


@contextmanager
def workshop(
    database: str | Path | None,
    sources: Mapping[str, Path | CsvFile | Folder | None],
    *,
    file: Path,
    memory_limit: str | None,
    threads: int | None,
) -> Iterator[MaterializationWriter]:
    """Open the data for reading, and `file` for writing, which is made where it is not there.

    Raises `EngineError` for what cannot be opened. When it closes, everything has been written into the file.
    """
    with ScratchFolder() as folder:
        connection = catalog.connect_sealed(str(folder.path), memory_limit, threads=threads)
        with connection:
            home = None if database is None else catalog.attach(connection, database)
            paths = catalog.place(connection, sources, home=home, sealed=False)
            catalog.make_total(connection)
            shop = MaterializationWriter(connection, paths)
            _attach(connection, file)
            yield shop
            shop.run([(f"DETACH {MADE}", [])])


def _attach(connection: duckdb.DuckDBPyConnection, file: Path) -> None:
    """Attach the file, which nobody else may read from the first row on."""
    opened = False
    with suppress(duckdb.Error, RuntimeError, OSError):
        connection.execute(f"ATTACH '{str(file).replace(chr(39), chr(39) * 2)}' AS {MADE} (TYPE duckdb)")
        file.chmod(0o600)
        opened = True
    if not opened:
        hint = "Give a folder in which this user may write, and see that the disk has room."
        raise EngineError("prepare-failed", "The file of a materialized table cannot be written.", hint=hint)


def _failed() -> EngineError:
    hint = "See that the disk has room, and that the policy's memory_limit leaves DuckDB some."
    return EngineError("prepare-failed", "The table could not be materialized.", hint=hint)
