"""Budgets that are nearly used, and the hints that say what still fits."""

from __future__ import annotations

import re
from fractions import Fraction

import duckdb
import pytest
from support.session_kit import PRIVATE, fresh_ledger, rebuilt, session_on, shared, values_rows

import dpsql
from dpsql.accounting import BudgetVector
from dpsql.ledger import Request
from dpsql.session import Session

CONNECTION = shared(*values_rows({}))


POLICY = dpsql.Policy(dpsql.Budget(1, "1e-6"), PRIVATE)


SHAPES = {
    "names": "SELECT article FROM reads GROUP BY article",
    "counts": "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article",
}


TOP = re.compile(r"TOP (\d+) PRIVATE(?: WITH \((delta = [^)]+)\))? at this epsilon")


WITH = re.compile(r"WITH \((?:epsilon = ([^,)]+))?(?:, )?(delta = [^)]+)?\)(?: for these (\d+))? would fit")


def left_with(
    rho: Fraction,
    delta: Fraction,
    policy: dpsql.Policy = POLICY,
    connection: duckdb.DuckDBPyConnection = CONNECTION,
) -> Session:
    """Return a session of which so much is left."""
    session = session_on(connection, policy)
    ledger = fresh_ledger(session)
    gone = BudgetVector(ledger.budget.rho.value - rho, ledger.budget.delta.value - delta)
    ledger.reserve(Request("earlier", gone)).settle(gone.refundable, "")
    return rebuilt(session, ledger=ledger)


def asked(shape: str, k: int, *options: str) -> str:
    inside = ", ".join(option for option in options if option)
    return f"{SHAPES[shape]} TOP {k} PRIVATE" + (f" WITH ({inside})" if inside else "")


def fitting(hint: str, shape: str, k: int, *others: str) -> list[str]:
    """Return the queries that the hint says would fit."""
    queries = []
    epsilon = next((option for option in others if option.startswith("epsilon")), "")
    rest = [option for option in others if option and not option.startswith(("epsilon", "delta"))]
    delta = next((option for option in others if option.startswith("delta")), "")
    if found := TOP.search(hint):
        queries.append(asked(shape, int(found[1]), epsilon, found[2] or delta, *rest))
    if found := WITH.search(hint):
        smaller = f"epsilon = {found[1]}" if found[1] else epsilon
        queries.append(asked(shape, int(found[3] or k), smaller, found[2] or delta, *rest))
    return queries


def hint_of(session: Session, sql: str) -> str:
    before = session.budget
    with pytest.raises(dpsql.BudgetExceeded) as caught:
        session.sql(sql)
    assert caught.value.code == "budget-exceeded"
    assert type(caught.value) is dpsql.BudgetExceeded
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert session.budget == before
    return caught.value.hint


def assert_fits(session: Session, sql: str) -> None:
    ledger = fresh_ledger(session)
    state = session._dependencies.ledger.state()
    spent = BudgetVector(state.spent, state.permanent)
    ledger.reserve(Request("earlier", spent)).settle(state.spent, "")
    rebuilt(session, ledger=ledger).sql(sql)


ITEM = Fraction("0.05") ** 2 / 8


POOL = Fraction(1, 2 * 10**6)
