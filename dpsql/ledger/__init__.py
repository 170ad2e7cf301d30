"""The ledger: what was promised, what was held and what was spent, recorded before any row is read.

A query's worst case is reserved, durably, while the data is still untouched; what was returned is settled before the
answer leaves. A reservation that nobody settles stays held for ever, so a crash can waste budget and never refund it.
"""

from dpsql.ledger.base import Entry, Ledger, Reservation, Settlement, Shortfall, balance_of
from dpsql.ledger.memory import MemoryLedger
from dpsql.ledger.sqlite import SQLiteLedger

__all__ = [
    "Entry",
    "Ledger",
    "MemoryLedger",
    "Reservation",
    "SQLiteLedger",
    "Settlement",
    "Shortfall",
    "balance_of",
]
