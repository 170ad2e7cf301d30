"""The ledger: what was promised, what was held and what was spent, recorded before any row is read.

A query's worst case is reserved, durably, while the data is still untouched; what was returned is settled before the
answer leaves. A reservation that nobody settles stays held for ever, so a crash can waste budget and never refund it.
"""

from dpsql.ledger.base import Account, Ledger, Request, Reservation, Shortfall, sum_entries
from dpsql.ledger.calendar import Calendar
from dpsql.ledger.dp_events import Spent, dp_events
from dpsql.ledger.memory import MemoryLedger
from dpsql.ledger.record import Entry, Event, Settlement
from dpsql.ledger.sqlite.backup import backup
from dpsql.ledger.sqlite.ledger import SQLiteLedger
from dpsql.ledger.sqlite.verification import verify
from dpsql.ledger.verification import Verified

__all__ = [
    "Account",
    "Calendar",
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
