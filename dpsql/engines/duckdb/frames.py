"""Tables of pandas, polars and Arrow as a DuckDB database in memory."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa

from dpsql.dialects import write_name
from dpsql.errors import UsageError


def load_frames(frames: Mapping[str, object]) -> duckdb.DuckDBPyConnection:
    """Return a connection to a copy of the tables, by name; later changes of a frame do not reach it.

    Raises `UsageError` for an object that is no table of Arrow's PyCapsule protocol, or that DuckDB cannot read.
    """
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
