"""The ledger: a record of the budget, of reservations and of charges, written before any row is read.

The worst case of a query is reserved durably before the data is read, and its actual cost is settled before the answer
is returned. A reservation that is never settled stays reserved: a crash can waste budget, but never refunds it.
"""

from dpsql.ledger.base import Account, Ledger, Request, Reservation, Shortfall, sum_entries
from dpsql.ledger.calendar import Calendar
from dpsql.ledger.dp_events import Spent, dp_events
from dpsql.ledger.memory import MemoryLedger
from dpsql.ledger.record import Division, Entry, Event, Settlement
from dpsql.ledger.sqlite.ledger import SQLiteLedger
from dpsql.ledger.sqlite.verification import backup, verify
from dpsql.ledger.verification import Verified

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
    "Settlement",
    "Shortfall",
    "Spent",
    "Verified",
    "backup",
    "dp_events",
    "sum_entries",
    "verify",
]
