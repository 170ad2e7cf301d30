"""What the tests of the durable ledger share."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dpsql
from dpsql.accounting import ZCDP, ApproximateDP
from dpsql.errors import Error, LedgerError
from dpsql.ledger import Account, Request, SQLiteLedger
from dpsql.quantities import Delta, Epsilon, Rho

BUDGET = ZCDP(Rho(50), Delta("1e-6"))
TOTAL = ApproximateDP(Epsilon(1), Delta("2e-6"))
ITEM = ZCDP(Rho(1), Delta("1e-9"))
ALICE = Account("alice", ZCDP(Rho(20), Delta("1e-7")))
ASK = Request("q", ITEM)

# The same opening, as the head of a program that another process runs.
HEAD = """
import os, sys
from dpsql.accounting import ZCDP, ApproximateDP
from dpsql.errors import BudgetExceeded, Error
from dpsql.ledger import Request, SQLiteLedger
from dpsql.quantities import Delta, Epsilon, Rho

BUDGET = ZCDP(Rho(int(sys.argv[2])), Delta("1e-6"))
TOTAL = ApproximateDP(Epsilon(1), Delta("2e-6"))
ITEM = ZCDP(Rho(1), Delta("1e-12"))
ASK = Request("q", ITEM, key="key")

def say(word):
    os.write(1, f"{word}\\n".encode())

def opened():
    return SQLiteLedger(sys.argv[1], BUDGET, total=TOTAL)
"""


def start(program: str, path: Path, rho: int = 50, *, descriptors: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(dpsql.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + program, str(path), str(rho)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=descriptors,
    )


def opened(path: Path, budget: ZCDP = BUDGET, total: ApproximateDP = TOTAL) -> contextlib.closing[SQLiteLedger]:
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


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(Error) as caught:
        act()
    assert isinstance(caught.value, LedgerError)
    assert caught.value.reason.endswith(".")
    assert caught.value.hint
    return caught.value.code
