"""What every ledger does with one question that an account asks twice at once: one answer, charged once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_makers import MAKERS, TOTAL, Maker, loss, make_state, spent_in
from support.ledger_terms import ALL, Terms

from dpsql.accounting import BudgetState, BudgetVector, Periods
from dpsql.errors import LedgerError, Refusal, UsageError
from dpsql.ledger import Account, Ledger, MemoryLedger, Request, Shortfall, SQLiteLedger, dp_events, sum_entries
from dpsql.ledger.base import FAILED, Reservation, Settled
from dpsql.quantities import Delta

ALICE, BOB = Account("alice", loss(100, 1)), Account("bob", loss(100, 1))
START = datetime(2028, 2, 1, tzinfo=UTC)


class Hands:
    """A clock that shows what a test sets it to."""

    time = START

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    return request.param(tmp_path)


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def ledger(maker: Maker, clock: Hands) -> Iterator[Ledger]:
    with contextlib.closing(maker.make(loss(10, "0.5"), Periods(timedelta(days=30)), clock)) as made:
        yield made
    maker.check()


@pytest.fixture
def again(maker: Maker, ledger: Ledger, clock: Hands) -> Iterator[Callable[[], Ledger]]:
    with contextlib.ExitStack() as stack:

        def opened() -> Ledger:
            other = maker.again(ledger, clock)
            if other is not ledger:
                stack.callback(other.close)
            return other

        yield opened


def question(account: Account | None = ALICE, key: str = "key", *, repeated: bool = False) -> Request:
    return Request("q", loss(1, "0.01"), account, key, repeated=repeated)


def hold(ledger: Ledger, account: Account | None = ALICE, key: str = "key") -> Reservation:
    held = ledger.reserve(question(account, key, repeated=True))
    assert isinstance(held, Reservation)
    return held


def settle(held: Reservation, answer: bytes, rho: str = "0.5", *, shared: bool = False) -> Settled:
    return held.settle(Fraction(rho), f"digest of {answer!r}", answer=answer, shared=shared)


@pytest.mark.parametrize("account", [ALICE, None])
def test_of_two_who_are_under_way_the_second_repeats_the_first_and_pays_nothing(
    ledger: Ledger, again: Callable[[], Ledger], account: Account | None
) -> None:
    other, name = again(), account.name if account else None
    first, second = hold(ledger, account), hold(other, account)
    assert settle(second, b"second") == Settled(b"second")
    assert settle(first, b"first", "1") == Settled(b"second", repeats=True)
    for each in (ledger, other):
        assert each.stored("key", name) == b"second"
        assert each.state() == each.state(name) == make_state(loss("0.5", "0.01"), Fraction(0))
        assert each.state() == sum_entries(each.entries())
    repeated, paid = ledger.entries()
    assert (repeated.settlement.repeats, repeated.settlement.loss, repeated.permanent) == (3, Fraction(0), Fraction(0))
    assert repeated.settlement.digest == paid.settlement.digest
    assert (paid.settlement.repeats, paid.permanent) == (None, Fraction("0.01"))
    with pytest.raises(LedgerError, match="already-settled"):
        settle(first, b"again")


def test_what_was_settled_between_a_look_and_a_reservation_is_returned_and_nothing_is_held(
    ledger: Ledger, again: Callable[[], Ledger]
) -> None:
    other = again()
    assert other.stored("key", "alice") is None
    settle(hold(ledger), b"first")
    before = list(ledger.events())
    assert other.reserve(question(repeated=True)) == Settled(b"first", repeats=True)
    assert list(ledger.events()) == before


def test_a_stored_answer_is_returned_when_no_budget_is_left_or_too_many_failed(ledger: Ledger) -> None:
    settle(hold(ledger), b"first", "1")
    for _ in range(9):
        ledger.reserve(question(key="")).settle(Fraction(1), FAILED)
    with pytest.raises(Shortfall):
        ledger.reserve(question(key="another", repeated=True))
    with pytest.raises(Refusal):
        ledger.reserve(replace(question(key="another", repeated=True), most_failures=3))
    assert ledger.reserve(replace(question(repeated=True), most_failures=3)) == Settled(b"first", repeats=True)


def test_only_an_answer_to_the_same_question_of_the_same_account_and_data_is_repeated(ledger: Ledger) -> None:
    mine = hold(ledger)
    settle(hold(ledger, BOB), b"of bob")
    settle(hold(ledger, None), b"of nobody")
    settle(hold(ledger, key="other"), b"other")
    hold(ledger).settle(Fraction(1), FAILED)
    ledger.bump("more rows")
    settle(hold(ledger), b"later")
    assert settle(mine, b"mine") == Settled(b"mine")
    assert ledger.stored("key", "alice") == b"later"


def test_an_answer_of_the_version_of_the_reservation_is_found_below_later_ones(ledger: Ledger) -> None:
    first, second = hold(ledger), hold(ledger)
    ledger.bump("more rows")
    for _ in range(3):
        ledger.reserve(question()).settle(Fraction(0), "d", answer=b"later")
    assert settle(first, b"first").repeats is False
    assert settle(second, b"second") == Settled(b"first", repeats=True)


def test_a_fresh_question_is_answered_on_its_own_and_pays(ledger: Ledger) -> None:
    mine, fresh = hold(ledger), ledger.reserve(question())
    settle(mine, b"first")
    assert fresh.settle(Fraction("0.5"), "d", answer=b"fresh") == Settled(b"fresh")
    assert spent_in(ledger.state()) == loss(1, "0.02")
    assert ledger.stored("key", "alice") == b"fresh"


def test_a_question_under_way_repeats_a_fresh_answer_as_a_replay_does(ledger: Ledger) -> None:
    mine, fresh = hold(ledger), ledger.reserve(question())
    fresh.settle(Fraction("0.5"), "d", answer=b"fresh")
    assert settle(mine, b"mine") == Settled(b"fresh", repeats=True)


def test_a_question_without_a_key_is_never_repeated(ledger: Ledger) -> None:
    first, second = hold(ledger, key=""), hold(ledger, key="")
    assert not settle(first, b"first").repeats
    assert not settle(second, b"second").repeats


def test_a_failure_beside_an_answer_is_charged_and_counted(ledger: Ledger) -> None:
    first, second = hold(ledger), hold(ledger)
    settle(first, b"first")
    second.settle(Fraction(1), FAILED)
    assert ledger.state() == make_state(loss("1.5", "0.02"), Fraction(0))
    with pytest.raises(Refusal):
        ledger.reserve(replace(question(), most_failures=1))


def test_a_shared_answer_of_another_account_is_charged_and_ones_own_is_not(ledger: Ledger) -> None:
    early, late, of_bob = hold(ledger), hold(ledger), hold(ledger, BOB)
    assert settle(of_bob, b"of bob", "0.25", shared=True) == Settled(b"of bob")
    assert settle(late, b"of alice", "0.75", shared=True) == Settled(b"of bob")
    assert spent_in(ledger.state("alice")) == loss("0.25", "0.02")
    assert settle(early, b"of alice, early", "0.75", shared=True) == Settled(b"of bob", repeats=True)
    assert ledger.state("alice") == make_state(loss("0.25", "0.01"), Fraction(0))


def test_a_loss_above_the_worst_case_is_refused_unless_nothing_is_charged(ledger: Ledger) -> None:
    first, second = hold(ledger), hold(ledger)
    with pytest.raises(UsageError, match="over-settled"):
        settle(first, b"first", "2")
    settle(first, b"first")
    assert settle(second, b"second", "2").repeats


def test_what_is_repeated_late_gives_nothing_to_a_later_period(ledger: Ledger, clock: Hands) -> None:
    first, second = hold(ledger), hold(ledger)
    settle(first, b"first")
    clock.time += timedelta(days=31)
    other = hold(ledger, key="other")
    assert settle(second, b"second") == Settled(b"first", repeats=True)
    assert ledger.state("alice") == make_state(loss(0, "0.01"), Fraction(1))
    settle(other, b"other")
    for period in (0, 1):
        assert spent_in(sum_entries(ledger.entries(), period=period)) == loss("0.5", "0.01")


def test_what_was_repeated_is_there_after_opening_again(ledger: Ledger, again: Callable[[], Ledger]) -> None:
    first, second, third = hold(ledger), hold(ledger), hold(ledger)
    settle(first, b"first")
    settle(second, b"second")
    other = again()
    assert other.state() == ledger.state()
    assert other.stored("key", "alice") == b"first"
    assert ledger.state().reserved == Fraction(1)  # of the third
    assert third.settle(Fraction(1), "d", answer=b"third") == Settled(b"first", repeats=True)
    assert other.state() == make_state(loss("0.5", "0.01"), Fraction(0))


@pytest.mark.parametrize("terms", ALL, ids=lambda terms: terms.certificate.value)
@pytest.mark.parametrize("durable", [True, False])
def test_under_every_certificate_both_currencies_are_free_again(tmp_path: Path, terms: Terms, *, durable: bool) -> None:
    made: Ledger
    if durable:
        made = SQLiteLedger(tmp_path / "l", terms.budget, total=TOTAL, certified=terms.certified)
    else:
        made = MemoryLedger(terms.budget, total=TOTAL, certified=terms.certified)
    with contextlib.closing(made) as ledger:
        held = [ledger.reserve(replace(terms.ask("key"), repeated=True)) for _ in range(2)]
        most = terms.worst.refundable
        assert [each.settle(most, "d", answer=b"%d" % at) for at, each in enumerate(held)] == [  # type: ignore[union-attr]
            Settled(b"0"),
            Settled(b"0", repeats=True),
        ]
        assert ledger.state() == BudgetState(most, terms.worst.permanent) == sum_entries(ledger.entries())
        ledger.reserve(terms.ask())  # there is room for it again


def test_other_accountants_are_told_of_what_was_charged_alone(ledger: Ledger) -> None:
    pytest.importorskip("dp_accounting")
    for each in [hold(ledger), hold(ledger)]:
        settle(each, b"an answer")
    spent = dp_events(ledger.entries())
    assert spent.delta == Delta("0.01")
    assert sum(Fraction(event.rho) for event in spent.event.events) == Fraction(1, 2)


def test_threads_that_ask_one_question_at_once_get_one_answer_charged_once(
    ledger: Ledger, again: Callable[[], Ledger]
) -> None:
    ledgers = [ledger, again()]
    answers: list[bytes] = []
    gate = threading.Barrier(6)

    def ask(number: int) -> None:
        gate.wait()
        held = ledgers[number % 2].reserve(question(repeated=True))
        answers.append((held if isinstance(held, Settled) else settle(held, b"%d" % number)).answer)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(answers) == 6
    assert set(answers) == {ledger.stored("key", "alice")}
    assert ledger.state() == make_state(loss("0.5", "0.01"), Fraction(0))


def test_the_worst_case_of_both_is_held_until_one_settles(ledger: Ledger) -> None:
    hold(ledger)
    hold(ledger)
    assert ledger.state().reserved == Fraction(2)
    with pytest.raises(Shortfall):
        ledger.reserve(Request("q", BudgetVector("8.5", 0)))
