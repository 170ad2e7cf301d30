"""The filter that decides, from public numbers only, whether a session may still ask (`maths.md` 2.4 and 4).

It admits on the worst case and commits what was returned. As long as admitted and committed losses stay within the
budget on every path, Theorem S gives the whole adaptive transcript the budget's guarantee. Delta is spent on
admission and never refunded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsql.accounting.guarantees import ZCDP
from dpsql.accounting.renyi import RenyiCurve
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Rho

__all__ = ["Filter", "FilterState", "check_settlement"]


@dataclass(frozen=True, slots=True)
class FilterState:
    """What has gone: settled for good, and held for queries that have not settled."""

    spent: ZCDP
    reserved: Rho

    @classmethod
    def fresh(cls) -> FilterState:
        """Return the state of a session that has asked nothing."""
        return cls(ZCDP.nothing(), Rho(0))


@dataclass(frozen=True, slots=True)
class Filter:
    """A budget and the two acts upon a state of it; both are pure functions, the ledger makes them durable."""

    budget: ZCDP

    def remaining(self, state: FilterState) -> ZCDP:
        """Return what may still be admitted."""
        return ZCDP(
            Rho(self.budget.rho.value - state.spent.rho.value - state.reserved.value),
            Delta(self.budget.delta.value - state.spent.delta.value),
        )

    def admits(self, state: FilterState, worst_case: ZCDP) -> bool:
        """Say whether `worst_case` fits, compared exactly and without tolerance; refuse a loss of another kind."""
        _only_concentrated(worst_case)
        left = self.remaining(state)
        return worst_case.rho <= left.rho and worst_case.delta <= left.delta

    def reserve(self, state: FilterState, worst_case: ZCDP) -> FilterState:
        """Return the state after admission: rho held, delta spent."""
        if not self.admits(state, worst_case):
            raise UsageError("not-admitted", "A loss may be reserved only when the filter admits it.")
        return FilterState(
            spent=replace(state.spent, delta=state.spent.delta + worst_case.delta),
            reserved=state.reserved + worst_case.rho,
        )

    def settle(self, state: FilterState, worst_case: ZCDP, *, loss: Rho) -> FilterState:
        """Return the state after the answer: the rho of what was returned is spent, the rest of the hold is freed."""
        check_settlement(worst_case, loss)
        return FilterState(
            spent=replace(state.spent, rho=state.spent.rho + loss),
            reserved=state.reserved - worst_case.rho,
        )


def check_settlement(worst_case: ZCDP, loss: Rho) -> None:
    """Raise `UsageError` if a release cost more than its worst case."""
    if loss > worst_case.rho:
        raise UsageError("over-settled", "A release may not cost more than its worst case.")


def _only_concentrated(loss: object) -> None:
    if isinstance(loss, RenyiCurve):
        loss = loss.concentrated()  # refuses, with the reason, what no rho covers
    if not isinstance(loss, ZCDP):
        reason = "This session's certificate adds up rho; a loss of another kind cannot be charged to it."
        raise UsageError("wrong-certificate", reason)
