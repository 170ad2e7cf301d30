"""One question of one account has one answer and one charge, however many ask it at once."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import BUDGET, TOTAL, opened, raw

from dpsql.accounting import BudgetState, BudgetVector
from dpsql.ledger import Account, Ledger, MemoryLedger, Request, SQLiteLedger, verify
from dpsql.ledger.base import Settled
from dpsql.ledger.record import sum_entries

COST = BudgetVector(1, "1e-8")
ANA, BEN = Account("ana", BUDGET), Account("ben", BUDGET)


def asked(account: Account | None = ANA, key: str = "key", *, repeated: bool = True) -> Request:
    return Request("q", COST, account, key, repeated=repeated)


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, path: Path) -> Callable[[], Ledger]:
    if request.param == "file":
        return lambda: SQLiteLedger(path, BUDGET, total=TOTAL)
    only = MemoryLedger(BUDGET, total=TOTAL)
    return lambda: only


def test_what_was_answered_meanwhile_stands_and_nothing_more_is_charged(make: Callable[[], Ledger]) -> None:
    one, two = make(), make()
    first, second = one.reserve(asked()), two.reserve(asked())
    assert first.settle(Fraction("0.5"), "d", answer=b"one") == Settled(b"one")
    assert second.settle(Fraction("0.25"), "e", answer=b"two") == Settled(b"one", repeats=True)
    for account in (None, "ana"):
        state = two.state(account)
        assert state == BudgetState(Fraction("0.5"), COST.permanent)
    assert one.state() == two.state() == sum_entries(one.entries())
    assert [entry.permanent for entry in one.entries()] == [COST.permanent, Fraction(0)]
    assert one.stored("key", "ana") == b"one"


def test_what_was_answered_before_the_reservation_is_returned_in_its_place(make: Callable[[], Ledger]) -> None:
    ledger = make()
    ledger.reserve(asked()).settle(Fraction("0.5"), "d", answer=b"one")
    assert ledger.reserve(asked()) == Settled(b"one", repeats=True)
    assert len(ledger.entries()) == 1
    assert not isinstance(ledger.reserve(asked(repeated=False)), Settled)


def test_it_is_returned_though_the_budget_is_spent(path: Path) -> None:
    with opened(path, BudgetVector(1, "1e-6")) as ledger:
        ledger.reserve(asked()).settle(Fraction(1), "d", answer=b"one")
        assert ledger.reserve(asked()) == Settled(b"one", repeats=True)


@pytest.mark.parametrize("other", [asked(BEN), asked(None), asked(key="another"), asked(repeated=False)])
def test_another_account_key_or_wish_is_another_question(make: Callable[[], Ledger], other: Request) -> None:
    ledger = make()
    first, second = ledger.reserve(asked()), ledger.reserve(other)
    first.settle(Fraction("0.5"), "d", answer=b"one")
    assert second.settle(Fraction("0.25"), "e", answer=b"two") == Settled(b"two")
    assert ledger.state().spent == Fraction("0.75")


def test_what_failed_is_charged_and_repeats_nothing(make: Callable[[], Ledger]) -> None:
    ledger = make()
    first, second = ledger.reserve(asked()), ledger.reserve(asked())
    first.settle(Fraction("0.5"), "d", answer=b"one")
    assert second.settle(Fraction(1), "failed") == Settled(b"")
    assert ledger.state().spent == Fraction("1.5")


def test_another_version_of_the_data_is_another_question(make: Callable[[], Ledger]) -> None:
    ledger = make()
    first = ledger.reserve(asked())
    ledger.bump("new rows")
    second = ledger.reserve(asked())
    first.settle(Fraction("0.5"), "d", answer=b"one")
    assert second.settle(Fraction("0.25"), "e", answer=b"two") == Settled(b"two")


def test_the_rule_for_one_account_comes_before_that_of_sharing(make: Callable[[], Ledger]) -> None:
    ledger = make()
    ben, one, two = ledger.reserve(asked(BEN)), ledger.reserve(asked()), ledger.reserve(asked())
    ben.settle(Fraction("0.5"), "d", answer=b"ben", shared=True)
    assert one.settle(Fraction("0.25"), "e", answer=b"one", shared=True) == Settled(b"ben")
    assert two.settle(Fraction("0.25"), "f", answer=b"two", shared=True) == Settled(b"ben", repeats=True)
    assert ledger.state("ana") == BudgetState(Fraction("0.5"), COST.permanent)


def test_a_file_says_so_in_its_version_and_is_verified_and_opened_again(path: Path) -> None:
    with opened(path) as ledger:
        first, second = ledger.reserve(asked()), ledger.reserve(asked())
        first.settle(Fraction("0.5"), "d", answer=b"one")
        with raw(path) as other:
            assert other.execute("PRAGMA user_version").fetchone() == (2,)
        second.settle(Fraction("0.25"), "e", answer=b"two")
        state = ledger.state()
    with raw(path) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (5,)
    verify(path)
    with opened(path) as ledger:
        assert ledger.state() == state
        assert ledger.stored("key", "ana") == b"one"
