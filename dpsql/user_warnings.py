"""Every warning that dpsql issues to Python, as `warnings` knows them."""

from __future__ import annotations

__all__ = ["MemoryLedgerWarning", "UngrantedBudgetWarning", "WastedChargeWarning"]


class MemoryLedgerWarning(UserWarning):
    """The policy names no ledger: what is spent is forgotten when the session ends.

    >>> warnings.simplefilter("ignore", dpsql.MemoryLedgerWarning)  # for a trial
    """


class UngrantedBudgetWarning(UserWarning):
    """The policy grants more than the ledger has: sessions go on with the ledger's smaller budget.

    >>> warnings.simplefilter("error", dpsql.UngrantedBudgetWarning)  # open no session before the grant
    """


class WastedChargeWarning(UserWarning):
    """The charge of a query is likely wasted; issued before the charge, so that a filter can turn it into an error.

    >>> warnings.simplefilter("error", dpsql.WastedChargeWarning)  # run no such query
    """
