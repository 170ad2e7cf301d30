"""Counts of the candidates of a known domain."""

from __future__ import annotations

from dpsql.engines import Statement, open_exact
from dpsql.session import Session


def exact_counts(session: Session, sql: str) -> dict[str, int]:
    """Return what the mechanism is given."""
    plan = session.explain(sql)
    exact = session._dependencies.engine.execute(Statement(plan.counting.sql, plan.counting.parameters))
    table = open_exact(exact)
    return dict(zip(*(column.to_pylist() for column in table.columns[:2]), strict=True))
