"""What every ledger does whose budget is granted again in each period, whatever its clock shows."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from support.ledger_makers import MAKERS, PARTS, TOTAL, Maker, Memory, SQLite, ask, loss, make_state, spent_in

from dpsql.accounting import ApproximateDP, BudgetState, BudgetVector, Periods
from dpsql.errors import BudgetExceeded, LedgerError, UsageError
from dpsql.ledger import Account, Ledger, Request, Reservation, Shortfall, sum_entries
from dpsql.quantities import Delta, Epsilon, Rho

START = datetime(2028, 2, 1, 9, 30, 0, 1, tzinfo=UTC)
MONTH, TICK = timedelta(days=30), timedelta(microseconds=1)
FRESH = BudgetState()
ALICE, BOB = Account("alice", loss("0.5", "1e-7")), Account("bob", loss("0.75", "1e-6"))


class Hands:
    """A clock that shows what a test sets it to."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time

    def set(self, periods: float, more: timedelta = timedelta(0)) -> None:
        self.time = START + MONTH * periods + more


@pytest.fixture
def clock() -> Hands:
    return Hands()


Make = Callable[..., Ledger]


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: Hands) -> Iterator[Make]:
    maker: Maker = request.param(tmp_path)
    with contextlib.ExitStack() as stack:

        def made(budget: BudgetVector, most: int | None = None, *, once: bool = False) -> Ledger:
            ledger = maker.make(budget, None if once else Periods(MONTH, most), clock)
            stack.callback(ledger.close)
            return ledger

        yield made


def numbers(ledger: Ledger) -> list[int]:
    return [json.loads(event.body)["number"] for event in ledger.events() if event.kind == "period"]


def test_a_period_begins_at_its_very_moment(make: Make, clock: Hands) -> None:
    ledger = make(loss(1, "1e-6"))
    ask(ledger, loss(1, "1e-6")).settle(Fraction(1), "d")
    clock.set(1, -TICK)
    assert ledger.calendar.number == 0
    assert spent_in(ledger.state()) == loss(1, "1e-6")
    with pytest.raises(Shortfall):
        ask(ledger, loss("0.001"))
    clock.set(1)
    assert (ledger.calendar.number, ledger.state(), numbers(ledger)) == (1, FRESH, [])
    ask(ledger, loss(1, "1e-6"))
    assert numbers(ledger) == [1]
    assert ledger.state() == make_state(loss(0, "1e-6"), Fraction(1))


def test_periods_are_counted_from_the_first_event_and_know_no_calendar_months(make: Make, clock: Hands) -> None:
    ledger = make(loss(1))
    assert (ledger.calendar.began, ledger.calendar.next_begins) == (START, datetime(2028, 3, 2, 9, 30, 0, 1, UTC))
    clock.time = datetime(2028, 3, 2, 10, 30, 0, 1, timezone(timedelta(hours=1)))  # the same moment elsewhere
    assert ledger.calendar.number == 1


def test_a_refused_request_begins_no_period(make: Make, clock: Hands) -> None:
    ledger = make(loss(1))
    clock.set(1)
    with pytest.raises(Shortfall):
        ask(ledger, loss(2))
    assert numbers(ledger) == []
    assert ledger.state() == FRESH


def test_nothing_is_carried_over(make: Make, clock: Hands) -> None:
    ledger = make(loss(1, "1e-6"))
    ask(ledger, loss("0.25")).settle(Fraction("0.25"), "d")
    for number in (1, 2, 7):
        clock.set(number, TICK)
        with pytest.raises(Shortfall) as caught:
            ask(ledger, loss(Fraction(1) + Fraction(1, 10**30)))
        assert caught.value.remaining == loss(1, "1e-6")
        ask(ledger, loss("0.5", "1e-6"))
    assert numbers(ledger) == [1, 2, 7]


@pytest.mark.parametrize("back", [0, 0.5, 1.5, -100])
def test_a_clock_set_back_reopens_nothing_and_grants_nothing(make: Make, clock: Hands, back: float) -> None:
    ledger = make(loss(1, "1e-6"))
    clock.set(2)
    ask(ledger, loss("0.75"))
    clock.set(back)
    assert (ledger.calendar.number, ledger.state().reserved) == (2, Fraction("0.75"))
    with pytest.raises(Shortfall):
        ask(ledger, loss("0.5"))
    ask(ledger, loss("0.25"))
    assert (numbers(ledger), [entry.period for entry in ledger.entries()]) == ([2], [2, 2])


def test_a_clock_set_forward_opens_a_period_early_and_nothing_more_until_it_has_passed(
    make: Make, clock: Hands
) -> None:
    ledger = make(loss(1))
    clock.set(5)
    ask(ledger, loss(1)).settle(Fraction(1), "d")
    for number in range(6):
        clock.set(number, TICK)
        with pytest.raises(Shortfall):
            ask(ledger, loss("0.001"))
    clock.set(6)
    ask(ledger, loss(1))
    assert numbers(ledger) == [5, 6]


def test_times_decide_nothing_without_periods(make: Make, clock: Hands) -> None:
    ledger = make(loss(1), once=True)
    first = ledger.reserve(Request("first", loss("0.5"), key="k"))
    clock.set(-500)
    ledger.reserve(Request("second", loss("0.5")))
    clock.set(700)
    first.settle(Fraction("0.25"), "d", answer=b"answer")
    assert ledger.calendar is None
    assert [entry.query for entry in ledger.entries()] == ["first", "second"]
    assert ledger.entries()[0].settlement.at == clock.time
    assert ledger.stored("k", None) == b"answer"
    assert ledger.state() == make_state(loss("0.25"), Fraction("0.5"))
    created = json.loads(next(iter(ledger.events())).body)
    assert not {"period_seconds", "periods"} & set(created)


def test_what_is_settled_late_is_charged_to_its_own_period(make: Make, clock: Hands) -> None:
    ledger = make(loss(1, "1e-6"))
    held = ask(ledger, loss("0.75", "1e-7"), account=BOB)
    clock.set(1)
    other = ask(ledger, loss("0.5", "1e-8"), account=BOB)
    held.settle(Fraction("0.625"), "late", answer=b"")
    assert ledger.state() == ledger.state("bob") == make_state(loss(0, "1e-8"), Fraction("0.5"))
    other.settle(Fraction("0.125"), "in time")
    assert ledger.state() == make_state(loss("0.125", "1e-8"), Fraction(0))
    assert sum_entries(ledger.entries(), period=0) == make_state(loss("0.625", "1e-7"), Fraction(0))
    assert sum_entries(ledger.entries(), "bob", period=1) == ledger.state("bob")


def test_a_late_settlement_may_begin_the_period_and_does_not_touch_it(make: Make, clock: Hands) -> None:
    ledger = make(loss(1))
    held = ask(ledger, loss(1))
    clock.set(3)
    held.settle(Fraction("0.5"), "d")
    assert [event.kind for event in ledger.events()] == ["created", "reserved", "period", "settled"]
    assert ledger.state() == FRESH
    for again in (Fraction("0.5"), Fraction(0)):
        with pytest.raises(LedgerError, match="already-settled"):
            held.settle(again, "d")
    ask(ledger, loss(1))


def test_settling_above_the_worst_case_is_refused_late_too(make: Make, clock: Hands) -> None:
    ledger = make(loss(1))
    held = ask(ledger, loss("0.5"))
    clock.set(1)
    before = list(ledger.events())
    with pytest.raises(UsageError, match="over-settled"):
        held.settle(Fraction("0.75"), "d")
    assert list(ledger.events()) == before


def test_what_nobody_settles_stays_spent_in_its_period(make: Make, clock: Hands) -> None:
    ledger = make(loss(1))
    ask(ledger, loss("0.75"))
    clock.set(1)
    ledger.bump("a new period, and nothing else")
    assert ledger.state() == FRESH
    clock.set(0)
    assert ledger.state() == FRESH
    (entry,) = ledger.entries()
    assert (entry.period, entry.settlement) == (0, None)
    assert sum_entries(ledger.entries(), period=0).reserved == Fraction("0.75")


def test_the_limit_of_an_account_is_granted_anew_too(make: Make, clock: Hands) -> None:
    ledger = make(loss(1, "1e-6"))
    for number in range(3):
        clock.set(number)
        ask(ledger, loss("0.5", "1e-7"), account=ALICE)
        assert ledger.state("bob") == FRESH
        with pytest.raises(Shortfall) as caught:
            ask(ledger, loss("0.25"), account=ALICE)
        assert (caught.value.account, caught.value.remaining.rho) == ("alice", Rho(0))
        ask(ledger, loss("0.5"), account=BOB)
        with pytest.raises(Shortfall) as caught:
            ask(ledger, loss("0.25"), account=BOB)
        assert caught.value.account is None
    assert ledger.state("alice").reserved == Fraction("0.5")


def test_every_act_that_writes_begins_the_period(make: Make, clock: Hands) -> None:
    ledger = make(loss(1))
    held = ask(ledger, loss("0.5"))
    acts = [
        lambda: ask(ledger, loss("0.5")),
        lambda: held.settle(Fraction(0), "d"),
        lambda: ledger.bump("note"),
        lambda: ledger.register({"t": "u"}),
        lambda: ledger.grant(loss(1), TOTAL, note="the same"),
    ]
    for number, act in enumerate(acts, start=1):
        clock.set(number)
        act()
        assert numbers(ledger) == list(range(1, number + 1))
    clock.set(9)
    ledger.register({"t": "u"})  # nothing new, so nothing is written
    assert [ledger.state(), ledger.budget, ledger.stored("k", None)] == [FRESH, loss(1), None]
    assert len(numbers(ledger)) == len(acts)


def test_stored_answers_stay_free_in_every_period(make: Make, clock: Hands) -> None:
    ledger = make(loss(1))
    ledger.reserve(Request("q", loss(1), key="key")).settle(Fraction(1), "d", answer=b"a")
    for number in (0, 1, 40):
        clock.set(number)
        assert ledger.stored("key", None) == b"a"
    assert numbers(ledger) == []


# the last period


def test_when_all_periods_are_over_nothing_is_granted(make: Make, clock: Hands) -> None:
    ledger = make(loss(1, "1e-6"), 2)
    clock.set(2, -TICK)
    held = ask(ledger, loss("0.5"))
    assert (ledger.calendar.number, ledger.calendar.is_over) == (1, False)
    clock.set(2)
    assert ledger.calendar.is_over
    assert ledger.state() == make_state(loss(1, "1e-6"), Fraction(0))
    for account in (None, BOB):
        with pytest.raises(BudgetExceeded) as caught:
            ask(ledger, loss("0.001"), account=account)
        assert caught.value.remaining == BudgetVector(0, 0)
    held.settle(Fraction("0.5"), "late")
    ask(ledger, BudgetVector(0, 0))
    clock.set(1)  # the end was recorded, and is not undone
    with pytest.raises(BudgetExceeded):
        ask(ledger, loss("0.001"))
    clock.set(900)
    assert numbers(ledger) == [1, 2]
    assert [entry.period for entry in ledger.entries()] == [1, 2]


def test_more_periods_may_be_granted_also_after_the_last(make: Make, clock: Hands) -> None:
    ledger = make(loss(1), 1)
    clock.set(3)
    ledger.grant(loss(1), TOTAL, note="a year", periods=Periods(MONTH, 12))
    assert ledger.calendar.periods.most == 12
    assert (ledger.calendar.number, numbers(ledger)) == (3, [1])
    ask(ledger, loss(1))
    clock.set(12)
    assert ledger.calendar.is_over
    ledger.grant(loss(1), TOTAL, note="for ever", periods=Periods(MONTH))
    assert not ledger.calendar.is_over
    ask(ledger, loss(1))
    assert numbers(ledger) == [1, 3, 12]


# grants


def test_a_budget_that_was_granted_once_may_be_granted_in_periods(make: Make, clock: Hands) -> None:
    ledger = make(loss(1, "1e-6"), once=True)
    early = ask(ledger, loss("0.5"), account=BOB)
    clock.set(3.5)
    ledger.grant(loss(1, "1e-6"), TOTAL, note="monthly", periods=Periods(MONTH, 5))
    assert (ledger.calendar.began, ledger.calendar.number) == (clock.time, 0)
    assert ledger.state().reserved == Fraction("0.5")  # what was spent before stays spent, in the first period
    with pytest.raises(Shortfall):
        ask(ledger, loss("0.75"))
    early.settle(Fraction("0.25"), "d")
    assert ledger.state("bob") == make_state(loss("0.25"), Fraction(0))
    clock.set(4.5)
    ask(ledger, loss(1))
    assert [entry.period for entry in ledger.entries()] == [0, 1]


@pytest.mark.parametrize("periods", [Periods(MONTH, 11), Periods(2 * MONTH, 12), Periods(timedelta(days=29))])
def test_a_grant_never_changes_the_period_and_takes_none_away(make: Make, periods: Periods) -> None:
    ledger = make(loss(1), 12)
    before = list(ledger.events())
    with pytest.raises(LedgerError) as caught:
        ledger.grant(loss(1), TOTAL, note="other", periods=periods)
    assert (caught.value.code, "30 days, at most 12 times" in caught.value.reason) == ("ledger-grant", True)
    assert (list(ledger.events()), ledger.calendar.periods) == (before, Periods(MONTH, 12))


def test_endless_periods_are_not_ended(make: Make) -> None:
    with pytest.raises(LedgerError, match="ledger-grant"):
        make(loss(1)).grant(loss(1), TOTAL, note="fewer", periods=Periods(MONTH, 1000))


def test_a_larger_grant_counts_in_the_present_period_too(make: Make, clock: Hands) -> None:
    ledger = make(loss(1))
    clock.set(1)
    ask(ledger, loss(1))
    ledger.grant(loss(2), ApproximateDP(Epsilon(2), Delta("2e-6")), note="more")
    assert ledger.calendar.periods == Periods(MONTH)
    ask(ledger, loss(1))
    with pytest.raises(Shortfall):
        ask(ledger, loss("0.001"))
    clock.set(2)
    ask(ledger, loss(2))


# every path


class Model(RuleBasedStateMachine):
    """A ledger whose clock jumps about, against its periods in a few lines of fractions."""

    maker_class: type[Maker] = Memory
    MOST, LIMIT = 40, Fraction(2, 3)

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.maker, self.clock = self.maker_class(Path(self.folder.name)), Hands()
        self.ledger = self.maker.make(loss(1, 1), Periods(MONTH, self.MOST), self.clock)
        self.opened = [self.ledger]
        self.begun = 0
        self.charged: dict[int, Fraction] = {}  # by entry
        self.delta: dict[int, Fraction] = {}
        self.period: dict[int, int] = {}
        self.account: dict[int, str | None] = {}
        self.open: list[tuple[Reservation, Fraction]] = []

    def turn(self) -> int:
        shown = (self.clock.time - START) // MONTH
        return max(self.begun, min(shown, self.MOST))

    def gone(self, number: int, name: str | None = None) -> tuple[Fraction, Fraction]:
        mine = [e for e, period in self.period.items() if period == number and name in {None, self.account[e]}]
        return sum((self.charged[e] for e in mine), Fraction(0)), sum((self.delta[e] for e in mine), Fraction(0))

    @rule(periods=st.fractions(-3, 45, max_denominator=4), ticks=st.integers(-1, 1))
    def jump(self, periods: Fraction, ticks: int) -> None:
        self.clock.time = START + timedelta(hours=int(periods * 720)) + TICK * ticks

    @rule(hours=st.integers(0, 1500))
    def wait(self, hours: int) -> None:
        self.clock.time += timedelta(hours=hours)

    @rule(rho=PARTS, delta=PARTS, name=st.sampled_from([None, "a", "b"]))
    def reserve(self, rho: Fraction, delta: Fraction, name: str | None) -> None:
        account = Account(name, loss(self.LIMIT, self.LIMIT)) if name else None
        request, number = Request("q", loss(rho, delta), account), self.turn()
        most = Fraction(0) if number == self.MOST else Fraction(1)
        fits = all(new <= most - old for new, old in zip((rho, delta), self.gone(number), strict=True))
        if name:
            fits &= all(new <= self.LIMIT - old for new, old in zip((rho, delta), self.gone(number, name), strict=True))
        if not fits:
            with pytest.raises(Shortfall):
                self.ledger.reserve(request)
            return
        held = self.ledger.reserve(request)
        self.begun = number
        entry = held.number  # type: ignore[attr-defined]
        self.charged[entry], self.delta[entry], self.period[entry] = rho, delta, number
        self.account[entry] = name
        self.open.append((held, rho))

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 9), share=st.fractions(0, 1, max_denominator=20))
    def settle(self, which: int, share: Fraction) -> None:
        held, rho = self.open.pop(which % len(self.open))
        held.settle(Fraction(rho * share), "d")
        self.begun = self.turn()
        self.charged[held.number] = rho * share  # type: ignore[attr-defined]

    @rule()
    def bump(self) -> None:
        self.ledger.bump("again")
        self.begun = self.turn()

    @rule()
    def crash(self) -> None:
        self.ledger = self.maker.again(self.ledger, self.clock)
        self.opened.append(self.ledger)

    @invariant()
    def no_period_spends_more_than_it_was_granted(self) -> None:
        entries, now = self.ledger.entries(), self.turn()
        assert [entry.period for entry in entries] == list(self.period.values())
        for number in {*self.period.values(), now}:
            balance = sum_entries(entries, period=number)
            assert (balance.spent + balance.reserved, balance.permanent) == self.gone(number)
            assert max(self.gone(number)) <= (0 if number == self.MOST else 1)
        begun = numbers(self.ledger)
        assert begun == sorted(set(begun))
        assert self.begun == max(begun, default=0)
        assert self.ledger.calendar.number == now
        if now < self.MOST:
            assert self.ledger.state() == sum_entries(entries, period=now)
            assert self.ledger.state("a") == sum_entries(entries, "a", period=now)

    def teardown(self) -> None:
        for ledger in self.opened:
            ledger.close()
        self.folder.cleanup()


@pytest.mark.parametrize(("maker_class", "examples"), [(Memory, 150), (SQLite, 40)])
def test_on_every_path_no_period_spends_more_than_it_was_granted(maker_class: type[Maker], examples: int) -> None:
    machine = type("Model", (Model,), {"maker_class": maker_class})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=20, deadline=None))
