"""Stamps of every ledger: equal while nothing changes, and another after every change by whichever process."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import psycopg
import pytest
from support.ledger_makers import MAKERS, TOTAL, Maker, Postgres, SQLite, ask, loss

from dpsql.accounting import BudgetState, Periods
from dpsql.errors import LedgerError
from dpsql.ledger import Ledger, MemoryLedger, SQLiteLedger
from dpsql.ledger.postgres_ledger import PostgresLedger
from dpsql.ledger.record import Clock, utc

HOUR = timedelta(hours=1)
Act = Callable[[Ledger], object]
CHANGES: dict[str, Act] = {
    "reserve": lambda ledger: ask(ledger, loss("0.1"), "q"),
    "settle": lambda ledger: ask(ledger, loss("0.1"), "q").settle(Fraction("0.1"), "digest"),
    "bump": lambda ledger: ledger.bump("monday"),
    "grant": lambda ledger: ledger.grant(loss(2, "1e-6"), TOTAL, note="more"),
}


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> object:
        return utc() + self.ahead


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    return request.param(tmp_path)


@pytest.fixture
def ledger(maker: Maker) -> Iterator[Ledger]:
    with contextlib.closing(maker.make(loss(1, "1e-6"))) as made:
        made.state()
        yield made


def test_the_stamp_stays_while_the_ledger_is_only_read(ledger: Ledger) -> None:
    before = ledger.stamp()
    assert before is not None
    assert (ledger.state(), ledger.entries(), ledger.stored("key", None)) == (BudgetState(), (), None)
    assert ledger.stamp() == before
    assert ledger.peek_stamp() in ({None} if isinstance(ledger, PostgresLedger) else {before})


@pytest.mark.parametrize("name", CHANGES)
def test_the_stamp_changes_with_every_act_and_what_is_read_is_new(ledger: Ledger, name: str) -> None:
    stamps, seen = [ledger.stamp()], [(ledger.state(), ledger.budget, ledger.data_version)]
    for _ in range(2):
        CHANGES[name](ledger)
        assert ledger.peek_stamp() not in stamps
        stamps.append(ledger.stamp())
        seen.append((ledger.state(), ledger.budget, ledger.data_version))
    assert len(set(stamps)) == 3
    assert seen[0] != seen[1]


@pytest.mark.parametrize("name", CHANGES)
def test_another_who_has_the_ledger_open_changes_the_stamp(maker: Maker, ledger: Ledger, name: str) -> None:
    with (
        contextlib.closing(maker.again(ledger))
        if not isinstance(ledger, MemoryLedger)
        else contextlib.nullcontext(ledger) as other
    ):
        stamp, seen = ledger.stamp(), (ledger.state(), ledger.budget, ledger.data_version)
        CHANGES[name](other)
        assert ledger.peek_stamp() != stamp
        assert ledger.stamp() != stamp
        assert (ledger.state(), ledger.budget, ledger.data_version) != seen


BUMP = """
import sys
from dpsql.ledger import SQLiteLedger
ledger = SQLiteLedger.open(sys.argv[1])
ledger.bump("by another process")
ledger.close()
"""


def test_another_process_changes_the_stamp(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with contextlib.closing(SQLiteLedger(path, loss(1), total=TOTAL)) as ledger:
        ledger.state()
        stamp = ledger.stamp()
        for version in (1, 2):
            subprocess.run([sys.executable, "-c", BUMP, str(path)], check=True)
            assert ledger.peek_stamp() != stamp
            assert ledger.data_version == version
            assert ledger.stamp() != stamp
            stamp = ledger.stamp()


def test_a_new_period_changes_the_stamp(maker: Maker) -> None:
    hands = Hands()
    clock: Clock = hands  # type: ignore[assignment]
    with contextlib.closing(maker.make(loss(1), Periods(HOUR, 2), clock)) as ledger:
        ask(ledger, loss("0.5"), "q").settle(Fraction("0.5"), "digest")
        stamp = ledger.stamp()
        assert ledger.stamp() == stamp
        assert ledger.state().spent == Fraction("0.5")
        hands.ahead = HOUR
        assert ledger.peek_stamp() != stamp
        assert ledger.stamp() != stamp
        assert ledger.state().spent == 0


def test_what_others_change_by_other_means_is_found_by_the_next_reading(tmp_path: Path) -> None:
    maker = SQLite(tmp_path)
    with contextlib.closing(maker.make(loss(1, "1e-6"))) as ledger:
        ask(ledger, loss("0.5"), "q").settle(Fraction("0.5"), "digest")
        stamp = ledger.stamp()
        assert ledger.state().spent == Fraction("0.5")
        with contextlib.closing(sqlite3.connect(tmp_path / "0.ledger", isolation_level=None)) as other:
            other.execute("UPDATE balances SET spent_rho = '0/1'")
        assert ledger.peek_stamp() != stamp
        with pytest.raises(LedgerError, match=r"\[ledger-tampered\]"):
            ledger.state()


def test_what_a_role_changes_in_the_database_is_found_by_the_next_reading(tmp_path: Path) -> None:
    maker = Postgres(tmp_path)
    with contextlib.closing(maker.make(loss(1, "1e-6"))) as ledger:
        assert isinstance(ledger, PostgresLedger)
        ask(ledger, loss("0.5"), "q").settle(Fraction("0.5"), "digest")
        assert ledger.state().spent == Fraction("0.5")
        # the server itself writes now and then (autovacuum), which is another stamp
        assert any(ledger.stamp() == ledger.stamp() for _ in range(9))
        with psycopg.connect(ledger._url.target, autocommit=True) as other:
            other.execute(f"UPDATE {ledger._url.schema}.balances SET body = replace(body, '1/2', '0/1')")
        for read in (ledger.stamp, ledger.state):
            with pytest.raises(LedgerError, match=r"\[ledger-tampered\]"):
                read()


def test_a_file_that_was_moved_has_no_stamp(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with contextlib.closing(SQLiteLedger(path, loss(1), total=TOTAL)) as ledger:
        assert ledger.peek_stamp() is None  # nothing was read
        assert ledger.stamp() == ledger.peek_stamp()
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(LedgerError, match=r"\[ledger-moved\]"):
            ledger.peek_stamp()


def test_whoever_has_the_ledger_is_not_waited_for(tmp_path: Path) -> None:
    with contextlib.closing(SQLiteLedger(tmp_path / "ledger", loss(1), total=TOTAL)) as ledger:
        stamp = ledger.stamp()
        with ledger._lock:
            assert ledger.peek_stamp() is None
        assert ledger.peek_stamp() == stamp


def test_terms_and_balances_are_read_once_per_change(tmp_path: Path) -> None:
    with contextlib.closing(SQLiteLedger(tmp_path / "ledger", loss(1, "1e-6"), total=TOTAL)) as ledger:
        run: list[str] = []
        ledger._connection.set_trace_callback(run.append)

        def read() -> int:
            run.clear()
            assert ledger.state() == ledger.state("ana") == BudgetState()
            assert (ledger.budget, ledger.total, ledger.calendar, ledger.data_version) == (
                loss(1, "1e-6"),
                TOTAL,
                None,
                0,
            )
            return sum("FROM" in statement for statement in run)

        assert read() > 0
        assert read() == 0
        assert set(run) == {"PRAGMA data_version"}
        ledger.bump("monday", to=0)
        assert read() == 0
        ledger.bump("monday", to=1)
        with pytest.raises(AssertionError):
            read()
