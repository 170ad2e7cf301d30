"""A file that something else writes to while it is open: no act believes what its events do not add up to."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import ALICE, BUDGET, ITEM, TOTAL, code_of, opened, raw, tampering

from dpsql.accounting import BudgetVector, Certificate, CertificateTerms, Periods
from dpsql.errors import BudgetExceeded, Error, LedgerError
from dpsql.ledger import Account, Request, Reservation, SQLiteLedger, sum_entries, verify
from dpsql.ledger.record import GENESIS, compute_chain
from dpsql.quantities import Delta, Epsilon, Rho

START = datetime(2028, 2, 1, tzinfo=UTC)
OF_ALICE = Request("of alice", ITEM, ALICE, "key")
FIXED = CertificateTerms(Certificate.theorem2, Epsilon("0.03"), Delta("1e-9"))
OF_ITEMS = {each: replace(each, certificate=Certificate.theorem2) for each in (BUDGET, ITEM, ALICE.budget)}
ITEMS = Request("of alice", OF_ITEMS[ITEM], replace(ALICE, budget=OF_ITEMS[ALICE.budget]), "key")


class Open:
    """An open ledger in the middle of its life: an answer, a reservation that is held, and every act upon it."""

    def __init__(
        self, path: Path, *, periods: Periods | None = None, certified: CertificateTerms | None = None
    ) -> None:
        self.now = START
        self.path = path
        self.request = OF_ALICE if certified is None else ITEMS
        self.ledger = SQLiteLedger(
            path,
            BUDGET if certified is None else OF_ITEMS[BUDGET],
            total=TOTAL,
            periods=periods,
            certified=certified,
            clock=lambda: self.now,
        )
        self.ledger.reserve(self.request).settle(Fraction("0.5"), "d", answer=b"an answer")
        self.held: Reservation = self.ledger.reserve(self.request)

    def acts(self) -> dict[str, Callable[[], object]]:
        ledger = self.ledger
        return {
            "reserve": lambda: ledger.reserve(self.request),
            "settle": lambda: self.held.settle(Fraction(0), "d"),
            "state": ledger.state,
            "state of alice": lambda: ledger.state("alice"),
            "budget": lambda: ledger.budget,
            "stored": lambda: ledger.stored("key", "alice"),
            "bump": lambda: ledger.bump("n"),
            "grant": lambda: ledger.grant(BUDGET, TOTAL, note="n"),
            "register": lambda: ledger.register({"a table": "user"}),
        }


USING = {
    "total": {"reserve", "settle", "state"},
    "account alice": {"reserve", "settle", "state of alice"},
    "terms": {"reserve", "settle", "state", "state of alice", "budget", "stored", "bump", "grant", "register"},
}
CHANGES = {
    "balances": {
        "spent_rho": ("'0/1'", "'3/2'", "'1/4'", "'100000/200001'"),
        "spent_delta": ("'0/1'", "'1/400000000'", "'1/1000000000'"),
        "reserved_rho": ("'0/1'", "'2/1'", "'1/2'"),
    },
    "terms": {
        "data_set": ("'another'",),
        "budget_rho": ("'49/1'", "'51/1'", "'1000/1'"),
        "budget_delta": ("'1/2000000'", "'1/2'"),
        "total_epsilon": ("'1/2'", "'2/1'"),
        "total_delta": ("'1/1000000'", "'1/2'"),
        "data_version": ("1", "7"),
    },
    "periods": {
        "length_seconds": ("1", "86399", "86401"),
        "most": ("11", "13", "NULL"),
        "began": ("'2028-01-31T00:00:00.000000+00:00'", "'2028-02-02T00:00:00.000000+00:00'"),
        "number": ("1", "-1"),
        "since": ("1", "99"),
    },
    "certificate": {
        "certificate": ("'optimal'", "'pure'", "'zcdp'"),
        "item_epsilon": ("'1/100'", "'1/10'"),
        "query_delta": ("'1/2000000000'", "'1/100000000'"),
    },
}


def cells(*tables: str) -> Iterator[tuple[str, str, str, str]]:
    for table in tables:
        for holder in ("total", "account alice") if table == "balances" else ("terms",):
            for column, values in CHANGES[table].items():
                for value in values:
                    yield holder, table, column, value


def refuse(open_: Open, holder: str, change: tuple[str, str, str]) -> None:
    """Check that each act that uses a row refuses it once it was changed, and goes on once it is as it was."""
    table, column, value = change
    where = f"WHERE holder = '{holder}'" if table == "balances" else ""
    with raw(open_.path) as other:
        (before,) = other.execute(f"SELECT {column} FROM {table} {where}").fetchone()
        (events,) = other.execute("SELECT count(*) FROM events").fetchone()
        assert other.execute(f"UPDATE {table} SET {column} = {value} {where}").rowcount == 1
        for name, act in open_.acts().items():
            if name in USING[holder] and not (open_.request is ITEMS and name == "grant"):
                assert code_of(act) in {"ledger-tampered", "ledger-damaged", "ledger-rolled-back"}, name
        if table == "balances":
            assert other.execute("SELECT count(*) FROM events").fetchone() == (events,)
        other.execute(f"UPDATE {table} SET {column} = ? {where}", (before,))
    open_.ledger.state()


@pytest.mark.parametrize(("holder", "table", "column", "value"), list(cells("balances", "terms")))
def test_a_cell_that_is_changed_under_an_open_ledger_is_not_believed(
    path: Path, holder: str, table: str, column: str, value: str
) -> None:
    open_ = Open(path)
    with closing(open_.ledger):
        refuse(open_, holder, (table, column, value))
        open_.held.settle(Fraction("0.25"), "d")
        assert open_.ledger.state("alice").spent == Fraction("0.75")
    assert verify(path).events >= 4


@pytest.mark.parametrize(("holder", "table", "column", "value"), list(cells("periods")))
def test_a_cell_of_the_periods_is_not_believed(path: Path, holder: str, table: str, column: str, value: str) -> None:
    open_ = Open(path, periods=Periods(timedelta(days=1), 12))
    with closing(open_.ledger):
        refuse(open_, holder, (table, column, value))


@pytest.mark.parametrize(("holder", "table", "column", "value"), list(cells("certificate", "balances")))
def test_a_cell_of_a_ledger_with_another_certificate_is_not_believed(
    path: Path, holder: str, table: str, column: str, value: str
) -> None:
    open_ = Open(path, certified=FIXED)
    with closing(open_.ledger):
        refuse(open_, holder, (table, column, value))


@pytest.mark.parametrize("holder", ["total", "account alice"])
def test_a_balance_that_is_deleted_under_an_open_ledger_is_missed(path: Path, holder: str) -> None:
    open_ = Open(path)
    with closing(open_.ledger):
        with raw(path) as other:
            other.execute("DELETE FROM balances WHERE holder = ?", (holder,))
        for name in USING[holder]:
            assert code_of(open_.acts()[name]) in {"ledger-tampered", "ledger-damaged"}
        assert len(list(open_.ledger.events())) == 4


def test_a_table_that_is_gone_is_damage(path: Path) -> None:
    open_ = Open(path)
    with closing(open_.ledger), raw(path) as other:
        other.execute("DROP TABLE balances")
        assert code_of(open_.ledger.state) == "ledger-damaged"


def test_acts_that_use_neither_row_go_on(path: Path) -> None:
    open_ = Open(path)
    with closing(open_.ledger), raw(path) as other:
        other.execute("UPDATE balances SET spent_rho = '0/1' WHERE holder = 'account alice'")
        assert open_.ledger.state().spent == Fraction("0.5")
        assert open_.ledger.reserve(Request("of nobody", ITEM)).settle(Fraction(0), "d").answer == b""
        assert open_.ledger.stored("key", "alice") == b"an answer"


def test_what_other_processes_write_is_read_on_and_believed(path: Path) -> None:
    open_ = Open(path)
    with closing(open_.ledger), opened(path) as beside:
        for number in range(3):
            beside.reserve(OF_ALICE).settle(Fraction("0.5"), "d")
            assert open_.ledger.state("alice").spent == Fraction("0.5") * (number + 2)
        beside.grant(BudgetVector(60, BUDGET.delta.value), TOTAL, note="more")
        assert open_.ledger.budget.rho == Rho(60)
        open_.held.settle(Fraction(0), "d")
        assert beside.state() == open_.ledger.state()


def test_a_period_that_another_process_begins_is_read_on(path: Path) -> None:
    open_ = Open(path, periods=Periods(timedelta(days=1), 12))
    with closing(open_.ledger), closing(SQLiteLedger.open(path, clock=lambda: open_.now)) as beside:
        open_.now += timedelta(days=1)
        beside.reserve(OF_ALICE)
        assert open_.ledger.state("alice").spent == Fraction(0)
        open_.held.settle(Fraction(1), "late")  # charged to its own period
        assert open_.ledger.state("alice").spent == Fraction(0)
        open_.now += timedelta(days=1)
        open_.held = open_.ledger.reserve(OF_ALICE)
        refuse(open_, "account alice", ("balances", "reserved_rho", "'0/1'"))
        assert open_.ledger.state("alice") == beside.state("alice")


# the history


def retold(connection: sqlite3.Connection, first: int, change: str) -> None:
    """Change the bodies from an event on, and make the chain fit again, as one can who knows the format."""
    connection.execute(f"UPDATE events SET body = {change} WHERE seq >= {first}")
    chain = GENESIS
    for seq, at, kind, body in connection.execute("SELECT seq, at, kind, body FROM events ORDER BY seq").fetchall():
        chain = compute_chain(chain, seq, at=at, kind=kind, body=body)
        connection.execute("UPDATE events SET chain = ? WHERE seq = ?", (chain, seq))


def test_a_tail_that_is_rewritten_with_its_balances_is_noticed_by_who_read_it(path: Path) -> None:
    open_ = Open(path)
    with closing(open_.ledger):
        open_.ledger.state()
        with tampering(path) as other:
            retold(other, 3, """replace(body, '"loss":"1/2"', '"loss":"1/4"')""")
            other.execute("UPDATE balances SET spent_rho = '1/4'")
        Path(f"{path}.mark").unlink()  # as they would who know of it
        for name in ("reserve", "settle", "state", "bump"):
            assert code_of(open_.acts()[name]) == "ledger-tampered"
    assert verify(path).events == 4  # which nothing but a process that read it, or a head elsewhere, can know


def test_events_that_are_taken_away_with_their_balances_are_missed(path: Path) -> None:
    open_ = Open(path)
    with closing(open_.ledger):
        open_.ledger.state()
        with tampering(path) as other:
            other.execute("DELETE FROM events WHERE seq = 4")
            other.execute("UPDATE balances SET reserved_rho = '0/1', spent_delta = '1/1000000000'")
        Path(f"{path}.mark").unlink()
        for name in ("reserve", "settle", "state"):
            assert code_of(open_.acts()[name]) == "ledger-tampered"


def test_an_event_that_does_not_follow_is_refused_at_every_act_until_it_is_mended(path: Path) -> None:
    open_ = Open(path)
    with closing(open_.ledger), opened(path) as beside:
        open_.ledger.state()
        beside.bump("monday")
        with tampering(path) as other:
            other.execute("UPDATE events SET body = replace(body, 'monday', 'sunday')")
        for _ in range(3):
            for name in ("reserve", "settle", "state", "stored"):
                assert code_of(open_.acts()[name]) == "ledger-tampered"
        with tampering(path) as other:
            other.execute("UPDATE events SET body = replace(body, 'sunday', 'monday')")
        open_.held.settle(Fraction(0), "d")
        assert open_.ledger.state() == beside.state()


def test_an_act_that_is_undone_is_not_believed_later(path: Path) -> None:
    open_ = Open(path)
    with closing(open_.ledger):
        for _ in range(2):
            with pytest.raises(BudgetExceeded):
                open_.ledger.reserve(Request("too much", BudgetVector(1000, 0)))
            with suppress(ZeroDivisionError), open_.ledger._writing() as book:
                book.append("bumped", {"data_version": 9, "note": "n"}, at=START.isoformat())
                raise ZeroDivisionError
        open_.held.settle(Fraction(0), "d")
        assert open_.ledger.data_version == 0
        assert open_.ledger.state() == sum_entries(open_.ledger.entries())


@pytest.mark.parametrize("step", range(1, 12))
def test_a_reading_that_is_interrupted_leaves_nothing_half_read(
    path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpsql.ledger.history import History, _Tally

    open_ = Open(path)
    with closing(open_.ledger), opened(path) as beside:
        for _ in range(2):
            beside.reserve(OF_ALICE).settle(Fraction("0.5"), "d")
        calls = 0

        def interrupted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*given: object, **named: object) -> object:
                nonlocal calls
                calls += 1
                if calls == step:
                    raise KeyboardInterrupt
                return real(*given, **named)

            return call

        with monkeypatch.context() as patch:
            for owner, name in (
                (_Tally, "scale"),
                (_Tally, "add_permanent"),
                (History, "_settle"),
                (History, "_reserve"),
            ):
                patch.setattr(owner, name, interrupted(getattr(owner, name)))
            with suppress(KeyboardInterrupt):
                open_.ledger.state()
        assert open_.ledger.state("alice") == beside.state("alice")
        open_.held.settle(Fraction(0), "d")
        assert open_.ledger.state() == sum_entries(open_.ledger.entries())


# pages

BALANCE = re.compile(rb"(?:total|account alice)\d+/1")


def spends(ledger: SQLiteLedger, limit: int) -> int:
    """Return how many items a ledger still grants, each in an act of its own."""
    for number in range(limit):
        try:
            ledger.reserve(Request("q", BudgetVector(1, "1e-12"), Account("alice", BUDGET)))
        except (BudgetExceeded, LedgerError):
            return number
    return limit


@pytest.mark.parametrize("file", ["", "-wal"])
@pytest.mark.parametrize("flip", [0x01, 0x10, 0xFF])
def test_no_byte_that_is_flipped_under_an_open_ledger_gives_budget(path: Path, file: str, flip: int) -> None:
    """Over the whole file: the ledger grants at most what its history leaves, and every error is one of ours."""
    with opened(path, budget=BudgetVector(6, "1e-6")) as ledger:
        for _ in range(3):
            ledger.reserve(Request("q", BudgetVector(1, "1e-12"), ALICE)).settle(Fraction(1), "d", answer=b"x")
        ledger.reserve(Request("held", BudgetVector(1, "1e-12"), ALICE))
        if not file:
            ledger._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        content = Path(f"{path}{file}").read_bytes()  # closing it drops locks that no other process asks for here
        rows = [at.start() + each for at in BALANCE.finditer(content) for each in range(-4, 34)]
        near = [each for each in rows[-152:] if each < len(content)]
        for offset in {*near, *range(flip % 97, len(content), 389 if not file else 1553)}:
            copy = path.parent / "flipped" / path.name
            copy.parent.mkdir()
            for each in ("", "-wal", ".mark"):
                shutil.copy(f"{path}{each}", f"{copy}{each}")
            try:
                flipped(copy, file, offset, flip)
            finally:
                shutil.rmtree(copy.parent)


def flipped(copy: Path, file: str, offset: int, flip: int) -> None:
    with closing(SQLiteLedger.open(copy)) as ledger:
        ledger._connection.execute("PRAGMA cache_size = 0")
        ledger._connection.execute("PRAGMA wal_autocheckpoint = 0")
        place = Path(f"{copy}{file}")
        with place.open("r+b") as pages:
            pages.seek(offset)
            old = pages.read(1)
            pages.seek(offset)
            pages.write(bytes([old[0] ^ flip]))
        assert spends(ledger, 9) <= 2
        with suppress(LedgerError):
            assert ledger.state().spent + ledger.state().reserved <= Fraction(6)
        with suppress(Error):
            ledger.stored("key", "alice")
