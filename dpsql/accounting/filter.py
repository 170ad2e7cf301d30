"""The filter that decides, from public numbers only, whether a query is admitted (`maths.md` 2.4 and 4).

It admits on the worst case and charges what was returned. As long as admitted and charged losses stay within the
budget on every path, Theorem S gives the whole adaptive transcript the budget's guarantee. The permanent currency is
spent on admission and never refunded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.accounting.budget import BudgetState, BudgetVector
from dpsql.errors import UsageError

__all__ = ["Filter", "add_largest", "add_worst_case", "check_settlement", "fold_values"]


@dataclass(frozen=True, slots=True)
class Filter:
    """A budget and the acts upon a state of it: pure functions of exact numbers, which the ledger makes durable."""

    budget: BudgetVector

    def remaining(self, state: BudgetState) -> BudgetVector:
        """Return what may still be admitted; raise `UsageError` if the budget is overdrawn."""
        return BudgetVector(
            self.budget.refundable - state.spent - state.reserved,
            self.budget.permanent - state.permanent,
            certificate=self.budget.certificate,
        )

    def admits(self, state: BudgetState, worst_case: BudgetVector) -> bool:
        """Say whether `worst_case` fits, compared exactly and without tolerance."""
        worst_case.require(self.budget.certificate)
        left = self.remaining(state)
        return worst_case.refundable <= left.refundable and worst_case.permanent <= left.permanent

    def reserve(self, state: BudgetState, worst_case: BudgetVector) -> BudgetState:
        """Return the state after admission: the refundable amount is reserved, the other spent."""
        if not self.admits(state, worst_case):
            raise UsageError("not-admitted", "A loss may be reserved only when the filter admits it.")
        return add_worst_case(state, worst_case)

    def settle(self, state: BudgetState, worst_case: BudgetVector, *, loss: Fraction) -> BudgetState:
        """Return the state after the answer: what was returned is spent, the rest of the reservation is freed."""
        worst_case.require(self.budget.certificate)
        check_settlement(worst_case, loss)
        if worst_case.refundable > state.reserved:
            raise UsageError("over-settled", "A release may not free more than was reserved.")
        return replace(state, spent=state.spent + loss, reserved=state.reserved - worst_case.refundable)


def add_worst_case(state: BudgetState, worst_case: BudgetVector) -> BudgetState:
    """Return the state after a worst case was admitted."""
    return replace(
        state, reserved=state.reserved + worst_case.refundable, permanent=state.permanent + worst_case.permanent
    )


def add_largest(state: BudgetState, values: Iterable[BudgetState]) -> BudgetState:
    """Return the state that decides on a query of these values: what all units may have lost, and the most of a value.

    `state` is of the queries that every unit counts in, `values` are of those that only units of one value count in. A
    unit has one value, so it has lost at most this much, in each currency.
    """
    found = list(values)
    most = max(found, key=_used, default=BudgetState())
    return BudgetState(
        state.spent + most.spent,
        state.permanent + max((each.permanent for each in found), default=Fraction(0)),
        state.reserved + most.reserved,
    )


def fold_values(state: BudgetState, values: Iterable[BudgetState]) -> BudgetState:
    """Return the state of all units after units may have changed their value: the most of a value is spent for all.

    What is reserved for a value counts as spent: its settlement changes nothing any more.
    """
    most = add_largest(BudgetState(), values)
    return replace(state, spent=state.spent + _used(most), permanent=state.permanent + most.permanent)


def _used(state: BudgetState) -> Fraction:
    return state.spent + state.reserved


def check_settlement(worst_case: BudgetVector, loss: Fraction) -> None:
    """Raise `UsageError` if a release cost more than its worst case, or less than nothing."""
    if not 0 <= loss <= worst_case.refundable:
        raise UsageError("over-settled", "A release may not cost more than its worst case.")
