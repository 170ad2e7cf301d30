"""By how much each query raises the used share of its account: what every ledger says adds up, whatever happens."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import count
from pathlib import Path

import pytest
from support.ledger_makers import MAKERS, TOTAL, Maker, Memory
from support.values_kit import divide_by

from dpsql.accounting import NO_RISE, BudgetState, BudgetVector, Periods, Rise, compute_used_share, round_up
from dpsql.errors import BudgetExceeded
from dpsql.ledger import Account, Ledger, Request, Reservation, Settled, sum_entries
from dpsql.report.balance import trace_rises

BUDGET = BudgetVector(30, "3e-6")
ADA, BOB = Account("ada", BudgetVector(21, "1e-6")), Account("bob", BudgetVector(7, "2e-6"))
VALUES = ("x", "y", "z")
START, DAY = datetime(2028, 2, 1, tzinfo=UTC), timedelta(days=1)


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    return request.param(tmp_path)


class Play:
    """Random queries of some accounts, several of which run at a time; `rises` is what each was said to add."""

    def __init__(self, ledger: Ledger, accounts: tuple[Account | None, ...], seed: int) -> None:
        self.ledger, self.accounts, self.random = ledger, accounts, random.Random(seed)
        self.keys = ["", "k", "l"] if seed % 2 else [""]  # equal queries at the same time, or none
        self.open: list[tuple[Reservation, Account | None]] = []
        self.rises: dict[int, Rise] = {}
        self.sums: dict[tuple[str | None, str | None], Rise] = defaultdict(lambda: NO_RISE)
        self.accounts_of: dict[int, str | None] = {}

    def step(self, values: tuple[str, ...] = ()) -> None:
        if self.open and self.random.random() < 0.5:
            self.settle()
            return
        account = self.random.choice(self.accounts)
        names = tuple(self.random.sample(values, self.random.randint(0, 2))) if values else ()
        delta = Fraction(self.random.choice([0, 0, 1, 5, 30]), 10**8 * 3)
        worst = BudgetVector(Fraction(self.random.randint(1, 9), 7), delta)
        key = self.random.choice(self.keys)
        request = Request("q", worst, account, key=key, repeated=True, values=names, division=self.ledger.division)
        try:
            held = self.ledger.reserve(request)
        except BudgetExceeded:
            return
        if isinstance(held, Settled):
            assert held.rise == NO_RISE
            return
        self.open.append((held, account))
        self.rises[held.number] = held.rise
        self.accounts_of[held.number] = None if account is None else account.name

    def settle(self, at: int | None = None) -> None:
        held, _ = self.open.pop(self.random.randrange(len(self.open)) if at is None else at)
        if self.random.random() < 0.2:
            settled = held.settle(held.worst_case.refundable, "failed")
        else:
            part = Fraction(self.random.randint(0, 5), 5)
            settled = held.settle(held.worst_case.refundable * part, "d", answer=b"a" if held.question[0] else b"")
        self.rises[held.number] = settled.rise

    def sum(self, account: str | None, numbers: set[int] | None = None) -> Rise:
        chosen = [
            rise
            for number, rise in self.rises.items()
            if account in {None, self.accounts_of[number]} and (numbers is None or number in numbers)
        ]
        return sum(chosen, NO_RISE)


def assert_adds_up(rise: Rise, state: BudgetState, limit: BudgetVector) -> None:
    share = compute_used_share(state, limit)
    assert rise.share == share
    assert rise.steps == round_up(share)


@pytest.mark.parametrize("accounts", [(None,), (ADA, BOB)])
def test_the_rises_of_an_account_add_up_to_its_used_share(maker: Maker, accounts: tuple[Account | None, ...]) -> None:
    outdone = repeated = 0
    for seed in range(30 if isinstance(maker, Memory) else 3):
        with closing(maker.make(BUDGET)) as ledger:
            play = Play(ledger, accounts, seed)
            for _ in range(60):
                play.step()
                for account in accounts:
                    name, limit = (None, BUDGET) if account is None else (account.name, account.budget)
                    assert_adds_up(play.sum(name), ledger.state(name), limit)
            for account in accounts:
                name, limit = (None, BUDGET) if account is None else (account.name, account.budget)
                traced = trace_rises(ledger.entries(), limit, account=name)
                repeats = [entry for entry in ledger.entries() if entry.settlement and entry.settlement.repeats]
                assert_adds_up(sum(traced.values(), NO_RISE), ledger.state(name), limit)
                assert all(traced.get(entry.number, NO_RISE) == NO_RISE for entry in repeats)
                assert min(rise.steps for rise in traced.values()) >= 0
                assert repeats or dict(traced) == {
                    number: rise for number, rise in play.rises.items() if name in {None, play.accounts_of[number]}
                }
                repeated += len(repeats)
            outdone += sum(not rise.share for rise in play.rises.values())
    assert outdone > 5  # queries whose part was not the largest
    assert repeated


def test_the_rises_of_a_value_add_up_to_its_used_share_until_the_data_changes(maker: Maker) -> None:
    for seed in range(20 if isinstance(maker, Memory) else 2):
        with closing(maker.make(BUDGET)) as ledger:
            play, before = Play(ledger, (None,), seed), Fraction(0)
            for version in range(2):
                ledger.divide(divide_by(f"of version {version}"))
                first = len(list(ledger.events()))
                for _ in range(40):
                    play.step(VALUES)
                while play.open:
                    play.settle()
                shares = {}
                for value in VALUES:
                    of_value = [rise.of(value) for number, rise in play.rises.items() if number > first]
                    shares[value] = compute_used_share(ledger.state(values=(value,)), BUDGET)
                    assert before + sum((rise.share for rise in of_value), Fraction(0)) == shares[value]
                    assert round_up(before) + sum(rise.steps for rise in of_value) == round_up(shares[value])
                traced = trace_rises(ledger.entries(), BUDGET)
                repeats = [entry for entry in ledger.entries() if entry.settlement and entry.settlement.repeats]
                assert repeats or {number: rise.share for number, rise in traced.items()} == {
                    number: rise.share for number, rise in play.rises.items()
                }
                before = compute_used_share(ledger.state(), BUDGET)
                ledger.bump("new data")
                assert compute_used_share(ledger.state(), BUDGET) == before >= max(shares.values())


def test_a_period_adds_up_by_itself(maker: Maker) -> None:
    now = [START]
    with closing(maker.make(BUDGET, Periods(DAY), lambda: now[0])) as ledger:
        play = Play(ledger, (None,), 1)
        for period in count():
            begun = set(play.rises)
            for _ in range(15):
                play.step()
            while play.open:
                play.settle()
            assert_adds_up(play.sum(None, set(play.rises) - begun), ledger.state(), BUDGET)
            if period == 2:
                break
            now[0] += DAY
            assert ledger.state() == BudgetState()
        assert dict(trace_rises(ledger.entries(), BUDGET)) == play.rises


def test_what_is_settled_in_a_later_period_is_shown_with_the_most_it_can_have_added(maker: Maker) -> None:
    now = [START]
    with closing(maker.make(BUDGET, Periods(DAY), lambda: now[0])) as ledger:
        names = ledger.reserve(Request("names", BudgetVector(3, "1.5e-6")))
        total = ledger.reserve(Request("total", BudgetVector(6, 0)))
        assert isinstance(names, Reservation) and isinstance(total, Reservation)  # noqa: PT018
        assert names.settle(Fraction(3), "d").rise.share == Fraction(1, 2)
        now[0] += DAY
        assert total.settle(Fraction(6), "d").rise.share == Fraction(6, 30)
        assert [rise.share for rise in trace_rises(ledger.entries(), BUDGET).values()] == [Fraction(1, 2), 0]
        assert ledger.state() == BudgetState()


def test_what_crosses_a_period_is_shown_with_the_larger_of_its_two_shares(maker: Maker) -> None:
    now = [START]
    with closing(maker.make(BUDGET, Periods(DAY), lambda: now[0])) as ledger:
        held = ledger.reserve(Request("q", BudgetVector("1.5", "1.5e-7")))
        assert isinstance(held, Reservation)
        assert held.rise.share == Fraction("0.05")
        now[0] += DAY
        assert held.settle(Fraction("1.5"), "d").rise == Rise(Fraction("0.05"), 500)


def test_what_a_crash_left_open_is_charged_to_all_at_once_when_the_data_change(maker: Maker) -> None:
    with closing(maker.make(BUDGET)) as ledger:
        ledger.divide(divide_by("of version 0"))
        ledger.reserve(Request("q", BudgetVector(3, 0), values=("x",), division=ledger.division))
        assert [rise.share for rise in trace_rises(ledger.entries(), BUDGET).values()] == [0]
        ledger.bump("new data")
        (entry,) = ledger.entries()
        assert ledger.state() == sum_entries([entry]) == BudgetState(Fraction(3))
        assert trace_rises([entry], BUDGET)[entry.number].share == Fraction(3, 30)


def test_the_second_of_two_equal_queries_has_no_rise_in_the_history(maker: Maker) -> None:
    """Its reservation makes delta the larger part, and is undone after a third query was measured."""
    with closing(maker.make(BUDGET)) as ledger:
        held = list[Reservation]()

        def reserve(query: str, worst: BudgetVector) -> None:
            found = ledger.reserve(Request(query, worst, key=query, repeated=True))
            assert isinstance(found, Reservation)
            held.append(found)

        reserve("t", BudgetVector(3, 0))
        held[0].settle(Fraction(3), "d")  # 10 %
        reserve("n", BudgetVector(0, "2.7e-7"))  # 9 %
        reserve("a", BudgetVector(0, "6e-8"))  # 11 %
        reserve("a", BudgetVector(0, "6e-8"))  # 13 %
        assert not held[3].settle(Fraction(0), "d", answer=b"a").repeats
        second = held[2].settle(Fraction(0), "d", answer=b"a")  # 11 %
        assert (second.repeats, second.rise.share) == (True, Fraction(-1, 100))
        traced = trace_rises(ledger.entries(), BUDGET)
        assert traced[held[2].number] == NO_RISE
        assert min(rise.share for rise in traced.values()) >= 0
        assert_adds_up(sum(traced.values(), NO_RISE), ledger.state(), BUDGET)


def test_a_grant_makes_later_rises_shares_of_the_larger_total(maker: Maker) -> None:
    with closing(maker.make(BUDGET)) as ledger:
        first = ledger.reserve(Request("q", BudgetVector(15, 0)))
        assert isinstance(first, Reservation)
        assert first.settle(Fraction(15), "d").rise.share == Fraction(1, 2)
        larger = BudgetVector(60, "3e-6")
        ledger.grant(larger, TOTAL, note="more")
        second = ledger.reserve(Request("q", BudgetVector(15, 0)))
        assert isinstance(second, Reservation)
        assert second.settle(Fraction(15), "d").rise.share == Fraction(1, 4)
        assert [rise.share for rise in trace_rises(ledger.entries(), larger).values()] == [Fraction(1, 4)] * 2


def test_two_hosts_add_up_at_the_same_time(maker: Maker) -> None:
    """Each has its own connection; their reservations and settlements are in any order."""
    with closing(maker.make(BUDGET)) as ledger:
        hosts = [ledger, maker.again(ledger)]
        plays = [Play(host, (None,), seed) for seed, host in enumerate(hosts)]
        threads = [threading.Thread(target=lambda play=play: [play.step() for _ in range(25)]) for play in plays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rises = plays[0].rises | plays[1].rises
        assert len(rises) == len(plays[0].rises) + len(plays[1].rises) > 10
        assert_adds_up(sum(rises.values(), NO_RISE), ledger.state(), BUDGET)
        assert dict(trace_rises(ledger.entries(), BUDGET)) == rises
        if hosts[1] is not ledger:
            hosts[1].close()
