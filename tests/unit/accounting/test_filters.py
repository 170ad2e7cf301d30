"""The filter's arithmetic: exact, never over the budget on any sequence of acts, delta never refunded."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.ledger_makers import make_state

from dpsql.accounting import BudgetState, BudgetVector, Filter
from dpsql.errors import UsageError


def loss(rho: Fraction | int | str, delta: Fraction | int | str = 0) -> BudgetVector:
    return BudgetVector(rho, delta)


FRACTIONS = st.fractions(min_value=0, max_value=1, max_denominator=997)


@dataclass
class Session:
    """A filter driven at random, and what it must have done, added up apart from it."""

    filter: Filter
    state: BudgetState = field(default_factory=BudgetState)
    held: list[BudgetVector] = field(default_factory=list)
    committed: Fraction = Fraction(0)
    failures: Fraction = Fraction(0)

    def ask(self, worst: BudgetVector) -> None:
        held = sum(each.refundable for each in self.held)
        fits = (
            self.committed + held + worst.refundable <= self.filter.budget.refundable
            and self.failures + worst.permanent <= self.filter.budget.permanent
        )
        assert self.filter.admits(self.state, worst) == fits
        if not fits:
            with pytest.raises(UsageError, match=r"\[not-admitted\]"):
                self.filter.reserve(self.state, worst)
            return
        self.state = self.filter.reserve(self.state, worst)
        self.held.append(worst)
        self.failures += worst.permanent

    def answer(self, which: int, share: Fraction) -> None:
        if self.held:
            worst = self.held.pop(which % len(self.held))
            self.state = self.filter.settle(self.state, worst, loss=Fraction(worst.refundable * share))
            self.committed += worst.refundable * share

    def check(self) -> None:
        held = sum((each.refundable for each in self.held), Fraction(0))
        assert self.state == BudgetState(self.committed, self.failures, held)
        assert self.committed + held <= self.filter.budget.refundable
        assert self.failures <= self.filter.budget.permanent
        left = self.filter.remaining(self.state)
        assert left.refundable == self.filter.budget.refundable - self.committed - held
        assert left.permanent == self.filter.budget.permanent - self.failures


@pytest.mark.properties
@settings(max_examples=examples(300), deadline=None)
@given(
    rho=FRACTIONS,
    delta=FRACTIONS,
    acts=st.lists(
        st.one_of(
            st.tuples(st.just("ask"), FRACTIONS, FRACTIONS), st.tuples(st.just("answer"), st.integers(0, 9), FRACTIONS)
        ),
        max_size=25,
    ),
)
def test_no_sequence_of_acts_exceeds_the_budget(
    rho: Fraction, delta: Fraction, acts: list[tuple[str, Fraction | int, Fraction]]
) -> None:
    session = Session(Filter(loss(rho * 3, delta * 3)))
    for act, first, second in acts:
        if act == "ask":
            session.ask(loss(Fraction(first), second))
        else:
            session.answer(int(first), second)
        session.check()


def test_thirds_fill_a_budget_exactly() -> None:
    books = Filter(loss(1, "1e-6"))
    state = BudgetState()
    for _ in range(3):
        worst = loss(Fraction(1, 3), Fraction(1, 3 * 10**6))
        state = books.settle(books.reserve(state, worst), worst, loss=worst.refundable)
    assert books.remaining(state) == BudgetVector(0, 0)
    assert books.admits(state, BudgetVector(0, 0))
    assert not books.admits(state, loss(Fraction(1, 10**40)))
    assert not books.admits(state, loss(0, Fraction(1, 10**40)))


@pytest.mark.parametrize("worst", [loss(Fraction(10**30 + 1, 10**30)), loss(0, Fraction(10**30 + 1, 10**36))])
def test_the_least_excess_is_refused(worst: BudgetVector) -> None:
    assert not Filter(loss(1, "1e-6")).admits(BudgetState(), worst)


def test_a_release_may_not_cost_more_than_was_reserved() -> None:
    books, worst = Filter(loss(1, 1)), loss("0.5")
    with pytest.raises(UsageError, match=r"\[over-settled\]"):
        books.settle(books.reserve(BudgetState(), worst), worst, loss=Fraction(Fraction(10**20 + 2, 2 * 10**20)))


def test_what_was_not_reserved_cannot_be_settled() -> None:
    books, worst = Filter(loss(1, 1)), loss("0.5")
    with pytest.raises(UsageError, match=r"\[over-settled\]"):
        books.settle(BudgetState(), worst, loss=Fraction("0.1"))


def test_acts_leave_the_state_they_were_given_alone() -> None:
    books, fresh = Filter(loss(1, 1)), BudgetState()
    books.reserve(fresh, loss("0.5", "0.5"))
    assert fresh == make_state(BudgetVector(0, 0), Fraction(0))
