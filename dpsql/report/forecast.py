"""Forecast of how many more queries of one price the budget admits, from public numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsql.accounting import BudgetVector, Loss
from dpsql.display import Facts, NotebookRepr, facts_html
from dpsql.errors import UsageError
from dpsql.plan.plan import Plan

__all__ = ["Forecast", "count_more", "forecast"]


@dataclass(frozen=True, slots=True)
class Forecast(NotebookRepr):
    """Forecast for queries of one price, run one after another, each with fresh noise.

    `times` queries are planned. `at_worst` of them are admitted if each costs its worst case, `loss`; `at_half` if each
    returns half of the k keys (and BOTTOM, where there is one), at `half_loss`. Queries of a known domain always return
    all keys, and a fixed price does not depend on the answer. With a budget per period, the forecast is for the current
    period. Repeating a query unchanged is free, and not counted.

    >>> session.forecast("SELECT article FROM reads GROUP BY article TOP 10 PRIVATE", times=3).fits
    True
    """

    times: int
    at_worst: int
    at_half: int
    loss: Loss
    half_loss: Loss
    remaining: BudgetVector

    @property
    def fits(self) -> bool:
        """Whether all planned queries are certain to be admitted."""
        return self.times <= self.at_worst

    def facts(self) -> list[tuple[str, str]]:
        """Return what is left for such queries as lines of name and value, as a plan does."""
        fits = ("such queries", f"{self.at_worst} fit")
        if self.at_half != self.at_worst:
            fits = ("such queries", f"{self.at_worst} fit at the worst, {self.at_half} if half of the items come back")
        if self.at_worst:
            return [fits]
        warning = "It may cost more than what is left of the budget: it would be refused, and nothing charged."
        return [("warning", warning), fits]

    def __str__(self) -> str:
        """Return the answer in words."""
        is_one = self.times == 1
        verdict = "may not fit" if is_one else "may not all fit"
        if self.fits:
            verdict = f"{'fits' if is_one else 'fit'}, with any answers"
        if not self.fits and self.times <= self.at_half:
            verdict += f", but {'does' if is_one else 'do'} if half of the items come back"
        return (
            f"{self.times} such {'query' if is_one else 'queries'} {verdict}. What is left admits "
            f"{self.at_worst} in the worst case, and {self.at_half} when half of the items come back."
        )

    def _repr_html_(self) -> str:
        """Return the forecast for a notebook."""
        pairs = [
            ("planned", f"{self.times}"),
            ("admitted at the worst", f"{self.at_worst}, of {self.loss} each"),
            ("if half comes back", f"{self.at_half}, of {self.half_loss} each"),
            ("remaining", str(self.remaining)),
        ]
        return facts_html(Facts("Forecast: nothing was read, nothing was charged", pairs, notes=[str(self)]))


def forecast(plan: Plan, remaining: BudgetVector, *, times: int) -> Forecast:
    """Return how often queries of the price of `plan` are admitted by what remains.

    Raises `UsageError` unless `times` is a whole number of at least 1.
    """
    if type(times) is not int or times < 1:
        raise UsageError("times-range", "times must be a whole number of at least 1.", hint="Such as times=30.")
    worst, half = plan.price(plan.worst_case), plan.price(plan.mechanism_plan.half)
    return Forecast(
        times,
        _count_admitted(remaining, worst, loss=worst),
        _count_admitted(remaining, worst, loss=half),
        loss=plan.worst_case,
        half_loss=plan.mechanism_plan.half,
        remaining=remaining,
    )


def count_more(plan: Plan, remaining: BudgetVector, *, loss: Loss) -> int | None:
    """Return how many more queries of the worst case of `plan` are admitted if each costs `loss`; None for no end."""
    price = plan.price(loss)
    if not price.refundable:
        return None
    return _count_admitted(remaining, plan.price(plan.worst_case), loss=price)


def _count_admitted(remaining: BudgetVector, worst: BudgetVector, *, loss: BudgetVector) -> int:
    """Return how many fit one after another, each reserved at `worst` and then settled at `loss`."""
    spare = remaining.refundable - worst.refundable
    admitted = math.floor(spare / loss.refundable) + 1 if spare >= 0 else 0
    return min(admitted, math.floor(remaining.permanent / loss.permanent)) if loss.permanent else admitted
