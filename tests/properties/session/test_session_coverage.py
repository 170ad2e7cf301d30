"""Intervals of released counts hold the exact count or, under a bound, the bounded one, as often as they say.

Every mechanism that returns counts is asked through SQL. The rows are far from the thresholds: a count that was chosen
because its noise is large leans upwards, which the page on mechanisms says of those that choose by the same noise.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scipy import stats
from support.groups_kit import counted
from support.session_kit import session_on, shared

import dpsql
from dpsql.plan.mechanisms.choice import list_records
from dpsql.plan.mechanisms.record import QueryKind
from dpsql.session import Session

LABELS = "abcdef"
CREATE = "CREATE TABLE reads (user_id BIGINT, article VARCHAR)"
# 3,000 users: everybody is in a, half in b, a third in c, and so on; 900 of them are in all six
FILL = (
    "INSERT INTO reads SELECT u, chr((97 + g)::INTEGER) FROM range(3000) users(u), range(6) groups(g) "
    "WHERE u < 900 OR u % (g + 1) = 0"
)
QUERY = (
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article "
    "TOP 3 PRIVATE WITH ({options}epsilon = 0.5, fresh = true)"
)
DOMAIN = "domain = ['a', 'b', 'c', 'd', 'e', 'f'], "
BOUNDED = {
    "what auto chooses for a domain": DOMAIN,
    **{each.name: f"mechanism = {each.name}, " for each in list_records(QueryKind.UNKNOWN)},
    **{each.name: f"{DOMAIN}mechanism = {each.name}, " for each in list_records(QueryKind.KNOWN)},
}
UNBOUNDED = BOUNDED.keys() - {"gaussian_histogram", "laplace_limited_domain"}  # which need a bound
RUNS = 40


@pytest.fixture
def session() -> Iterator[Session]:
    policy = dpsql.Policy(
        dpsql.Budget(100, "0.5", queries=1000),
        {"reads": dpsql.PrivateTable("user_id")},
        limits=dpsql.Limits(max_epsilon=1),
    )
    with session_on(shared(CREATE, FILL), policy) as opened:
        yield opened


def exact_counts(session: Session, sql: str) -> dict[str, int]:
    """Return the counts that the engine returns for the query, bounded as the query says."""
    return {str(row[0]): int(str(row[1])) for row in counted(session, session.explain(sql))}


def misses(session: Session, sql: str, exact: dict[str, int]) -> tuple[int, int]:
    """Return how many intervals there were in all runs, and how many do not hold the exact count."""
    found = [
        (row["low"] <= exact[row["article"]] <= row["high"])
        for _ in range(RUNS)
        for row in session.sql(sql).intervals().to_pylist()
    ]
    return len(found), found.count(False)


def assert_covered(number: int, missed: int) -> None:
    assert number >= RUNS
    assert missed <= stats.binom.isf(1e-8, number, 0.05)


@pytest.mark.parametrize("mechanism", sorted(UNBOUNDED))
def test_without_a_bound_the_exact_count_is_covered(session: Session, mechanism: str) -> None:
    sql = QUERY.format(options=BOUNDED[mechanism])
    exact = {label: 900 + sum(user % (at + 1) == 0 for user in range(900, 3000)) for at, label in enumerate(LABELS)}
    answer = session.sql(sql)
    assert (answer.bounded_by, answer.bound_note) == (None, "")
    assert_covered(*misses(session, sql, exact))


@pytest.mark.parametrize("mechanism", BOUNDED)
def test_under_a_bound_the_bounded_count_is_covered_and_the_answer_says_so(session: Session, mechanism: str) -> None:
    sql = QUERY.format(options=f"{BOUNDED[mechanism]}max_groups_contributed = 2, ")
    answer = session.sql(sql)
    assert answer.bounded_by == 2
    assert answer.bound_note == "each user counted in at most 2 groups: true counts can be higher"
    exact = exact_counts(session, sql)
    assert exact["a"] < 3000
    assert_covered(*misses(session, sql, exact))
