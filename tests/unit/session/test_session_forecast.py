"""How many more such queries fit, told before one is paid for, is how many are then answered."""

from __future__ import annotations

import duckdb
import pytest
from support.session_kit import PRIVATE, filled, values_rows

import dpsql

ASK = (
    "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE "
    "WITH (epsilon = 0.04, delta = 1e-8, fresh = true, mechanism = limited_domain)"
)
GIANTS = {"a": 3000, "b": 2000, "c": 1500, "d": 10}


@pytest.fixture
def reads() -> duckdb.DuckDBPyConnection:
    return filled(*values_rows(GIANTS))


def opened(connection: duckdb.DuckDBPyConnection, *, analyst: str | None = None) -> dpsql.Session:
    analysts = {"alice": dpsql.Analyst(0.3)}
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), PRIVATE, analysts=analysts)
    return dpsql.connect(connection, policy=policy, ledger=":memory:", analyst=analyst)


def answered(session: dpsql.Session) -> int:
    """Ask until the budget is short, and return how often there was an answer."""
    count = 0
    while True:
        try:
            session.sql(ASK)
        except dpsql.BudgetExceeded:
            return count
        count += 1


@pytest.mark.parametrize("analyst", [None, "alice"])
def test_as_many_are_answered_as_were_told(reads: duckdb.DuckDBPyConnection, analyst: str | None) -> None:
    with opened(reads, analyst=analyst) as session:
        told = session.forecast(ASK, times=30)
        # three giants come back each time, so every query costs its worst case
        assert answered(session) == told.at_worst > 1
        assert told.fits == (told.at_worst >= 30)
        assert session.forecast(ASK).at_worst == session.forecast(ASK).at_half == 0


def test_it_charges_nothing_and_says_what_one_query_less_leaves(reads: duckdb.DuckDBPyConnection) -> None:
    with opened(reads) as session:
        before = session.forecast(ASK)
        assert session.budget.rho.spent == session.budget.rho.reserved == 0
        session.sql(ASK)
        assert session.forecast(ASK).at_worst == before.at_worst - 1
        assert session.forecast(ASK).remaining == session.budget.remaining


def test_an_analyst_is_told_the_lesser_of_the_own_limit_and_the_total(reads: duckdb.DuckDBPyConnection) -> None:
    with opened(reads) as everybody, opened(reads, analyst="alice") as alice:
        assert 0 < alice.forecast(ASK).at_worst < everybody.forecast(ASK).at_worst


def test_explain_tells_it_too(reads: duckdb.DuckDBPyConnection) -> None:
    with opened(reads) as session:
        more = ASK.replace("TOP 3", "TOP 5")
        told = session.forecast(more)
        rows = dict(session.sql(f"EXPLAIN {more}").fetchall())
        line = f"{told.at_worst} fit at the worst, {told.at_half} if half of the items come back"
        assert rows["such queries"] == line
        assert told.at_half > told.at_worst


def test_parameters_are_bound(reads: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT article FROM reads WHERE article <> ? GROUP BY article TOP ? PRIVATE WITH (delta = 1e-9)"
    with opened(reads) as session:
        assert session.forecast(sql, ["d", 1], times=2).at_worst > session.forecast(sql, ["d", 3]).at_worst


def test_what_costs_nothing_has_no_forecast(reads: duckdb.DuckDBPyConnection) -> None:
    with opened(reads) as session, pytest.raises(dpsql.Refusal, match=r"\[not-a-query\]"):
        session.forecast("SHOW BUDGET")
