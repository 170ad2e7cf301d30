"""Who spent what of a ledger: for curators, of all accounts; for an analyst, of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpsql.accounting import ZCDP, FilterState
from dpsql.ledger.base import Entry
from dpsql.ledger.base import balance_of as state_of
from dpsql.plan.balance import Balance, balance_of
from dpsql.plan.terms import Terms, limit_of
from dpsql.policy import Policy
from dpsql.policy.analysts import UNLISTED

__all__ = ["Spender", "Spending", "spending"]


@dataclass(frozen=True, slots=True)
class Spender:
    """An account, None for whoever gave no name, and what it has spent and holds; `limit` is None if it may not ask."""

    name: str | None
    limit: ZCDP | None
    state: FilterState


@dataclass(frozen=True, slots=True)
class Spending:
    """The balance, the accounts that it is made of, and what was asked, oldest first."""

    balance: Balance
    spenders: tuple[Spender, ...]
    entries: tuple[Entry, ...]


def spending(policy: Policy, entries: Sequence[Entry], *, terms: Terms) -> Spending:
    """Return what the entries of a ledger add up to: for an analyst their own, on the terms of the total all of it."""
    if terms.account is not None:
        name, limit = terms.account.name, terms.account.budget
        own = tuple(entry for entry in entries if entry.account == name)
        balance = balance_of(terms, state_of(entries), own=state_of(own))
        return Spending(balance, (Spender(name, limit, state_of(own)),), own)
    return Spending(
        balance_of(terms, state_of(entries)), tuple(_spenders(policy, entries, terms=terms)), tuple(entries)
    )


def _spenders(policy: Policy, entries: Sequence[Entry], *, terms: Terms) -> Iterator[Spender]:
    """Yield who may spend by name, and whoever has spent."""
    asked = dict.fromkeys(entry.account for entry in entries)
    may = [name for name, analyst in policy.analysts.items() if analyst.enabled and name != UNLISTED]
    for name in dict.fromkeys([*may, *asked]):
        state = state_of(entry for entry in entries if entry.account == name)
        own = None if name is None else policy.analysts.get(name, policy.analysts.get(UNLISTED))
        limit = terms.budget if own is None else limit_of(own, policy.budget)
        yield Spender(name, limit if own is None or own.enabled else None, state)
