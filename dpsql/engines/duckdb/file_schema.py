"""Names and types of the columns of Parquet and CSV files, as DuckDB reads them.

Of a Parquet file only its metadata is read. Types of a CSV file are guessed from its first rows, so they are for the
curator, who decides what becomes public.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from dpsql.engines.base import Column
from dpsql.errors import EngineError

__all__ = ["describe_file"]


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
