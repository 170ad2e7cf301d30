"""The ledger: a record of the budget, of reservations and of charges, written before any row is read.

The worst case of a query is reserved durably before the data is read, and its actual cost is settled before the answer
is returned. A reservation that is never settled stays reserved: a crash can waste budget, but never refunds it.
"""

from dpsql.ledger.base import Account, Request, Reservation, Settled, Shortfall, compute_remaining
from dpsql.ledger.base_ledger import Ledger
from dpsql.ledger.durable import Verified
from dpsql.ledger.memory import MemoryLedger
from dpsql.ledger.record import Calendar, Division, Entry, Event, Settlement, Spent, dp_events, sum_entries
from dpsql.ledger.sqlite_ledger import SQLiteLedger, backup, verify

__all__ = [
    "Account",
    "Calendar",
    "Division",
    "Entry",
    "Event",
    "Ledger",
    "MemoryLedger",
    "Request",
    "Reservation",
    "SQLiteLedger",
    "Settled",
    "Settlement",
    "Shortfall",
    "Spent",
    "Verified",
    "backup",
    "compute_remaining",
    "dp_events",
    "sum_entries",
    "verify",
]
