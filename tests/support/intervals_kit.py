"""Confidence intervals of counted outcomes, and sessions that are asked many times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from fractions import Fraction

from scipy import stats

from dpsql.engines import Statement
from dpsql.ledger import MemoryLedger, Request
from dpsql.plan import release
from dpsql.session import Session

ERROR = 1e-6


CHARGED = 100  # runs whose loss a ledger takes, to which they are all alike


SQL = (
    "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE "
    "WITH (mechanism = limited_domain, epsilon = 1, delta = 0.1, k_bar = 2)"
)


Outcomes = Counter[Hashable]


def outcomes(session: Session, runs: int, sql: str = SQL, *, values: int = 0) -> Outcomes:
    """Return how often which labels were released: parsed and read once.

    Of each label so many `values` are released, at an item each. The first runs have a ledger of their own each.
    """
    parts = session._dependencies
    plan = session.explain(sql)
    exact = parts.engine.execute(Statement(plan.counting.sql, plan.counting.parameters))
    seen: Outcomes = Counter()
    for run in range(runs):
        released = release(plan, exact, noise=parts.noise, execute=parts.engine.execute)
        if run < CHARGED:
            ledger = MemoryLedger(parts.terms.budget, total=parts.terms.total)
            ledger.reserve(Request(sql, plan.price(plan.worst_case))).settle(released.loss.rho.value, "")
            assert ledger.state().spent == Fraction(released.items_charged, 8)
        labels = released.table.column(0).to_pylist()
        assert released.loss.rho.value == Fraction(released.items_charged, 8)
        assert released.items_charged == len(labels) * (1 + values) + released.stopped_at_bottom
        seen[tuple(labels)] += 1
    return seen


def interval(successes: int, runs: int, error: float = ERROR) -> tuple[float, float]:
    """Return Clopper and Pearson's two-sided interval."""
    low = stats.beta.ppf(error / 2, successes, runs - successes + 1) if successes else 0.0
    high = stats.beta.ppf(1 - error / 2, successes + 1, runs - successes) if successes < runs else 1.0
    return float(low), float(high)


def agrees(seen: Outcomes, expected: float) -> bool:
    """Say whether the share of runs that released any label may be the one expected."""
    runs = seen.total()
    low, high = interval(runs - seen[()], runs)
    return low <= expected <= high
