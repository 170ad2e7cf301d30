"""Every warning that dpsql issues to Python, as `warnings` knows them."""

from __future__ import annotations

__all__ = ["MemoryLedgerWarning", "UngrantedBudgetWarning", "WastedChargeWarning"]


class MemoryLedgerWarning(UserWarning):
    """The policy names no ledger: what is spent is forgotten when the session ends."""


class UngrantedBudgetWarning(UserWarning):
    """The policy grants more than the ledger has: sessions go on with the ledger's smaller budget."""


class WastedChargeWarning(UserWarning):
    """The charge of a query is likely wasted; issued before the charge, so that a filter can turn it into an error."""
