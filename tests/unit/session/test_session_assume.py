"""EXPLAIN on a guess of the counts: whatever is guessed, it is an answer, and one that is soon there."""

from __future__ import annotations

import pytest
from support.session_kit import rebuilt, session_on, shared

import dpsql
from dpsql.mechanisms import OperatingSystemNoise
from dpsql.plan import build_plan
from dpsql.session import Session
from dpsql.sql.ir.statements import PrivateQuery

CREATE = "CREATE TABLE reads (user_id BIGINT, article VARCHAR)"
LONG = "CREATE TABLE long AS SELECT CASE WHEN i < 150000 THEN 1 ELSE 1000 END AS n FROM range(150003) t(i)"
HUGE = "CREATE TABLE huge AS SELECT unnest([9223372036854775807, 9007199254740991, 7, 0, -5, NULL]) AS n"
ASKED = (
    "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (assume = '{guess}', max_groups_contributed = 20)"
)


class CountedNoise:
    """The noise of the system, and how many bytes of it were drawn."""

    def __init__(self) -> None:
        self._noise = OperatingSystemNoise()
        self.drawn = 0

    def draw(self, count: int) -> bytes:
        self.drawn += count
        return self._noise.draw(count)


@pytest.fixture
def session() -> Session:
    tables: dict[str, dpsql.PrivateTable | dpsql.PublicTable] = {
        "reads": dpsql.PrivateTable("user_id"),
        "huge": dpsql.PublicTable(),
        "long": dpsql.PublicTable(),
    }
    return session_on(shared(CREATE, HUGE, LONG), dpsql.Policy(dpsql.Budget(4, "1e-2"), tables))


def test_counts_beyond_any_table_are_a_guess_like_others(session: Session) -> None:
    plan = session.explain(ASKED.format(guess="huge.n"))
    assert len(plan.considered) > 3
    assert all(each.recall is not None and 0.5 < each.recall <= 1 for each in plan.considered)


def test_a_hundred_thousand_groups_take_no_more_noise_than_a_few_thousand(session: Session) -> None:
    drawn = []
    for guess in ("zipf(0, 1000000)", "zipf(1, 5000)"):
        noise = CountedNoise()
        rebuilt(session, noise=noise).explain(ASKED.format(guess=guess))
        drawn.append(noise.drawn)
    flat, usual = drawn
    assert 0 < usual < flat < 30_000_000


@pytest.mark.parametrize(
    ("k", "epsilon", "bound"),
    [(1000, 1, 50), (1000, 20, 10), (10, 1, 5)],
    ids=["only discovery takes it besides", "Laplace needs fewer units", "usual"],
)
def test_explain_names_the_mechanism_that_answers(k: int, epsilon: int, bound: int) -> None:
    policy = dpsql.Policy(
        dpsql.Budget(100, "0.9"), {"reads": dpsql.PrivateTable("user_id")}, limits=dpsql.Limits(max_epsilon=20)
    )
    session = session_on(shared(CREATE), policy)
    sql = (
        f"SELECT article FROM reads GROUP BY article TOP {k} PRIVATE "
        f"WITH (epsilon = {epsilon}, delta = 1e-9, max_groups_contributed = {bound})"
    )
    question = session._analyze(sql, ())
    assert isinstance(question, PrivateQuery)
    assert session.explain(sql).mechanism == build_plan(question, session.terms, salts=(1, 2)).mechanism
