"""What is protected: tables, privacy units, the total budget and the ceilings; frozen, from Python or TOML."""

from dpsql.policy.policy import Budget, Limits, Policy, PrivateTable, PublicTable, Table

__all__ = ["Budget", "Limits", "Policy", "PrivateTable", "PublicTable", "Table"]
