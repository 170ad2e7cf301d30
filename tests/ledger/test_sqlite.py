"""What the durable ledger promises beyond the contract: it stays, and processes share it until they are killed."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
from ledger.sqlite_kit import BUDGET, ITEM, TOTAL, code_of, opened, raw

import dpsql
from dpsql.accounting import ZCDP, ApproximateDP, FilterState
from dpsql.errors import Error, LedgerError, UsageError
from dpsql.ledger import SQLiteLedger, balance_of
from dpsql.quantities import Delta, Epsilon, Rho

# The same opening, as the head of a program that another process runs.
HEAD = """
import sys
from dpsql.accounting import ZCDP, ApproximateDP
from dpsql.errors import BudgetExceeded, Error
from dpsql.ledger import SQLiteLedger
from dpsql.quantities import Delta, Epsilon, Rho

BUDGET = ZCDP(Rho(int(sys.argv[2])), Delta("1e-6"))
TOTAL = ApproximateDP(Epsilon(1), Delta("2e-6"))
ITEM = ZCDP(Rho(1), Delta("1e-9"))

def say(word):
    print(word, flush=True)

def opened():
    return SQLiteLedger(sys.argv[1], BUDGET, total=TOTAL)
"""


def start(program: str, path: Path, rho: int = 50) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(dpsql.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + program, str(path), str(rho)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# what stays


def test_everything_is_there_after_reopening(made: Path) -> None:
    with opened(made) as ledger:
        assert ledger.durable
        assert ledger.state() == FilterState(spent=ZCDP(Rho("0.5"), Delta("2e-9")), reserved=Rho(1))
        assert [entry.query for entry in ledger.entries()] == ["settled", "held"]
        ledger.reserve(ZCDP(Rho("48.5"), Delta(0)), "the rest")
        with pytest.raises(Error, match="budget-exceeded"):
            ledger.reserve(ZCDP(Rho("1e-12"), Delta(0)), "too much")


def test_two_ledgers_on_one_file_share_the_budget(path: Path) -> None:
    with opened(path) as one, opened(path) as other:
        one.reserve(ZCDP(Rho(30), Delta(0)), "a").settle(Rho(20), "d")
        other.reserve(ZCDP(Rho(30), Delta(0)), "b")
        assert one.state() == other.state() == FilterState(spent=ZCDP(Rho(20), Delta(0)), reserved=Rho(30))
        with pytest.raises(Error, match="budget-exceeded"):
            one.reserve(ITEM, "c")


def test_numbers_are_kept_as_exact_fractions(made: Path) -> None:
    with raw(made) as connection:
        assert connection.execute("SELECT spent_rho, spent_delta, reserved_rho FROM balance").fetchall() == [
            ("1/2", "1/500000000", "1/1")
        ]
        assert connection.execute("SELECT worst_rho, delta, loss_rho FROM entries").fetchall() == [
            ("1/1", "1/1000000000", "1/2"),
            ("1/1", "1/1000000000", None),
        ]


def test_the_file_is_private_to_its_owner(path: Path) -> None:
    with opened(path) as ledger:
        ledger.reserve(ITEM, "q")
        for file in path.parent.iterdir():
            assert file.stat().st_mode & 0o777 == 0o600


def test_a_text_path_with_odd_letters_names_that_file(tmp_path: Path) -> None:
    odd = tmp_path / "a b?mode=memory#%41é.ledger"
    with contextlib.closing(SQLiteLedger(str(odd), BUDGET, total=TOTAL)):
        assert odd.is_file()


def test_a_number_too_long_to_keep_is_refused_uncharged(path: Path) -> None:
    with opened(path) as ledger:
        with pytest.raises(UsageError, match="number-too-long"):
            ledger.reserve(ZCDP(Rho(Fraction(1, 10**400)), Delta(0)), "q")
        assert ledger.state() == FilterState.fresh()
        assert ledger.entries() == ()


@pytest.mark.parametrize(
    ("budget", "total"),
    [
        (ZCDP(Rho(51), Delta("1e-6")), TOTAL),
        (ZCDP(Rho(49), Delta("1e-6")), TOTAL),
        (ZCDP(Rho(50), Delta("1.1e-6")), TOTAL),
        (BUDGET, ApproximateDP(Epsilon("1.000000001"), Delta("2e-6"))),
        (BUDGET, ApproximateDP(Epsilon(1), Delta("1e-6"))),
    ],
)
def test_another_budget_or_total_is_refused(made: Path, budget: ZCDP, total: ApproximateDP) -> None:
    with pytest.raises(LedgerError) as caught:
        SQLiteLedger(made, budget, total=total)
    assert caught.value.code == "ledger-budget"
    assert "epsilon 1 and delta 2e-06" in caught.value.reason
    assert "restore the policy's epsilon and delta" in caught.value.hint
    with opened(made) as ledger:
        assert ledger.state().reserved == Rho(1)


# durability


def test_commits_are_written_ahead_and_flushed(path: Path) -> None:
    with opened(path) as ledger:
        connection = ledger._connection
        assert connection is not None
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


class Careless(sqlite3.Connection):
    """A connection that takes one wish lightly, as some file systems and builds do."""

    ignored = ""

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        name, _, wish = sql.partition(" = ")
        if wish and name == self.ignored:
            sql = {"PRAGMA synchronous": "PRAGMA synchronous = NORMAL", "PRAGMA journal_mode": name}[name]
        return super().execute(sql, *parameters)


@pytest.mark.parametrize("ignored", ["PRAGMA synchronous", "PRAGMA journal_mode"])
def test_a_place_where_commits_are_not_durable_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, ignored: str
) -> None:
    monkeypatch.setattr(Careless, "ignored", ignored)
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Careless))
    assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-not-durable"


class Contended(sqlite3.Connection):
    """A connection that finds others changing the journal at the same moment, twice."""

    found = 0

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        if sql.startswith("PRAGMA journal_mode") and self.found < 2:
            self.found += 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        return super().execute(sql, *parameters)


def test_an_opening_among_others_asks_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Contended))
    with opened(path) as ledger:
        assert ledger.state() == FilterState.fresh()


def test_a_making_cut_short_is_taken_up_again(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    with opened(path) as ledger:
        assert ledger.state() == FilterState.fresh()


def test_threads_that_make_a_ledger_together_make_one(tmp_path: Path) -> None:
    def make(path: Path, start: threading.Barrier) -> int:
        start.wait()
        with opened(path) as ledger:
            ledger.reserve(ITEM, "q")
            return len(ledger.entries())

    with ThreadPoolExecutor(8) as threads:
        for attempt in range(10):
            start = threading.Barrier(8)
            counts = [threads.submit(make, tmp_path / f"{attempt}", start) for _ in range(8)]
            assert max(count.result(timeout=30) for count in counts) == 8


# processes


def test_a_reservation_whose_process_was_killed_stays_held(path: Path) -> None:
    with start("ledger = opened(); held = ledger.reserve(ITEM, 'q'); say('held'); sys.stdin.read()", path) as process:
        assert process.stdout.readline() == "held\n"
        process.kill()
    for _ in range(2):
        with opened(path) as ledger:
            assert ledger.state() == FilterState(spent=ZCDP(Rho(0), Delta("1e-9")), reserved=Rho(1))
            assert ledger.entries()[0].settlement is None


RACER = """
say('ready')
sys.stdin.readline()
ledger = opened()
for number in range(20):
    try:
        reservation = ledger.reserve(ITEM, 'racer')
    except BudgetExceeded:
        say('refused')
    else:
        say('granted')
        if number % 2:
            reservation.settle(ITEM.rho, 'd')
ledger.close()
"""


def test_processes_racing_for_the_last_items_get_exactly_those(path: Path) -> None:
    with contextlib.ExitStack() as stack:
        racers = [stack.enter_context(start(RACER, path)) for _ in range(8)]
        for racer in racers:
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        words = " ".join(racer.communicate(timeout=60)[0] for racer in racers).split()
    assert (words.count("granted"), words.count("refused")) == (50, 8 * 20 - 50)
    with opened(path) as ledger:
        state = ledger.state()
        assert len(ledger.entries()) == 50
        assert state.spent.rho + state.reserved == BUDGET.rho
        assert state.spent.delta == ITEM.delta * 50


SPENDER = """
ledger = opened()
for number in range(10**6):
    reservation = ledger.reserve(ITEM, f'spender {number}')
    say(f'held {number}')
    reservation.settle(ITEM.rho, f'digest {number}')
    say(f'settled {number}')
"""


def test_what_was_acknowledged_before_a_kill_is_in_the_file(path: Path) -> None:
    budget = ZCDP(Rho(10**6), Delta("1e-6"))
    acknowledged: list[tuple[int, int]] = []
    for kill in range(10):
        with start(SPENDER, path, rho=10**6) as process:
            process.stdout.readline()
            time.sleep(0.003 * kill)
            process.send_signal(signal.SIGKILL)
            heard = [line for line in process.stdout if line.endswith("\n")]
        settled = sum(line.startswith("settled") for line in heard)
        acknowledged.append((1 + sum(line.startswith("held") for line in heard), settled))
        with opened(path, budget) as ledger:
            entries, state = ledger.entries(), ledger.state()
        assert state == balance_of(entries)
        assert len(entries) >= sum(held for held, _ in acknowledged)
        assert sum(entry.settlement is not None for entry in entries) >= sum(done for _, done in acknowledged)
        assert len(entries) <= sum(held for held, _ in acknowledged) + len(acknowledged)  # one may be unheard
    assert sum(held for held, _ in acknowledged) > 10
    with raw(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


FORKED = """
import os
ledger = opened()
child = os.fork()
if child == 0:
    try:
        ledger.reserve(ITEM, 'child')
    except Error as error:
        say(error.code)
    ledger.close()
    os._exit(0)
os.waitpid(child, 0)
ledger.reserve(ITEM, 'parent')
say(len(ledger.entries()))
ledger.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_does_not_write_through_its_parents_connection(path: Path) -> None:
    with start(FORKED, path) as process:
        assert process.communicate(timeout=30)[0].split() == ["ledger-forked", "1"]
