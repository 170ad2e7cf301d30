"""Policy: tables, privacy units, the total budget, analysts and limits; frozen, from Python or TOML."""

from dpsql.policy.model import Budget, Policy, default_analyst, default_database, default_policy, load_policy
from dpsql.policy.settings import Analyst, EngineSettings, Limits, ServerSettings
from dpsql.policy.source import IN_MEMORY, DatabaseUrl, DataSource, is_address, is_url, names_files, refuse_no_engine
from dpsql.policy.tables import Bounds, ColumnBounds, PrivateTable, PublicTable, Table
from dpsql.policy.validation import SourceUrl

__all__ = [
    "IN_MEMORY",
    "Analyst",
    "Bounds",
    "Budget",
    "ColumnBounds",
    "DataSource",
    "DatabaseUrl",
    "EngineSettings",
    "Limits",
    "Policy",
    "PrivateTable",
    "PublicTable",
    "ServerSettings",
    "SourceUrl",
    "Table",
    "default_analyst",
    "default_database",
    "default_policy",
    "is_address",
    "is_url",
    "load_policy",
    "names_files",
    "refuse_no_engine",
]
