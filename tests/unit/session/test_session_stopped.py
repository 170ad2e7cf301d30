"""An analyst of whose queries the engine failed too many within a day is refused; what is free stays free."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.session_kit import COUNTS, NAMES, PRIVATE, rebuilt, shared, values_rows

import dpsql
from dpsql.engines import Exact, Statement
from dpsql.pate import Majority, label
from dpsql.session import Session

FRESH = NAMES.replace("epsilon", "fresh = true, epsilon")
BUDGET = dpsql.Budget(20, "1e-6")
VOTES = ("CREATE TABLE votes (teacher BIGINT, example BIGINT, label VARCHAR)", "INSERT INTO votes VALUES (1, 1, 'x')")
TABLES = {**PRIVATE, "votes": dpsql.PrivateTable("teacher")}


def opened(ledger: str | Path = ":memory:", analyst: str | None = None, **limits: int) -> Session:
    known = dpsql.Policy(BUDGET, TABLES, limits=dpsql.Limits(**limits))  # type: ignore[arg-type]
    connection = shared(*values_rows({"a": 900, "b": 800}), *VOTES)
    return dpsql.connect(connection, policy=known, ledger=ledger, analyst=analyst)


def failing(_statement: Statement, _execute: Callable[[Statement], Exact]) -> Exact:
    raise dpsql.EngineError("any", "Words.", hint="None.")


def unasked(_statement: Statement, _execute: Callable[[Statement], Exact]) -> Exact:
    pytest.fail("the engine was asked")


def fail(session: Session, times: int) -> None:
    broken = rebuilt(session, engine=failing)
    for _ in range(times):
        with pytest.raises(dpsql.EngineError):
            broken.sql(FRESH)


def assert_stopped(session: Session, sql: str = FRESH) -> None:
    before = session.budget.rho, session.history.num_rows
    with pytest.raises(dpsql.Refusal) as caught:
        rebuilt(session, engine=unasked).sql(sql)
    assert caught.value.code == "too-many-failures"
    assert (session.budget.rho, session.history.num_rows) == before


def test_three_failures_are_the_last_and_nothing_is_read_or_charged_any_more() -> None:
    with opened() as session:
        fail(session, 2)
        assert len(session.sql(FRESH)) == 2
        fail(session, 1)
        assert_stopped(session)
        assert_stopped(session, COUNTS)


def test_what_is_free_is_answered_all_the_same() -> None:
    with opened() as session:
        session.sql(COUNTS)
        fail(session, 3)
        assert session.sql(COUNTS).receipt.replayed
        for text in ("SHOW BUDGET", "SHOW TABLES", f"EXPLAIN {NAMES}", f"{NAMES} LIMIT 0"):
            session.sql(text)
        assert_stopped(session)


def test_the_policy_says_how_many() -> None:
    with opened(failures_per_day=1) as session:
        fail(session, 1)
        assert_stopped(session)
    with opened(failures_per_day=6) as session:
        fail(session, 5)
        session.sql(NAMES)


def test_another_session_is_stopped_too_and_another_analyst_is_not(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    with opened(ledger, "alice") as first, opened(ledger, "alice") as second, opened(ledger, "bob") as other:
        fail(first, 2)
        fail(second, 1)
        assert_stopped(first)
        assert_stopped(second)
        other.sql(NAMES)
    with opened(ledger, "alice") as later:
        assert_stopped(later)


def test_failures_on_votes_count_and_labels_stop_as_queries_do() -> None:
    with opened() as session:
        with pytest.raises(dpsql.EngineError):
            label(
                rebuilt(session, engine=failing),
                "votes",
                examples=[1],
                method=Majority(dpsql.Epsilon("0.5"), ("x",), 9),
            )
        fail(session, 2)
        with pytest.raises(dpsql.Refusal, match="too-many-failures"):
            label(
                rebuilt(session, engine=unasked),
                "votes",
                examples=[1],
                method=Majority(dpsql.Epsilon("0.5"), ("x",), 9),
            )
        assert_stopped(session)
