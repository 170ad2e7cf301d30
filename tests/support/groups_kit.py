"""Sessions over small sets of groups, and the laws of what they release."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from support.looks_kit import execute_once
from support.session_kit import session_on, shared

import dpsql
from dpsql.engines import Exact, Statement
from dpsql.engines.base import open_exact
from dpsql.plan import Plan, Release, release
from dpsql.session import Session

CREATE = "CREATE TABLE reads (user_id BIGINT, article VARCHAR)"


NAMES = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (epsilon = 1, delta = 0.1{more})"


COUNTS = NAMES.replace("SELECT article", "SELECT article, COUNT(DISTINCT user_id) AS n")


LABELS = ("a", "b", None)


LEVELS = (0.1, 0.5, 1.0, 2.0, 4.0, 24.0)


Unit = tuple[str | None, ...]


Law = npt.NDArray[np.float64]


def session_over(*statements: str, budget: str = "0.5", **bounds: int) -> Session:
    table = dpsql.PrivateTable("user_id", **bounds)
    policy = dpsql.Policy(dpsql.Budget(10, budget), {"reads": table}, limits=dpsql.Limits(max_epsilon=1))
    return session_on(shared(CREATE, *statements), policy)


def rows_of(units: Sequence[Unit]) -> list[str]:
    """Return statements that fill in the units, each row twice."""
    rows = [(number, label) for number, unit in enumerate(units) for label in unit for _ in range(2)]
    values = ", ".join(f"({number}, {'NULL' if label is None else repr(label)})" for number, label in rows)
    return [f"INSERT INTO reads VALUES {values}"] if rows else []


def exact_of(session: Session, plan: Plan) -> Exact:
    return session._dependencies.engine.execute(Statement(plan.counting.sql, plan.counting.parameters))


def counted(session: Session, plan: Plan) -> list[tuple[object, ...]]:
    """Return the rows that the engine returns to the mechanism, without the number of units that counts share."""
    table = open_exact(exact_of(session, plan))
    columns = table.columns[: table.num_columns - plan.counting.has_total]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def drawn(session: Session, plan: Plan, runs: int) -> Iterator[Release]:
    exact, execute = exact_of(session, plan), execute_once(session)
    return (release(plan, exact, noise=session._dependencies.noise, execute=execute) for _ in range(runs))


def stick(p: Law, q: Law, level: float) -> float:
    return float(np.maximum(0.0, p - math.exp(level) * q).sum())
