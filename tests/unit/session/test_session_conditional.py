"""Aggregates of a condition, in all the ways that tools write them: one question, one draw, one stored answer."""

from __future__ import annotations

from functools import cache

import duckdb
import pytest
from support.session_kit import session_on, shared

import dpsql
from dpsql.errors import Error
from dpsql.session import Session
from dpsql.sql.ir.statements import PrivateQuery

CREATE = (
    "CREATE TABLE orders (user_id BIGINT, amount INT, qty INT, weight DOUBLE, kind VARCHAR, ok BOOLEAN)",
    (
        "INSERT INTO orders SELECT i % 150, if(i % 11 = 0, NULL, i % 7 * 10), if(i % 13 = 0, NULL, 1 + i % 3), "
        "case i % 5 when 0 then 'nan'::double when 1 then NULL else i % 4 - 1 end, if(i % 2 = 0, 'a', 'b'), "
        "if(i % 17 = 0, NULL, i % 3 = 0) FROM range(900) t(i)"
    ),
)
BOUNDS = {
    "rows": 8,
    "amount": {"max": 400, "each": {"min": 0, "max": 60}},
    "qty": {"each": {"min": 1, "max": 3}},
    "weight": {"min": -8, "max": 20},
}
TABLES = {"orders": dpsql.PrivateTable("user_id", bounds=BOUNDS)}


def open_session(*, implicit: bool = False) -> Session:
    policy = dpsql.Policy(dpsql.Budget(100, "1e-2"), TABLES, limits=dpsql.Limits(max_epsilon=20), implicit=implicit)
    return session_on(shared(*CREATE), policy)


@cache
def open_plain() -> duckdb.DuckDBPyConnection:
    return shared(*CREATE)


C = "amount > 10"
SAME = [
    (f"COUNT_IF({C})", f"COUNT(*) FILTER (WHERE {C})"),
    (f"COUNTIF({C} OR ok)", f"COUNT(*) FILTER (WHERE {C} OR ok)"),
    (f"COUNT_IF({C}) FILTER (WHERE ok)", f"COUNT(*) FILTER (WHERE ok AND {C})"),
    ("COUNT_IF(ok OR qty = 1) FILTER (WHERE amount = 0 OR qty = 2)", ""),
    (f"SUM(CASE WHEN {C} THEN 1 ELSE 0 END)", f"COUNT(*) FILTER (WHERE {C})"),
    (f"SUM(CASE WHEN {C} THEN 1 END)", f"COUNT(*) FILTER (WHERE {C})"),
    (f"SUM(CASE WHEN {C} THEN 1 ELSE NULL END)", f"COUNT(*) FILTER (WHERE {C})"),
    (f"SUM(CASE WHEN {C} AND ok THEN 1 ELSE 0 END)", f"COUNT(*) FILTER (WHERE {C} AND ok)"),
    (f"SUM(CASE WHEN {C} THEN 0 ELSE 1 END)", f"COUNT(*) FILTER (WHERE ({C}) IS NOT TRUE)"),
    (f"SUM(CASE WHEN {C} THEN 1 ELSE 0 END) FILTER (WHERE ok)", f"COUNT(*) FILTER (WHERE ok AND {C})"),
    ("SUM(CASE kind WHEN 'a' THEN 1 ELSE 0 END)", "COUNT(*) FILTER (WHERE kind = 'a')"),
    (f"SUM(IF({C}, 1, 0))", f"COUNT(*) FILTER (WHERE {C})"),
    (f"SUM(CAST({C} AS INT))", f"COUNT(*) FILTER (WHERE {C})"),
    (f"SUM(({C})::BIGINT)", f"COUNT(*) FILTER (WHERE {C})"),
    ("SUM(ok::INT)", "COUNT(*) FILTER (WHERE ok)"),
    (f"SUM((CASE WHEN {C} THEN 1 ELSE 0 END)::BIGINT)", f"COUNT(*) FILTER (WHERE {C})"),
    (f"SUM(CASE WHEN {C} THEN qty ELSE 0 END)", f"SUM(qty) FILTER (WHERE {C})"),
    (f"SUM(CASE WHEN {C} THEN qty END)", f"SUM(qty) FILTER (WHERE {C})"),
    (f"SUM(CASE WHEN {C} THEN qty * amount ELSE 0 END)", f"SUM(qty * amount) FILTER (WHERE {C})"),
    (f"SUM(CASE WHEN {C} THEN 0 ELSE weight END)", f"SUM(weight) FILTER (WHERE ({C}) IS NOT TRUE)"),
    (f"SUM(CASE WHEN {C} THEN 2 ELSE 0 END)", f"SUM(2) FILTER (WHERE {C})"),
    (f"AVG(CASE WHEN {C} THEN qty END)", f"AVG(qty) FILTER (WHERE {C})"),
    (f"AVG(IF({C}, qty, NULL))", f"AVG(qty) FILTER (WHERE {C})"),
    (f"AVG(CASE WHEN {C} THEN weight END)", f"AVG(weight) FILTER (WHERE {C})"),
    (f"AVG(CASE WHEN {C} THEN 1.0 ELSE 0 END)", f"AVG(CASE WHEN {C} THEN 1 ELSE 0 END)"),
    (f"AVG(CASE WHEN {C} THEN 1e0 ELSE 0.0 END)", f"AVG(IF({C}, 1, 0))"),
    (f"COUNT(CASE WHEN {C} THEN 1 END)", f"COUNT(*) FILTER (WHERE {C})"),
    (f"COUNT(CASE WHEN {C} THEN 'x' ELSE NULL END)", f"COUNT(*) FILTER (WHERE {C})"),
    (f"COUNT(CASE WHEN {C} THEN qty END)", f"COUNT(qty) FILTER (WHERE {C})"),
    (f"COUNT(CASE WHEN {C} THEN weight END)", f"COUNT(weight) FILTER (WHERE {C})"),
    (f"COUNT(CASE WHEN {C} THEN NULL ELSE 1 END)", f"COUNT(*) FILTER (WHERE ({C}) IS NOT TRUE)"),
    (f"COUNT(DISTINCT CASE WHEN {C} THEN user_id END)", f"COUNT(DISTINCT user_id) FILTER (WHERE {C})"),
    (f"COUNT(DISTINCT IF({C}, user_id, NULL))", f"COUNT(DISTINCT user_id) FILTER (WHERE {C})"),
    (
        f"COUNT(DISTINCT CASE WHEN {C} THEN user_id END) FILTER (WHERE ok)",
        f"COUNT(DISTINCT user_id) FILTER (WHERE ok AND {C})",
    ),
]
OTHERS = [  # spellings that DuckDB has not
    (f"SUM(IIF({C}, 1, 0))", f"COUNT(*) FILTER (WHERE {C})"),
    (f"AVG(IFF({C}, qty, NULL))", f"AVG(qty) FILTER (WHERE {C})"),
    (
        f"SUM(CASE WHEN {C} THEN 1 ELSE 0 END, contribution_bounds_per_group => (0, 5))",
        f"COUNT(*, contribution_bounds_per_group => (0, 5)) FILTER (WHERE {C})",
    ),
    (
        f"COUNT_IF({C}, contribution_bounds_per_group => (0, 5))",
        f"COUNT(*, contribution_bounds_per_group => (0, 5)) FILTER (WHERE {C})",
    ),
]
SAME[3] = (SAME[3][0], "COUNT(*) FILTER (WHERE (amount = 0 OR qty = 2) AND (ok OR qty = 1))")


def plan(session: Session, items: str) -> tuple[PrivateQuery, str]:
    found = session.explain(f"SELECT {items} AS v FROM orders PRIVATE")
    return found.query, found.key


@pytest.mark.parametrize(("written", "plain"), [*SAME, *OTHERS])
def test_each_way_to_write_it_is_one_question(written: str, plain: str) -> None:
    session = open_session()
    (one, key), (other, same) = plan(session, written), plan(session, plain)
    assert (one.measures, one.outputs, one.body, one.unit) == (other.measures, other.outputs, other.body, other.unit)
    assert key == same
    first = session.sql(f"SELECT {plain} AS v FROM orders PRIVATE WITH (epsilon = 10)")
    again = session.sql(f"SELECT {written} AS w FROM orders PRIVATE WITH (epsilon = 10)")
    assert again.receipt.replayed
    assert again.fetchall() == first.fetchall()
    assert again.columns == ["w"]


@pytest.mark.parametrize(("written", "plain"), SAME)
def test_both_are_the_same_number_in_sql(written: str, plain: str) -> None:
    """In each group, with NULL and NaN on both sides of the condition; a sum of no row is NULL, and 0 here."""
    con = open_plain()
    finite = "weight IS NULL OR NOT isnan(weight)"  # NaN is no value in dpsql, and DuckDB adds it up
    where = f"WHERE {finite}" if "weight" in written else ""
    sql = f"SELECT user_id % 40, COALESCE({written}, 0), COALESCE({plain}, 0) FROM orders {where} GROUP BY 1"
    rows = con.execute(sql).fetchall()
    assert len(rows) >= 30
    assert any(one for _, one, _ in rows)
    for _, one, other in rows:
        assert one == other


def test_one_statement_draws_once_for_all_of_them() -> None:
    items = f"SUM(CASE WHEN {C} THEN 1 ELSE 0 END) AS a, COUNT_IF({C}) AS b, COUNT(*) FILTER (WHERE {C}) AS c"
    answer = open_session().sql(f"SELECT {items} FROM orders PRIVATE")
    assert answer.receipt.items_charged == 1
    ((a, b, c),) = answer.fetchall()
    assert a == b == c


def test_a_share_has_the_count_of_all_rows() -> None:
    session = open_session()
    share = session.sql(f"SELECT AVG(CASE WHEN {C} THEN 1.0 ELSE 0 END) AS v, COUNT(*) AS n FROM orders PRIVATE")
    assert share.receipt.items_charged == 2  # the sum, and the count that both have
    rows = {"orders": dpsql.PrivateTable("user_id", bounds={"rows": 8})}  # no bounds of a column
    session = session_on(shared(*CREATE), dpsql.Policy(dpsql.Budget(100, "1e-2"), rows))
    ((value,),) = session.sql(f"SELECT AVG(CASE WHEN {C} THEN 1.0 ELSE 0 END) AS v FROM orders PRIVATE").fetchall()
    assert 0 <= value <= 1


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT kind, COUNT_IF({C}) AS n FROM orders GROUP BY kind ORDER BY n DESC",
        f"SELECT kind, 100e0 * COUNT_IF({C}) / COUNT(*) AS share FROM orders GROUP BY kind",
        f"SELECT kind, 100e0 * SUM(CASE WHEN {C} THEN 1 ELSE 0 END) / COUNT(*) AS share FROM orders GROUP BY kind",
        f"SELECT kind, SUM(IIF({C}, 1, 0)) AS n, COUNT(DISTINCT user_id) AS u FROM orders GROUP BY kind",
        f"SELECT AVG(n) AS m FROM (SELECT user_id, COUNTIF({C}) AS n FROM orders GROUP BY user_id) AS t",
    ],
)
def test_they_work_wherever_an_aggregate_does(sql: str, implicit: bool) -> None:
    private = sql if implicit else f"{sql} {'TOP 10 PRIVATE' if 'GROUP BY kind' in sql else 'PRIVATE'}"
    if not implicit and "ORDER BY" in sql:
        private = sql.replace(" ORDER BY", " TOP 10 PRIVATE ORDER BY")
    plain = open_plain().execute(sql.replace("IIF(", "IF(")).fetchall()
    answer = open_session(implicit=implicit).sql(private)
    assert answer.receipt.items_charged > 0
    assert len(answer.fetchall()) <= len(plain)


def test_the_note_names_what_was_written() -> None:
    answer = open_session().sql(
        f"SELECT SUM(CASE WHEN {C} THEN 1 ELSE 0 END) AS a, COUNT_IF(ok) AS b, COUNT(*) FILTER (WHERE qty = 1) AS c "
        "FROM orders PRIVATE"
    )
    words = "SUM(CASE WHEN amount > 10 THEN 1 ELSE 0 END), COUNT_IF(ok) and COUNT(*) FILTER (…): each user counted with"
    assert answer.note.startswith(words)


@pytest.mark.parametrize(
    ("measure", "proposed"),
    [
        ("COUNT_IF(qty > 1)", "COUNT_IF(qty > 1, contribution_bounds_per_group => (0, 20))"),
        (
            "SUM(CASE WHEN ok THEN 1 ELSE 0 END)",
            "SUM(CASE WHEN ok THEN 1 ELSE 0 END, contribution_bounds_per_group => (0, 20))",
        ),
        (
            "AVG(CASE WHEN ok THEN 1.0 ELSE 0 END)",
            "AVG(CASE WHEN ok THEN 1.0 ELSE 0 END, contribution_bounds_per_group => (0, 1))",
        ),
    ],
)
def test_without_rows_in_the_policy_the_hint_has_bounds_that_suit(measure: str, proposed: str) -> None:
    policy = dpsql.Policy(dpsql.Budget(100, "1e-2"), {"orders": dpsql.PrivateTable("user_id")})
    session = session_on(shared(*CREATE), policy)
    with pytest.raises(Error) as refused:
        session.sql(f"SELECT {measure} AS v FROM orders PRIVATE")
    assert refused.value.code == "no-bounds"
    assert f"Write {proposed}," in (refused.value.hint or "")
    assert session.sql(f"SELECT {proposed} AS v FROM orders PRIVATE").receipt.items_charged > 0


@pytest.mark.parametrize("call", ["COUNT_IF()", "COUNT_IF(ok, 1)", "COUNT_IF(DISTINCT ok)", "COUNT_IF(*)"])
def test_what_is_no_condition_is_refused_with_the_plain_form(call: str) -> None:
    session = open_session()
    with pytest.raises(Error) as refused:
        session.sql(f"SELECT {call} AS v FROM orders PRIVATE")
    assert refused.value.code == "not-row-local"
    assert "COUNT(*) FILTER (WHERE x > 1)" in (refused.value.hint or "")
    assert session.budget.refunded.spent == 0


@pytest.mark.parametrize(
    "measure",
    [
        f"SUM(CASE WHEN {C} THEN 1.0 ELSE 0 END)",  # its type is DECIMAL, by which others divide
        f"SUM(({C})::DOUBLE)",
        f"SUM(CASE WHEN {C} THEN qty ELSE amount END)",
        f"SUM(CASE WHEN {C} THEN 1 WHEN ok THEN 1 ELSE 0 END)",
        f"AVG(CAST({C} AS INT))",  # of the rows where the condition is known
        f"COUNT(CASE WHEN {C} THEN 1 ELSE 0 END)",  # all rows
        f"AVG(CASE WHEN {C} THEN qty ELSE 0 END)",  # of all rows
    ],
)
def test_what_is_no_filter_of_rows_stays_what_it_is(measure: str) -> None:
    session = open_session()
    query, _ = plan(session, measure)
    filtered, _ = plan(session, f"COUNT(*) FILTER (WHERE {C})")
    assert filtered.measures[0] not in query.measures
    assert session.sql(f"SELECT {measure} AS v FROM orders PRIVATE").receipt.items_charged > 0
