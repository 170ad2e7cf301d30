"""The balance of a budget, as the analyst may see it: rho and delta, or the currencies of another certificate.

What was spent so far is no guarantee, and no running epsilon; the guarantee is the total (`maths.md` 2.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.accounting import ApproximateDP, BudgetState, BudgetVector, Certificate, item_price
from dpsql.display import Meter, NotebookRepr, Part, budget_html
from dpsql.errors import UsageError
from dpsql.ledger.base import Ledger, compute_remaining
from dpsql.ledger.calendar import Calendar
from dpsql.plan.terms import Terms
from dpsql.quantities import Epsilon

__all__ = ["Account", "Balance", "compute_balance", "read_balance"]


@dataclass(frozen=True, slots=True)
class Account:
    """Exact amounts of one currency of a budget; `remaining` is what further queries may use.

    It is granted - spent - reserved, or less for an analyst where others have left less of the total.
    """

    granted: Fraction
    spent: Fraction
    reserved: Fraction
    remaining: Fraction


@dataclass(frozen=True, slots=True)
class Balance(NotebookRepr):
    """Balance: the total guarantee, and what is left in both currencies and in items of the default epsilon.

    The currencies are those of the certificate: `refunded` is the one whose unused part is returned, and `gone` the one
    that is spent once a query is admitted. `rho` and `delta` give them by name.
    If the analyst has a limit, both are those of the limit, and `analyst` is its name. With a `calendar`, all amounts
    are those of the current period, and are granted again in the next.
    """

    granted: ApproximateDP
    refunded: Account
    gone: Account
    epsilon: Epsilon
    items: int
    analyst: str | None = None
    calendar: Calendar | None = None
    certificate: Certificate = Certificate.zcdp

    @property
    def rho(self) -> Account:
        """The rho, which only the certificate zcdp counts."""
        return self._counted("rho")

    @property
    def delta(self) -> Account:
        """The delta, which the certificate theorem2 does not count."""
        return self._counted("delta")

    def _counted(self, name: str) -> Account:
        for currency, account in zip(self.certificate.currencies, (self.refunded, self.gone), strict=True):
            if currency == name:
                return account
        reason = f"The certificate {self.certificate.value} counts no {name}."
        raise UsageError("wrong-certificate", reason, hint="Read balance.refunded and balance.gone.")

    @property
    def remaining(self) -> BudgetVector:
        """Amounts that further queries may use."""
        return BudgetVector(self.refunded.remaining, self.gone.remaining, certificate=self.certificate)

    @property
    def limit(self) -> BudgetVector:
        """Amounts granted to this account, in the current period if there are periods."""
        return BudgetVector(self.refunded.granted, self.gone.granted, certificate=self.certificate)

    def rows(self) -> list[tuple[str, float, float, float, float]]:
        """Return one row for each currency and for items: name, granted, spent, reserved, remaining."""
        first, second = self.certificate.currencies
        measures = [
            (first, self.refunded, Fraction(1)),
            (second, self.gone, Fraction(1)),
        ]
        if first != "items":
            item = item_price(self.certificate, self.epsilon)
            measures.append((f"items of epsilon {self.epsilon}", self.refunded, item))
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
            part.remaining < part.granted - part.spent - part.reserved for part in (self.refunded, self.gone)
        ):
            lines.append("less remains than the account's own limit leaves: others drew on the total")
        return "\n".join([*lines, f"about {self.items} more items at epsilon {self.epsilon}"])

    def _repr_html_(self) -> str:
        """Return the budget for a notebook: a bar for each currency, and the words of the balance."""
        names = self.certificate.currencies
        meters = [
            Meter(
                name, part.granted, [Part("spent", part.spent), Part("held", part.reserved, now=True)], part.remaining
            )
            for name, part in zip(names, (self.refunded, self.gone), strict=True)
        ]
        first, *notes = str(self).splitlines()
        return budget_html(first, meters, notes=notes)


def compute_balance(
    terms: Terms, total: BudgetState, *, own: BudgetState | None = None, calendar: Calendar | None = None
) -> Balance:
    """Return the balance for the ledger's state and calendar, and that of the account where the terms have one."""
    limit, state = (terms.budget, total) if terms.account is None or own is None else (terms.account.budget, own)
    of_total, of_own = compute_remaining(terms.budget, total), compute_remaining(limit, state)
    refundable = min(of_total.refundable, of_own.refundable)
    return Balance(
        granted=terms.total,
        refunded=Account(limit.refundable, state.spent, state.reserved, refundable),
        gone=Account(limit.permanent, state.permanent, Fraction(0), min(of_total.permanent, of_own.permanent)),
        epsilon=terms.epsilon,
        items=math.floor(refundable / item_price(terms.certificate, terms.epsilon)),
        analyst=None if terms.account is None else terms.account.name,
        calendar=calendar,
        certificate=terms.certificate,
    )


def read_balance(ledger: Ledger, terms: Terms) -> Balance:
    """Return the present balance of a ledger, or that of the account that the terms name."""
    own, total = None if terms.account is None else ledger.state(terms.account.name), ledger.state()
    # after the states: a grant only ever adds, and a session that is open speaks of it too
    terms = replace(terms, budget=ledger.budget, total=ledger.total)
    return compute_balance(terms, total, own=own, calendar=ledger.calendar)
