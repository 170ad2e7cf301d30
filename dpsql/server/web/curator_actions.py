"""Views and actions of a curator: the policy, the spending of analysts, grants, and the check of the ledger.

They use the policy, the ledger and the telemetry; no private row is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.accounting import ApproximateDP, Periods, describe_periods
from dpsql.answer_json import encode_spending
from dpsql.curator import grant, read_spending, verify_ledger
from dpsql.errors import PolicyError, UsageError
from dpsql.policy import Budget
from dpsql.server.gateway import Gateway
from dpsql.server.users import User

if TYPE_CHECKING:
    from pathlib import Path

    from dpsql.ledger import Verified
    from dpsql.policy import DatabaseUrl
    from dpsql.report.spending import Spending

__all__ = ["Granted", "budget_asked", "find_ledger", "plain_spent", "raise_total", "spent", "verify"]

_LONGEST_NOTE = 500


@dataclass(frozen=True, slots=True)
class Granted:
    """A total that was raised: what it was, what it is, and in which periods it is granted now."""

    before: ApproximateDP
    now: ApproximateDP
    periods: Periods | None

    def plain(self) -> dict[str, object]:
        """Return it as values that JSON has."""
        return {
            "before": {"epsilon": float(self.before.epsilon), "delta": float(self.before.delta)},
            "now": {"epsilon": float(self.now.epsilon), "delta": float(self.now.delta)},
            "periods": None if self.periods is None else describe_periods(self.periods),
            "next": "Write the same total into the policy, and have the server read it again.",
        }


def find_ledger(gateway: Gateway) -> Path | DatabaseUrl:
    """Return the ledger's place; raise `PolicyError` for a policy without one."""
    place = gateway.service.policy.ledger
    if place is None:
        hint = 'Write ledger = "ledger.sqlite" at the top of the policy.'
        raise PolicyError("policy-ledger", "The policy names no ledger.", hint=hint, place="ledger")
    return place


def spent(gateway: Gateway) -> Spending:
    """Return who spent what, of the ledger as it is now."""
    find_ledger(gateway)
    return read_spending(gateway.service.policy)


def plain_spent(gateway: Gateway, *, last: int) -> dict[str, object]:
    """Return the same as values that JSON has, with the last queries."""
    spending = spent(gateway)
    return encode_spending(spending, spending.entries[-last:])


def verify(gateway: Gateway) -> Verified:
    """Compute the chain of all events again; raise `LedgerError` at the first thing that does not fit."""
    return verify_ledger(find_ledger(gateway))


def budget_asked(given: Mapping[str, object]) -> Budget:
    """Return the requested total; raise `PolicyError` or `UsageError` for an invalid one."""
    periods, period = given.get("periods"), given.get("period")
    if isinstance(periods, str) and periods:
        periods = int(periods) if periods.isascii() and periods.isdigit() and len(periods) < len("1000000") else 0
    return Budget(
        _amount(given.get("epsilon")),
        _amount(given.get("delta")),
        period=None if not isinstance(period, str) or not period else period,
        periods=int(periods) if isinstance(periods, int | float) else None,
    )


def raise_total(gateway: Gateway, user: User, *, given: Mapping[str, object]) -> Granted:
    """Raise the ledger's total, for good; the note says by whom. Raises as `dpsql.curator.grant`."""
    budget, note = budget_asked(given), str(given.get("note", "")).strip()
    if not note or len(note) > _LONGEST_NOTE or not note.isprintable():
        hint = "In one line, such as: agreed on 12 May, for the survey of the spring."
        raise UsageError("grant-note", f"A grant has a note of 1 to {_LONGEST_NOTE} printable characters.", hint=hint)
    before, periods = grant(find_ledger(gateway), budget, note=f"{note} (by {user.name}, on the page)")
    gateway.telemetry.log("granted", surface="web", user=user.name)
    return Granted(before, ApproximateDP(budget.epsilon, budget.delta), periods)


def _amount(value: object) -> float | str:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value or "").strip()
