"""kill -9 between reserve and answer: what was reserved stays spent."""

from __future__ import annotations

import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from support.looks_kit import find_answerer, price_looks

import dpsql

ITEM = Fraction("0.05") ** 2 / 8
SQL = (
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE country = 'DE' "
    "GROUP BY article TOP 4 PRIVATE WITH (epsilon = 0.05)"
)
CHILD = """
import os, signal, sys
import dpsql
from support.session_kit import WatchedLedger, rebuilt

moment, folder, sql = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

session = dpsql.connect(f"{folder}/events.duckdb", policy=f"{folder}/policy.toml")
nothing = lambda: None
ledger = session._dependencies.ledger
if moment == "in the engine":
    session = rebuilt(session, engine=die)
elif moment == "before the settlement":
    session = rebuilt(session, ledger=WatchedLedger(ledger, before=die, after=nothing))
elif moment == "after the settlement":
    session = rebuilt(session, ledger=WatchedLedger(ledger, before=nothing, after=die))
print(session.sql(sql))
"""


def run(moment: str, folder: Path) -> subprocess.CompletedProcess[str]:
    tests = Path(__file__).parents[2]
    command = [sys.executable, "-c", CHILD, moment, str(folder), SQL]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=tests, timeout=60)


@pytest.mark.parametrize("moment", ["in the engine", "before the settlement"])
def test_a_killed_query_stays_held_and_left_no_answer(example: Path, moment: str) -> None:
    killed = run(moment, example)
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout == ""
    with dpsql.connect(example / "events.duckdb", policy=example / "policy.toml") as session:
        balance = session.budget
        assert (balance.rho.spent, balance.rho.reserved) == (0, 8 * ITEM)
        assert balance.rho.remaining == balance.rho.granted - 8 * ITEM
        assert balance.delta.spent == Fraction("2.5e-8")
        (entry,) = session._dependencies.ledger.entries()
        assert entry.settlement is None
        assert entry.query == SQL
        fits = int(balance.rho.remaining / ITEM)
        assert fits + 8 <= balance.rho.granted / ITEM < fits + 9
        with pytest.raises(dpsql.BudgetExceeded):
            session.sql(f"SELECT article FROM reads GROUP BY article TOP {fits + 1} PRIVATE WITH (epsilon = 0.05)")
        receipt = session.sql(SQL).receipt  # no answer was left to be repeated
        assert (receipt.replayed, receipt.items_charged) == (False, 8)
        assert session.history.column("state").to_pylist() == ["open", "answered"]
        rest = int(session.budget.rho.remaining / ITEM)
        session.sql(f"SELECT article FROM reads GROUP BY article TOP {rest} PRIVATE WITH (epsilon = 0.05)")


def test_an_answer_that_was_charged_and_never_handed_out_is_there_for_the_asking(example: Path) -> None:
    killed = run("after the settlement", example)
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout == ""
    with dpsql.connect(example / "events.duckdb", policy=example / "policy.toml") as session:
        before, answer = session.budget, session.sql(SQL)  # the receipt of a stored answer says what answered
        receipt = answer.receipt
        keys = price_looks(dpsql.Epsilon("0.05"), find_answerer(receipt.legs), k=4, found=4, discovered=12)
        assert (receipt.replayed, before.rho.spent, before.rho.reserved) == (True, keys + 4 * ITEM, 0)
        assert len(answer) == 4
        assert session.budget == before


def test_the_same_query_is_answered_when_nobody_kills_it(example: Path) -> None:
    done = run("never", example)
    assert done.returncode == 0, done.stderr
    assert "article 11 | " in done.stdout
