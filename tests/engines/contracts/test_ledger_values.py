"""What every ledger does with a budget for each value: no unit ever loses more than the total, whatever is asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_makers import MAKERS, TOTAL, Maker, Memory
from support.ledger_terms import ALL, Terms
from support.values_kit import Adversary, divide_by

from dpsql.accounting import BudgetState, BudgetVector, Periods
from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.ledger import Account, Ledger, MemoryLedger, Request, base_ledger, history, sum_entries

ITEM = BudgetVector(2, "1e-8")
BUDGET = BudgetVector(10, "1e-7")


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    return request.param(tmp_path)


def some_item(moments: random.Random) -> BudgetVector:
    return BudgetVector(moments.randint(1, 4), Fraction(moments.randint(0, 3), 10**8))


def ask(ledger: Ledger, *values: str, worst: BudgetVector = ITEM, account: Account | None = None) -> object:
    return ledger.reserve(Request("q", worst, account, values=values, division=ledger.division))


def assert_within(adversary: Adversary, budget: BudgetVector) -> None:
    refundable, permanent = adversary.worst_unit()
    assert refundable <= budget.refundable
    assert permanent <= budget.permanent


@pytest.mark.parametrize("account", [None, Account("ada", BudgetVector(7, "8e-8"))])
def test_no_unit_loses_more_than_the_total(maker: Maker, account: Account | None) -> None:
    limit = BUDGET if account is None else account.budget
    refused = admitted = 0
    for seed in range(20 if isinstance(maker, Memory) else 2):
        with closing(maker.make(BUDGET)) as ledger:
            adversary = Adversary(ledger, account)
            for _ in adversary.play(seed, worst=some_item):
                assert_within(adversary, limit)
            refused, admitted = refused + adversary.refused, admitted + len(adversary.asked)
            of_entries = sum_entries(ledger.entries(), None if account is None else account.name)
            state = ledger.state(None if account is None else account.name)
            assert of_entries.spent + of_entries.reserved == state.spent + state.reserved
            assert of_entries.permanent == state.permanent
            assert len(list(ledger.events())) > 1
    assert refused > 5
    assert admitted > 5
    maker.check()


@pytest.mark.parametrize("terms", ALL, ids=lambda each: each.certified.certificate.value)
def test_no_unit_loses_more_than_the_total_of_any_certificate(terms: Terms) -> None:
    budget, certificate = terms.budget, terms.budget.certificate

    def item(moments: random.Random) -> BudgetVector:
        first, second = (
            (1 if name in {"items", "queries"} else whole / 7)
            for name, whole in zip(certificate.currencies, (budget.refundable, budget.permanent), strict=True)
        )
        return BudgetVector(first * moments.randint(1, 3), second * moments.randint(0, 1), certificate=certificate)

    for seed in range(6):
        ledger = MemoryLedger(budget, total=TOTAL, certified=terms.certified)
        adversary = Adversary(ledger)
        for at, _ in enumerate(adversary.play(seed, acts=60, worst=item)):
            if not at % 4:
                assert_within(adversary, budget)
        assert_within(adversary, budget)


def test_values_have_budgets_of_their_own(maker: Maker) -> None:
    with closing(maker.make(BUDGET)) as ledger:
        ledger.divide(divide_by())
        for _ in range(5):
            ask(ledger, "a")
            ask(ledger, "b")
        for values in [("a",), ("b",), ("a", "c"), ()]:
            with pytest.raises(BudgetExceeded):
                ask(ledger, *values)
        ask(ledger, "c")
        assert ledger.state() == BudgetState(Fraction(0), Fraction("5e-8"), Fraction(10))
        assert ledger.state(values=("c",)) == BudgetState(Fraction(0), Fraction("1e-8"), Fraction(2))
        assert ledger.state(values=("new",)) == BudgetState()
        assert list(ledger.states()) == ["a", "b", "c"]
        assert [entry.values for entry in ledger.entries()[-2:]] == [("b",), ("c",)]
    maker.check()


def test_each_currency_has_its_own_largest_value() -> None:
    ledger = MemoryLedger(BUDGET, total=TOTAL)
    ledger.divide(divide_by())
    ask(ledger, "a", worst=BudgetVector(9, 0))
    ask(ledger, "b", worst=BudgetVector(0, "9e-8"))
    with pytest.raises(BudgetExceeded):
        ask(ledger, worst=BudgetVector(1, "2e-8"))
    with pytest.raises(BudgetExceeded):
        ask(ledger, "a", "b", worst=BudgetVector(2, 0))
    ask(ledger, "a", "b", worst=BudgetVector(1, "1e-8"))


def test_a_query_of_all_units_is_charged_to_every_value(maker: Maker) -> None:
    with closing(maker.make(BUDGET)) as ledger:
        ledger.divide(divide_by())
        ask(ledger, worst=BudgetVector(9, 0))
        with pytest.raises(BudgetExceeded):
            ask(ledger, "a")
        ask(ledger, "a", worst=BudgetVector(1, 0))
        ask(ledger, "b", worst=BudgetVector(1, 0))


def test_the_most_of_a_value_is_charged_to_all_when_the_version_is_incremented(maker: Maker) -> None:
    with closing(maker.make(BUDGET)) as ledger:
        ledger.divide(divide_by())
        ask(ledger, "a").settle(Fraction(1), "d")  # type: ignore[attr-defined]
        held = ask(ledger, "b", worst=BudgetVector(4, "1e-8"))
        ledger.bump("other data")
        assert ledger.division is None
        folded = BudgetState(Fraction(4), Fraction("1e-8"), Fraction(0))
        assert ledger.state() == ledger.state(values=("a",)) == folded
        assert ledger.states() == {}
        held.settle(Fraction(1), "d")  # type: ignore[attr-defined]
        assert ledger.state() == folded  # what was in flight was spent in full
        with pytest.raises(LedgerError, match="changed while"):
            ledger.reserve(Request("q", ITEM, values=("a",), division=divide_by()))
        ledger.divide(divide_by())
        ask(ledger, "a", worst=BudgetVector(6, 0))
        state = sum_entries(ledger.entries())
        assert state.spent + state.reserved == Fraction(10)
    maker.check()


def test_another_rule_charges_the_most_of_a_value_to_all(maker: Maker) -> None:
    with closing(maker.make(BUDGET)) as ledger:
        ledger.divide(divide_by())
        ask(ledger, "a")
        ledger.divide(divide_by())  # the same again is nothing
        assert ledger.states() != {}
        ledger.divide(divide_by("another"))
        assert ledger.states() == {}
        assert ledger.state().spent == Fraction(2)
        with pytest.raises(LedgerError, match="changed while"):
            ledger.reserve(Request("q", ITEM, values=("a",), division=divide_by()))


def test_other_data_of_the_same_version_are_refused(maker: Maker) -> None:
    with closing(maker.make(BUDGET)) as ledger:
        ledger.divide(divide_by())
        with pytest.raises(LedgerError) as caught:
            ledger.divide(divide_by(data="other"))
        assert caught.value.code == "ledger-data"
        ledger.bump("other data")
        ledger.divide(divide_by(data="other"))
        assert ledger.division == divide_by(data="other")


def test_a_crash_leaves_the_worst_case_spent_for_the_values(maker: Maker) -> None:
    ledger = maker.make(BUDGET)
    ledger.divide(divide_by())
    ask(ledger, "a")
    ask(ledger, "a", "b").settle(Fraction(1), "d")  # type: ignore[attr-defined]
    again = maker.again(ledger)
    assert again.division == divide_by()
    assert again.state(values=("a",)) == BudgetState(Fraction(1), Fraction("2e-8"), Fraction(2))
    assert again.state(values=("b",)) == BudgetState(Fraction(1), Fraction("1e-8"), Fraction(0))
    maker.check()
    for each in dict.fromkeys((again, ledger)):
        each.close()


def test_two_openings_agree_on_the_values(maker: Maker) -> None:
    ledger = maker.make(BUDGET)
    ledger.divide(divide_by())
    other = maker.again(ledger)
    for at in range(5):
        ask(ledger if at % 2 else other, "a")
    for each in (ledger, other):
        with pytest.raises(BudgetExceeded):
            ask(each, "a")
        ask(each, "b")
    other.bump("other data")
    assert ledger.division is None
    assert ledger.state() == other.state()
    for each in dict.fromkeys((other, ledger)):
        each.close()


def test_an_account_has_a_total_for_each_value(maker: Maker) -> None:
    ada, bob = Account("ada", BudgetVector(4, "1e-7")), Account("bob", BudgetVector(9, "1e-7"))
    with closing(maker.make(BUDGET)) as ledger:
        ledger.divide(divide_by())
        ask(ledger, "a", account=ada)
        ask(ledger, "a", account=ada)
        with pytest.raises(BudgetExceeded) as caught:
            ask(ledger, "a", account=ada)
        assert caught.value.account == "ada"  # type: ignore[attr-defined]
        ask(ledger, "b", account=ada)
        ask(ledger, "a", account=bob, worst=BudgetVector(6, 0))
        with pytest.raises(BudgetExceeded) as caught:
            ask(ledger, "a", account=bob, worst=BudgetVector(1, 0))
        assert caught.value.account is None  # type: ignore[attr-defined]
        assert list(ledger.states("ada")) == ["a", "b"]
        assert list(ledger.states("bob")) == ["a"]
    maker.check()


def test_a_period_grants_every_value_its_budget_again(maker: Maker) -> None:
    at = [datetime(2026, 1, 1, tzinfo=UTC)]
    periods = Periods(timedelta(days=1), 2)
    with closing(maker.make(BUDGET, periods, lambda: at[0])) as ledger:
        ledger.divide(divide_by())
        held = ask(ledger, "a", worst=BudgetVector(10, 0))
        at[0] += timedelta(days=1)
        assert ledger.states() == {}
        assert ledger.state(values=("a",)) == BudgetState()
        ask(ledger, "a", worst=BudgetVector(10, 0))
        held.settle(Fraction(3), "d")  # type: ignore[attr-defined]
        assert ledger.state(values=("a",)).reserved == Fraction(10)
        ledger.bump("in the second period")
        assert ledger.state().spent == Fraction(10)
        at[0] += timedelta(days=1)
        with pytest.raises(BudgetExceeded):
            ask(ledger, worst=BudgetVector(1, 0))
    maker.check()


def ignore_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a query of all units count no value, as if only what all units share decided on it."""
    find = base_ledger.Ledger._find_state

    def mutant(self: base_ledger.Ledger, book: object, account: str | None, *, values: object) -> BudgetState:
        return find(self, book, account, values=values or ("\0",))  # type: ignore[arg-type]

    monkeypatch.setattr(base_ledger.Ledger, "_find_state", mutant)


def ignore_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a query of values look at these alone."""
    find = base_ledger.Ledger._find_state

    def mutant(self: base_ledger.Ledger, book: object, account: str | None, *, values: object) -> BudgetState:
        found = find(self, book, account, values=values)  # type: ignore[arg-type]
        own = book.balance(account)  # type: ignore[attr-defined]
        if not values:
            return found
        return BudgetState(found.spent - own.spent, found.permanent - own.permanent, found.reserved - own.reserved)

    monkeypatch.setattr(base_ledger.Ledger, "_find_state", mutant)


def forget_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a new version of the data clear the values without charging them to all."""
    for module in (base_ledger, history):
        monkeypatch.setattr(module, "fold_values", lambda state, _: state)


def settle_after_folding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count only what was settled when the values are cleared, although more is in flight."""
    for module in (base_ledger, history):
        monkeypatch.setattr(
            module,
            "fold_values",
            lambda state, values: BudgetState(
                state.spent + max((each.spent for each in values), default=Fraction(0)), state.permanent, state.reserved
            ),
        )


@pytest.mark.mutant
@pytest.mark.parametrize("mutate", [ignore_values, ignore_all, forget_values, settle_after_folding])
def test_a_wrong_ledger_lets_a_unit_lose_more(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    monkeypatch.setattr(history._Tally, "within_with", lambda *_, **__: True)  # the second look of every opening
    adversaries = [Adversary(MemoryLedger(BUDGET, total=TOTAL)) for _ in range(60)]
    assert any(
        adversary.worst_unit()[0] > BUDGET.refundable
        for seed, adversary in enumerate(adversaries)
        for _ in adversary.play(seed, worst=some_item)
    )


def test_the_second_look_finds_what_was_charged_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    ignore_values(monkeypatch)
    ledger = MemoryLedger(BUDGET, total=TOTAL)
    ledger.divide(divide_by())
    for values in (("a",), ("a",), ("a",), ("a",), (), ()):
        ask(ledger, *values)
    with pytest.raises(LedgerError, match="changed after"):
        ledger.state()
