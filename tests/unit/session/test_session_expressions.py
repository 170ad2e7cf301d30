"""Sums of expressions, rows of joins and bounds in the query, through whole sessions: values, refusals and replays."""

from __future__ import annotations

import re
from functools import cache

import duckdb
import pytest
from support.session_kit import session_on, shared

import dpsql
from dpsql.errors import Error
from dpsql.session import Session

CREATE = (
    "CREATE TABLE orders (user_id BIGINT, amount INT, qty INT, price DECIMAL(9,2), weight DOUBLE, kind VARCHAR)",
    (
        "INSERT INTO orders SELECT i % 1500, i % 7 * 10, 1 + i % 3, i % 5 + .25, i % 4 - 1, if(i % 2 = 0, 'a', 'b') "
        "FROM range(7500) t(i)"
    ),
    "INSERT INTO orders SELECT i, NULL, NULL, NULL, 'nan', NULL FROM range(300) t(i)",
    "CREATE TABLE users AS SELECT i AS user_id, 20 + i % 50 AS age FROM range(2000) t(i)",
    "CREATE TABLE visits AS SELECT i % 1200 AS user_id, i % 9 AS pages FROM range(3000) t(i)",
    "CREATE TABLE huge AS SELECT i AS user_id, 3000000::INT AS amount, 2147483647::INT AS qty FROM range(50) t(i)",
    "CREATE TABLE rates AS SELECT 'a' AS kind, 2.5 AS rate",
)
TABLES: dict[str, dpsql.PrivateTable | dpsql.PublicTable] = {
    "orders": dpsql.PrivateTable(
        "user_id",
        bounds={
            "rows": 8,
            "amount": {"max": 400},
            "qty": {"each": {"min": 1, "max": 3}},
            "price": {"max": 50},
            "weight": {"min": -8, "max": 20},
        },
    ),
    "users": dpsql.PrivateTable("user_id", bounds={"rows": 1, "age": {"max": 100}}),
    "visits": dpsql.PrivateTable("user_id", bounds={"rows": 4, "pages": {"max": 40}}),
    "huge": dpsql.PrivateTable("user_id", bounds={"rows": 1, "amount": {"max": 5e6}, "qty": {"max": 3e9}}),
    "rates": dpsql.PublicTable(),
}
POLICY = dpsql.Policy(dpsql.Budget(100, "1e-2"), TABLES, limits=dpsql.Limits(max_epsilon=20))


def open_session() -> Session:
    return session_on(shared(*CREATE), POLICY)


@cache
def open_plain() -> duckdb.DuckDBPyConnection:
    return shared(*CREATE)


ANSWERED = [
    "SUM(amount * 1000) FROM orders",
    "SUM(-amount) FROM orders",
    "SUM(amount - 60) FROM orders",
    "SUM(amount * qty) FROM orders",
    "SUM(price * qty) FROM orders",
    "SUM(amount / qty) FROM orders",
    "SUM(CASE WHEN kind = 'a' THEN amount ELSE -amount END) FROM orders",
    "SUM(CASE kind WHEN 'a' THEN amount WHEN 'b' THEN 2 * amount END) FROM orders",
    "SUM(IF(kind = 'a', 1, 0)) FROM orders",
    "SUM((kind = 'a')::INTEGER) FROM orders",
    "SUM(COALESCE(amount, 5)) FROM orders",
    "SUM(LEAST(amount, 30)) FROM orders",
    "SUM(GREATEST(LEAST(amount, 30), 10)) FILTER (WHERE amount IS NOT NULL) FROM orders",
    "SUM(ABS(weight)) FILTER (WHERE NOT isnan(weight)) FROM orders",
    "SUM(ROUND(amount / 3)) FROM orders",
    "SUM(ROUND(price)) FROM orders",
    "SUM(FLOOR(price)) FROM orders",
    "SUM(CAST(price AS INTEGER)) FROM orders",
    "SUM(amount // 3) FROM orders",
    "SUM(NULLIF(amount, 60)) FROM orders",
    "SUM(1) FROM orders",
    "SUM(amount * amount) FROM orders",
    "COUNT(*) FROM orders JOIN users USING (user_id)",
    "SUM(age) FROM orders JOIN users USING (user_id)",
    "COUNT(*) FROM orders JOIN visits ON orders.user_id = visits.user_id",
    "SUM(amount + pages) FROM orders JOIN visits ON orders.user_id = visits.user_id",
    "COUNT(*) FROM orders WHERE user_id IN (SELECT user_id FROM users)",
    "COUNT(amount) FROM orders WHERE EXISTS (SELECT 1 FROM visits v WHERE v.user_id = orders.user_id)",
    "COUNT(*) FROM orders JOIN rates USING (kind)",
    "SUM(v) FROM (SELECT user_id, amount AS v FROM orders UNION ALL SELECT user_id, pages FROM visits) AS s",
    "SUM(n) FROM (SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id) AS s",
    "SUM(amount::BIGINT * qty) FROM huge",
]


@pytest.mark.parametrize("asked", ANSWERED)
def test_sums_and_counts_are_those_of_sql(asked: str) -> None:
    session, (measure, source) = open_session(), asked.split(" FROM ", 1)
    (exact,) = open_plain().execute(f"SELECT {measure} FROM {source}").fetchone() or (0,)
    sql = f"SELECT {measure} AS s FROM {source} PRIVATE WITH (epsilon = 10, intervals = 0.999999)"
    ((value, low, high),) = session.sql(sql).fetchall()
    rounded = 0.01 * abs(float(exact)) if "/" in measure or "price" in measure else 1e-5 * abs(float(exact))
    assert float(low) - rounded <= float(exact) <= float(high) + rounded, value


def test_no_row_overflows_its_type() -> None:
    measures = "SUM(amount * 1000) AS s, SUM(-amount - qty) AS t, AVG(amount * 2) AS m"
    sql = f"SELECT {measures} FROM huge PRIVATE WITH (epsilon = 5)"
    ((total, negative, mean),) = open_session().sql(sql).fetchall()
    assert total == pytest.approx(50 * 3e9, rel=0.2)
    assert negative == pytest.approx(-50 * (2147483647 + 3e6), rel=0.2)
    assert mean == pytest.approx(6e6, rel=0.2)


REFUSED = [
    "SELECT SUM(amount % 3) AS s FROM orders PRIVATE",
    "SELECT SUM(LN(amount)) AS s FROM orders PRIVATE",
    "SELECT AVG( SQRT ( amount ) ) AS s FROM orders PRIVATE",
    "SELECT SUM(amount / weight) AS s FROM orders PRIVATE",
    "SELECT SUM(amount / 0) AS s FROM orders PRIVATE",
    "SELECT SUM(amount * rate) AS s FROM orders JOIN rates USING (kind) PRIVATE",
    "SELECT SUM(length(kind)) FILTER (WHERE kind = 'a') AS s FROM orders PRIVATE",
    "SELECT kind, SUM(amount ** 2) AS s FROM orders GROUP BY kind ORDER BY s DESC LIMIT 3",
    "SELECT 2 * SUM(LN(amount)) AS s, COUNT(*) FROM orders",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_what_has_no_bounds_is_refused_with_the_statement_to_write(sql: str) -> None:
    policy = dpsql.Policy(POLICY.budget, TABLES, limits=POLICY.limits, implicit=True)
    session = session_on(shared(*CREATE), policy)
    if "**" in sql:
        sql = sql.replace("amount ** 2", "pow(amount, 2)")
    with pytest.raises(Error) as refused:
        session.sql(sql)
    assert refused.value.code == "no-bounds"
    assert session.budget.refunded.spent == 0
    place = refused.value.place
    assert place is not None
    proposed = re.search(r"Write (.*\(0, 500\)\))", refused.value.hint or "")
    assert proposed is not None
    assert place.fragment.startswith(("SUM", "AVG"))
    assert session.sql(sql.replace(place.fragment, proposed[1])).receipt.items_charged > 0  # as the hint says


STATED = "SELECT SUM(amount, contribution_bounds_per_group => ({0}, {1})) AS s FROM orders PRIVATE WITH (epsilon = 5)"


def test_stated_bounds_cut_what_a_unit_adds() -> None:
    session = open_session()
    ((narrow,),) = session.sql(STATED.format(0, 10)).fetchall()
    assert abs(narrow - 15_000) < 100  # each of 1,500 users has 10 or more
    ((wide,),) = session.sql(STATED.format("-5", "2e3")).fetchall()
    assert abs(wide - 224_970) < 8_000
    plan = session.explain(STATED.format(0, 10))
    (measure,) = plan.query.measures
    assert measure.bounds is not None
    assert (measure.bounds.low, measure.bounds.high, measure.stated) == (0, 10, None)


def test_stated_bounds_are_part_of_the_question_and_parameters_too() -> None:
    session = open_session()
    assert not session.sql(STATED.format(0, 10)).receipt.replayed
    assert session.sql(STATED.format("0", "10.0")).receipt.replayed
    assert session.sql(STATED.format("?", "?"), [0, 10]).receipt.replayed
    assert not session.sql(STATED.format("?", "?"), [0, 11]).receipt.replayed
    assert not session.sql(STATED.format("-1", "10")).receipt.replayed
    policy = "SELECT SUM(amount) AS s FROM orders PRIVATE WITH (epsilon = 5)"
    assert not session.sql(policy).receipt.replayed
    assert session.sql(STATED.format(0, 400)).receipt.replayed  # the bounds of the policy
    rows = "SELECT COUNT(*{}) AS n FROM orders PRIVATE WITH (epsilon = 5{})"
    assert not session.sql(rows.format(", contribution_bounds_per_group => (0, 3)", "")).receipt.replayed
    assert session.sql(rows.format("", ", max_rows_contributed = 3")).receipt.replayed


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(amount, contribution_bounds_per_group => (0, 9)) AS s FROM orders PRIVATE",
        "SELECT SUM(amount, contribution_bounds_per_group => (0, 9)) FROM orders",
        (
            "SELECT kind, SUM(amount, contribution_bounds_per_group=>(0,9)) FILTER (WHERE qty > 1) AS s FROM orders "
            "GROUP BY kind ORDER BY s DESC LIMIT 2"
        ),
        "SELECT TOP 2 PRIVATE kind, COUNT(*, Contribution_Bounds_Per_Group => (0, 3)) AS n FROM orders GROUP BY kind",
        (
            "SELECT kind, COUNT(amount, contribution_bounds_per_group => (0, 3)) AS n FROM orders GROUP BY kind "
            "TOP 2 PRIVATE"
        ),
        "SELECT SUM(amount, contribution_bounds_per_group => (0, 9)) / COUNT(*) AS r FROM orders",
        "SELECT 1 + AVG(amount, contribution_bounds_per_group => (1, 9)) AS r FROM orders",
        "SELECT x.s * 2 FROM (SELECT SUM(amount, contribution_bounds_per_group => (-1, 9)) AS s FROM orders PRIVATE) x",
        (
            "SELECT WITH DIFFERENTIAL_PRIVACY SUM(amount, contribution_bounds_per_group => (0, 9)) AS s, "
            "COUNT(*, contribution_bounds_per_group => (0, 2)) AS a, "
            "COUNT(*, contribution_bounds_per_group => (0, 3)) AS b FROM orders"
        ),
        (
            "SELECT kind FROM orders GROUP BY kind HAVING SUM(amount, contribution_bounds_per_group => (0, 9)) > 10 "
            "ORDER BY SUM(amount, contribution_bounds_per_group => (0, 9)) DESC LIMIT 2"
        ),
    ],
)
def test_stated_bounds_are_read_wherever_a_measure_is(sql: str) -> None:
    policy = dpsql.Policy(POLICY.budget, TABLES, limits=POLICY.limits, implicit=True)
    session = session_on(shared(*CREATE), policy)
    assert session.sql(sql).receipt.items_charged > 0
    assert session.sql(sql).receipt.replayed
    assert session.describe(sql).names == session.sql(sql).columns


WRONG = {
    "SUM(amount, contribution_bounds_per_group => (1, 5))": "hold 0",
    "SUM(amount, contribution_bounds_per_group => (-5, -1))": "hold 0",
    "SUM(amount, contribution_bounds_per_group => (0, 0))": "below",
    "SUM(amount, contribution_bounds_per_group => (0, 1e300))": "below",
    "SUM(amount, contribution_bounds_per_group => (0, qty))": "numbers",
    "SUM(amount, contribution_bounds_per_group => (NULL, 5))": "numbers",
    "SUM(amount, contribution_bounds_per_group => ('0', 5))": "numbers",
    "SUM(amount, contribution_bounds_per_group => 5)": "two numbers",
    "SUM(amount, contribution_bounds_per_group => (0, 1, 2))": "two numbers",
    "SUM(amount, contribution_bounds_per_group => ())": "two numbers",
    "SUM(contribution_bounds_per_group => (0, 5))": "COUNT, SUM and AVG",
    "SUM(amount, bounds => (0, 5))": "no argument",
    "SUM(amount, contribution_bounds_per_row => (0, 5))": "quantiles",
    "SUM(ABS(amount, contribution_bounds_per_group => (0, 5)))": "COUNT, SUM and AVG",
    "COUNT(*, contribution_bounds_per_group => (0, 2.5))": "whole number",
    "COUNT(DISTINCT user_id, contribution_bounds_per_group => (0, 1))": "once",
    "COUNT(*, contribution_bounds_per_group => (-1, 2))": "whole number",
    "COUNT(*, contribution_bounds_per_group => (0, 2e6))": "whole number",
}


@pytest.mark.parametrize("measure", WRONG)
def test_wrong_bounds_are_refused_with_an_example_that_works(measure: str) -> None:
    session = open_session()
    with pytest.raises(Error, match="option") as refused:
        session.sql(f"SELECT {measure} AS s FROM orders PRIVATE")
    assert WRONG[measure] in refused.value.reason
    assert refused.value.place is not None
    example = re.search(r"Write ((SUM|COUNT)\(.*\))\.", refused.value.hint or "")
    assert example is not None
    assert session.sql(f"SELECT {example[1].replace('SUM(x', 'SUM(amount')} AS s FROM orders PRIVATE")


def test_stated_bounds_are_of_the_measures_of_the_query_alone() -> None:
    session = open_session()
    inner = "SELECT user_id, SUM(qty, contribution_bounds_per_group => (0, 5)) AS n FROM orders GROUP BY user_id"
    with pytest.raises(Error, match="and of nothing inside it"):
        session.sql(f"SELECT SUM(n) AS s FROM ({inner}) AS q PRIVATE")


def test_bounds_of_a_prepared_statement_are_numbers() -> None:
    prepared = open_session().prepare(STATED.format("?", "?"))
    assert prepared.parameters == ("DOUBLE", "DOUBLE")


def test_other_measures_than_the_one_that_ranks_may_be_below_0() -> None:
    session = open_session()
    beside = "SELECT kind, COUNT(*) AS n, SUM(-amount) AS s FROM orders GROUP BY kind TOP 2 PRIVATE WITH (epsilon = 5)"
    found = {kind: total for kind, _, total in session.sql(beside)}
    exact = dict(open_plain().execute("SELECT kind, SUM(-amount) FROM orders GROUP BY kind").fetchall())
    assert all(abs(found[kind] - exact[kind]) < 4_000 for kind in ("a", "b"))
    with pytest.raises(Error, match="below 0"):
        session.sql("SELECT kind, SUM(-amount) AS s FROM orders GROUP BY kind TOP 2 PRIVATE")
