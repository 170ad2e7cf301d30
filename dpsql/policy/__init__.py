"""What is protected: tables, units, the total budget, who may ask, and the ceilings; frozen, from Python or TOML."""

from dpsql.policy.policy import Analyst, Budget, Limits, Policy, PrivateTable, PublicTable, Table

__all__ = ["Analyst", "Budget", "Limits", "Policy", "PrivateTable", "PublicTable", "Table"]
