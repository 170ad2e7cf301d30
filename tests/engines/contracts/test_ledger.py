"""What every ledger does, whatever it is made of."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from support.ledger_makers import MAKERS, PARTS, TOTAL, Maker, Memory, Postgres, SQLite, ask, loss, make_state, spent_in

from dpsql.accounting import ApproximateDP, BudgetState, BudgetVector
from dpsql.errors import BudgetExceeded, LedgerError, UsageError
from dpsql.ledger import (
    Account,
    Ledger,
    MemoryLedger,
    Request,
    Reservation,
    Shortfall,
    sum_entries,
)
from dpsql.quantities import Delta, Epsilon

NAMES = st.sampled_from([None, "a", "b"])


Make = Callable[[BudgetVector], Ledger]


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    return request.param(tmp_path)


@pytest.fixture
def make(maker: Maker) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:

        def made(budget: BudgetVector) -> Ledger:
            ledger = maker.make(budget)
            stack.callback(ledger.close)
            return ledger

        yield made


def test_a_fresh_ledger_has_spent_nothing(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    assert ledger.budget == loss(1, "1e-6")
    assert ledger.total == TOTAL
    assert ledger.data_version == 0
    assert isinstance(ledger.durable, bool)
    assert ledger.state() == BudgetState()
    assert ledger.entries() == ()


def test_reserve_holds_rho_and_spends_delta(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    ask(ledger, loss(Fraction(1, 3), "1e-7"), "SELECT 1")
    assert ledger.state() == make_state(loss(0, "1e-7"), Fraction(1, 3))


def test_settle_spends_the_loss_frees_the_rest_and_never_refunds_delta(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    ask(ledger, loss(Fraction(1, 3), "1e-7"), "SELECT 1").settle(Fraction(1, 7), "digest")
    assert ledger.state() == make_state(loss(Fraction(1, 7), "1e-7"), Fraction(0))
    ask(ledger, loss(Fraction(6, 7), "9e-7"), "SELECT 2").settle(Fraction(0), "digest")
    assert ledger.state() == make_state(loss(Fraction(1, 7), "1e-6"), Fraction(0))
    with pytest.raises(BudgetExceeded, match="delta"):
        ask(ledger, loss(0, "1e-100"), "SELECT 3")


def test_the_record_tells_query_worst_case_and_settlement(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    first = ask(ledger, loss("0.5", "1e-7"), "SELECT ä, '\0', '\ud800'")
    ask(ledger, loss("0.25"), "")
    first.settle(Fraction("0.125"), "sha256:abc")
    settled, held = ledger.entries()
    assert settled.query.startswith("SELECT ä, '\0'")
    assert settled.worst_case == loss("0.5", "1e-7")
    assert settled.settlement.loss == Fraction("0.125")
    assert settled.settlement.digest == "sha256:abc"
    assert settled.opened_at <= held.opened_at <= settled.settlement.at
    assert settled.opened_at.utcoffset().total_seconds() == 0
    assert (held.query, held.worst_case, held.settlement) == ("", loss("0.25"), None)
    assert (held.account, held.key, held.data_version) == (None, "", 0)


@pytest.mark.parametrize(
    "over", [loss(Fraction(1, 3) + Fraction(1, 10**30)), loss(0, Fraction(1, 10**6) + Fraction(1, 10**40))]
)
def test_the_boundary_is_exact(make: Make, over: BudgetVector) -> None:
    ledger = make(loss(1, "1e-6"))
    ask(ledger, loss(Fraction(1, 3)), "a").settle(Fraction(1, 3), "")
    ask(ledger, loss(Fraction(1, 3)), "b")
    before = ledger.state()
    with pytest.raises(BudgetExceeded):
        ask(ledger, over, "too much")
    assert ledger.state() == before
    assert len(ledger.entries()) == 2
    ask(ledger, loss(Fraction(1, 3), "1e-6"), "just enough")
    with pytest.raises(BudgetExceeded):
        ask(ledger, loss(Fraction(1, 10**30)), "nothing is left")
    ask(ledger, BudgetVector(0, 0), "nothing is asked")


def test_ten_tenths_are_the_whole(make: Make) -> None:
    ledger = make(loss(1))
    for _ in range(10):
        ask(ledger, loss(0.1), "a tenth").settle(Fraction("0.1"), "")
    assert ledger.state() == make_state(loss(1), Fraction(0))


def test_a_shortfall_says_what_is_left_and_survives_pickling(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    ask(ledger, loss("0.75", "4e-7"), "first")
    with pytest.raises(Shortfall) as caught:
        ask(ledger, loss("0.5", "1e-7"), "second")
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert error.code == "budget-exceeded"
        assert error.remaining == loss("0.25", "6e-7")
        assert "rho 0.5" in error.reason
        assert "rho 0.25" in error.reason
        assert error.hint


def test_a_second_settlement_is_refused(make: Make) -> None:
    ledger = make(loss(1))
    reservation = ask(ledger, loss("0.5"), "once")
    ask(ledger, loss("0.5"), "another that is held")
    reservation.settle(Fraction("0.25"), "first")
    before = ledger.state()
    for again in (Fraction("0.25"), Fraction(0), Fraction("0.5")):
        with pytest.raises(LedgerError) as caught:
            reservation.settle(again, "second")
        assert caught.value.code == "already-settled"
    assert ledger.state() == before
    assert ledger.entries()[0].settlement.digest == "first"


def test_settling_above_the_worst_case_is_refused_and_keeps_the_hold(make: Make) -> None:
    ledger = make(loss(1))
    reservation = ask(ledger, loss("0.5"), "q")
    with pytest.raises(UsageError) as caught:
        reservation.settle(Fraction(Fraction(1, 2) + Fraction(1, 10**30)), "d")
    assert caught.value.code == "over-settled"
    assert ledger.state() == make_state(loss(0), Fraction("0.5"))
    reservation.settle(Fraction("0.5"), "d")
    assert ledger.state() == make_state(loss("0.5"), Fraction(0))


def test_reservations_settle_in_any_order(make: Make) -> None:
    ledger = make(loss(1))
    held = [ask(ledger, loss(Fraction(1, n)), str(n)) for n in (3, 4, 5)]
    for reservation, returned in zip(reversed(held), (Fraction(1, 50), Fraction(1, 40), Fraction(1, 30)), strict=True):
        reservation.settle(Fraction(returned), str(returned))
    assert ledger.state().reserved == Fraction(0)
    assert [entry.settlement.digest for entry in ledger.entries()] == ["1/30", "1/40", "1/50"]


def test_a_closed_ledger_refuses_everything_but_closing(make: Make) -> None:
    ledger = make(loss(1))
    reservation = ask(ledger, loss("0.5"), "q")
    ledger.close()
    ledger.close()
    acts = [
        ledger.state,
        ledger.entries,
        lambda: list(ledger.events()),
        lambda: ledger.stored("key", None),
        lambda: ledger.grant(loss(2), TOTAL, note="late"),
        lambda: ledger.bump("late"),
        lambda: ledger.register({"t": "u"}),
        lambda: ask(ledger, loss("0.1"), "late"),
        lambda: reservation.settle(Fraction(0), "late"),
    ]
    for act in acts:
        with pytest.raises(LedgerError) as caught:
            act()
        assert caught.value.code == "ledger-closed"
    assert ledger.budget == loss(1)


@pytest.fixture
def impatient() -> Iterator[None]:
    """Let the interpreter change threads as often as it can, so that a missing lock shows."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def race(threads: int, act: Callable[[int], None]) -> None:
    start = threading.Barrier(threads)

    def run(number: int) -> None:
        start.wait()
        act(number)

    runners = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()


@pytest.mark.usefixtures("impatient")
def test_threads_racing_for_the_last_items_get_exactly_those(make: Make) -> None:
    item, each, threads = Fraction(1, 3), 25, 8
    ledger = make(BudgetVector(item * 150, 1))
    granted: list[int] = []
    refused: list[int] = []

    def run(number: int) -> None:
        for _ in range(each):
            try:
                reservation = ask(ledger, BudgetVector(item, 0), f"thread {number}")
            except BudgetExceeded:
                refused.append(number)
            else:
                granted.append(number)
                reservation.settle(item, "")

    race(threads, run)
    assert (len(granted), len(refused)) == (150, threads * each - 150)
    assert ledger.state() == BudgetState(item * 150)


@pytest.mark.usefixtures("impatient")
def test_threads_racing_to_settle_one_reservation_settle_it_once(make: Make) -> None:
    ledger = make(loss(1))
    reservation = ask(ledger, loss("0.5"), "q")
    outcomes: list[str] = []

    def settle(number: int) -> None:
        try:
            reservation.settle(Fraction("0.25"), str(number))
        except LedgerError as error:
            outcomes.append(error.code)
        else:
            outcomes.append("settled")

    race(6, settle)
    assert sorted(outcomes) == ["already-settled"] * 5 + ["settled"]
    assert ledger.state() == make_state(loss("0.25"), Fraction(0))


# accounts


ALICE, BOB = Account("alice", loss("0.5", "1e-7")), Account("bob", loss("0.75", "1e-6"))


def test_an_account_draws_on_its_own_limit_and_on_the_total(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    ask(ledger, loss("0.25", "1e-8"), account=ALICE).settle(Fraction("0.125"), "d")
    ask(ledger, loss("0.25", "2e-8"), account=BOB)
    ask(ledger, loss("0.125", "3e-8"))
    assert ledger.state("alice") == make_state(loss("0.125", "1e-8"), Fraction(0))
    assert ledger.state("bob") == make_state(loss(0, "2e-8"), Fraction("0.25"))
    assert ledger.state("carol") == BudgetState()
    assert ledger.state() == make_state(loss("0.125", "6e-8"), Fraction("0.375"))
    assert [entry.account for entry in ledger.entries()] == ["alice", "bob", None]
    for account in ("alice", "bob", None):
        assert ledger.state(account) == sum_entries(ledger.entries(), account)


@pytest.mark.parametrize(
    ("worst", "whose", "left"),
    [
        (loss("0.375"), "alice", loss("0.25", "9e-8")),  # alice has 0.25 of her own left, and the total 0.375
        (loss("0.5"), "alice", loss("0.25", "9e-8")),
        (loss("0.125", "1e-7"), "alice", loss("0.25", "9e-8")),
        (loss("0.375", "1e-5"), "alice", loss("0.25", "9e-8")),
    ],
)
def test_a_shortfall_names_the_account_whose_limit_is_short(
    make: Make, worst: BudgetVector, whose: str, left: BudgetVector
) -> None:
    ledger = make(loss(1, "1e-6"))
    ask(ledger, loss("0.25", "1e-8"), account=ALICE)
    ask(ledger, loss("0.375"))
    before = ledger.state(), ledger.state("alice"), ledger.entries()
    with pytest.raises(Shortfall) as caught:
        ask(ledger, worst, account=ALICE)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert (error.account, error.remaining) == (whose, left)
        assert f"of account {whose}" in error.reason
    assert (ledger.state(), ledger.state("alice"), ledger.entries()) == before


def test_a_shortfall_of_the_total_names_no_account(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    ask(ledger, loss("0.75", "5e-7"))
    for worst in (loss("0.5"), loss("0.25", "6e-7")):
        with pytest.raises(Shortfall) as caught:
            ask(ledger, worst, account=BOB)
        assert caught.value.account is None
        assert caught.value.remaining == loss("0.25", "5e-7")
    ask(ledger, loss("0.25", "5e-7"), account=BOB)


def test_each_quantity_is_short_where_it_is_shorter(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    ask(ledger, loss("0.75"))  # 0.25 of rho is left of the total, and alice has 1e-7 of delta
    for worst, whose in ((loss("0.375"), None), (loss("0.25", "2e-7"), "alice"), (loss("0.375", "2e-7"), None)):
        with pytest.raises(Shortfall) as caught:
            ask(ledger, worst, account=ALICE)
        assert (caught.value.account, caught.value.remaining) == (whose, loss("0.25", "1e-7"))


def test_the_limit_of_an_account_is_what_the_request_says(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    ask(ledger, loss("0.5", "1e-7"), account=ALICE)
    with pytest.raises(Shortfall):
        ask(ledger, loss("0.25"), account=ALICE)
    raised, lowered = Account("alice", loss("0.75", "1e-6")), Account("alice", loss("0.25", "1e-8"))
    held = ask(ledger, loss("0.25"), account=raised)
    with pytest.raises(Shortfall) as caught:
        ask(ledger, loss(Fraction(1, 10**30)), account=lowered)
    assert caught.value.remaining == loss(0)
    ask(ledger, BudgetVector(0, 0), account=lowered)
    held.settle(Fraction("0.25"), "d")
    assert ledger.state("alice") == make_state(loss("0.25", "1e-7"), Fraction("0.5"))


@pytest.mark.parametrize("name", ["", "a\nb", "a\0", "\ud800", "\u2028", "\x1b[31m"])
def test_an_account_has_a_name_that_prints(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        Account(name, loss(1))
    assert caught.value.code == "account-name"


@pytest.mark.parametrize("name", ["total", "null", "None", "a'b", 'a"b', "ä", "  ", "alice"])
def test_no_name_is_mistaken_for_another_or_for_the_total(make: Make, name: str) -> None:
    ledger = make(loss(1))
    reservation = ledger.reserve(Request("q", loss("0.25"), Account(name, loss("0.25")), key="k"))
    reservation.settle(Fraction("0.125"), "d", answer=b"answer")
    assert spent_in(ledger.state(name)) == loss("0.125")
    assert ledger.stored("k", name) == b"answer"
    for other in (None, "Alice", "alice ", name + "x", ""):
        assert ledger.stored("k", other) is None
        assert ledger.state(other) == (ledger.state() if other is None else BudgetState())


# stored answers


def settle(ledger: Ledger, key: str, answer: bytes, *, account: Account | None = None) -> None:
    ledger.reserve(Request("q", loss("0.01"), account, key)).settle(Fraction(0), "d", answer=answer)


def test_an_answer_is_found_by_key_account_and_data_version(make: Make) -> None:
    ledger = make(loss(1))
    settle(ledger, "one", b"of nobody")
    settle(ledger, "one", b"\0\xff of alice", account=ALICE)
    settle(ledger, "two", b"of bob", account=BOB)
    assert ledger.stored("one", None) == b"of nobody"
    assert ledger.stored("one", "alice") == b"\0\xff of alice"
    assert ledger.stored("two", "bob") == b"of bob"
    for key, account in (("two", None), ("one", "bob"), ("three", "alice"), ("", None)):
        assert ledger.stored(key, account) is None
    assert ledger.bump("new data") == 1
    assert ledger.stored("one", None) is None
    settle(ledger, "one", b"of nobody, later")
    assert ledger.stored("one", None) == b"of nobody, later"
    assert [entry.data_version for entry in ledger.entries()] == [0, 0, 0, 1]
    assert [entry.key for entry in ledger.entries()] == ["one", "one", "two", "one"]


def test_the_newest_answer_is_found_and_entries_without_one_are_passed_over(make: Make) -> None:
    ledger = make(loss(1))
    settle(ledger, "key", b"first")
    settle(ledger, "key", b"second")
    settle(ledger, "key", b"")
    ledger.reserve(Request("q", loss("0.1"), key="key"))
    assert ledger.stored("key", None) == b"second"
    settle(ledger, "", b"without a key")
    assert ledger.stored("", None) is None


def test_the_newest_answer_of_several_keys_is_found(make: Make) -> None:
    ledger = make(loss(1))
    for key, answer in (("b", b"1"), ("a", b"2"), ("c", b"3"), ("b", b"4")):
        settle(ledger, key, answer)
    settle(ledger, "a", b"of alice", account=ALICE)
    assert ledger.stored("a", None, "b", "c") == b"4"
    assert ledger.stored("a", None, "c", "") == b"3"
    assert ledger.stored("x", None, "a") == b"2"
    assert ledger.stored("b", "alice", "a", "c") == b"of alice"
    assert ledger.stored("x", None, "y") is None
    ledger.bump("new data")
    assert ledger.stored("a", None, "b", "c") is None


def test_a_shared_answer_is_the_one_that_was_settled_first_at_what_it_cost(make: Make) -> None:
    ledger = make(loss(4))
    alice, bob = Account("alice", loss(2)), Account("bob", loss(2))
    early = ledger.reserve(Request("q", loss("0.5"), alice, key="key"))
    ledger.reserve(Request("q", loss("0.5"), alice, key="key")).settle(Fraction(0), "failed")
    ledger.reserve(Request("q", loss("0.5"), alice, key="other")).settle(Fraction(0), "d", answer=b"other")
    later = ledger.reserve(Request("q", loss("0.5"), bob, key="key"))
    assert later.settle(Fraction("0.1"), "d", answer=b"first", shared=True).answer == b"first"
    # reserved before, settled after: what was given out already stands
    assert early.settle(Fraction("0.3"), "e", answer=b"late", shared=True).answer == b"first"
    assert spent_in(ledger.state("alice")) == spent_in(ledger.state("bob")) == loss("0.1")
    assert ledger.stored("key", "alice") == b"first"
    own = ledger.reserve(Request("q", loss("0.5"), bob, key="key"))
    assert own.settle(Fraction("0.2"), "f", answer=b"fresh").answer == b"fresh"
    again = ledger.reserve(Request("q", loss("0.5"), key="key"))
    assert again.settle(Fraction("0.4"), "g", answer=b"never seen", shared=True).answer == b"first"


def test_a_shared_answer_is_of_the_version_that_it_was_asked_under(make: Make) -> None:
    ledger = make(loss(1))
    settle(ledger, "key", b"before")
    old = ledger.reserve(Request("q", loss("0.1"), key="key"))
    ledger.bump("more rows")
    new = ledger.reserve(Request("q", loss("0.1"), key="key"))
    assert new.settle(Fraction(0), "d", answer=b"after", shared=True).answer == b"after"
    assert old.settle(Fraction(0), "d", answer=b"", shared=True).answer == b"before"


def test_of_those_who_settle_a_shared_answer_at_once_all_get_one(make: Make) -> None:
    ledger = make(loss(1))
    held = [ledger.reserve(Request("q", loss("0.1"), key="key")) for _ in range(6)]
    shown: list[bytes] = []
    race(6, lambda number: shown.append(held[number].settle(Fraction(0), "d", answer=b"%d" % number, shared=True)))
    assert len(shown) == 6
    assert len(set(shown)) == 1


def test_an_answer_belongs_to_the_version_that_it_was_asked_under(make: Make) -> None:
    ledger = make(loss(1))
    reservation = ledger.reserve(Request("q", loss("0.1"), key="key"))
    ledger.bump("the data changed while the query ran")
    reservation.settle(Fraction("0.1"), "d", answer=b"of which data?")
    assert ledger.stored("key", None) is None


@pytest.mark.parametrize("key", ["\ud800", "a\0b", "'", '"', "\\", "ä"])
def test_odd_keys_are_told_apart(make: Make, key: str) -> None:
    ledger = make(loss(1))
    settle(ledger, "a", b"of a")
    settle(ledger, key, b"of key")
    assert ledger.stored(key, None) == b"of key"
    assert ledger.stored("a", None) == b"of a"
    assert ledger.stored(key + "x", None) is None


# acts of a curator


def test_a_grant_adds_and_what_was_spent_stays_spent(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    ask(ledger, loss("0.75", "1e-6")).settle(Fraction("0.75"), "d")
    total = ApproximateDP(Epsilon(2), Delta("4e-6"))
    ledger.grant(loss(2, "2e-6"), total, note="a second year")
    assert (ledger.budget, ledger.total) == (loss(2, "2e-6"), total)
    assert spent_in(ledger.state()) == loss("0.75", "1e-6")
    ask(ledger, loss("1.25", "1e-6"))
    with pytest.raises(Shortfall):
        ask(ledger, loss(Fraction(1, 10**30)))
    ledger.grant(loss(2, "2e-6"), total, note="the same again")
    ledger.close()
    assert (ledger.budget, ledger.total) == (loss(2, "2e-6"), total)


@pytest.mark.parametrize(
    ("budget", "total"),
    [
        (loss("1.9", "2e-6"), ApproximateDP(Epsilon(2), Delta("2e-6"))),
        (loss(3, "0.9e-6"), ApproximateDP(Epsilon(2), Delta("2e-6"))),
        (loss(3, "2e-6"), ApproximateDP(Epsilon("0.9"), Delta("2e-6"))),
        (loss(3, "2e-6"), ApproximateDP(Epsilon(2), Delta("1.9e-6"))),
    ],
)
def test_a_grant_of_less_is_refused(make: Make, budget: BudgetVector, total: ApproximateDP) -> None:
    ledger = make(loss(2, "1e-6"))
    with pytest.raises(LedgerError) as caught:
        ledger.grant(budget, total, note="less")
    assert caught.value.code == "ledger-grant"
    assert (ledger.budget, ledger.total) == (loss(2, "1e-6"), TOTAL)
    assert [event.kind for event in ledger.events()] == ["created"]


def test_a_bump_counts_and_touches_no_budget(make: Make) -> None:
    ledger = make(loss(1))
    ask(ledger, loss("0.5"))
    before = ledger.state()
    assert [ledger.bump(note) for note in ("one", "two")] == [1, 2]
    assert ledger.data_version == 2
    assert ledger.state() == before


def test_a_bump_to_a_version_only_ever_goes_on(make: Make) -> None:
    ledger = make(loss(1))
    settle(ledger, "key", b"of version 0")
    assert ledger.bump("the policy says so", to=5) == ledger.data_version == 5
    assert ledger.stored("key", None) is None
    for to in (5, 4, 0, -1):
        assert ledger.bump("an older copy", to=to) == ledger.data_version == 5
    assert ledger.bump("one more") == 6
    told = [json.loads(event.body) for event in ledger.events() if event.kind == "bumped"]
    assert told == [
        {"data_version": 5, "note": "the policy says so"},
        {"data_version": 6, "note": "one more"},
    ]


def test_a_version_that_was_jumped_to_is_there_again(maker: Maker) -> None:
    ledger = maker.make(loss(1))
    ledger.bump("far", to=2**62)
    with contextlib.closing(ledger), contextlib.closing(maker.again(ledger)) as again:
        assert again.data_version == 2**62


def test_only_new_and_changed_declarations_are_recorded(make: Make) -> None:
    ledger = make(loss(1))
    ask(ledger, loss("0.5"))
    before = ledger.state()
    for units in ({"reads": "user_id"}, {"reads": "user_id"}, {"reads": "user_id", "likes": "user_id"}, {}):
        ledger.register(units)
    with pytest.raises(LedgerError, match='"reads" was user_id, and the policy says person') as caught:
        ledger.register({"reads": "person", "likes": "user_id"})
    assert caught.value.code == "ledger-unit"
    assert ledger.register({"reads": "person", "likes": "user_id"}, note="merged") == {"reads": "person"}
    assert ledger.register({"reads": "user_id"}, note="again") == {"reads": "user_id"}
    told = [json.loads(event.body) for event in ledger.events() if event.kind == "registered"]
    assert told[:2] == [{"units": {"reads": "user_id"}}, {"units": {"likes": "user_id"}}]
    assert told[2:] == [
        {"units": {"reads": "person"}, "note": "merged"},
        {"units": {"reads": "user_id"}, "note": "again"},
    ]
    assert ledger.units() == {"reads": "user_id", "likes": "user_id"}
    assert ledger.state() == before


def test_a_ledger_without_a_query_takes_other_units(make: Make) -> None:
    ledger = make(loss(1))
    for unit in ("user_id", "person"):
        assert ledger.register({"reads": unit}) == {"reads": unit}
    assert ledger.units() == {"reads": "person"}


def test_the_history_tells_every_act_in_its_order(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    ledger.register({"reads": "user_id"})
    reservation = ledger.reserve(Request("SELECT 'ä\0'", loss(Fraction(1, 3), "1e-7"), ALICE, "k"))
    ledger.bump("monday")
    reservation.settle(Fraction(1, 7), "digest", answer=b"answer")
    ledger.grant(loss(2, "1e-6"), TOTAL, note="more")
    with pytest.raises(Shortfall):
        ask(ledger, loss(5))
    events = list(ledger.events())
    assert [event.kind for event in events] == ["created", "registered", "reserved", "bumped", "settled", "granted"]
    assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6]
    bodies = [json.loads(event.body) for event in events]
    answer = hashlib.sha256(b"answer").hexdigest()
    assert bodies[2] == {
        "query": "SELECT 'ä\0'",
        "rho": "1/3",
        "delta": "1/10000000",
        "account": "alice",
        "key": "k",
        "data_version": 0,
    }
    assert bodies[4] == {"entry": 3, "loss": "1/7", "digest": "digest", "answer": answer}
    assert bodies[5]["budget_rho"] == "2/1"
    assert len(bodies[0]["data_set"]) == 32
    chain = "0" * 64
    for event in events:  # as anyone can check who holds the history alone
        text = f"{chain}\n{event.seq}\n{event.at}\n{event.kind}\n{event.body}"
        chain = hashlib.sha256(text.encode()).hexdigest()
        assert event.chain == chain
        assert event.body == json.dumps(json.loads(event.body), sort_keys=True, separators=(",", ":"))


def test_a_long_history_is_told_whole(make: Make) -> None:
    ledger = make(loss(1))
    for number in range(1100 if isinstance(ledger, MemoryLedger) else 130):
        ledger.bump(str(number))
    assert [event.seq for event in ledger.events()] == list(range(1, ledger.data_version + 2))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_has_no_ledger(make: Make) -> None:
    ledger = make(loss(1))
    reservation = ask(ledger, loss("0.5"))
    acts = [
        lambda: ask(ledger, loss("0.1")),
        lambda: reservation.settle(Fraction(0), "d"),
        ledger.state,
        lambda: ledger.budget,
        lambda: ledger.bump("child"),
    ]
    child = os.fork()
    if child == 0:
        codes = set()
        for act in acts:
            try:
                act()
            except LedgerError as error:
                codes.add(error.code)
            else:
                codes.add("done")
        ledger.close()
        os._exit(0 if codes == {"ledger-forked"} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    reservation.settle(Fraction(0), "the parent goes on")


def test_an_act_cut_short_leaves_nothing(make: Make) -> None:
    ledger = make(loss(1))
    reservation = ask(ledger, loss("0.5"))
    before = ledger.state(), ledger.budget, list(ledger.events())
    with contextlib.suppress(KeyboardInterrupt), ledger._writing() as book:
        book.set_balance(None, BudgetState())
        book.set_terms(replace(book.terms(), data_version=7))
        book.append("settled", {"entry": 2, "loss": "0/1", "digest": "", "answer": ""}, at="2026-01-01")
        book.keep(2, b"answer")
        raise KeyboardInterrupt
    assert (ledger.state(), ledger.budget, list(ledger.events())) == before
    reservation.settle(Fraction("0.5"), "d")
    ledger.bump("n")
    assert [event.seq for event in ledger.events()] == [1, 2, 3, 4]
    assert [event.kind for event in ledger.events()] == ["created", "reserved", "settled", "bumped"]


# every path


class Model(RuleBasedStateMachine):
    """The same ledger in a few lines, with every number a fraction; what it acknowledged must be there for ever."""

    maker_class: type[Maker] = Memory
    LIMIT = Fraction(2, 3)

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.maker = self.maker_class(Path(self.folder.name))
        self.ledger = self.maker.make(loss(1, 1))
        self.opened = [self.ledger]
        self.budget, self.version, self.entries = Fraction(1), 0, 0
        self.spent = dict.fromkeys((None, "a", "b"), Fraction(0))
        self.held = dict.fromkeys((None, "a", "b"), Fraction(0))
        self.delta = dict.fromkeys((None, "a", "b"), Fraction(0))
        self.open: list[tuple[Reservation, Fraction, str | None, int]] = []
        self.done: list[Reservation] = []
        self.answers: dict[tuple[str | None, int], tuple[int, bytes]] = {}

    @rule(rho=PARTS, delta=PARTS, name=NAMES)
    def reserve(self, rho: Fraction, delta: Fraction, name: str | None) -> None:
        account = Account(name, loss(self.LIMIT, self.LIMIT)) if name else None
        request = Request("q", loss(rho, delta), account, key="key")
        holders = dict.fromkeys((None, name))
        left = {
            holder: (
                (self.LIMIT if holder else self.budget) - self.spent[holder] - self.held[holder],
                (self.LIMIT if holder else self.budget) - self.delta[holder],
            )
            for holder in holders
        }
        if rho > min(most for most, _ in left.values()) or delta > min(most for _, most in left.values()):
            with pytest.raises(Shortfall) as caught:
                self.ledger.reserve(request)
            remaining = caught.value.remaining
            assert remaining == loss(min(r for r, _ in left.values()), min(d for _, d in left.values()))
            return
        self.open.append((self.ledger.reserve(request), rho, name, self.version))
        self.entries += 1
        for holder in holders:
            self.held[holder] += rho
            self.delta[holder] += delta

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 9), share=st.fractions(0, Fraction(11, 10), max_denominator=20), answer=st.booleans())
    def settle(self, which: int, share: Fraction, *, answer: bool) -> None:
        number = which % len(self.open)
        reservation, rho, name, version = self.open[number]
        content = b"answer %d" % self.entries if answer else b""
        if rho * share > rho:
            with pytest.raises(UsageError):
                reservation.settle(Fraction(rho * share), "d", answer=content)
            return
        reservation.settle(Fraction(rho * share), "d", answer=content)
        del self.open[number]
        self.done.append(reservation)
        for holder in dict.fromkeys((None, name)):
            self.held[holder] -= rho
            self.spent[holder] += rho * share
        place = (name, version)
        order = reservation.number  # type: ignore[attr-defined]
        if answer and order > self.answers.get(place, (0, b""))[0]:
            self.answers[place] = order, content

    @precondition(lambda self: self.done)
    @rule(which=st.integers(0, 9))
    def settle_again(self, which: int) -> None:
        with pytest.raises(LedgerError, match="already-settled"):
            self.done[which % len(self.done)].settle(Fraction(0), "again")

    @rule(more=PARTS)
    def grant(self, more: Fraction) -> None:
        self.budget += more
        self.ledger.grant(loss(self.budget, self.budget), TOTAL, note="more")

    @rule()
    def bump(self) -> None:
        self.version += 1
        assert self.ledger.bump("again") == self.version

    @rule()
    def crash(self) -> None:
        self.ledger = self.maker.again(self.ledger)
        self.opened.append(self.ledger)

    @rule(name=NAMES)
    def replay(self, name: str | None) -> None:
        assert self.ledger.stored("key", name) == self.answers.get((name, self.version), (0, None))[1]

    @invariant()
    def nothing_is_lost_and_nothing_exceeds_its_limit(self) -> None:
        assert self.ledger.budget == loss(self.budget, self.budget)
        entries = self.ledger.entries()
        assert len(entries) == self.entries
        for holder in (None, "a", "b"):
            state = self.ledger.state(holder)
            assert state == make_state(loss(self.spent[holder], self.delta[holder]), Fraction(self.held[holder]))
            assert state == sum_entries(entries, holder)
            most = Fraction(self.LIMIT if holder else self.budget)
            assert state.spent <= state.spent + state.reserved <= most
            assert state.permanent <= most

    def teardown(self) -> None:
        self.maker.check()
        for ledger in self.opened:
            ledger.close()
        self.folder.cleanup()


@pytest.mark.parametrize(("maker_class", "examples"), [(Memory, 100), (SQLite, 40), (Postgres, 15)])
def test_on_every_path_settled_is_at_most_reserved_is_at_most_the_total(
    maker_class: type[Maker], examples: int
) -> None:
    machine = type("Model", (Model,), {"maker_class": maker_class})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=15, deadline=None))
