"""The terms of a session, worked out once from the policy: what may be spent, and what a query costs by default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from dpsql.accounting import ZCDP, ApproximateDP, rho_of_total
from dpsql.errors import PolicyError
from dpsql.policy import Limits, Policy, PrivateTable
from dpsql.quantities import Delta, Epsilon

__all__ = ["CONVERSION_SHARE", "Terms", "budget_of"]

CONVERSION_SHARE = Fraction(1, 2)  # of the total delta; the rest is the pool that queries draw from (`maths.md` 4)
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Terms:
    """What the curator grants in all, as (epsilon, delta) and as the filter's rho and delta, and the defaults.

    `tables` are the policy's private tables by their names.
    """

    total: ApproximateDP
    budget: ZCDP
    epsilon: Epsilon
    delta: Delta
    limits: Limits
    tables: Mapping[str, PrivateTable]

    @classmethod
    def of_policy(cls, policy: Policy) -> Self:
        """Work out the terms; refuse a policy whose budget cannot buy what it is meant to buy."""
        grant = policy.budget
        total = ApproximateDP(grant.epsilon, grant.delta)
        budget = budget_of(total)
        epsilon = _per_item(budget.rho.value, grant.items)
        if epsilon < policy.limits.min_epsilon.value:
            reason = f"The budget cannot buy {grant.items} items of at least epsilon {policy.limits.min_epsilon}."
            hint = "Plan for fewer items, or grant a larger epsilon."
            raise PolicyError("policy-items", reason, hint=hint, place=policy.where("budget.items"))
        return cls(
            total=total,
            budget=budget,
            epsilon=Epsilon(min(epsilon, policy.limits.max_epsilon.value)),
            delta=Delta(budget.delta.value / grant.queries),
            limits=policy.limits,
            tables={name: table for name, table in policy.tables.items() if isinstance(table, PrivateTable)},
        )


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
