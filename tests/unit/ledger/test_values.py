"""Budgets of values in the history and in files: what older ledgers become, and what is found in a changed one."""

from __future__ import annotations

import shutil
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from support.ledger_kit import ASK, ITEM, opened, version_of
from support.replay_kit import CREATED, Act, rows, settled
from support.values_kit import divide_by

from dpsql.accounting import BudgetState, BudgetVector
from dpsql.errors import BudgetExceeded, LedgerError, UsageError
from dpsql.ledger import Request, SQLiteLedger, backup, dp_events, durable, sum_entries, verify
from dpsql.ledger import sqlite_tables as tables
from dpsql.ledger.history import History

DIVIDED = ("divided", {"rule": "r", "data": "d"})


def reserved(*values: str, rho: str = "1/3", **given: Any) -> Act:
    body = {"query": "q", "rho": rho, "delta": "0/1", "account": None, "key": "", "data_version": 0}
    return "reserved", {**body, "values": list(values), **given}


def ask(ledger: SQLiteLedger, *values: str, worst: BudgetVector = ITEM) -> Any:
    return ledger.reserve(Request("q", worst, values=values, division=ledger.division))


@pytest.mark.parametrize("name", ["version1.ledger", "version2.ledger"])
def test_an_old_file_gets_budgets_of_values(path: Path, name: str) -> None:
    shutil.copy(Path(__file__).with_name(name), path)
    with closing(SQLiteLedger.open(path)) as ledger:
        before, entries = ledger.state(), ledger.entries()
        assert version_of(path) < tables.WITH_DIVISIONS  # an earlier dpsql still reads it
        assert ledger.division is None
        ledger.divide(divide_by())
        assert version_of(path) == tables.WITH_DIVISIONS
        assert (ledger.state(), ledger.entries()) == (before, entries)
        left = ledger.budget.refundable - before.spent - before.reserved
        ask(ledger, "a", worst=BudgetVector(left, 0))
        ask(ledger, "b", worst=BudgetVector(left, 0))
        with pytest.raises(BudgetExceeded):
            ask(ledger, "a", worst=BudgetVector(left / 2, 0))
    verify(path)
    with closing(SQLiteLedger.open(path)) as ledger:
        assert list(ledger.states()) == ["a", "b"]


def test_a_ledger_without_values_keeps_its_version(path: Path) -> None:
    with opened(path) as ledger:
        ledger.reserve(ASK).settle(Fraction(0), "d")
        ledger.bump("other data")
    assert version_of(path) < tables.WITH_DIVISIONS


def test_a_backup_has_the_values(path: Path, tmp_path: Path) -> None:
    with opened(path) as ledger:
        ledger.divide(divide_by())
        ask(ledger, "a")
    backup(path, tmp_path / "copy.ledger")
    with closing(SQLiteLedger.open(tmp_path / "copy.ledger")) as ledger:
        assert ledger.state(values=("a",)).reserved == ITEM.refundable
        assert ledger.state(values=("b",)) == BudgetState()


def test_no_checkpoint_is_written_once_there_are_values(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "LEAST", 3)
    beside = path.with_name(f"{path.name}.checkpoint")

    def written() -> str | None:
        with opened(path):
            return beside.read_text() if beside.exists() else None

    with opened(path) as ledger:
        for _ in range(4):
            ledger.reserve(ASK)
    before = written()
    assert before is not None
    with opened(path) as ledger:
        ledger.divide(divide_by())
        for _ in range(6):
            ask(ledger, "a")
    assert written() == before
    with opened(path) as ledger:  # from that checkpoint on, all values are read
        assert ledger.state(values=("a",)).reserved == 10
        assert ledger.state(values=("b",)).reserved == 4
    verify(path)


def test_values_are_summed_exactly() -> None:
    replay = History()
    acts = [CREATED, DIVIDED, reserved("a"), reserved("a", "b", rho="1/5"), reserved(rho="1/7"), settled(3, "1/4")]
    del acts[4][1]["values"]
    replay.read(rows(*acts))
    assert replay.state(None) == BudgetState(Fraction(0), Fraction(0), Fraction(1, 7))
    assert replay.values(None) == {
        "a": BudgetState(Fraction(1, 4), Fraction(0), Fraction(1, 5)),
        "b": BudgetState(Fraction(0), Fraction(0), Fraction(1, 5)),
    }


@pytest.mark.parametrize(
    "acts",
    [
        [reserved("a")],  # nothing says what a value is
        [DIVIDED, reserved()],
        [DIVIDED, reserved("b", "a")],
        [DIVIDED, reserved("a", "a")],
        [DIVIDED, reserved("a", values=[1])],
        [DIVIDED, reserved("a", values="a")],
        [DIVIDED, reserved("a", values=None)],
        [DIVIDED, DIVIDED],
        [DIVIDED, ("divided", {"rule": "r", "data": "other"})],
        [("divided", {"rule": "r"})],
        [("divided", {"rule": 1, "data": "d"})],
        [DIVIDED, ("bumped", {"data_version": 1, "note": ""}), reserved("a")],
        [DIVIDED, reserved("a", rho="2/3"), reserved("a", "b", rho="2/3")],
        [DIVIDED, reserved("a", rho="2/3"), ("divided", {"rule": "s", "data": "d"}), reserved("b", rho="2/3")],
    ],
)
def test_a_history_that_dpsql_would_not_write_is_refused(acts: list[Act]) -> None:
    with pytest.raises(LedgerError, match=f"event {len(acts) + 1} "):
        History().read(rows(CREATED, *acts))


def test_an_accountant_may_leave_out_other_values(path: Path) -> None:
    pytest.importorskip("dp_accounting")
    with opened(path) as ledger:
        ledger.divide(divide_by())
        ask(ledger, "a").settle(Fraction("0.5"), "d")
        ask(ledger, "b").settle(Fraction("0.25"), "d")
        ask(ledger)
        entries = ledger.entries()
        assert len(dp_events(entries).event.events) == 3
        of_a = dp_events(entries, value="a")
        assert [event.rho for event in of_a.event.events] == [0.5, 1.0]
        assert of_a.delta.value == 2 * ITEM.permanent
        ledger.bump("other data")
        ask(ledger)
        with pytest.raises(UsageError, match="same value"):
            dp_events(ledger.entries(), value="a")
        assert sum_entries(ledger.entries()).spent == ledger.state().spent


def test_queries_of_several_values_are_kept_as_a_sorted_set(path: Path) -> None:
    with opened(path) as ledger:
        ledger.divide(divide_by())
        ask(ledger, "b", "a", "b")
        assert ledger.entries()[0].values == ("a", "b")
        assert ledger.state(values=("a",)).reserved == ITEM.refundable
