"""What the tests of the durable ledger share."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dpsql.accounting import ApproximateDP, BudgetVector
from dpsql.errors import Error, LedgerError
from dpsql.ledger import Account, Request, SQLiteLedger
from dpsql.ledger.record import GENESIS, compute_chain
from dpsql.quantities import Delta, Epsilon

BUDGET = BudgetVector(50, "1e-6")
TOTAL = ApproximateDP(Epsilon(1), Delta("2e-6"))
ITEM = BudgetVector(1, "1e-9")
ALICE = Account("alice", BudgetVector(20, "1e-7"))
ASK = Request("q", ITEM)


def opened(path: Path, budget: BudgetVector = BUDGET, total: ApproximateDP = TOTAL) -> contextlib.closing[SQLiteLedger]:
    return contextlib.closing(SQLiteLedger(path, budget, total=total))


@contextlib.contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@contextlib.contextmanager
def tampering(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection to a file whose triggers are put back afterwards, as one does who knows them."""
    with raw(path) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for _, text in triggers:
            connection.execute(text)


def version_of(path: Path) -> int:
    with raw(path) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def retell(path: Path, *changes: str) -> None:
    """Change events and make the chain fit again, as one can who knows the format; the mark stays."""
    with tampering(path) as connection:
        for change in changes:
            connection.execute(f"UPDATE events SET {change}")
        chain = GENESIS
        for seq, at, kind, body in connection.execute("SELECT seq, at, kind, body FROM events ORDER BY seq").fetchall():
            chain = compute_chain(chain, seq, at=at, kind=kind, body=body)
            connection.execute("UPDATE events SET chain = ? WHERE seq = ?", (chain, seq))


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(Error) as caught:
        act()
    assert isinstance(caught.value, LedgerError)
    assert caught.value.reason.endswith(".")
    assert caught.value.hint
    return caught.value.code
