"""COUNT(DISTINCT x) through SQL: where the number of values of one user comes from, and what is said of it."""

from __future__ import annotations

import json

import pytest
from support.session_kit import session_on, shared

import dpsql
from dpsql.errors import Error
from dpsql.intervals import ValueNoise
from dpsql.report.answer_json import encode_answer
from dpsql.session import Session

CREATE = "CREATE TABLE visits (id BIGINT, city VARCHAR, product INTEGER, shop VARCHAR, price DOUBLE)"
# 3,000 users, each with 8 of 2,000 products and a product that is NULL
ROWS = (
    (
        "INSERT INTO visits SELECT i % 3000, if(i % 2 = 0, 'a', 'b'), (i * 7919) % 2000, 's' || i % 5, i % 3 "
        "FROM range(24000) t(i)"
    ),
    "INSERT INTO visits SELECT i, 'a', NULL, NULL, 'nan' FROM range(3000) t(i)",
)
CITIES = "CREATE TABLE cities AS SELECT * FROM (VALUES ('a'), ('b'), ('nowhere')) AS v(city)"
BOUNDS = {"rows": 20, "product": {"distinct": 3}, "price": {"max": 50}}


def session_over(bounds: object = BOUNDS, *, implicit: bool | None = None, **table: object) -> Session:
    private = dpsql.PrivateTable("id", bounds=bounds, **table)  # type: ignore[arg-type]
    tables = {"visits": private, "cities": dpsql.PublicTable()}
    policy = dpsql.Policy(dpsql.Budget(100, "1e-6"), tables, limits=dpsql.Limits(max_epsilon=100))
    return session_on(shared(CREATE, CITIES, *ROWS), policy, implicit=implicit)


def bounds_of(sql: str, session: Session | None = None) -> list[int]:
    """Return the most values of one user in a group, for each number of values of a query."""
    query = (session or session_over()).explain(sql).query
    return [measure.bounds.high for measure in query.measures if measure.bounds and measure.argument]


@pytest.mark.parametrize(
    ("measure", "options", "most"),
    [
        ("COUNT(DISTINCT product)", "", 3),
        ("APPROX_COUNT_DISTINCT(product)", "", 3),
        ("COUNT(DISTINCT (product))", "", 3),
        ("COUNT(DISTINCT product % 10)", "", 3),  # no more values than those of the column
        ("COUNT(DISTINCT product) FILTER (WHERE price > 1)", "", 3),
        ("COUNT(DISTINCT shop)", "", 20),  # those of as many rows
        ("COUNT(DISTINCT shop || product)", "", 20),
        ("COUNT(DISTINCT product)", "max_items_contributed = 2", 2),
        ("COUNT(DISTINCT shop)", "max_items_contributed = 40", 40),
        ("COUNT(DISTINCT product, contribution_bounds_per_group => (0, 9))", "", 9),
        ("APPROX_COUNT_DISTINCT(product, contribution_bounds_per_group => (0, 9))", "", 9),
        ("COUNT(DISTINCT product, contribution_bounds_per_group => (0, 9))", "max_items_contributed = 2", 9),
    ],
)
def test_the_number_of_values_is_that_of_the_query_or_of_the_policy(measure: str, options: str, most: int) -> None:
    sql = f"SELECT {measure} AS n FROM visits PRIVATE{f' WITH ({options})' if options else ''}"
    assert bounds_of(sql) == [most]


def test_a_join_multiplies_rows_but_not_the_values_of_a_column() -> None:
    sql = "SELECT COUNT(DISTINCT {}) AS n FROM visits AS a JOIN visits AS b ON a.id = b.id PRIVATE"
    assert bounds_of(sql.format("a.product")) == [3]
    assert bounds_of(sql.format("a.shop")) == [400]


def test_without_any_bound_it_is_refused_and_both_hints_work() -> None:
    sql, session = "SELECT COUNT(DISTINCT product) AS n FROM visits PRIVATE", session_over({"price": {"max": 50}})
    with pytest.raises(dpsql.Refusal, match="how many different values of one unit") as caught:
        session.sql(sql)
    assert caught.value.code == "no-bounds"
    written = caught.value.hint.removeprefix("Write ").partition(", with your own")[0]
    assert bounds_of(sql.replace("COUNT(DISTINCT product)", written), session) == [3]
    line = caught.value.hint.partition("to add ")[2].partition(", or another")[0]
    assert line == "product = {distinct = 3}"
    assert "[tables.visits.bounds]" in caught.value.hint
    assert bounds_of(sql, session_over({"product": {"distinct": 3}})) == [3]
    assert session.history.num_rows == 0


REFUSED = {
    "SELECT COUNT(DISTINCT product, shop) AS n FROM visits PRIVATE": "aggregate",
    "SELECT COUNT(DISTINCT CAST(id AS VARCHAR)) AS n FROM visits PRIVATE": "aggregate",
    "SELECT COUNT(DISTINCT product) AS n FROM visits PRIVATE WITH (max_items_contributed = 4)": "option-range",
    "SELECT COUNT(DISTINCT product) AS n FROM visits PRIVATE WITH (max_items_contributed = 0)": "option-range",
    "SELECT COUNT(DISTINCT id) AS n FROM visits PRIVATE WITH (max_items_contributed = 2)": "option",
    "SELECT COUNT(*) AS n FROM visits PRIVATE WITH (max_items_contributed = 2)": "option",
    "SELECT COUNT(DISTINCT id, contribution_bounds_per_group => (0, 3)) AS n FROM visits PRIVATE": "option",
    "SELECT COUNT(DISTINCT product, contribution_bounds_per_group => (1, 3)) AS n FROM visits PRIVATE": "option",
    "SELECT COUNT(DISTINCT product, contribution_bounds_per_group => (0, 2.5)) AS n FROM visits PRIVATE": "option",
    **{
        "SELECT city, COUNT(DISTINCT product) AS n FROM visits GROUP BY city TOP 2 PRIVATE "
        f"WITH (max_groups_contributed = 1, mechanism = {mechanism})": "option"
        for mechanism in ("two_looks", "weighted_gaussian", "domain_discovery")
    },
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_no_number_of_values_is_refused_and_not_charged(sql: str) -> None:
    session = session_over()
    with pytest.raises(Error) as caught:
        session.sql(sql)
    assert caught.value.code == REFUSED[sql]
    assert caught.value.hint
    assert session.history.num_rows == 0


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ("(product, shop)", ["product", "shop"]),
        ("((product, shop))", ["product", "shop"]),
        ("-product, lower(shop)", ["-product", "lower(shop)"]),
        ("(CASE WHEN price > 1 THEN product END, shop)", ["CASE WHEN price > 1 THEN product END", "shop"]),
        ("(product), 'a' || shop, contribution_bounds_per_group => (0, 20)", ["(product)", "'a' || shop"]),
    ],
)
def test_several_columns_are_counted_by_the_hint(arguments: str, texts: list[str]) -> None:
    session = session_over()
    with pytest.raises(dpsql.Refusal) as caught:
        session.sql(f"SELECT COUNT(DISTINCT {arguments}) AS n FROM visits PRIVATE")
    written = caught.value.hint.partition("such as ")[2].removesuffix(".")
    joined = " || ', ' || ".join(f"CAST({text} AS VARCHAR)" for text in texts)
    assert written == f"COUNT(DISTINCT {joined})"
    assert bounds_of(f"SELECT {written} AS n FROM visits PRIVATE", session) == [20]


def test_a_released_number_is_that_of_a_few_values_of_each_user() -> None:
    """All 2,000 products are found with 8 of each user, and fewer with one of each."""
    every = "SELECT COUNT(DISTINCT product, contribution_bounds_per_group => (0, 8)) AS n FROM visits PRIVATE"
    ((found,),) = session_over().sql(f"{every} WITH (epsilon = 8)").fetchall()
    assert found == pytest.approx(2000, abs=10 * 2)  # of a standard deviation of 2 at 8 values
    one = "SELECT COUNT(DISTINCT product, contribution_bounds_per_group => (0, 1)) AS n FROM visits PRIVATE"
    ((fewer,),) = session_over().sql(f"{one} WITH (epsilon = 8)").fetchall()
    assert 1300 < fewer < 1800  # 3,000 draws of 2,000 find 1 - exp(-1.5) of them, which is 1,554
    assert session_over().sql(f"{every} WITH (epsilon = 8)").arrow().schema.field("n").type == "int64"


def test_the_noise_is_that_of_the_most_values_of_one_user() -> None:
    """Variance 4 D^2 / epsilon^2 of one item, D the number of values."""
    plan = session_over().explain("SELECT COUNT(DISTINCT product) AS n FROM visits PRIVATE WITH (epsilon = 2)")
    assert plan.mechanism_plan.price.counts is not None
    assert plan.mechanism_plan.price.counts.variance == 9
    ranked = "SELECT city, COUNT(DISTINCT product) AS n FROM visits GROUP BY city TOP 2 PRIVATE"
    assert session_over().explain(ranked).request.rank_width == 3
    assert ValueNoise(plan.mechanism_plan.price.counts.variance, None).widen([100], 0.95)[0][0] == 94


def test_it_ranks_and_stands_beside_all_others() -> None:
    sql = (
        "SELECT city, COUNT(DISTINCT product) AS n, COUNT(DISTINCT id) AS u, COUNT(*) AS r, SUM(price) AS s, "
        "AVG(price) AS a, COUNT(DISTINCT shop) AS p FROM visits GROUP BY city TOP 2 PRIVATE WITH (epsilon = 4)"
    )
    answer = session_over().sql(sql)
    rows = {row[0]: row[1:] for row in answer.fetchall()}
    assert set(rows) == {"a", "b"}
    for _, users, count, total, mean, shops in rows.values():
        assert users == pytest.approx(1500 if count < 14_000 else 3000, abs=200)
        assert total / count < 1.5
        assert mean == pytest.approx(1, abs=0.2)
        assert shops == pytest.approx(5, abs=80)


def test_other_clauses_take_it_as_they_take_a_count() -> None:
    session = session_over(implicit=True)
    sql = "SELECT city, COUNT(DISTINCT product) AS n FROM visits GROUP BY city"
    assert session.explain(f"{sql} ORDER BY n DESC LIMIT 2").query.clause.shape == "top"
    shown = session.sql(f"{sql} HAVING COUNT(DISTINCT product) > 1e6 ORDER BY COUNT(DISTINCT product) DESC LIMIT 2")
    assert shown.fetchall() == []
    known = f"{sql} ALL PRIVATE WITH (domain = 'cities.city', epsilon = 8, intervals = true)"
    for city, n, low, high in session.sql(known).fetchall():
        assert low <= max(n, 0) <= high  # noise can be below 0, where no interval begins
        assert (n > 500) == (city != "nowhere")
    ((twice,),) = session.sql("SELECT 2 * COUNT(DISTINCT product) AS n FROM visits").fetchall()
    assert twice % 2 == 0
    around = session.sql(f"SELECT SUM(n) AS n FROM ({sql} ALL PRIVATE WITH (domain = 'cities.city', epsilon = 8)) AS x")
    assert around.fetchall()[0][0] > 1000
    with pytest.raises(Error) as caught:  # the groups share values: no total is proposed
        session.sql(
            f"{sql[:32]}, SUM(COUNT(DISTINCT product)) OVER () FROM visits GROUP BY city ORDER BY 2 DESC LIMIT 2"
        )
    assert "private total" not in caught.value.hint


NOTE = "COUNT(DISTINCT product): at most 3 different values of each user counted, so the true number can be higher"


def test_the_note_is_one_sided_and_explain_and_json_say_the_same() -> None:
    session = session_over()
    sql = "SELECT COUNT(DISTINCT product) AS n FROM visits PRIVATE"
    answer = session.sql(sql)
    assert answer.receipt.bounds == f"{NOTE}; intervals are of the values counted so"
    assert NOTE in json.dumps(encode_answer(answer))
    facts = dict(session.explain(sql).facts())
    assert facts["values per unit"] == "at most 3 different ones in a group, by a draw: the true number can be higher"
    two = session.sql("SELECT COUNT(DISTINCT product) AS n, COUNT(DISTINCT shop) AS s FROM visits PRIVATE")
    assert "do not divide" not in two.receipt.bounds
    assert "values per unit" not in dict(session.explain("SELECT COUNT(DISTINCT id) AS n FROM visits PRIVATE").facts())


def test_the_same_question_is_free_and_another_number_of_values_is_another() -> None:
    session = session_over()
    sql = "SELECT COUNT(DISTINCT {}) AS n FROM visits PRIVATE{}"
    first = session.sql(sql.format("product", ""))
    for same in (
        sql.format("product", " WITH (max_items_contributed = 3)"),
        sql.format("product, contribution_bounds_per_group => (0, 3)", ""),
        sql.format("product", "").replace("COUNT(DISTINCT ", "APPROX_COUNT_DISTINCT("),
    ):
        again = session.sql(same)
        assert again.receipt.replayed
        assert again.fetchall() == first.fetchall()
    for other in (sql.format("product", " WITH (max_items_contributed = 2)"), sql.format("product + 1", "")):
        assert not session.sql(other).receipt.replayed
