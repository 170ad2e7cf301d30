"""Spending by account: of all accounts for curators, of their own for an analyst."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpsql.accounting import BudgetState, BudgetVector
from dpsql.ledger.base import Entry
from dpsql.ledger.base import sum_entries as state_of
from dpsql.ledger.calendar import Calendar
from dpsql.plan.terms import Terms, compute_limit
from dpsql.policy import Policy
from dpsql.policy.limits import UNLISTED
from dpsql.report.balance import Balance, compute_balance

__all__ = ["Spender", "Spending", "report_spending"]


@dataclass(frozen=True, slots=True)
class Spender:
    """Spent and reserved amounts of an account, None for unnamed analysts; `limit` is None if it may run no query."""

    name: str | None
    limit: BudgetVector | None
    state: BudgetState


@dataclass(frozen=True, slots=True)
class Spending:
    """The balance, the accounts that make it up, and all queries, oldest first."""

    balance: Balance
    spenders: tuple[Spender, ...]
    entries: tuple[Entry, ...]


def report_spending(
    policy: Policy, entries: Sequence[Entry], *, terms: Terms, calendar: Calendar | None = None
) -> Spending:
    """Return what the entries of a ledger add up to: for an analyst their own, on the terms of the total all of it.

    With a `calendar` the sums are those of its present period; the entries are those of all.
    """
    present = [entry for entry in entries if calendar is None or entry.period == calendar.number]
    over = calendar is not None and calendar.is_over
    total = BudgetState(terms.budget.refundable, terms.budget.permanent) if over else state_of(present)
    if terms.account is None:
        balance = compute_balance(terms, total, calendar=calendar)
        return Spending(balance, tuple(_spenders(policy, present, terms=terms)), tuple(entries))
    name, limit = terms.account.name, terms.account.budget
    state = state_of(present, name)
    balance = compute_balance(terms, total, own=state, calendar=calendar)
    return Spending(balance, (Spender(name, limit, state),), tuple(entry for entry in entries if entry.account == name))


def _spenders(policy: Policy, entries: Sequence[Entry], *, terms: Terms) -> Iterator[Spender]:
    """Yield the accounts that may spend, and those that have spent."""
    asked = dict.fromkeys(entry.account for entry in entries)
    may = [name for name, analyst in policy.analysts.items() if analyst.enabled and name != UNLISTED]
    for name in dict.fromkeys([*may, *asked]):
        state = state_of(entry for entry in entries if entry.account == name)
        own = None if name is None else policy.analysts.get(name, policy.analysts.get(UNLISTED))
        limit = terms.budget if own is None else compute_limit(own, policy.budget)
        yield Spender(name, limit if own is None or own.enabled else None, state)
