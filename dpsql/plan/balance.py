"""The balance of a budget, as the analyst may see it: rho and delta, never a running epsilon.

What was spent so far is no guarantee; the guarantee is the total (`maths.md` 2.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ApproximateDP, BoundedRange, Filter, FilterState
from dpsql.plan.terms import Terms
from dpsql.quantities import Epsilon

__all__ = ["Account", "Balance", "balance_of"]


@dataclass(frozen=True, slots=True)
class Account:
    """One currency of the budget, exact: granted = spent + reserved + remaining."""

    granted: Fraction
    spent: Fraction
    reserved: Fraction
    remaining: Fraction


@dataclass(frozen=True, slots=True)
class Balance:
    """The total guarantee, and what is left of it in rho, in delta and in items of the default epsilon."""

    granted: ApproximateDP
    rho: Account
    delta: Account
    epsilon: Epsilon
    items: int

    def rows(self) -> list[tuple[str, float, float, float, float]]:
        """Return one row each for rho, delta and rho in items: name, granted, spent, reserved, remaining."""
        item = BoundedRange(self.epsilon).rho.value
        measures = (
            ("rho", self.rho, Fraction(1)),
            ("delta", self.delta, Fraction(1)),
            (f"items of epsilon {self.epsilon}", self.rho, item),
        )
        return [
            (
                name,
                float(part.granted / unit),
                float(part.spent / unit),
                float(part.reserved / unit),
                float(part.remaining / unit),
            )
            for name, part, unit in measures
        ]

    def __str__(self) -> str:
        lines = [f"total guarantee: {self.granted} for every privacy unit, over all queries"]
        lines += [
            f"{name:5} granted {granted:.6g}, spent {spent:.6g}, reserved {reserved:.6g}, remaining {remaining:.6g}"
            for name, granted, spent, reserved, remaining in self.rows()[:2]
        ]
        return "\n".join([*lines, f"about {self.items} more items at epsilon {self.epsilon}"])


def balance_of(terms: Terms, state: FilterState) -> Balance:
    """Return the balance for the ledger's state."""
    left = Filter(terms.budget).remaining(state)
    spent = state.spent
    return Balance(
        granted=terms.total,
        rho=Account(terms.budget.rho.value, spent.rho.value, state.reserved.value, left.rho.value),
        delta=Account(terms.budget.delta.value, spent.delta.value, Fraction(0), left.delta.value),
        epsilon=terms.epsilon,
        items=math.floor(left.rho.value / BoundedRange(terms.epsilon).rho.value),
    )
