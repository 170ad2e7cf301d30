"""What every ledger does when the engine has failed too many queries of an account within a day."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_makers import MAKERS, Maker, loss

from dpsql.accounting import Periods
from dpsql.errors import BudgetExceeded, Refusal
from dpsql.ledger import Account, Ledger, Request, Reservation
from dpsql.ledger.base import FAILED

START = datetime(2028, 2, 1, 9, 30, tzinfo=UTC)
DAY, TICK = timedelta(days=1), timedelta(microseconds=1)
ALICE, BOB = Account("alice", loss(100, 1)), Account("bob", loss(100, 1))
Make = Callable[[], Ledger]


class Hands:
    """A clock that shows what a test sets it to."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    return request.param(tmp_path)


@pytest.fixture
def ledger(maker: Maker, clock: Hands) -> Iterator[Ledger]:
    with contextlib.closing(maker.make(loss(100, 1), Periods(timedelta(hours=1)), clock)) as made:
        yield made


@pytest.fixture
def again(maker: Maker, ledger: Ledger, clock: Hands) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:

        def opened() -> Ledger:
            other = maker.again(ledger, clock)
            stack.callback(other.close)
            return other

        yield opened


def ask(ledger: Ledger, account: Account | None = ALICE, most: int | None = 2) -> Reservation:
    return ledger.reserve(Request("q", loss(1), account, most_failures=most))


def fail(ledger: Ledger, account: Account | None = ALICE, most: int | None = None) -> None:
    ask(ledger, account, most).settle(Fraction(1), FAILED)


def refused(ledger: Ledger, account: Account | None = ALICE, most: int = 2) -> bool:
    """Return whether a request is refused for failures; one that is not is settled with an answer."""
    before = list(ledger.events())
    with contextlib.suppress(Refusal):
        ask(ledger, account, most).settle(Fraction(0), "an answer")
        return False
    with pytest.raises(Refusal, match="too-many-failures"):
        ask(ledger, account, most)
    assert list(ledger.events()) == before
    return True


def test_the_failure_that_fills_the_number_is_the_last_for_a_day(ledger: Ledger, clock: Hands) -> None:
    fail(ledger)
    assert not refused(ledger)
    clock.time += DAY / 2
    fail(ledger)
    assert refused(ledger)
    clock.time = START + DAY - TICK
    assert refused(ledger)
    clock.time = START + DAY
    assert not refused(ledger)
    fail(ledger)
    assert refused(ledger)


def test_without_a_number_nobody_is_stopped(ledger: Ledger) -> None:
    for _ in range(5):
        fail(ledger)
    ask(ledger, most=None).settle(Fraction(0), "an answer")


def test_answers_and_interrupts_are_no_failures(ledger: Ledger) -> None:
    for digest in ("interrupted", "ab" * 32, ""):
        ask(ledger).settle(Fraction(1), digest)
    ask(ledger)  # and what nobody settles is not either
    assert not refused(ledger, most=1)


def test_every_account_has_failures_of_its_own_and_so_have_those_without_a_name(ledger: Ledger) -> None:
    for account in (ALICE, None):
        fail(ledger, account)
        fail(ledger, account)
    assert refused(ledger, ALICE)
    assert refused(ledger, None)
    assert not refused(ledger, BOB)


def test_a_name_is_not_mistaken_for_a_failure(ledger: Ledger) -> None:
    odd = Account('"digest":"failed"', loss(100, 1))
    for _ in range(3):
        ledger.reserve(Request('"digest":"failed"', loss(1), odd, '"digest":"failed"')).settle(Fraction(1), "an answer")
    assert not refused(ledger, odd, most=1)


def test_a_clock_that_is_set_back_forgets_no_failure(ledger: Ledger, clock: Hands) -> None:
    fail(ledger)
    fail(ledger)
    clock.time = START - 30 * DAY
    assert refused(ledger)


def test_failures_are_stopped_before_the_budget_is_looked_at(ledger: Ledger) -> None:
    fail(ledger)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(Request("q", loss(1000), ALICE, most_failures=2))
    fail(ledger)
    with pytest.raises(Refusal):
        ledger.reserve(Request("q", loss(1000), ALICE, most_failures=2))


def test_a_ledger_that_is_opened_again_knows_them_and_so_does_one_that_was_open_beside(
    again: Make, ledger: Ledger
) -> None:
    beside = again()
    assert not refused(beside)
    fail(ledger)
    assert not refused(beside)
    fail(beside)
    assert refused(ledger)
    assert refused(beside)
    assert refused(again())


def test_an_act_that_is_undone_hides_no_failure_that_gets_its_number(maker: Maker, ledger: Ledger) -> None:
    held, ahead = ask(ledger, most=9), Hands()
    with contextlib.closing(maker.again(ledger, ahead)) as beside:
        ahead.time += timedelta(hours=2)
        with pytest.raises(BudgetExceeded):  # this began a period, which is undone
            beside.reserve(Request("q", loss(1000), ALICE, most_failures=9))
        held.settle(Fraction(1), FAILED)
        assert refused(beside, most=1)
