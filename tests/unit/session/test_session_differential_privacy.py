"""SELECT WITH DIFFERENTIAL_PRIVACY of GoogleSQL: what its options mean, and that the whole query keeps to them."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.chart_kit import CREATE, PUBLIC, ROWS, TABLES
from support.session_kit import session_on, shared, values_rows

import dpsql
from dpsql.accounting import epsilon_of_zcdp
from dpsql.errors import Error
from dpsql.quantities import Delta, Rho
from dpsql.session import Session

HEAD = "SELECT WITH DIFFERENTIAL_PRIVACY"
COUNTS = "product, COUNT(*) AS n FROM orders GROUP BY product"
DAYS = "ts::DATE AS day, COUNT(*) AS n FROM orders WHERE ts >= DATE '2026-01-02' AND ts < DATE '2026-01-06' GROUP BY 1"


def session_over(**settings: object) -> Session:
    terms = {"tables": TABLES, "limits": dpsql.Limits(default_k=5), **settings}
    policy = dpsql.Policy(dpsql.Budget(60, "1e-6"), **terms)  # type: ignore[arg-type]
    return session_on(shared(CREATE, ROWS, PUBLIC), policy)


PLAIN = {"limits": dpsql.Limits(default_k=5, max_epsilon=20)}
SESSION = session_over(limits=dpsql.Limits(default_k=5, max_epsilon=20))
READ = {
    f"{HEAD} {COUNTS}": "TOP 5 PRIVATE",
    f"{HEAD} OPTIONS () {COUNTS} ORDER BY n DESC LIMIT 3": "TOP 3 PRIVATE",
    f"{HEAD} OPTIONS (privacy_unit_column = user_id) {COUNTS}": "TOP 5 PRIVATE",
    f'{HEAD} OPTIONS (privacy_unit_column = "USER_ID", max_groups_contributed = 2) {COUNTS}': "TOP 5 PRIVATE",
    f"{HEAD} OPTIONS (min_privacy_units_per_group = 1) {COUNTS}": "TOP 5 PRIVATE",
    f"{HEAD} COUNT(*) AS n FROM orders": "PRIVATE",
    f"SELECT WITH ANONYMIZATION {COUNTS}": "TOP 5 PRIVATE",
    "SELECT WITH ANONYMIZATION OPTIONS () ANON_COUNT(*) AS n FROM orders": "PRIVATE",
    f"{HEAD} DISTINCT product FROM orders": "TOP 5 PRIVATE",
    f"{HEAD} {DAYS}": "ALL PRIVATE",
    f"{HEAD} OPTIONS (group_selection_strategy = PUBLIC_GROUPS) {DAYS} ORDER BY n DESC LIMIT 2": "ALL PRIVATE",
    f"{HEAD} OPTIONS (group_selection_strategy = LAPLACE_THRESHOLD) {DAYS}": "TOP 5 PRIVATE",
    f"{HEAD} OPTIONS (group_selection_strategy = public_groups, domain = ['p1', 'zz']) {COUNTS}": "ALL PRIVATE",
    f"SELECT * FROM ({HEAD} OPTIONS (epsilon = 1, delta = 1e-8) {COUNTS}) AS x": "TOP 5 PRIVATE",
    f"WITH x AS ({HEAD} {COUNTS}) SELECT * FROM x": "TOP 5 PRIVATE",
}


@pytest.mark.parametrize("sql", READ)
def test_it_is_private_whatever_the_setting(sql: str) -> None:
    session = session_over()
    answer = session.sql(sql)
    assert answer.receipt.read_as == READ[sql]
    assert session.sql(sql).receipt.replayed
    assert dict(session.explain(sql).facts())["read as"] == READ[sql]
    assert session.describe(sql).names == answer.columns
    assert session.sql(f"EXPLAIN {sql}").receipt.items_charged == 0


def test_without_options_it_is_the_query_with_the_clause() -> None:
    session = session_over()
    session.sql(f"{HEAD} OPTIONS (max_groups_contributed = 2) {COUNTS}")
    assert session.sql(f"SELECT {COUNTS} TOP 5 PRIVATE WITH (max_groups_contributed = 2)").receipt.replayed


def test_the_bounds_of_a_count_are_rows_of_a_unit() -> None:
    session = session_over()
    session.sql(f"{HEAD} product, COUNT(*, contribution_bounds_per_group => (0, 5)) AS n FROM orders GROUP BY product")
    assert session.sql(f"SELECT {COUNTS} TOP 5 PRIVATE WITH (max_rows_contributed = 5)").receipt.replayed


@given(
    epsilon=st.fractions(Fraction(1, 5), 5, max_denominator=100),
    delta=st.sampled_from(["1e-7", "1e-8", "3.3e-9"]),
    question=st.sampled_from(
        [
            COUNTS,
            f"{COUNTS} ORDER BY n DESC LIMIT 2",
            "COUNT(*) AS n, SUM(amount) AS s FROM orders",
            "product, COUNT(DISTINCT user_id) AS n, AVG(amount) AS m FROM orders GROUP BY product",
            DAYS,
            f"{DAYS} ORDER BY n DESC LIMIT 1",
        ]
    ),
)
def test_the_whole_query_keeps_to_its_epsilon_and_delta(epsilon: Fraction, delta: str, question: str) -> None:
    plan = SESSION.explain(f"{HEAD} OPTIONS (epsilon = {float(epsilon)}, delta = {delta}) {question}")
    loss = plan.price(plan.worst_case)
    stated = Fraction(delta)
    assert loss.permanent in {0} | ({Fraction(stated, 2)} if plan.delta.value else set())
    spent = epsilon_of_zcdp(Rho(loss.refundable), Delta(stated - loss.permanent))
    assert spent <= float(epsilon)
    more = loss.refundable * Fraction(1001, 1000) ** 2  # an item epsilon of 0.1 % more would be too much
    assert epsilon_of_zcdp(Rho(more), Delta(stated - loss.permanent)) > float(epsilon)
    assert len(str(plan.epsilon).replace(".", "").lstrip("0")) <= 5


def test_the_item_epsilon_gives_the_same_query() -> None:
    session = session_over()
    sql = f"{HEAD} OPTIONS (epsilon = 2, delta = 1e-8) {COUNTS}"
    plan = session.explain(sql)
    session.sql(sql)
    same = f"SELECT {COUNTS} TOP 5 PRIVATE WITH (epsilon = {plan.epsilon}, delta = 5e-9)"
    assert session.sql(same).receipt.replayed


REFUSED = {
    f"{HEAD} OPTIONS (epsilon = 1) {COUNTS}": ("option", ("epsilon = 1", "epsilon = 1, delta = 1e-8")),
    f"{HEAD} OPTIONS (delta = 1e-8) {COUNTS}": ("option", ("delta = 1e-8", "epsilon = 1, delta = 1e-8")),
    f"{HEAD} OPTIONS (epsilon = 0, delta = 1e-8) {COUNTS}": ("option-range", ("epsilon = 0", "epsilon = 1")),
    f"{HEAD} OPTIONS (epsilon = 'x', delta = 1e-8) {COUNTS}": ("option-range", ("epsilon = 'x'", "epsilon = 1")),
    f"{HEAD} OPTIONS (epsilon = 1, delta = 2) {COUNTS}": ("option-range", ("delta = 2", "delta = 1e-8")),
    f"{HEAD} OPTIONS (epsilon = 50, delta = 1e-8) {COUNTS}": ("option-range", ("epsilon = 50, delta = 1e-8", "")),
    f"{HEAD} OPTIONS (epsilon = 1e-4, delta = 1e-8) {COUNTS}": ("option-range", ("epsilon = 1e-4, delta = 1e-8", "")),
    f"{HEAD} OPTIONS (privacy_unit_column = product) {COUNTS}": ("option", ("= product", "= user_id")),
    f"{HEAD} OPTIONS (privacy_unit_column = 'user_id') {COUNTS}": ("option", ("'user_id'", "user_id")),
    f"{HEAD} OPTIONS (min_privacy_units_per_group = 50) {COUNTS}": (
        "min-units",
        ("min_privacy_units_per_group = 50", ""),
    ),
    f"{HEAD} OPTIONS (group_selection_strategy = PUBLIC_GROUPS) {COUNTS}": (
        "domain",
        ("PUBLIC_GROUPS", "PUBLIC_GROUPS, domain = ['DE', 'FR']"),
    ),
    f"{HEAD} OPTIONS (group_selection_strategy = PRELIM) {COUNTS}": ("option", ("PRELIM", "LAPLACE_THRESHOLD")),
    f"{HEAD} OPTIONS (kappa = 1) {COUNTS}": ("option", ("kappa = 1", "")),
    f"{HEAD} OPTIONS (delta = ) {COUNTS}": ("option", ("delta = ", "epsilon = 1, delta = 1e-8")),
    f"{HEAD} OPTIONS (epsilon = 1, epsilon = 1, delta = 1e-8) {COUNTS}": (
        "option",
        ("epsilon = 1, epsilon", "epsilon"),
    ),
    f"{HEAD} OPTIONS (epsilon = 1, delta = 1e-8 {COUNTS}": ("option", ("1e-8 p", "1e-8) p")),
    f"{HEAD} OPTIONS epsilon = 1 {COUNTS}": ("option", ("OPTIONS epsilon = 1", "OPTIONS ()")),
    f"{HEAD} {COUNTS} TOP 5 PRIVATE": ("clause", (" TOP 5 PRIVATE", "")),
    f"{HEAD} product, n FROM ({HEAD} {COUNTS}) AS x": ("clause", (f"{HEAD} product, n", "SELECT product, n")),
    f"{HEAD} * FROM (SELECT {COUNTS}) AS x": ("clause", (f"{HEAD} * FROM (SELECT", f"SELECT * FROM ({HEAD}")),
    "SELECT ANON_COUNT(*) AS n FROM orders": ("aggregate", ("SELECT ANON_COUNT", f"{HEAD} COUNT")),
    f"{HEAD} ANON_COUNT(*) AS n FROM orders": ("aggregate", ("ANON_COUNT", "COUNT")),
    f"{HEAD} SUM(amount, contribution_bounds_per_row => (0, 9)) AS s FROM orders": ("option", ("per_row", "per_group")),
    f"{HEAD} SUM(amount, contribution_bounds_per_group => (1, 9)) AS s FROM orders": ("option", ("(1, 9)", "(0, 9)")),
    f"{HEAD} COUNT(*, contribution_bounds_per_group => (1, 9)) AS s FROM orders": ("option", ("(1, 9)", "(0, 5)")),
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_does_not_convert_is_refused_with_what_to_write(sql: str) -> None:
    session = session_over()
    code, (wrong, right) = REFUSED[sql]
    with pytest.raises(Error) as refused:
        session.sql(sql)
    assert refused.value.code == code
    assert refused.value.hint
    assert session.budget.refunded.spent == 0
    assert session.sql(sql.replace(wrong, right)).receipt.read_as  # as the hint says


USERS = "product, COUNT(DISTINCT user_id) AS n FROM orders GROUP BY product"


def session_with(min_units: int | None) -> Session:
    return session_over(tables={"orders": dpsql.PrivateTable("user_id", bounds={"rows": 8}, min_units=min_units)})


@pytest.mark.parametrize("policy", [None, 20, 40])
def test_more_units_than_the_policy_wants_have_the_threshold_of_a_policy_with_so_many(policy: int | None) -> None:
    asked = session_with(policy).explain(f"{HEAD} OPTIONS (min_privacy_units_per_group = 41) {USERS}")
    there = session_with(41).explain(f"{HEAD} {USERS}")
    assert (asked.selection, asked.worst_case, asked.key) == (there.selection, there.worst_case, there.key)
    assert asked.least_threshold == there.least_threshold > 40
    assert asked.key != session_with(policy).explain(f"{HEAD} {USERS}").key


@pytest.mark.parametrize("stated", [1, 30, 40])
def test_fewer_units_than_the_policy_wants_are_those_of_the_policy(stated: int) -> None:
    asked = session_with(40).explain(f"{HEAD} OPTIONS (min_privacy_units_per_group = {stated}) {USERS}")
    there = session_with(40).explain(f"{HEAD} {USERS}")
    assert (asked.selection, asked.key) == (there.selection, there.key)


def test_the_groups_that_are_returned_have_so_many_units() -> None:
    """500 units in p1 and 40 in p2: with at least 200 p2 is not returned, except with probability delta."""
    rows = "INSERT INTO orders SELECT i, 'p1', 1, DATE '2026-01-01' FROM range(500) t(i) UNION ALL "
    rows += "SELECT 1000 + i, 'p2', 1, DATE '2026-01-01' FROM range(40) t(i)"
    create = "CREATE TABLE orders (user_id BIGINT, product VARCHAR, amount INT, ts DATE)"
    policy = dpsql.Policy(dpsql.Budget(60, "1e-6"), {"orders": dpsql.PrivateTable("user_id")}, **PLAIN)
    session = session_on(shared(create, rows), policy)
    all_of_them = session.sql(f"{HEAD} {USERS}").fetchall()
    assert [key for key, _ in all_of_them] == ["p1", "p2"]
    some = session.sql(f"{HEAD} OPTIONS (min_privacy_units_per_group = 200) {USERS}").fetchall()
    assert [key for key, _ in some] == ["p1"]


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        (f"{HEAD} OPTIONS (min_privacy_units_per_group = 41) {COUNTS}", "min-units"),  # ranked by rows
        (f"{HEAD} OPTIONS (min_privacy_units_per_group = 41) COUNT(*) AS n FROM orders", "min-units"),
        (f"{HEAD} OPTIONS (min_privacy_units_per_group = 41) {DAYS}", "min-units"),
        (f"{HEAD} OPTIONS (min_privacy_units_per_group = 0) {USERS}", "option-range"),
        (f"{HEAD} OPTIONS (min_privacy_units_per_group = 2.5) {USERS}", "option-range"),
        (f"{HEAD} OPTIONS (min_privacy_units_per_group = 1e12) {USERS}", "option-range"),
    ],
)
def test_where_no_threshold_sees_to_it_the_units_of_a_group_are_refused(sql: str, code: str) -> None:
    session = session_with(None)
    with pytest.raises(Error) as refused:
        session.sql(sql)
    assert refused.value.code == code
    assert session.budget.refunded.spent == 0
    mended = re.sub(r"= [0-9.e]+\)", "= 50)", sql) if code == "option-range" else re.sub(r"OPTIONS \(.*?\) ", "", sql)
    if "another ranking" in refused.value.reason:
        assert "Select COUNT(DISTINCT user_id) first" in (refused.value.hint or "")
        mended = sql.replace("COUNT(*) AS n", "COUNT(DISTINCT user_id) AS u, COUNT(*) AS n")
    assert session.sql(mended).receipt.items_charged > 0  # as the hint says


def test_other_certificates_take_no_terms_of_a_whole_query() -> None:
    budget = dpsql.Budget(60, "1e-6", certificate="pure")
    policy = dpsql.Policy(budget, {"orders": dpsql.PrivateTable("user_id")})
    session = session_on(shared(CREATE, ROWS), policy)
    question = "product, COUNT(DISTINCT user_id) AS n FROM orders GROUP BY product"
    with pytest.raises(Error) as refused:
        session.sql(f"{HEAD} OPTIONS (epsilon = 1, delta = 1e-8) {question}")
    assert refused.value.code == "certificate"
    assert session.sql(f"{HEAD} {question}").receipt.read_as


def test_public_tables_and_statements_without_rows_stay_free() -> None:
    for sql in (f"{HEAD} COUNT(*) FROM products", f"{HEAD} {COUNTS} LIMIT 0"):
        assert SESSION.sql(sql).receipt.items_charged == 0


def test_the_example_of_the_documentation_runs() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "sql" / "standard-sql.md"
    (example,) = re.findall(r"```sql\n(SELECT WITH DIFFERENTIAL_PRIVACY\n.*?)```", page.read_text(), re.DOTALL)
    session = session_on(shared(*values_rows({"a": 3000, "b": 2000})))
    answer = session.sql(example)
    assert answer.columns == ["article", "readers"]
    assert answer.receipt.read_as == "TOP 10 PRIVATE"
