"""The balance of a budget, as the analyst may see it: rho and delta, never a running epsilon.

What was spent so far is no guarantee; the guarantee is the total (`maths.md` 2.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, ApproximateDP, BoundedRange, FilterState
from dpsql.ledger.base import left
from dpsql.ledger.calendar import Calendar
from dpsql.plan.terms import Terms
from dpsql.quantities import Delta, Epsilon, Rho

__all__ = ["Account", "Balance", "balance_of"]


@dataclass(frozen=True, slots=True)
class Account:
    """One currency of a budget, exact: `remaining` is what may still be asked for.

    It is granted - spent - reserved, or less for an analyst where others have left less of the total.
    """

    granted: Fraction
    spent: Fraction
    reserved: Fraction
    remaining: Fraction


@dataclass(frozen=True, slots=True)
class Balance:
    """The total guarantee, and what is left in rho, in delta and in items of the default epsilon.

    Both currencies are those of the analyst's own limit where there is one; `analyst` is then its name. With a
    `calendar` all of it is of the present period, and granted anew in the next.
    """

    granted: ApproximateDP
    rho: Account
    delta: Account
    epsilon: Epsilon
    items: int
    analyst: str | None = None
    calendar: Calendar | None = None

    @property
    def remaining(self) -> ZCDP:
        """What may still be asked for."""
        return ZCDP(Rho(self.rho.remaining), Delta(self.delta.remaining))

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
        if self.calendar is not None:
            period = self.calendar.periods
            lines = [f"guarantee: {self.granted} for every privacy unit per {period}, over all queries of these"]
            lines.append(str(self.calendar))
        lines += [] if self.analyst is None else [f"of it, the account {self.analyst}:"]
        lines += [
            f"{name:5} granted {granted:.6g}, spent {spent:.6g}, reserved {reserved:.6g}, remaining {remaining:.6g}"
            for name, granted, spent, reserved, remaining in self.rows()[:2]
        ]
        over = self.calendar is not None and self.calendar.is_over
        if not over and any(
            part.remaining < part.granted - part.spent - part.reserved for part in (self.rho, self.delta)
        ):
            lines.append("less remains than the account's own limit leaves: others drew on the total")
        return "\n".join([*lines, f"about {self.items} more items at epsilon {self.epsilon}"])


def balance_of(
    terms: Terms, total: FilterState, *, own: FilterState | None = None, calendar: Calendar | None = None
) -> Balance:
    """Return the balance for the ledger's state and calendar, and that of the account where the terms have one."""
    limit, state = (terms.budget, total) if terms.account is None or own is None else (terms.account.budget, own)
    of_total, of_own = left(terms.budget, total), left(limit, state)
    rho, delta = min(of_total.rho.value, of_own.rho.value), min(of_total.delta.value, of_own.delta.value)
    return Balance(
        granted=terms.total,
        rho=Account(limit.rho.value, state.spent.rho.value, state.reserved.value, rho),
        delta=Account(limit.delta.value, state.spent.delta.value, Fraction(0), delta),
        epsilon=terms.epsilon,
        items=math.floor(rho / BoundedRange(terms.epsilon).rho.value),
        analyst=None if terms.account is None else terms.account.name,
        calendar=calendar,
    )
