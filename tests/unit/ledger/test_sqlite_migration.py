"""A file of version 1, made by dpsql 0.2.0, is taken over with what was spent from it."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import code_of, raw, tampering

from dpsql.accounting import ApproximateDP, BudgetState, BudgetVector
from dpsql.errors import BudgetExceeded
from dpsql.ledger import Request, SQLiteLedger, sum_entries, verify
from dpsql.ledger.sqlite_files import Sidecars
from dpsql.quantities import Delta, Epsilon

ITEM = Fraction("0.05") ** 2 / 8
BUDGET, TOTAL = BudgetVector("0.0123456789", "5e-7"), ApproximateDP(Epsilon(1), Delta("1e-6"))
STATE = BudgetState(Fraction(7 * ITEM), Fraction("3.5e-8"), Fraction(1, 3000))


@pytest.fixture
def old(path: Path) -> Path:
    shutil.copy(Path(__file__).with_name("version1.ledger"), path)
    return path


def test_what_was_spent_and_held_stays_spent_and_held(old: Path) -> None:
    for _ in range(2):
        with closing(SQLiteLedger(old, BudgetVector(5, 1), total=TOTAL)) as ledger:
            assert (ledger.budget, ledger.total, ledger.data_version) == (BUDGET, TOTAL, 0)
            assert ledger.state() == STATE == sum_entries(ledger.entries())
    left = BUDGET.refundable - STATE.spent - STATE.reserved
    with closing(SQLiteLedger.open(old)) as ledger:
        with pytest.raises(BudgetExceeded):
            ledger.reserve(Request("q", BudgetVector(left + Fraction(1, 10**30), 0)))
        ledger.reserve(Request("q", BudgetVector(left, 0))).settle(Fraction(left), "d")
    assert verify(old).events == 8


def test_its_entries_are_told_as_they_were(old: Path) -> None:
    with raw(old) as connection:
        was = connection.execute("SELECT opened_at, query, settled_at, digest FROM entries ORDER BY id").fetchall()
        (created_at,) = connection.execute("SELECT created_at FROM terms").fetchone()
    with closing(SQLiteLedger.open(old)) as ledger:
        events, entries = list(ledger.events()), ledger.entries()
    assert [event.kind for event in events] == "created reserved settled reserved settled reserved".split()
    assert events[0].at == created_at
    assert [
        (entry.opened_at.isoformat(), entry.query, entry.settlement and entry.settlement.at.isoformat(),
         entry.settlement and entry.settlement.digest)
        for entry in entries
    ] == was  # fmt: skip
    assert entries[1].query.startswith("SELECT 'ä\0")
    assert entries[2].settlement is None
    assert {(entry.account, entry.key, entry.data_version) for entry in entries} == {(None, "", 0)}
    assert json.loads(events[1].body)["rho"] == "1/320"


def test_it_has_a_mark_from_then_on(old: Path) -> None:
    copy = old.read_bytes()
    with closing(SQLiteLedger.open(old)) as ledger:
        assert Sidecars(old).read_mark().seq == 6
        ledger.bump("n")
    old.write_bytes(copy)
    assert code_of(lambda: SQLiteLedger.open(old)) == "ledger-rolled-back"


def test_verifying_alone_takes_nothing_over(old: Path) -> None:
    before = old.read_bytes()
    assert code_of(lambda: verify(old)) == "ledger-older"
    assert old.read_bytes() == before


def test_another_total_is_refused(old: Path) -> None:
    other = ApproximateDP(Epsilon("0.5"), Delta("1e-6"))
    assert code_of(lambda: SQLiteLedger(old, BUDGET, total=other)) == "ledger-budget"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE balance SET spent_rho = '0/1'",
        "UPDATE balance SET spent_rho = '0.5'",
        "UPDATE balance SET reserved_rho = x'00'",
        "DELETE FROM balance",
        "DELETE FROM terms",
        "UPDATE terms SET total_epsilon = '0/1'",
        "UPDATE terms SET created_at = 'yesterday'",
        "DELETE FROM entries WHERE id = 3",
        "UPDATE entries SET worst_rho = '0/1' WHERE id = 3",
        "UPDATE entries SET loss_rho = '0/1' WHERE id = 1",
        "UPDATE entries SET opened_at = 'yesterday' WHERE id = 1",
        "UPDATE entries SET settled_at = 'yesterday' WHERE id = 1",
        "UPDATE entries SET settled_at = NULL WHERE id = 1",
        "UPDATE entries SET query = x'00' WHERE id = 1",
        "UPDATE entries SET digest = NULL WHERE id = 1",
        "CREATE TABLE guests (name TEXT)",
    ],
)
def test_a_file_that_does_not_add_up_is_refused_and_left_as_it_is(old: Path, change: str) -> None:
    with tampering(old) as connection:
        connection.execute(change)
    with raw(old) as connection:
        before = list(connection.iterdump())
    assert code_of(lambda: SQLiteLedger.open(old)) == "ledger-damaged"
    with raw(old) as connection:
        assert list(connection.iterdump()) == before
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
