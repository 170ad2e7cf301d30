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
    PublicStatements,
    Registered,
    Statement,
    Watchable,
    open_exact,
    read_confinement,
    turn_of,
)
from dpsql.engines.recording import RecordingEngine
from dpsql.engines.remote import RemoteEngine, table_missing

__all__ = ["Beside", "Column", "Confined", "CsvFile", "Desk", "Engine", "Exact", "PublicStatements", "RecordingEngine"]
__all__ += ["Registered", "RemoteEngine", "Statement", "Watchable", "open_exact", "read_confinement", "table_missing"]
__all__ += ["turn_of"]
