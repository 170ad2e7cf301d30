"""A ledger that something else changes while it is open: no act believes it."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import ALICE, ASK, BUDGET, ITEM, TOTAL, code_of, come_and_go, opened, raw, tampering

from dpsql.accounting import BudgetVector
from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.ledger import Request, SQLiteLedger
from dpsql.quantities import Rho

BALANCES = [
    (column, value, holder)
    for column in ("spent_rho", "spent_delta", "reserved_rho")
    for value in ("0/1", "1/1000000000000", "7/1", "999/1000")
    for holder in ("total", "account alice")
]


def used(ledger: SQLiteLedger) -> None:
    ledger.reserve(Request("q", ITEM, ALICE)).settle(Fraction("0.5"), "d")
    ledger.reserve(Request("held", ITEM, ALICE))
    ledger.reserve(Request("q", ITEM)).settle(Fraction("0.25"), "d")


@pytest.mark.parametrize(("column", "value", "holder"), BALANCES)
def test_a_balance_that_is_changed_while_it_is_open_is_not_believed(
    path: Path, column: str, value: str, holder: str
) -> None:
    with opened(path) as ledger, raw(path) as other:
        used(ledger)
        reservation = ledger.reserve(Request("mine", ITEM, ALICE))
        other.execute(f"UPDATE balances SET {column} = ? WHERE holder = ?", (value, holder))
        acts = (
            lambda: ledger.reserve(Request("q", ITEM, ALICE)),
            lambda: reservation.settle(Fraction(0), "d"),
            lambda: ledger.state("alice"),
        )
        rows = other.execute("SELECT * FROM events").fetchall()
        assert {code_of(act) for act in acts} == {"ledger-tampered"}
        if holder == "total":
            assert code_of(lambda: ledger.reserve(ASK)) == "ledger-tampered"
            assert code_of(lambda: ledger.grant(BUDGET, TOTAL, note="more")) == "ledger-tampered"
            assert code_of(ledger.state) == "ledger-tampered"
        assert other.execute("SELECT * FROM events").fetchall() == rows


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE terms SET budget_rho = '1000/1'",
        "UPDATE terms SET budget_delta = '1/2'",
        "UPDATE terms SET data_version = 7",
        "UPDATE terms SET total_epsilon = '2/1'",
        "DELETE FROM balances WHERE holder = 'account alice'",
    ],
)
def test_terms_and_balances_that_are_changed_or_gone_are_not_believed(path: Path, change: str) -> None:
    with opened(path) as ledger, raw(path) as other:
        used(ledger)
        other.execute(change)
        assert code_of(lambda: ledger.reserve(Request("q", ITEM, ALICE))) == "ledger-tampered"


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM events WHERE seq > 2",
        "UPDATE events SET chain = 'g' || substr(chain, 2) WHERE seq = (SELECT max(seq) FROM events)",
    ],
)
def test_a_tail_that_is_rewritten_with_its_balances_is_not_believed(path: Path, change: str) -> None:
    with opened(path) as ledger:
        used(ledger)
        with tampering(path) as other:
            other.execute(change)
        with suppress(OSError):
            Path(f"{path}.mark").unlink()
        assert code_of(lambda: ledger.reserve(ASK)) in {"ledger-tampered", "ledger-damaged"}


def test_what_other_processes_did_is_believed(path: Path) -> None:
    with opened(path) as ledger, opened(path) as other:
        used(other)
        held = other.reserve(Request("theirs", ITEM, ALICE))
        assert ledger.state() == other.state()
        ledger.reserve(Request("mine", ITEM, ALICE))
        held.settle(Fraction(0), "d")
        other.bump("new")
        assert ledger.data_version == 1
        other.grant(BudgetVector((BUDGET.rho + Rho(1)).value, BUDGET.delta.value), TOTAL, note="more")
        assert ledger.budget.rho == BUDGET.rho + Rho(1)
        assert ledger.state("alice") == other.state("alice")


def test_an_act_that_was_undone_is_not_remembered(path: Path) -> None:
    with opened(path) as ledger:
        used(ledger)
        before = ledger.state()
        with suppress(KeyError), ledger._writing() as book:
            ledger._agree(book)
            book.append("bumped", {"data_version": 9, "note": "never"}, at="2026-01-01T00:00:00.000000+00:00")
            raise KeyError
        assert ledger.state() == before
        used(ledger)


def test_a_page_that_is_damaged_while_it_is_open_gives_no_budget(path: Path, tmp_path: Path) -> None:
    """Bytes are changed under an open ledger, as a disk or a program that goes astray would."""
    rng = random.Random(20261123)
    budget = BudgetVector(4, "1e-6")
    with closing(SQLiteLedger(path, budget, total=TOTAL)) as ledger:
        for _ in range(3):
            ledger.reserve(Request("q", ITEM)).settle(Fraction(1), "d")
    whole = path.read_bytes()
    for number in range(120):
        copy = tmp_path / f"copy {number}"
        copy.write_bytes(whole)
        given = 0
        with closing(SQLiteLedger(copy, budget, total=TOTAL)) as ledger:
            with copy.open("r+b") as file:
                at = rng.randrange(100, len(whole))
                file.seek(at)
                file.write(bytes([whole[at] ^ (1 << rng.randrange(8))]))
            for _ in range(3):
                with suppress(LedgerError, BudgetExceeded):
                    ledger.reserve(Request("q", ITEM))
                    given += 1
        assert given <= 1  # three of four are spent
        for each in tmp_path.glob(f"copy {number}*"):
            each.unlink()


@pytest.mark.parametrize("side", ["-wal", "-shm"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_side_file_that_is_lost_stops_every_act(path: Path, side: str, how: str) -> None:
    with opened(path) as ledger:
        used(ledger)
        file = Path(f"{path}{side}")
        if how == "replaced":
            shutil.copy(file, f"{file}.new")
            Path(f"{file}.new").replace(file)
        else:
            file.unlink()
        for act in (lambda: ledger.reserve(ASK), ledger.state, lambda: ledger.stored("key", None)):
            assert code_of(act) == "ledger-moved"


def test_a_log_that_is_lost_during_an_act_is_noticed_before_anything_is_returned(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as ledger:
        used(ledger)
        agree = SQLiteLedger._agree

        def losing(self: SQLiteLedger, *given: object) -> None:
            agree(self, *given)  # type: ignore[arg-type]
            Path(f"{path}-wal").unlink()

        monkeypatch.setattr(SQLiteLedger, "_agree", losing)
        assert code_of(lambda: ledger.reserve(ASK)) == "ledger-moved"


def test_processes_that_come_and_go_are_no_false_alarm(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with opened(path) as ledger:
        others = [context.Process(target=come_and_go, args=(str(path), 15)) for _ in range(2)]
        for each in others:
            each.start()
        while any(each.is_alive() for each in others):
            ledger.reserve(Request("q", BudgetVector(0, 0), ALICE)).settle(Fraction(0), "d")
            ledger.state("bob")
            time.sleep(0.05)  # every opening reads all that was written
        for each in others:
            each.join()
            assert each.exitcode == 0
        assert sum(entry.account == "bob" for entry in ledger.entries()) == 30


def test_bytes_of_the_schema_that_are_damaged_are_one_error(rich: Path, tmp_path: Path) -> None:
    whole, rng = rich.read_bytes(), random.Random(7)
    page = int.from_bytes(whole[16:18])
    places = [*range(24, 3 * page, 5), *(rng.randrange(3 * page, len(whole)) for _ in range(200))]
    copy = tmp_path / "copy"
    for at in places:
        changed = bytearray(whole)
        changed[at] = rng.choice([0, 0xFF, changed[at] ^ 0x80, rng.randrange(256)])
        copy.write_bytes(changed)
        for act in (SQLiteLedger.open, lambda place: list(SQLiteLedger.open(place).events())):
            with suppress(LedgerError):
                found = act(copy)
                if isinstance(found, SQLiteLedger):
                    found.close()
        for each in tmp_path.glob("copy*"):
            each.unlink()


def test_a_table_that_is_gone_is_damage(rich: Path) -> None:
    with opened(rich) as ledger, closing(sqlite3.connect(rich)) as other:
        other.execute("DROP TABLE balances")
        other.commit()
        assert code_of(ledger.state) == "ledger-damaged"
