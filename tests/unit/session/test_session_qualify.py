"""QUALIFY over a ranked prefix: the top of each partition, in standard SQL, where the text has the partitions.

It is the statement with PER written out: the same release, and the same stored answer.
"""

from __future__ import annotations

import pytest
from support.session_kit import seeded, session_on, shared

import dpsql
from dpsql.session import Session

CREATE = "CREATE TABLE reads (user_id BIGINT, country VARCHAR, article VARCHAR, is_web BOOLEAN)"
ROWS = (  # articles of a country have 1600 : 800 : 400 : 200 : 100 users
    "INSERT INTO reads SELECT u, ['DE', 'FR', 'US'][1 + u % 3], 'a' || length(bin(31 & ~(u // 3 % 31))), u % 2 = 0 "
    "FROM range(9300) t(u)"
)
POLICY = dpsql.Policy(dpsql.Budget(100, "1e-6"), {"reads": dpsql.PrivateTable("user_id")}, implicit=True)
COUNTED = "SELECT country, article, COUNT(DISTINCT user_id) AS n FROM reads"
TWO = "WHERE country IN ('DE', 'FR') GROUP BY country, article"
RANK = "OVER (PARTITION BY country ORDER BY COUNT(DISTINCT user_id) DESC)"
PER = f"{COUNTED} {TWO} TOP 3 PRIVATE PER country WITH (partitions = ['DE', 'FR'])"


@pytest.fixture
def session() -> Session:
    return session_on(shared(CREATE, ROWS), POLICY)


@pytest.mark.parametrize("function", ["ROW_NUMBER()", "RANK()", "DENSE_RANK()"])
@pytest.mark.parametrize("test", ["{} <= 3", "{} < 4", "3 >= {}"])
def test_it_is_the_statement_with_per(session: Session, function: str, test: str) -> None:
    text = f"{COUNTED} {TWO} QUALIFY {test.format(f'{function} {RANK}')}"
    written = session.sql(PER)
    answer = session.sql(text)
    assert sorted(answer.fetchall()) == sorted(written.fetchall())
    assert len(answer) == 6
    assert answer.receipt.replayed
    assert answer.receipt.read_as == "TOP 3 PRIVATE PER country"
    plan = session.explain(text)
    assert plan.worst_case == session.explain(PER).worst_case


@pytest.mark.parametrize(
    "qualify",
    [
        f"QUALIFY ROW_NUMBER() {RANK} = 1",
        f"QUALIFY RANK() {RANK} <= 2 AND n > 500 ORDER BY country, n DESC",
        "QUALIFY RANK() OVER w <= 2 ORDER BY n DESC",
        f"QUALIFY RANK() {RANK} <= 2 LIMIT 1000",
    ],
)
def test_the_rows_are_those_of_sql(session: Session, qualify: str) -> None:
    window = "WINDOW w AS (PARTITION BY country ORDER BY COUNT(DISTINCT user_id) DESC) " if "OVER w" in qualify else ""
    text = f"{COUNTED} {TWO} {window}{qualify}"
    found = seeded(session, 5).sql(text).fetchall()
    wanted = shared(CREATE, ROWS).execute(text).fetchall()
    assert sorted(row[:2] for row in found) == sorted(row[:2] for row in wanted)
    assert wanted


def test_a_rank_of_the_select_list_has_its_alias(session: Session) -> None:
    text = f"SELECT country, article, RANK() {RANK} AS place, COUNT(DISTINCT user_id) AS n FROM reads {TWO}"
    found = seeded(session, 5).sql(f"{text} QUALIFY place <= 2 ORDER BY country, place").fetchall()
    assert [(country, place) for country, _, place, _ in found] == [("DE", 1), ("DE", 2), ("FR", 1), ("FR", 2)]


def test_truth_values_are_partitions_without_null(session: Session) -> None:
    text = "SELECT is_web, article, COUNT(DISTINCT user_id) AS n FROM reads WHERE is_web IS NOT NULL GROUP BY 1, 2"
    qualify = "QUALIFY ROW_NUMBER() OVER (PARTITION BY is_web ORDER BY COUNT(DISTINCT user_id) DESC) <= 1"
    found = seeded(session, 5).sql(f"{text} {qualify}").fetchall()
    assert sorted(row[0] for row in found) == [False, True]


@pytest.mark.parametrize(
    "text",
    [
        f"{COUNTED} GROUP BY country, article QUALIFY RANK() {RANK} <= 3",  # the text has no values of country
        f"{COUNTED} {TWO} QUALIFY RANK() {RANK} <= 3 OR n > 10",  # others pass this, too
        f"{COUNTED} {TWO} QUALIFY NOT RANK() {RANK} <= 3",
        f"{COUNTED} {TWO} QUALIFY RANK() {RANK} > 3",
        f"{COUNTED} WHERE country IN ('DE', NULL) GROUP BY country, article QUALIFY RANK() {RANK} <= 3",
        f"{COUNTED} {TWO} QUALIFY RANK() OVER (PARTITION BY country ORDER BY COUNT(DISTINCT user_id)) <= 3",
        f"{COUNTED} {TWO} QUALIFY RANK() OVER (PARTITION BY country, article ORDER BY n DESC) <= 3",
        f"{COUNTED} {TWO} QUALIFY RANK() {RANK} <= 3 TOP 10 PRIVATE",
    ],
)
def test_what_the_first_of_each_partition_do_not_decide_stays_refused(session: Session, text: str) -> None:
    with pytest.raises(dpsql.Error) as refused:
        session.sql(text)
    assert refused.value.code == "window"
    assert refused.value.hint
    assert session.budget.rho.spent == 0


def test_explicit_sessions_read_no_clause_into_it(session: Session) -> None:
    with pytest.raises(dpsql.Error):
        session.sql(f"{COUNTED} {TWO} QUALIFY RANK() {RANK} <= 3", implicit=False)


ALONE = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article"
FIRST = "OVER (ORDER BY COUNT(DISTINCT user_id) DESC)"


@pytest.mark.parametrize(
    "text",
    [
        f"{ALONE} QUALIFY ROW_NUMBER() {FIRST} <= 3",
        f"{ALONE} QUALIFY RANK() {FIRST} < 4 ORDER BY n DESC",
        f"SELECT article, COUNT(DISTINCT user_id) AS n, RANK() {FIRST} AS r FROM reads GROUP BY 1 QUALIFY r <= 3",
    ],
)
def test_a_rank_among_all_groups_is_limit(session: Session, text: str) -> None:
    written = session.sql(f"{ALONE} TOP 3 PRIVATE")
    answer = session.sql(text)
    assert answer.receipt.replayed
    assert answer.receipt.read_as == "TOP 3 PRIVATE"
    assert sorted(row[:2] for row in answer.fetchall()) == sorted(written.fetchall())


@pytest.mark.parametrize(
    "qualify", [f"{ALONE} QUALIFY RANK() {FIRST} <= 0", f"{COUNTED} {TWO} QUALIFY 1 > RANK() {RANK}"]
)
def test_a_rank_that_no_group_has_is_refused(session: Session, qualify: str) -> None:
    with pytest.raises(dpsql.Refusal, match="ranks begin at 1") as refused:
        session.sql(qualify)
    assert "Write <= 10" in str(refused.value.hint)
    assert session.budget.rho.spent == 0


def test_a_rank_beyond_the_limit_of_the_policy_is_that_limit(session: Session) -> None:
    limit = dpsql.Limits().max_k
    for text in (
        f"{ALONE} QUALIFY RANK() {FIRST} <= {limit + 1}",
        f"{COUNTED} {TWO} QUALIFY RANK() {RANK} <= {limit + 1}",
    ):
        assert session.explain(text).query.clause.k == limit


def test_a_total_needs_no_distinct(session: Session) -> None:
    for ending in ("", " PRIVATE"):
        with pytest.raises(dpsql.Refusal) as refused:
            session.sql(f"SELECT DISTINCT COUNT(DISTINCT user_id) AS n FROM reads{ending}")
        assert refused.value.hint == "Leave DISTINCT out: a total is one row."
