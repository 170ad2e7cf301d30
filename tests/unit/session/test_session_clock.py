"""The clock of a session: what it reads is part of the question, so a question lasts as long as its constant."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from support.session_kit import session_on, shared

from dpsql.errors import Refusal
from dpsql.session import Session

NOON = datetime(2026, 4, 29, 12, 0, 0)  # noqa: DTZ001 - in UTC, as DuckDB's TIMESTAMP
LATER = NOON.replace(minute=40)


def session_at(moment: list[datetime]) -> Session:
    rows = "INSERT INTO reads SELECT i, 'a', TIMESTAMP '2026-04-29 11:50:00' FROM range(5000) AS t(i)"
    session = session_on(shared("CREATE TABLE reads (user_id BIGINT, article VARCHAR, ts TIMESTAMP)", rows))
    return Session(replace(session._dependencies, clock=lambda: moment[0]))


def asking(condition: str) -> str:
    return f"SELECT article FROM reads WHERE {condition} GROUP BY article TOP 3 PRIVATE WITH (epsilon = 0.05)"


def test_the_condition_is_that_of_the_moment() -> None:
    moment = [NOON]
    session = session_at(moment)
    assert session.sql(asking("ts > now() - INTERVAL 1 HOUR")).arrow().num_rows == 1
    moment[0] = NOON.replace(hour=14)
    assert session.sql(asking("ts > now() - INTERVAL 1 HOUR")).arrow().num_rows == 0


@pytest.mark.parametrize(
    ("condition", "replayed"),
    [
        ("ts < now()", False),
        ("ts < now() + INTERVAL 1 DAY", False),
        ("ts < date_trunc('hour', now())", True),
        ("ts >= current_date", True),
    ],
)
def test_what_is_rounded_is_the_same_question_until_it_moves(condition: str, *, replayed: bool) -> None:
    moment = [NOON]
    session = session_at(moment)
    first = session.sql(asking(condition)).receipt
    moment[0] = LATER
    second = session.sql(asking(condition)).receipt
    assert not first.replayed
    assert second.replayed is replayed
    assert (second.loss == session.sql(asking(condition)).receipt.loss) is replayed  # which is that of a repetition


def test_replay_of_another_moment_does_not_charge() -> None:
    moment = [NOON]
    session = session_at(moment)
    first, before = session.sql(asking("ts < now()")), session.budget
    assert session.replay(asking("ts < now()")).fetchall() == first.fetchall()
    moment[0] = LATER
    with pytest.raises(Refusal, match="no stored answer"):
        session.replay(asking("ts < now()"))
    assert session.budget == before
