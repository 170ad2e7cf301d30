"""What every ledger does, whatever it is made of."""

from __future__ import annotations

import contextlib
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.accounting import ZCDP, ApproximateDP, FilterState
from dpsql.errors import BudgetExceeded, LedgerError, UsageError
from dpsql.ledger import Ledger, MemoryLedger, Reservation, Shortfall, SQLiteLedger, balance_of
from dpsql.quantities import Delta, Epsilon, Rho

TOTAL = ApproximateDP(Epsilon(1), Delta("2e-6"))
Make = Callable[[ZCDP], Ledger]


def loss(rho: Fraction | int | str, delta: Fraction | int | str = 0) -> ZCDP:
    return ZCDP(Rho(rho), Delta(delta))


def in_memory(_folder: Path, budget: ZCDP) -> Ledger:
    return MemoryLedger(budget)


def in_sqlite(folder: Path, budget: ZCDP) -> Ledger:
    number = len(list(folder.glob("*.ledger")))
    return SQLiteLedger(folder / f"{number}.ledger", budget, total=TOTAL)


@pytest.fixture(params=[in_memory, in_sqlite])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:

        def made(budget: ZCDP) -> Ledger:
            ledger = request.param(tmp_path, budget)
            stack.callback(ledger.close)
            return ledger

        yield made


def test_a_fresh_ledger_has_spent_nothing(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    assert ledger.budget == loss(1, "1e-6")
    assert isinstance(ledger.durable, bool)
    assert ledger.state() == FilterState.fresh()
    assert ledger.entries() == ()


def test_reserve_holds_rho_and_spends_delta(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    ledger.reserve(loss(Fraction(1, 3), "1e-7"), "SELECT 1")
    assert ledger.state() == FilterState(spent=loss(0, "1e-7"), reserved=Rho(Fraction(1, 3)))


def test_settle_spends_the_loss_frees_the_rest_and_never_refunds_delta(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    ledger.reserve(loss(Fraction(1, 3), "1e-7"), "SELECT 1").settle(Rho(Fraction(1, 7)), "digest")
    assert ledger.state() == FilterState(spent=loss(Fraction(1, 7), "1e-7"), reserved=Rho(0))
    ledger.reserve(loss(Fraction(6, 7), "9e-7"), "SELECT 2").settle(Rho(0), "digest")
    assert ledger.state() == FilterState(spent=loss(Fraction(1, 7), "1e-6"), reserved=Rho(0))
    with pytest.raises(BudgetExceeded, match="delta"):
        ledger.reserve(loss(0, "1e-100"), "SELECT 3")


def test_the_record_tells_query_worst_case_and_settlement(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    first = ledger.reserve(loss("0.5", "1e-7"), "SELECT ä, '\0', '\ud800'")
    ledger.reserve(loss("0.25"), "")
    first.settle(Rho("0.125"), "sha256:abc")
    settled, held = ledger.entries()
    assert settled.query.startswith("SELECT ä, '\0'")
    assert settled.worst_case == loss("0.5", "1e-7")
    assert settled.settlement.loss == Rho("0.125")
    assert settled.settlement.digest == "sha256:abc"
    assert settled.opened_at <= held.opened_at <= settled.settlement.at
    assert settled.opened_at.utcoffset().total_seconds() == 0
    assert (held.query, held.worst_case, held.settlement) == ("", loss("0.25"), None)


@pytest.mark.parametrize(
    "over", [loss(Fraction(1, 3) + Fraction(1, 10**30)), loss(0, Fraction(1, 10**6) + Fraction(1, 10**40))]
)
def test_the_boundary_is_exact(make: Make, over: ZCDP) -> None:
    ledger = make(loss(1, "1e-6"))
    ledger.reserve(loss(Fraction(1, 3)), "a").settle(Rho(Fraction(1, 3)), "")
    ledger.reserve(loss(Fraction(1, 3)), "b")
    before = ledger.state()
    with pytest.raises(BudgetExceeded):
        ledger.reserve(over, "too much")
    assert ledger.state() == before
    assert len(ledger.entries()) == 2
    ledger.reserve(loss(Fraction(1, 3), "1e-6"), "just enough")
    with pytest.raises(BudgetExceeded):
        ledger.reserve(loss(Fraction(1, 10**30)), "nothing is left")
    ledger.reserve(ZCDP.nothing(), "nothing is asked")


def test_ten_tenths_are_the_whole(make: Make) -> None:
    ledger = make(loss(1))
    for _ in range(10):
        ledger.reserve(loss(0.1), "a tenth").settle(Rho(0.1), "")
    assert ledger.state() == FilterState(spent=loss(1), reserved=Rho(0))


def test_a_shortfall_says_what_is_left_and_survives_pickling(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    ledger.reserve(loss("0.75", "4e-7"), "first")
    with pytest.raises(Shortfall) as caught:
        ledger.reserve(loss("0.5", "1e-7"), "second")
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert error.code == "budget-exceeded"
        assert error.remaining == loss("0.25", "6e-7")
        assert "rho 0.5" in error.reason
        assert "rho 0.25" in error.reason
        assert error.hint


def test_a_second_settlement_is_refused(make: Make) -> None:
    ledger = make(loss(1))
    reservation = ledger.reserve(loss("0.5"), "once")
    ledger.reserve(loss("0.5"), "another that is held")
    reservation.settle(Rho("0.25"), "first")
    before = ledger.state()
    for again in (Rho("0.25"), Rho(0), Rho("0.5")):
        with pytest.raises(LedgerError) as caught:
            reservation.settle(again, "second")
        assert caught.value.code == "already-settled"
    assert ledger.state() == before
    assert ledger.entries()[0].settlement.digest == "first"


def test_settling_above_the_worst_case_is_refused_and_keeps_the_hold(make: Make) -> None:
    ledger = make(loss(1))
    reservation = ledger.reserve(loss("0.5"), "q")
    with pytest.raises(UsageError) as caught:
        reservation.settle(Rho(Fraction(1, 2) + Fraction(1, 10**30)), "d")
    assert caught.value.code == "over-settled"
    assert ledger.state() == FilterState(spent=loss(0), reserved=Rho("0.5"))
    reservation.settle(Rho("0.5"), "d")
    assert ledger.state() == FilterState(spent=loss("0.5"), reserved=Rho(0))


def test_reservations_settle_in_any_order(make: Make) -> None:
    ledger = make(loss(1))
    held = [ledger.reserve(loss(Fraction(1, n)), str(n)) for n in (3, 4, 5)]
    for reservation, returned in zip(reversed(held), (Fraction(1, 50), Fraction(1, 40), Fraction(1, 30)), strict=True):
        reservation.settle(Rho(returned), str(returned))
    assert ledger.state().reserved == Rho(0)
    assert [entry.settlement.digest for entry in ledger.entries()] == ["1/30", "1/40", "1/50"]


def test_the_state_is_the_sum_of_the_entries(make: Make) -> None:
    ledger = make(loss(1, "1e-6"))
    held = [ledger.reserve(loss(Fraction(1, n), "1e-8"), str(n)) for n in range(7, 13)]
    for reservation in held[::2]:
        reservation.settle(Rho(Fraction(1, 100)), "")
    expected = FilterState(
        spent=loss(Fraction(3, 100), "6e-8"), reserved=Rho(Fraction(1, 8) + Fraction(1, 10) + Fraction(1, 12))
    )
    assert ledger.state() == expected == balance_of(ledger.entries())


def test_a_closed_ledger_refuses_everything_but_closing(make: Make) -> None:
    ledger = make(loss(1))
    reservation = ledger.reserve(loss("0.5"), "q")
    ledger.close()
    ledger.close()
    acts = [
        ledger.state,
        ledger.entries,
        lambda: ledger.reserve(loss("0.1"), "late"),
        lambda: reservation.settle(Rho(0), "late"),
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
    item, each, threads = Rho(Fraction(1, 3)), 25, 8
    ledger = make(ZCDP(item * 150, Delta(1)))
    granted: list[int] = []
    refused: list[int] = []

    def ask(number: int) -> None:
        for _ in range(each):
            try:
                reservation = ledger.reserve(ZCDP(item, Delta(0)), f"thread {number}")
            except BudgetExceeded:
                refused.append(number)
            else:
                granted.append(number)
                reservation.settle(item, "")

    race(threads, ask)
    assert (len(granted), len(refused)) == (150, threads * each - 150)
    assert ledger.state() == FilterState(spent=ZCDP(item * 150, Delta(0)), reserved=Rho(0))


@pytest.mark.usefixtures("impatient")
def test_threads_racing_to_settle_one_reservation_settle_it_once(make: Make) -> None:
    ledger = make(loss(1))
    reservation = ledger.reserve(loss("0.5"), "q")
    outcomes: list[str] = []

    def settle(number: int) -> None:
        try:
            reservation.settle(Rho("0.25"), str(number))
        except LedgerError as error:
            outcomes.append(error.code)
        else:
            outcomes.append("settled")

    race(6, settle)
    assert sorted(outcomes) == ["already-settled"] * 5 + ["settled"]
    assert ledger.state() == FilterState(spent=loss("0.25"), reserved=Rho(0))


class Model:
    """The same ledger in ten lines, with every number a fraction."""

    def __init__(self) -> None:
        self.spent = self.delta = Fraction(0)
        self.held: list[tuple[Reservation, Fraction]] = []

    @property
    def reserved(self) -> Fraction:
        return sum((rho for _, rho in self.held), Fraction(0))

    def reserve(self, ledger: Ledger, rho: Fraction, delta: Fraction) -> None:
        if self.spent + self.reserved + rho > 1 or self.delta + delta > 1:
            with pytest.raises(Shortfall) as caught:
                ledger.reserve(loss(rho, delta), "q")
            assert caught.value.remaining == loss(1 - self.spent - self.reserved, 1 - self.delta)
        else:
            self.held.append((ledger.reserve(loss(rho, delta), "q"), rho))
            self.delta += delta

    def settle(self, which: int, share: Fraction) -> None:
        if not self.held:
            return
        reservation, rho = self.held[which % len(self.held)]
        if rho * share > rho:
            with pytest.raises(UsageError):
                reservation.settle(Rho(rho * share), "d")
        else:
            reservation.settle(Rho(rho * share), "d")
            self.held.remove((reservation, rho))
            self.spent += rho * share


PARTS = st.fractions(min_value=0, max_value=Fraction(2, 5), max_denominator=60)
RESERVE = st.tuples(st.just("reserve"), PARTS, PARTS)
SETTLE = st.tuples(st.just("settle"), st.integers(0, 9), st.fractions(0, Fraction(11, 10), max_denominator=20))
Act = tuple[str, Fraction, Fraction] | tuple[str, int, Fraction]


@pytest.mark.parametrize("maker", [in_memory, in_sqlite])
@settings(max_examples=200, deadline=None)
@given(acts=st.lists(RESERVE | SETTLE, max_size=12))
def test_no_sequence_of_acts_exceeds_the_budget(
    maker: Callable[[Path, ZCDP], Ledger], tmp_path_factory: pytest.TempPathFactory, acts: list[Act]
) -> None:
    model = Model()
    with contextlib.closing(maker(tmp_path_factory.mktemp("ledger"), loss(1, 1))) as ledger:
        for name, first, second in acts:
            if name == "reserve":
                model.reserve(ledger, Fraction(first), second)
            else:
                model.settle(int(first), second)
            state = ledger.state()
            assert state == FilterState(loss(model.spent, model.delta), Rho(model.reserved))
            assert state == balance_of(ledger.entries())
            assert state.spent.rho + state.reserved <= ledger.budget.rho
            assert state.spent.delta <= ledger.budget.delta
