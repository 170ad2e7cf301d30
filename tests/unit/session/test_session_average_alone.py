"""Averages without a count beside them: what ranks their groups, what is charged, and what says so."""

from __future__ import annotations

import pytest
from support.session_kit import session_on, shared

import dpsql
from dpsql.errors import Error
from dpsql.session import Session

CREATE = (
    "CREATE TABLE orders (user_id BIGINT, amount INT, price DECIMAL(9,2), kind VARCHAR, ok BOOLEAN)",
    (
        "INSERT INTO orders SELECT i % 1500, i % 7 * 10, i % 5 + .25, ['a', 'b', 'c', 'd'][1 + (i % 8) // 3], "
        "i % 3 = 0 FROM range(8000) t(i)"
    ),
)
BOUNDS = {"rows": 8, "amount": {"max": 400, "each": {"min": 0, "max": 60}}, "price": {"max": 50}}


def open_session(*, min_units: int | None = None, **settings: object) -> Session:
    tables = {"orders": dpsql.PrivateTable("user_id", bounds=BOUNDS, min_units=min_units)}
    limits = dpsql.Limits(max_epsilon=20)
    policy = dpsql.Policy(dpsql.Budget(100, "1e-2"), tables, limits=limits, **settings)  # type: ignore[arg-type]
    return session_on(shared(*CREATE), policy)


ALONE = "SELECT kind, AVG(amount) AS m FROM orders GROUP BY kind"
TOLD = "the groups are ranked by COUNT(amount), as AVG alone does not rank"


@pytest.mark.parametrize("implicit", [False, True])
def test_groups_are_ranked_by_the_rows_of_the_average(implicit: bool) -> None:
    session = open_session(implicit=implicit)
    sql = ALONE if implicit else f"{ALONE} TOP 10 PRIVATE"
    answer = session.sql(sql)
    keys = [key for key, _ in answer.fetchall()]
    assert (sorted(keys[:2]), keys[2:]) == (["a", "b"], ["c"])  # of 3, 3 and 2 of 8 rows, far from a tie
    assert answer.note.startswith(TOLD)
    assert answer.receipt.list_note.startswith(TOLD)
    assert session.sql(sql).note.startswith(TOLD)  # also a stored answer
    plan = session.explain(sql)
    assert dict(plan.facts())["note"].startswith(TOLD)
    assert "rows" in plan.needs


def test_the_order_is_that_of_the_rows() -> None:
    answer = open_session().sql(f"{ALONE} TOP 2 PRIVATE WITH (epsilon = 5)")
    assert sorted(key for key, _ in answer.fetchall()) == ["a", "b"]


@pytest.mark.parametrize(
    ("measure", "beside"),
    [
        ("AVG(amount)", "COUNT(amount)"),
        ("AVG(price)", "COUNT(price)"),
        ("STDDEV(price, contribution_bounds_per_row => (0, 10))", "COUNT(price)"),
        ("VAR_POP(price, contribution_bounds_per_row => (0, 10)) FILTER (WHERE ok)", "COUNT(price) FILTER (WHERE ok)"),
    ],
)
def test_it_is_the_query_with_the_count_that_ranks(measure: str, beside: str) -> None:
    """The count is drawn with the keys: leaving its column out makes nothing cheaper, and nothing dearer."""
    session = open_session()
    alone = session.explain(f"SELECT kind, {measure} AS m FROM orders GROUP BY kind TOP 10 PRIVATE")
    both = session.explain(f"SELECT kind, {beside} AS n, {measure} AS m FROM orders GROUP BY kind TOP 10 PRIVATE")
    assert alone.query.measures == both.query.measures
    assert (alone.worst_items, alone.key) == (both.worst_items, both.key)
    session.sql(f"SELECT kind, {beside} AS n, {measure} AS m FROM orders GROUP BY kind TOP 10 PRIVATE")
    assert session.sql(f"SELECT kind, {measure} AS m FROM orders GROUP BY kind TOP 10 PRIVATE").receipt.replayed


@pytest.mark.parametrize(
    ("measures", "told"),
    [
        (
            "STDDEV(price, contribution_bounds_per_row => (0, 10)) AS s",
            "COUNT(price), as STDDEV_SAMP alone does not rank",
        ),
        (
            "AVG(amount) AS m, VAR_POP(price, contribution_bounds_per_row => (0, 10)) AS v",
            "COUNT(amount), as AVG and VAR_POP alone do not rank",
        ),
        (
            "COVAR_POP(price, amount, contribution_bounds_per_row => (0, 10)) AS c",
            "the number of rows with both values, as COVAR_POP alone does not rank",
        ),
    ],
)
@pytest.mark.parametrize("order", ["", " ORDER BY 2 DESC"])
def test_spreads_alone_are_ranked_by_their_rows(measures: str, told: str, order: str) -> None:
    session = open_session(implicit=True)
    answer = session.sql(f"SELECT kind, {measures} FROM orders GROUP BY kind{order}")
    assert answer.note.startswith(f"the groups are ranked by {told}")
    assert {key for key, *_ in answer.fetchall()} == {"a", "b", "c"}
    assert dict(session.explain(f"SELECT kind, {measures} FROM orders GROUP BY kind{order}").facts())["note"]


def test_the_note_does_not_speak_of_a_column_that_is_not_there() -> None:
    note = open_session().sql("SELECT kind, AVG(price) AS m FROM orders GROUP BY kind TOP 10 PRIVATE").note
    assert "COUNT(price): each user" not in note
    assert "AVG(price): each user" in note


@pytest.mark.parametrize(
    "sql",
    [
        f"{ALONE} ORDER BY m DESC",
        f"{ALONE} ORDER BY AVG(amount)",
        f"{ALONE} ORDER BY kind",
        f"{ALONE} LIMIT 2",
        "SELECT kind, ROUND(AVG(amount), 1) AS m FROM orders GROUP BY kind ORDER BY m DESC",
        "SELECT kind, AVG(amount) AS m, AVG(price) AS p FROM orders GROUP BY kind",
        "SELECT kind, AVG(amount) FILTER (WHERE ok) AS m FROM orders GROUP BY kind",
        "SELECT kind, AVG(CASE WHEN ok THEN 1.0 ELSE 0 END) AS m FROM orders GROUP BY kind",
        f"SELECT * FROM ({ALONE}) AS t ORDER BY m LIMIT 5",
    ],
)
def test_dashboards_get_it(sql: str) -> None:
    if "LIMIT 5" in sql:
        sql = sql.replace("GROUP BY kind)", "GROUP BY kind LIMIT 3)")
    answer = open_session(implicit=True).sql(sql)
    assert "as AVG alone does not rank" in answer.note
    values = [row[1] for row in answer.fetchall()]
    assert values
    if "ORDER BY m DESC" in sql:
        assert values == sorted(values, reverse=True)


def test_the_first_by_an_average_are_refused_with_what_to_write() -> None:
    session = open_session(implicit=True)
    with pytest.raises(Error, match="AVG does not rank groups") as refused:
        session.sql(f"{ALONE} ORDER BY m DESC LIMIT 2")
    assert (refused.value.hint or "").startswith("Leave LIMIT out")
    assert session.sql(f"{ALONE} ORDER BY m DESC").receipt.items_charged > 0  # as the hint says


def test_a_policy_with_min_units_ranks_by_users() -> None:
    session = open_session(min_units=20)
    with pytest.raises(Error, match="min-units") as refused:
        session.sql(f"{ALONE} TOP 10 PRIVATE")
    assert "COUNT(DISTINCT user_id)" in (refused.value.hint or "")
    both = ALONE.replace("AVG", "COUNT(DISTINCT user_id) AS n, AVG")
    assert session.sql(f"{both} TOP 10 PRIVATE").receipt.items_charged > 0
