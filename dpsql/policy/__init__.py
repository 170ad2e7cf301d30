"""Policy: tables, privacy units, the total budget, analysts and limits; frozen, from Python or TOML."""

from dpsql.policy.bounds import Bounds, ColumnBounds
from dpsql.policy.defaults import default_analyst, default_database, default_policy
from dpsql.policy.model import Analyst, Budget, DataSource, EngineSettings, Limits, Policy, load_policy
from dpsql.policy.server import ServerSettings
from dpsql.policy.source import is_address, names_files, refuse_no_engine
from dpsql.policy.source_url import SourceUrl
from dpsql.policy.tables import PrivateTable, PublicTable, Table
from dpsql.policy.url import IN_MEMORY, DatabaseUrl, is_url

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
