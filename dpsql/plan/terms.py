"""The terms of a session, worked out once from the policy: what may be spent, and what a query costs by default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from dpsql.accounting import ZCDP, ApproximateDP, Periods, rho_of_total, total_after
from dpsql.errors import PolicyError
from dpsql.policy import Analyst, Budget, Limits, Policy, PrivateTable
from dpsql.policy.analysts import UNLISTED
from dpsql.quantities import Delta, Epsilon

__all__ = ["CONVERSION_SHARE", "Sublimit", "Terms", "budget_of", "limit_of"]

CONVERSION_SHARE = Fraction(1, 2)  # of the total delta; the rest is the pool that queries draw from (`maths.md` 4)
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Sublimit:
    """What one analyst may spend of the total; `name` is that of the account, shared by all who give no name."""

    name: str
    budget: ZCDP


@dataclass(frozen=True, slots=True)
class Terms:
    """What the curator grants in all, as (epsilon, delta) and as the filter's rho and delta, and the defaults.

    `tables` are the policy's private tables by their names. `account` is the analyst's own limit, besides the total,
    which holds for everybody: as much as the total for a name without a limit, so that all that is kept of one who
    gives a name is kept apart; None for the unnamed without a limit. The defaults are the analyst's. With `periods`
    all of it is granted anew in each.
    """

    total: ApproximateDP
    budget: ZCDP
    epsilon: Epsilon
    delta: Delta
    limits: Limits
    tables: Mapping[str, PrivateTable]
    account: Sublimit | None = None
    periods: Periods | None = None

    @classmethod
    def of_policy(cls, policy: Policy, analyst: str | None = None) -> Self:
        """Work out the terms of an analyst, or of one who gives no name.

        Raises `Refusal` for an analyst who may not ask, and `PolicyError` for a limit that cannot buy what it is
        meant to buy.
        """
        grant, own = policy.budget, policy.analyst(analyst)
        if own is None:
            terms = cls.of_total(policy)
            return terms if analyst is None else replace(terms, account=Sublimit(analyst, terms.budget))
        account = Sublimit(analyst or UNLISTED, limit_of(own, grant))
        place = f"analysts.{analyst if analyst in policy.analysts else UNLISTED}"
        return cls._of(
            policy, account, items=own.items or grant.items, queries=own.queries or grant.queries, place=place
        )

    @classmethod
    def of_total(cls, policy: Policy) -> Self:
        """Work out the terms of whoever may spend all of the total; refuse one that cannot buy what it is meant to."""
        grant = policy.budget
        return cls._of(policy, None, items=grant.items, queries=grant.queries, place="budget")

    @classmethod
    def _of(cls, policy: Policy, account: Sublimit | None, *, items: int, queries: int, place: str) -> Self:
        total = ApproximateDP(policy.budget.epsilon, policy.budget.delta)
        budget = budget_of(total)
        limit = budget if account is None else account.budget
        epsilon = _per_item(limit.rho.value, items)
        if epsilon < policy.limits.min_epsilon.value:
            reason = f"The budget cannot buy {items} items of at least epsilon {policy.limits.min_epsilon}."
            hint = "Plan for fewer items, or grant a larger epsilon."
            raise PolicyError("policy-items", reason, hint=hint, place=policy.where(f"{place}.items"))
        return cls(
            total=total,
            budget=budget,
            epsilon=Epsilon(min(epsilon, policy.limits.max_epsilon.value)),
            delta=Delta(limit.delta.value / queries),
            limits=policy.limits,
            tables={name: table for name, table in policy.tables.items() if isinstance(table, PrivateTable)},
            account=account,
            periods=None if policy.budget.period is None else Periods(policy.budget.period, policy.budget.periods),
        )

    def after(self, periods: int) -> ApproximateDP | None:
        """Return what holds in all after so many periods, rounded up; None if nothing does."""
        return total_after(periods, self.total, budget=self.budget)


def limit_of(own: Analyst, grant: Budget) -> ZCDP:
    """Return an analyst's limit as the filter counts it; what they do not say is the total's."""
    return budget_of(ApproximateDP(own.epsilon or grant.epsilon, own.delta or grant.delta))


def budget_of(total: ApproximateDP) -> ZCDP:
    """Return a total as the filter counts it: half of delta pays for the conversion, half is for the queries."""
    pool = Delta(total.delta.value * (1 - CONVERSION_SHARE))
    conversion = Delta(total.delta.value * CONVERSION_SHARE)
    return ZCDP(rho_of_total(ApproximateDP(total.epsilon, conversion)), pool)


def _per_item(rho: Fraction, items: int) -> Fraction:
    """Return sqrt(8 rho / items) rounded down to four digits, so that `items` of them fit exactly."""
    square = 8 * rho / items
    if square <= 0:
        return Fraction(0)
    grid = Fraction(10) ** (_DIGITS - 1 - math.floor(math.log10(square) / 2))
    steps = math.isqrt(math.floor(square * grid * grid))
    return steps / grid
