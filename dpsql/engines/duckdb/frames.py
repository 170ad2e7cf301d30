"""Tables of pandas, polars and Arrow as a DuckDB database in memory."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa

from dpsql.errors import UsageError

__all__ = ["load_frames"]


def load_frames(frames: Mapping[str, object]) -> duckdb.DuckDBPyConnection:
    """Return a connection to a copy of the tables, by name; later changes of a frame do not reach it.

    Raises `UsageError` for an object that is no table of Arrow's PyCapsule protocol.
    """
    connection = duckdb.connect(":memory:")
    for name, frame in frames.items():
        table = None
        if hasattr(frame, "__arrow_c_stream__"):
            table = pa.table(frame)
        if table is None or not isinstance(name, str):
            connection.close()
            hint = 'Pass tables by name, such as {"reads": frame}.'
            raise UsageError("database", "A table is a frame of pandas or polars, or an Arrow table.", hint=hint)
        quoted = '"' + name.replace('"', '""') + '"'
        connection.register("dpsql_frame", table)
        connection.execute(f"CREATE TABLE {quoted} AS SELECT * FROM dpsql_frame")  # noqa: S608 - a quoted name
        connection.unregister("dpsql_frame")
    return connection
