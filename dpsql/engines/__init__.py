"""Where the data is: SQL text and bound values in, exact results out; no engine knows what privacy is.

The engines themselves are imported by name (`dpsql.engines.duckdb`), so that this package starts without one.
"""

from dpsql.engines.base import (
    Beside,
    Column,
    Confined,
    CsvFile,
    Desk,
    Engine,
    Exact,
    Registered,
    Statement,
    Watchable,
    open_exact,
    read_confinement,
)
from dpsql.engines.recording import RecordingEngine
from dpsql.engines.remote import RemoteEngine, table_missing

__all__ = ["Beside", "Column", "Confined", "CsvFile", "Desk", "Engine", "Exact", "RecordingEngine", "Registered"]
__all__ += ["RemoteEngine", "Statement", "Watchable", "open_exact", "read_confinement", "table_missing"]
