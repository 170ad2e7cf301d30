"""Engines: SQL text and bound values in, exact results out; engines know nothing about privacy.

The engines themselves are imported by name (`dpsql.engines.duckdb.engine`), so that this package starts without one.
"""

from dpsql.engines.base import (
    NOT_LOADED,
    Confined,
    Engine,
    Exact,
    PublicStatements,
    ResultEvaluator,
    Statement,
    Stop,
    Unchanging,
    Watchable,
    find_data_version,
    load_libraries,
    open_exact,
    read_confinement,
    statement_stopped,
    take_turn,
)
from dpsql.engines.recording import RecordingEngine
from dpsql.engines.remote import RemoteEngine, table_missing
from dpsql.engines.sources import AttachedTable, Column, CsvFile, ListedTable, Registered, RemoteFiles

__all__ = [
    "AttachedTable",
    "Column",
    "Confined",
    "CsvFile",
    "Engine",
    "Exact",
    "ListedTable",
    "PublicStatements",
    "RecordingEngine",
    "ResultEvaluator",
]
__all__ += [
    "Registered",
    "RemoteEngine",
    "RemoteFiles",
    "Statement",
    "Stop",
    "Watchable",
    "open_exact",
    "read_confinement",
]
__all__ += ["NOT_LOADED", "load_libraries"]
__all__ += ["Unchanging", "find_data_version", "statement_stopped", "table_missing", "take_turn"]
