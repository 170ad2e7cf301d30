"""When the budget is short: what would still fit, from public numbers only."""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.accounting import ZCDP
from dpsql.errors import BudgetExceeded
from dpsql.plan.plan import Plan

__all__ = ["shortfall"]


def shortfall(plan: Plan, remaining: ZCDP) -> BudgetExceeded:
    """Return the error for a plan whose worst case is more than what remains, with the nearest query that fits."""
    if plan.delta > remaining.delta:
        reason = f"This query spends delta {plan.delta}, and {remaining.delta} is left of the pool for queries."
        hint = "No delta is left: no further query of an unknown domain fits."
        if remaining.delta.value > 0:
            hint = f"WITH (delta = {_rounded_down(remaining.delta.value)}) would fit."
        return BudgetExceeded("budget-exceeded", reason, hint=hint)
    affordable = math.floor(remaining.rho.value / plan.item_cost.rho.value)
    reason = (
        f"This query may cost {plan.worst_items} items of epsilon {plan.epsilon}, and the budget left buys "
        f"{affordable} of them."
    )
    return BudgetExceeded("budget-exceeded", reason, hint=_what_fits(plan, remaining, affordable))


def _what_fits(plan: Plan, remaining: ZCDP, affordable: int) -> str:
    fits = []
    per_key = 2 if plan.counts is not None and plan.counts.max_groups_contributed is None else 1
    if plan.counts is not None and per_key == 1:
        affordable -= plan.counts.items(plan.k)
    if affordable // per_key >= 1:
        fits.append(f"TOP {affordable // per_key} PRIVATE at this epsilon")
    epsilon = _rounded_down(_root(8 * remaining.rho.value / plan.worst_items))
    if Fraction(epsilon) > 0:
        fits.append(f"WITH (epsilon = {epsilon}) for these {plan.k}")
    return f"{' or '.join(fits)} would fit." if fits else "Nothing is left to spend."


def _root(square: Fraction) -> Fraction:
    return Fraction(math.isqrt(math.floor(square * 10**24)), 10**12)


def _rounded_down(value: Fraction) -> str:
    """Return a value in three digits that is not above it."""
    if value <= 0:
        return "0"
    exponent = math.floor(math.log10(value)) - 2
    digits = math.floor(value / Fraction(10) ** exponent)
    return f"{digits}e{exponent}" if exponent < -6 else f"{float(digits * Fraction(10) ** exponent):.12g}"  # noqa: PLR2004
