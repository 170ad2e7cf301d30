"""Where released rows are computed with: a DuckDB for each statement, with those rows in it and nothing else.

Public rows that it joins with them are put there too. There is no file, no setting and no other table within its reach;
it goes with the statement.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from dpsql.engines.base import Statement
from dpsql.errors import EngineError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from dpsql.engines.base import Stop

    Path = tuple[str, str, str]

__all__ = ["DuckDBDesk"]

_ROWS = "dpsql_rows"


class DuckDBDesk:
    """Computes on released and public rows, on one thread of a locked instance: in so much memory and so much time."""

    def __init__(self, memory_limit: str = "1GB", seconds: float = 60) -> None:
        self._memory_limit = memory_limit
        self._seconds = seconds

    def compute(self, tables: Mapping[Path, pa.Table], statement: Statement, *, stop: Stop | None = None) -> pa.Table:
        """Run one SELECT over `tables`, which it finds at their paths; what goes wrong is an `EngineError` of ours."""
        answer = self._computed(tables, statement)
        if answer is None:  # raised here and not where it was caught: no context hangs on it
            raise EngineError(
                "wrapping-failed",
                "The SELECT around the private query could not be computed.",
                hint="The private answer is stored: ask for less of it, at no further cost.",
            )
        return answer

    def close(self) -> None:
        """Do nothing: every instance goes with its statement."""

    def _computed(self, tables: Mapping[Path, pa.Table], statement: Statement) -> pa.Table | None:
        import duckdb  # start-up: most statements need no desk

        from dpsql.engines.duckdb_catalog import connect_bare

        with suppress(Exception), closing(connect_bare(self._memory_limit)) as desk, _at_most(self._seconds, desk):
            for path, table in tables.items():
                _lay(desk, table, path=path)
            (only,) = desk.extract_statements(statement.sql)
            if only.type == duckdb.StatementType.SELECT:
                return desk.sql(statement.sql, params=list(statement.parameters)).to_arrow_table()
        return None


@contextmanager
def _at_most(seconds: float, desk: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Stop what runs on the desk once the time is over."""
    timer = threading.Timer(seconds, desk.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # no longer than it takes to interrupt a desk that is still open


def _lay(desk: duckdb.DuckDBPyConnection, table: pa.Table, *, path: Path) -> None:
    """Copy the rows into a table at `path`: DuckDB would filter an Arrow table by other rules than its own."""
    home, schema, name = ('"' + part.replace('"', '""') + '"' for part in path)
    desk.execute(f"CREATE SCHEMA IF NOT EXISTS {home}.{schema}")
    desk.register(_ROWS, table)
    desk.execute(f"CREATE TABLE {home}.{schema}.{name} AS FROM temp.main.{_ROWS}")
    desk.unregister(_ROWS)
