"""COUNT(*), COUNT(x), SUM and AVG through SQL: what is released, with which noise, what it costs, what is refused."""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Hashable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from support.laws import discrete_gaussian_law, singles_out
from support.session_kit import filled, session_on, shared

import dpsql
from dpsql.accounting import ZCDP
from dpsql.answer import CountColumns
from dpsql.engines import Statement
from dpsql.errors import Error
from dpsql.plan import release
from dpsql.plan.release import decode_steps, divide_steps
from dpsql.session import Session
from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure
from dpsql.sql.ir.tree import BIGINT, Literal, decimal

CREATE = (
    "CREATE TABLE orders (user_id BIGINT, product VARCHAR, amount DECIMAL(10, 2), weight DOUBLE, pieces INTEGER, "
    "day DATE)"
)
# 600 users, each with 6 orders of a or of b, and 1 of c; and 900 rows of nobody
ROWS = (
    (
        "INSERT INTO orders SELECT i % 600, if(i % 2 = 0, 'a', 'b'), 2.5, .75, 2, make_date(2026, 1, 1 + i % 5) "
        "FROM range(3600) t(i)"
    ),
    "INSERT INTO orders SELECT i, 'c', 100, 'nan', NULL, DATE '2026-01-02' FROM range(600) t(i)",
    "INSERT INTO orders SELECT NULL, 'a', 100, 1, 1, DATE '2026-01-02' FROM range(900) t(i)",
)
BOUNDS = {"rows": 10, "amount": {"max": 50}, "weight": {"max": 4}, "pieces": {"max": 20}}


def session_over(*rows: str, bounds: object = BOUNDS, **table: object) -> Session:
    private = dpsql.PrivateTable("user_id", bounds=bounds, **table)  # type: ignore[arg-type]
    return session_on(shared(CREATE, *rows), dpsql.Policy(dpsql.Budget(60, "1e-6"), {"orders": private}))


TOTAL = (
    "SELECT COUNT(*) AS n, COUNT(pieces) AS counted, SUM(amount) AS revenue, SUM(weight) AS weight, "
    "AVG(pieces) AS mean, COUNT(DISTINCT user_id) AS users FROM orders PRIVATE WITH (epsilon = 1)"
)
RANKED = (
    "SELECT product, SUM(amount) AS revenue, COUNT(*) AS n FROM orders GROUP BY product TOP 3 PRIVATE WITH (epsilon=1)"
)


def test_a_total_has_every_measure_and_costs_an_item_for_each() -> None:
    session = session_over(*ROWS)
    answer = session.sql(TOTAL)
    ((n, counted, revenue, weight, mean, users),) = answer.fetchall()
    assert abs(n - 4200) < 200
    assert abs(counted - 3600) < 200
    assert isinstance(revenue, Decimal)
    assert abs(float(revenue) - 600 * 50) < 900  # each user has 115 in all, of which 50 count
    assert abs(weight - 600 * 4) < 80
    assert abs(users - 600) < 20
    assert mean == pytest.approx(2, abs=0.4)
    assert [str(field.type) for field in answer.arrow().schema] == [
        "int64",
        "int64",
        "decimal128(38, 2)",
        "double",
        "double",
        "int64",
    ]
    # n, counted, revenue, weight, users, and the two of the average
    assert answer.receipt.items_charged == 7
    assert answer.receipt.loss == ZCDP(dpsql.Rho(Fraction(7, 8)), dpsql.Delta(0))
    again = session.sql(f"-- again\n{TOTAL}")
    assert again.receipt.replayed
    assert again.fetchall() == answer.fetchall()


def test_an_empty_table_has_totals_of_noise() -> None:
    ((n, _, revenue, *_, users),) = session_over().sql(TOTAL).fetchall()
    assert abs(n) < 200
    assert abs(revenue) < 1000
    assert abs(users) < 20


def test_groups_are_ranked_by_the_first_measure_and_all_are_released() -> None:
    session = session_over(*ROWS)
    answer = session.sql(RANKED)
    assert answer.columns == ["product", "revenue", "n"]
    found = {product: (float(revenue), n) for product, revenue, n in answer}
    assert found.keys() == {"a", "b", "c"}
    assert next(iter(found)) == "c"  # 50 of the 100 of each order count
    assert abs(found["c"][0] - 600 * 50) < 900
    assert abs(found["a"][0] - 600 * 7.5) < 900
    assert abs(found["a"][1] - 1800) < 200
    assert answer.receipt.items_charged == 3 * 3
    assert answer.receipt.mechanism == "limited_domain"


def test_order_by_decides_which_measure_ranks() -> None:
    session = session_over(*ROWS)
    by_rows = session.explain(RANKED.replace("TOP 3", "ORDER BY n DESC TOP 3"))
    assert [measure.aggregate.name for measure in by_rows.query.measures] == ["ROWS", "SUM"]
    assert by_rows.selection.sensitivity == 10  # type: ignore[attr-defined]
    by_sum = session.explain(RANKED)
    assert [measure.aggregate.name for measure in by_sum.query.measures] == ["SUM", "ROWS"]
    assert by_sum.selection.sensitivity == 5000  # type: ignore[attr-defined] # cents
    assert "a sum of" in dict(by_sum.facts())["threshold"]


@pytest.mark.parametrize("shape", ["domain", "calendar"])
def test_all_known_groups_keep_their_zeros(shape: str) -> None:
    session = session_over(*ROWS)
    sql = "SELECT product AS k, SUM(weight) AS w FROM orders GROUP BY k ALL PRIVATE WITH (domain=['a', 'z'], epsilon=1)"
    if shape == "calendar":
        sql = (
            "SELECT day AS k, SUM(weight) AS w FROM orders WHERE day >= DATE '2026-01-05' AND day < DATE '2026-01-07' "
            "GROUP BY k ALL PRIVATE WITH (epsilon = 1)"
        )
    (_, first), (_, second) = session.sql(sql).fetchall()
    assert abs(first - (1200 if shape == "domain" else 540)) < 90
    assert abs(second) < 90


def test_top_k_over_a_known_domain_ranks_by_a_sum() -> None:
    session = session_over(*ROWS)
    answer = session.sql(
        "SELECT product, SUM(amount) AS s FROM orders GROUP BY product "
        "TOP 2 PRIVATE WITH (domain = ['a', 'b', 'c', 'd'], epsilon = 1, mechanism = peeling)"
    )
    assert answer[0][0] == "c"
    assert answer.receipt.mechanism == "peeling"
    assert answer.receipt.items_charged == 4


def test_sums_below_zero_are_for_public_groups() -> None:
    bounds = {"amount": {"min": -20, "max": 10}}
    session = session_over("INSERT INTO orders SELECT i, 'a', -5, 0, 0, NULL FROM range(500) t(i)", bounds=bounds)
    listed = (
        "SELECT product, SUM(amount) AS s FROM orders GROUP BY product ALL PRIVATE WITH (domain = ['a'], epsilon = 1)"
    )
    ((_, total),) = session.sql(listed).fetchall()
    assert abs(float(total) + 2500) < 400
    answer = session.sql(listed)
    assert answer.counts is not None
    assert answer.counts.variance == Fraction(4 * 2000**2)  # the larger end, in cents
    assert answer.intervals().column("low")[0].as_py() < 0
    ranked = session.explain(listed.replace("ALL PRIVATE WITH (", "TOP 1 PRIVATE WITH (mechanism = peeling, "))
    assert ranked.selection.sensitivity == 3000  # type: ignore[attr-defined] # from one end to the other
    with pytest.raises(dpsql.Refusal, match="below 0"):
        session.sql("SELECT product, SUM(amount) AS s FROM orders GROUP BY product TOP 1 PRIVATE")


def test_a_query_may_ask_for_fewer_rows() -> None:
    session = session_over(*ROWS)
    total = "SELECT COUNT(*) AS n FROM orders PRIVATE WITH (epsilon = 1, max_rows_contributed = 2)"
    answer = session.sql(total)
    assert abs(answer[0][0] - 1200) < 40
    assert answer.counts is not None
    assert answer.counts.variance == 16
    assert answer.bound_note == (
        "COUNT(*): each user counted with at most 2 rows, so the true number can be higher; "
        "intervals are of the values counted so"
    )
    assert not session.sql(total.replace("= 2", "= 10")).receipt.replayed
    assert session.sql(total.replace(", max_rows_contributed = 2", "")).receipt.replayed  # 10 is what the policy says
    for wrong, code in (("11", "option-range"), ("0", "option-range"), ("2.5", "option-range")):
        with pytest.raises(dpsql.Refusal, match=code):
            session.sql(total.replace("= 2)", f"= {wrong})"))
    with pytest.raises(dpsql.Refusal, match="none of them"):
        session.sql("SELECT SUM(pieces) AS s FROM orders PRIVATE WITH (max_rows_contributed = 2)")


@pytest.mark.parametrize(
    "clause", ["PRIVATE", "GROUP BY product ALL PRIVATE WITH (domain = ['a', 'b'])", "GROUP BY product TOP 2 PRIVATE"]
)
def test_measures_in_another_order_are_the_same_question(clause: str) -> None:
    session = session_over(*ROWS)
    names = {"revenue": "SUM(amount)", "n": "COUNT(*)", "mean": "AVG(pieces)", "users": "COUNT(DISTINCT user_id)"}
    order = " ORDER BY revenue DESC" if "TOP" in clause else ""
    answers = [
        session.sql(
            f"SELECT {', '.join(f'{names[name]} AS {name}' for name in listed)}{keys} FROM orders {clause}{order}"
        )
        for listed in (list(names), list(names)[::-1])
        for keys in [", product" if "GROUP" in clause else ""]
    ]
    assert [answer.receipt.replayed for answer in answers] == [False, True]
    first, second = (answer.arrow() for answer in answers)
    assert first.equals(second.select(first.column_names))
    for answer in answers:
        assert answer.counts is not None
        columns = [
            answer.arrow().column_names[each.columns[0]] for each in answer.measures if isinstance(each, CountColumns)
        ]
        shown = [name for name in answer.arrow().column_names if name in {"revenue", "n", "users"}]
        assert columns == sorted(shown, key=lambda name: (name != "revenue" or not order, shown.index(name)))
    assert session.history.num_rows == 1


@pytest.mark.parametrize(
    ("changed", "renewed"),
    [
        ({}, set()),
        ({"rows": 11}, {"COUNT(*)", "AVG(weight)"}),
        ({"pieces": {"max": 21}}, {"SUM(pieces)"}),
        ({"pieces": {"max": 20, "min": -1}}, {"SUM(pieces)"}),
        ({"weight": {"max": 8}}, {"SUM(weight)", "AVG(weight)"}),
    ],
)
def test_an_answer_under_other_bounds_is_not_shown(
    tmp_path: Path, changed: dict[str, object], renewed: set[str]
) -> None:
    """The steps of a stored sum mean something else under other bounds, and so does its noise."""
    connection = filled(CREATE, *ROWS)
    measures = ["COUNT(*)", "COUNT(DISTINCT user_id)", "SUM(pieces)", "SUM(weight)", "AVG(weight)"]
    replayed = dict[str, bool]()
    for bounds in (BOUNDS, {**BOUNDS, **changed}):
        table = dpsql.PrivateTable("user_id", bounds=bounds)  # type: ignore[arg-type]
        policy = dpsql.Policy(dpsql.Budget(60, "1e-6"), {"orders": table})
        with dpsql.connect(connection, policy=policy, ledger=tmp_path / "ledger.sqlite") as session:
            for measure in measures:
                answer = session.sql(f"SELECT {measure} AS m FROM orders PRIVATE")
                replayed[measure] = answer.receipt.replayed
    assert {measure for measure, is_replay in replayed.items() if not is_replay} == renewed


def test_another_ranking_is_another_question() -> None:
    session = session_over(*ROWS)
    both = "SELECT product, SUM(amount) AS s, COUNT(*) AS n FROM orders GROUP BY product TOP 2 PRIVATE ORDER BY {} DESC"
    assert not session.sql(both.format("s")).receipt.replayed
    assert not session.sql(both.format("n")).receipt.replayed


def test_conditions_of_measures_and_shares() -> None:
    session = session_over(*ROWS)
    ((share, users),) = session.sql(
        "SELECT 1e0 * a / b AS share, b FROM (SELECT COUNT(DISTINCT user_id) FILTER (WHERE product = 'c') AS a, "
        "COUNT(DISTINCT user_id) AS b FROM orders PRIVATE WITH (epsilon = 1)) AS x"
    ).fetchall()
    assert share == pytest.approx(1, abs=0.1)
    assert abs(users - 600) < 20
    ((rows,),) = session.sql("SELECT COUNT(*) FILTER (WHERE product = 'b') AS n FROM orders PRIVATE WITH (epsilon = 1)")
    assert abs(rows - 1800) < 200


def test_intervals_are_in_the_unit_of_each_measure() -> None:
    session = session_over(*ROWS)
    answer = session.sql(TOTAL)
    frame = answer.df(intervals=True, level=0.99999)
    assert frame.columns.tolist() == [
        *("n", "n_low", "n_high", "counted", "counted_low", "counted_high", "revenue", "revenue_low", "revenue_high"),
        *("weight", "weight_low", "weight_high", "mean", "mean_low", "mean_high", "users", "users_low", "users_high"),
    ]
    row = frame.iloc[0]
    assert row.n_low <= 4200 <= row.n_high
    assert row.revenue_low <= 30000 <= row.revenue_high
    assert row.weight_low <= 2400 <= row.weight_high
    assert row.mean_low <= 2 <= row.mean_high
    assert row.users_high - row.users_low < row.n_high - row.n_low
    assert answer.intervals().column_names == ["low", "high"]
    assert "SUM(amount): each user counted with at most 50 and values below 0 as 0" in answer.bound_note
    assert "AVG(pieces): each user weighs as at most 10 rows and 20 of pieces" in answer.bound_note


@pytest.mark.parametrize("certificate", ["pure", "theorem2", "optimal"])
def test_the_other_certificates_take_measures(certificate: str) -> None:
    budget = dpsql.Budget(40, "1e-6", items=60, queries=10, certificate=certificate)
    policy = dpsql.Policy(budget, {"orders": dpsql.PrivateTable("user_id", bounds=BOUNDS)})  # type: ignore[arg-type]
    session = session_on(shared(CREATE, *ROWS), policy)
    assert session.sql(TOTAL.replace(" WITH (epsilon = 1)", "")).receipt.items_charged == 7
    assert session.sql(RANKED.replace(" WITH (epsilon=1)", "")).counts is not None


REFUSED = {
    "SELECT SUM(day) AS s FROM orders PRIVATE": "aggregate",
    "SELECT SUM() AS s FROM orders PRIVATE": "aggregate",
    "SELECT SUM(pieces, weight) AS s FROM orders PRIVATE": "aggregate",
    "SELECT product, SUM(pieces) AS s FROM orders GROUP BY product ORDER BY s DESC LIMIT 0 PRIVATE": "k",
    "SELECT SUM(amount % pieces) AS s FROM orders PRIVATE": "no-bounds",
    "SELECT SUM(LN(amount)) AS s FROM orders PRIVATE": "no-bounds",
    "SELECT product, STDDEV(pieces) AS s FROM orders GROUP BY product TOP 3 PRIVATE": "no-bounds",
    "SELECT product, COUNT(*) AS n FROM orders GROUP BY product TOP 9999999 PRIVATE": "k",
    "SELECT product, COUNT(*) AS n FROM orders GROUP BY product TOP 3 PRIVATE WITH (mechanism = joint)": "option",
    "SELECT product, COUNT(*) AS n FROM orders GROUP BY product TOP 3 PRIVATE WITH (mechanism = anything)": "option",
    "SELECT product, COUNT(*) AS n FROM orders GROUP BY product TOP 3 PRIVATE WITH (mechanism = gaussian_histogram)": (
        "bound"
    ),
    "SELECT product, SUM(pieces) AS s FROM orders GROUP BY 1 TOP ADAPTIVE PRIVATE WITH (domain = ['a'])": "option",
    "SELECT day, COUNT(DISTINCT user_id) FROM orders GROUP BY 1 TOP 3 PRIVATE WITH (max_rows_contributed=1)": "option",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_answered_is_refused_and_nothing_is_charged(sql: str) -> None:
    session = session_over(*ROWS)
    with pytest.raises(Error) as refused:
        session.sql(sql)
    assert refused.value.code == REFUSED[sql]
    assert refused.value.hint
    assert session.budget.refunded.spent == 0


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("SELECT COUNT(*) AS n FROM orders PRIVATE", "rows = 20, or another number, under [tables.orders.bounds]"),
        (
            "SELECT SUM(weight) AS n FROM orders PRIVATE",
            "weight = {max = 500}, or another number, under [tables.orders.",
        ),
    ],
)
def test_a_measure_without_bounds_is_refused_with_the_line_to_add(sql: str, line: str) -> None:
    session = session_over(*ROWS, bounds={})
    with pytest.raises(dpsql.Refusal, match="no-bounds") as refused:
        session.sql(sql)
    assert line in (refused.value.hint or "")
    assert session.budget.refunded.spent == 0


def test_the_line_to_add_is_toml_for_every_name() -> None:
    connection = duckdb.connect()
    connection.execute('CREATE SCHEMA web; CREATE TABLE web.orders (user_id BIGINT, "net price" DOUBLE)')
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"web.orders": dpsql.PrivateTable("user_id")})
    with (
        dpsql.connect(connection, policy=policy, ledger=":memory:") as session,
        pytest.raises(dpsql.Refusal) as refused,
    ):
        session.sql('SELECT SUM("net price") AS n FROM web.orders PRIVATE')
    (line, table) = re.findall(r"add (.*), or another number, under (\[.*\])", refused.value.hint)[0]
    assert tomllib.loads(f"{table}\n{line}") == {"tables": {"web.orders": {"bounds": {"net price": {"max": 500}}}}}


def test_a_policy_of_groups_of_many_units_ranks_by_units_alone() -> None:
    session = session_over(*ROWS, min_units=50)
    with pytest.raises(dpsql.Refusal, match="min-units"):
        session.sql(RANKED)
    ranked = RANKED.replace("SUM(amount) AS revenue", "COUNT(DISTINCT user_id) AS u, SUM(amount) AS revenue")
    assert len(session.sql(ranked)) == 3


def test_a_bound_so_large_that_no_draw_is_exact_is_refused() -> None:
    limits = dpsql.Limits(min_epsilon="1e-6")
    table = dpsql.PrivateTable("user_id", bounds={"weight": {"max": 4}})
    session = session_on(shared(CREATE, *ROWS), dpsql.Policy(dpsql.Budget(1, "1e-6"), {"orders": table}, limits=limits))
    with pytest.raises(dpsql.Refusal, match="option-range"):
        session.sql("SELECT SUM(weight) AS w FROM orders PRIVATE WITH (epsilon = 0.0005)")


@pytest.mark.properties
def test_the_law_of_a_sum_is_a_discrete_gaussian_of_its_bound() -> None:
    """Sigma is 2 R / epsilon steps: half of the variance, and a sum that is one step higher, are told from it."""
    bounds = {"pieces": {"max": 2}}
    session = session_over("INSERT INTO orders SELECT i, 'a', 0, 0, 9, NULL FROM range(2) t(i)", bounds=bounds)
    sql = "SELECT SUM(pieces) AS s FROM orders PRIVATE WITH (epsilon = 1)"
    parts, plan = session._dependencies, session.explain(sql)
    exact = parts.engine.execute(Statement(plan.counting.sql, plan.counting.parameters))

    def sample(runs: int) -> Counter[Hashable]:
        return Counter(release(plan, exact, noise=parts.noise).table.column(0)[0].as_py() for _ in range(runs))

    def law(variance: int, centre: int) -> dict[Hashable, float]:
        return {n + centre: mass for n, mass in discrete_gaussian_law(Fraction(variance)).items()}

    assert singles_out(law(16, 4), law(8, 4), law(16, 5), sample=sample)


def test_values_beyond_the_types_that_are_added_up_are_whole() -> None:
    large = ContributionRange(0, 2**20, Fraction(10**12))
    whole = Measure(Aggregate.SUM, Literal(1, BIGINT), bounds=large)
    assert decode_steps([2**50, -(2**50)], whole).to_pylist() == [2**50 * 10**12, -(2**50) * 10**12]
    assert decode_steps([1], whole).type == pa.decimal128(38, 0)
    exact = Measure(Aggregate.SUM, Literal(Decimal("1.5"), decimal(10, 2)), bounds=large)
    assert decode_steps([2**50], exact).to_pylist() == [2**50 * 10**12]
    assert decode_steps([2**90], exact).to_pylist() == [Decimal("9" * 36 + ".99")]  # noise alone is so large
    rows = Measure(Aggregate.ROWS, bounds=ContributionRange(0, 2**20, Fraction(1, 4)))
    averages = divide_steps([10, 10, 10, 10], [16, 3, 0, -3], measures=(whole, rows))
    assert averages.to_pylist() == [2.5e12, None, None, None]
    assert decode_steps([], exact).type == pa.decimal128(38, 2)
    assert math.isfinite(float(decode_steps([1], exact)[0].as_py()))


def test_bounds_of_a_policy_are_checked() -> None:
    for wrong in (
        {"rows": 0},
        {"rows": 2.5},
        {"rows": True},
        {"amount": 5},
        {"amount": {}},
        {"amount": {"min": 1, "max": 5}},
        {"amount": {"max": -1}},
        {"amount": {"max": 0}},
        {"amount": {"max": math.inf}},
        {"amount": {"max": math.nan}},
        {"amount": {"max": 1, "most": 2}},
        {"amount": {"max": 1}, "AMOUNT": {"max": 2}},
        [],
    ):
        with pytest.raises(dpsql.PolicyError) as refused:
            dpsql.PrivateTable("user_id", bounds=wrong)  # type: ignore[arg-type]
        assert "bounds" in str(refused.value.place)
    with pytest.raises(dpsql.PolicyError, match="policy-no-column"):
        session_over(bounds={"nothing": {"max": 1}})
    with pytest.raises(dpsql.PolicyError, match="policy-bounds"):
        session_over(bounds={"product": {"max": 1}})
    with pytest.raises(dpsql.PolicyError, match="policy-bounds"):
        session_over(bounds={"pieces": {"max": 1.5}})
    assert session_over(bounds={"PIECES": {"max": 2}}).sql("SELECT SUM(pieces) AS s FROM orders PRIVATE").columns == [
        "s"
    ]


def test_an_outer_select_computes_with_decimals() -> None:
    session = session_over(*ROWS)
    answer = session.sql(f"SELECT product, 2 * revenue AS twice, revenue FROM ({RANKED}) AS x WHERE revenue > 25000")
    ((product, twice, revenue),) = answer.fetchall()
    assert product == "c"
    assert twice == 2 * revenue
    assert answer.intervals().column_names == ["product", "low", "high"]


SIGNED = {
    "late - early": True,
    "-price": True,
    "price - 3": True,
    "date_diff('day', early, late)": True,
    "price": False,
}


@pytest.mark.parametrize("value", SIGNED)
@pytest.mark.parametrize("name", ["SUM", "AVG", "MEDIAN", "STDDEV"])
def test_bounds_that_a_hint_proposes_have_the_sign_of_the_values_and_work(name: str, value: str) -> None:
    columns = "CREATE TABLE sales AS SELECT i AS id, 2.5::DOUBLE AS price, DATE '2026-01-01' AS early, early AS late"
    policy = dpsql.Policy(budget=dpsql.Budget(1, 1e-6), tables={"sales": dpsql.PrivateTable("id", bounds={"rows": 2})})
    with dpsql.connect(shared(f"{columns} FROM range(9) t(i)"), policy=policy, ledger=":memory:") as session:
        with pytest.raises(dpsql.Refusal) as refused:
            session.explain(f"SELECT {name}({value}) AS x FROM sales PRIVATE")
        hint, low = refused.value.hint or "", -500 if SIGNED[value] else 0
        written = hint.removeprefix("Write ").partition(", with your own")[0]
        assert written.endswith(f" => ({low}, 500))")
        assert session.explain(f"SELECT {written} AS x FROM sales PRIVATE").worst_items
    assert "early" not in hint.partition(", with your own")[2]
    assert "late" not in hint.partition(", with your own")[2]
    if line := hint.partition("curator to add ")[2].partition("}")[0]:
        assert ("min = -500" in line) == SIGNED[value]
