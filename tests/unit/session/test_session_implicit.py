"""Standard SQL read as private: which clause a statement of a tool gets, and which statements are refused."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from support.chart_kit import CREATE, PUBLIC, ROWS, TABLES
from support.session_kit import session_on, shared

import dpsql
from dpsql.errors import Error
from dpsql.session import Session

POLICY = dpsql.Policy(dpsql.Budget(60, "1e-6"), TABLES, implicit=True, limits=dpsql.Limits(default_k=5))


def session_over(policy: dpsql.Policy = POLICY, **settings: object) -> Session:
    return session_on(shared(CREATE, ROWS, PUBLIC), policy, **settings)  # type: ignore[arg-type]


JANUARY = "ts >= DATE '2026-01-02' AND ts < DATE '2026-01-06'"
READ = {
    "SELECT COUNT(*) FROM orders": ("PRIVATE", 1),
    "SELECT COUNT(*) AS n, SUM(amount) AS s FROM orders WHERE product = 'p1' LIMIT 1000;": ("PRIVATE", 1),
    "SELECT COUNT(DISTINCT user_id) FROM (SELECT * FROM orders) AS virtual_table": ("PRIVATE", 1),
    "SELECT product, COUNT(*) AS n FROM orders GROUP BY product ORDER BY n DESC LIMIT 3": ("TOP 3 PRIVATE", 3),
    "SELECT product, COUNT(*) AS n FROM orders GROUP BY 1 ORDER BY 2 DESC FETCH FIRST 3 ROWS ONLY": (
        "TOP 3 PRIVATE",
        3,
    ),
    "SELECT product, COUNT(*) AS n FROM orders GROUP BY product ORDER BY COUNT(*) DESC LIMIT 1000": (
        "TOP 5 PRIVATE",
        5,
    ),
    "SELECT product, COUNT(DISTINCT user_id) AS n FROM orders GROUP BY product": ("TOP 5 PRIVATE", 5),
    "SELECT product, COUNT(DISTINCT user_id) AS n FROM orders GROUP BY product ORDER BY product": ("TOP 5 PRIVATE", 5),
    "SELECT DISTINCT product FROM orders": ("TOP 5 PRIVATE", 5),
    "SELECT DISTINCT product FROM orders LIMIT 2": ("TOP 2 PRIVATE", 2),
    f"SELECT date_trunc('day', ts) AS day, COUNT(*) AS n FROM orders WHERE {JANUARY} GROUP BY 1 ORDER BY 1": (
        "ALL PRIVATE",
        4,
    ),
    f"SELECT ts::DATE AS day, SUM(amount) AS n FROM orders WHERE {JANUARY} GROUP BY 1 ORDER BY n DESC LIMIT 50000": (
        "ALL PRIVATE",
        4,
    ),
    f"SELECT ts::DATE AS day, SUM(amount) AS n FROM orders WHERE {JANUARY} GROUP BY 1 ORDER BY n DESC LIMIT 2": (
        "TOP 2 PRIVATE",
        2,
    ),
    "SELECT x.product, 2 * x.n AS twice FROM (SELECT product, COUNT(*) AS n FROM orders GROUP BY product) AS x": (
        "TOP 5 PRIVATE",
        5,
    ),
    "WITH top AS (SELECT product, COUNT(*) AS n FROM orders GROUP BY product ORDER BY n DESC LIMIT 4) "
    "SELECT p.class, SUM(top.n) AS n FROM top JOIN products AS p ON top.product = p.product GROUP BY p.class": (
        "TOP 4 PRIVATE",
        None,
    ),
    "WITH mine AS (SELECT * FROM orders WHERE amount > 3) SELECT product, COUNT(*) AS n FROM mine GROUP BY 1 "
    "ORDER BY n DESC LIMIT 3": ("TOP 3 PRIVATE", 3),
    "SELECT m, COUNT(DISTINCT user_id) AS n FROM (SELECT user_id, MAX(amount) > 40 AS m FROM orders GROUP BY user_id) "
    "AS per_user GROUP BY m": ("ALL PRIVATE", 3),
    "SELECT CASE WHEN amount < 10 THEN 'low' ELSE 'high' END AS size, COUNT(*) AS n FROM orders GROUP BY 1": (
        "ALL PRIVATE",
        2,
    ),
    "SELECT amount > 20 AS big, SUM(amount) AS s FROM orders GROUP BY 1 ORDER BY s DESC LIMIT 1000": ("ALL PRIVATE", 3),
    "SELECT EXTRACT(isodow FROM ts) AS day, COUNT(*) AS n FROM orders GROUP BY day ORDER BY day": ("ALL PRIVATE", 8),
    "SELECT WIDTH_BUCKET(amount, 0, 50, 5) AS bin, COUNT(*) AS n FROM orders GROUP BY bin ORDER BY bin": (
        "ALL PRIVATE",
        8,
    ),
    "SELECT size, COUNT(*) AS n FROM (SELECT *, CASE WHEN amount < 10 THEN 'low' END AS size FROM orders) AS v "
    "GROUP BY size": ("ALL PRIVATE", 2),
    f"SELECT ts::DATE AS day, amount > 20 AS big, COUNT(*) AS n FROM orders WHERE {JANUARY} GROUP BY 1, 2 ORDER BY 1": (
        "ALL PRIVATE",
        12,
    ),
    "SELECT EXTRACT(year FROM ts) AS y, COUNT(*) AS n FROM orders GROUP BY y": ("TOP 5 PRIVATE", None),
    f"SELECT ts::DATE AS day, product, COUNT(*) AS n FROM orders WHERE {JANUARY} GROUP BY 1, 2": (
        "TOP 5 PRIVATE",
        None,
    ),
    "SELECT amount > 20 AS big, COUNT(*) AS n FROM orders GROUP BY 1 ORDER BY n DESC LIMIT 1": ("TOP 1 PRIVATE", 1),
}


@pytest.mark.parametrize("sql", READ)
def test_a_statement_of_a_tool_is_read_as_private(sql: str) -> None:
    session = session_over()
    clause, rows = READ[sql]
    answer = session.sql(sql)
    assert answer.receipt.read_as == clause
    assert f"read as {clause}" in str(answer.receipt)
    assert rows is None or len(answer) == rows
    assert dict(session.explain(sql).facts())["read as"] == clause
    assert session.sql(sql).receipt.replayed
    assert session.describe(sql).names == answer.columns


@pytest.mark.parametrize("k", [3, 7])
def test_private_after_limit_is_top_k_whatever_the_setting(k: int) -> None:
    session = session_over(implicit=False)
    sql = f"SELECT product, COUNT(DISTINCT user_id) AS n FROM orders GROUP BY product ORDER BY n DESC LIMIT {k} PRIVATE"
    answer = session.sql(f"{sql} WITH (epsilon = 1)")
    assert (len(answer), answer.receipt.read_as) == (k, f"TOP {k} PRIVATE")
    moved = sql.replace(f" LIMIT {k} PRIVATE", "").replace("ORDER BY n DESC", f"LIMIT {k} PRIVATE")
    assert session.sql(f"{moved} WITH (epsilon = 1) ORDER BY n DESC").receipt.replayed
    assert session.sql(f"SELECT * FROM ({sql} WITH (epsilon = 1)) AS x").receipt.replayed
    assert len(session.sql("SELECT DISTINCT product FROM orders LIMIT ? PRIVATE", [2])) == 2
    for wrong, code in ((sql.replace("DESC", "ASC"), "order"), (sql.replace("n DESC", "product"), "order")):
        with pytest.raises(Error) as refused:
            session.sql(wrong)
        assert refused.value.code == code
    with pytest.raises(Error, match="limit"):
        session.sql("SELECT COUNT(*) AS n FROM orders LIMIT 3 PRIVATE")


def test_the_statement_with_the_clause_is_the_same_question() -> None:
    session = session_over()
    plain = "SELECT product, COUNT(*) AS n FROM orders GROUP BY product ORDER BY n DESC LIMIT 3"
    answer = session.sql(plain)
    explicit = session.sql("SELECT product, COUNT(*) AS n FROM orders GROUP BY product ORDER BY n DESC TOP 3 PRIVATE")
    assert explicit.receipt.replayed
    assert explicit.fetchall() == sorted(answer.fetchall(), key=lambda row: -row[1])
    assert explicit.receipt.read_as == ""
    assert "read as" not in str(explicit.receipt)


COUNTS = "SELECT product, COUNT(*) AS n FROM orders GROUP BY product"
DAYS = f"SELECT ts::DATE AS day, COUNT(*) AS n FROM orders WHERE {JANUARY} GROUP BY 1"
ROW_CAP = 1_000
ONE_READING = {  # each row of the table in docs/reference/sql/standard-sql.md, written in every way
    f"{COUNTS} ORDER BY n DESC LIMIT 3": ("TOP 3 PRIVATE", 3),
    f"{COUNTS} ORDER BY 2 DESC LIMIT 3": ("TOP 3 PRIVATE", 3),
    f"{COUNTS} ORDER BY COUNT(*) DESC LIMIT 3": ("TOP 3 PRIVATE", 3),
    f"{COUNTS} ORDER BY n DESC, product LIMIT 3": ("TOP 3 PRIVATE", 3),
    f"{COUNTS} ORDER BY n DESC NULLS LAST LIMIT 3": ("TOP 3 PRIVATE", 3),
    f"{COUNTS} ORDER BY n DESC LIMIT 5 OFFSET 0": ("TOP 5 PRIVATE", 5),
    f"{COUNTS} ORDER BY n DESC LIMIT 6": ("TOP 5 PRIVATE", 5),
    f"{COUNTS} ORDER BY n DESC LIMIT ALL": ("TOP 5 PRIVATE", 5),
    f"{COUNTS} ORDER BY n DESC OFFSET 0 ROWS FETCH NEXT 2 ROWS ONLY": ("TOP 2 PRIVATE", 2),
    f"{COUNTS} ORDER BY n DESC FETCH FIRST ROW ONLY": ("TOP 1 PRIVATE", 1),
    f"{COUNTS} LIMIT 3": ("TOP 3 PRIVATE", 3),
    f"{COUNTS} ORDER BY product, n DESC": ("TOP 5 PRIVATE", 5),
    f"{COUNTS} ORDER BY product LIMIT {ROW_CAP}": ("TOP 5 PRIVATE", 5),
    f"{COUNTS} HAVING n > 100 ORDER BY n DESC LIMIT 3": ("TOP 3 PRIVATE", 3),
    f"{COUNTS} HAVING 100 <= COUNT(*) ORDER BY n DESC LIMIT 3": ("TOP 3 PRIVATE", 3),
    f"-- from a tool\n{COUNTS} /* TOP 7 PRIVATE */ LIMIT 3; -- LIMIT 4": ("TOP 3 PRIVATE", 3),
    f"({COUNTS} ORDER BY n DESC LIMIT 3);;": ("TOP 3 PRIVATE", 3),
    'SELECT product AS "product", COUNT(*) AS "count" FROM main.orders GROUP BY product '
    'ORDER BY "count" DESC LIMIT 1000': ("TOP 5 PRIVATE", 5),
    "SELECT COUNT(*), product FROM orders GROUP BY ALL": ("TOP 5 PRIVATE", 5),
    "SELECT product FROM orders GROUP BY product": ("TOP 5 PRIVATE", 5),
    "SELECT DISTINCT product, COUNT(*) AS n FROM orders GROUP BY product": ("TOP 5 PRIVATE", 5),
    "SELECT product, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY product ORDER BY s DESC, n DESC LIMIT 3": (
        "TOP 3 PRIVATE",
        3,
    ),
    "SELECT COUNT(*) AS n FROM orders HAVING COUNT(*) > 5": ("PRIVATE", 1),
    "SELECT COUNT(*) AS n FROM orders ORDER BY 1 LIMIT 50000": ("PRIVATE", 1),
    "SELECT COUNT(*) FROM (SELECT DISTINCT user_id, product FROM orders) AS pairs": ("PRIVATE", 1),
    "SELECT m, COUNT(DISTINCT user_id) AS n "
    "FROM (SELECT user_id, MIN(amount) > -1 AS m FROM orders GROUP BY user_id) AS u GROUP BY m": ("ALL PRIVATE", 3),
    f"{DAYS} ORDER BY day": ("ALL PRIVATE", 4),
    f"{DAYS} ORDER BY day DESC LIMIT 2": ("ALL PRIVATE", 2),
    f"{DAYS} ORDER BY n LIMIT 2": ("ALL PRIVATE", 2),
    f"{DAYS} HAVING n < 100000000": ("ALL PRIVATE", 4),
    f"WITH x AS ({COUNTS}) SELECT * FROM x ORDER BY n DESC LIMIT 2": ("TOP 5 PRIVATE", 2),
    f"WITH x AS ({COUNTS}) SELECT * FROM x ORDER BY n LIMIT 1000": ("TOP 5 PRIVATE", 5),
    f"WITH x AS ({COUNTS} ORDER BY n DESC LIMIT 5) SELECT * FROM x ORDER BY n LIMIT 2": ("TOP 5 PRIVATE", 2),
    f"SELECT SUM(n) FROM ({COUNTS} LIMIT 5) AS x": ("TOP 5 PRIVATE", 1),
    f"SELECT * FROM ({COUNTS}) AS x WHERE product NOT IN ('p7')": ("TOP 5 PRIVATE", 5),
    f"SELECT MAX(n) FROM ({DAYS}) AS x": ("ALL PRIVATE", 1),
}


@pytest.mark.parametrize("sql", ONE_READING)
def test_a_statement_means_the_same_however_it_is_written(sql: str) -> None:
    session = session_over()
    clause, rows = ONE_READING[sql]
    answer = session.sql(sql)
    assert answer.receipt.read_as == clause
    is_cut = clause.startswith("TOP")  # where noise may stop before the last group
    assert 1 <= len(answer) <= rows if is_cut else len(answer) == rows


def test_rows_come_in_the_order_of_the_statement() -> None:
    session = session_over()
    for order, key in (("n DESC", 1), ("product DESC", 0)):
        rows = session.sql(f"{COUNTS} ORDER BY {order}").fetchall()
        assert rows == sorted(rows, key=lambda row, key=key: row[key], reverse=True)  # type: ignore[misc]
    by_name = {row[0] for row in session.sql(f"{COUNTS} ORDER BY product LIMIT 1000").fetchall()}
    assert by_name == {row[0] for row in session.sql(f"{COUNTS} ORDER BY n DESC").fetchall()}  # one release


REFUSED = {
    f"{COUNTS} ORDER BY n": "order",
    f"{COUNTS} ORDER BY n ASC LIMIT 1000": "order",
    f"{COUNTS} ORDER BY -COUNT(*) LIMIT 3": "order",
    f"{COUNTS} ORDER BY AVG(amount) DESC LIMIT 3": "aggregate",
    f"{COUNTS} ORDER BY product LIMIT {ROW_CAP - 1}": "order",
    f"{COUNTS} ORDER BY n DESC FETCH FIRST 3 ROWS WITH TIES": "keyword",
    f"{COUNTS} ORDER BY n DESC LIMIT 1 + 1": "limit",
    f"{COUNTS} ORDER BY n DESC LIMIT '3'": "limit",
    f"{COUNTS} ORDER BY n DESC OFFSET 2": "limit",
    f"{COUNTS} HAVING n < 100": "having",
    f"{COUNTS} HAVING n = 100": "having",
    f"{COUNTS} HAVING SUM(amount) > 100": "having",
    f"{COUNTS} HAVING product > 'p2'": "having",
    "SELECT product, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY product HAVING s > 9": "having",
    f"SELECT COUNT(*) FROM ({COUNTS}) AS x": "wrapping",
    f"SELECT SUM(n) FROM ({COUNTS} ORDER BY n DESC LIMIT 1000) AS x": "wrapping",
    f"SELECT DISTINCT n FROM ({COUNTS}) AS x": "wrapping",
    f"SELECT n, COUNT(*) FROM ({COUNTS}) AS x GROUP BY n": "wrapping",
    f"WITH x AS ({COUNTS}), y AS (SELECT n FROM x) SELECT MIN(n) FROM y": "wrapping",
    f"WITH x AS ({COUNTS}) SELECT * FROM x ORDER BY n LIMIT 2": "wrapping",
    f"SELECT product FROM products WHERE product NOT IN (SELECT product FROM ({COUNTS}) AS x)": "wrapping",
    f"SELECT product FROM products p WHERE NOT EXISTS (SELECT 1 FROM ({COUNTS}) x WHERE x.product = p.product)": (
        "wrapping"
    ),
    "SELECT COUNT(*) FROM (SELECT DISTINCT product FROM orders) AS x": "wrapping",
    "SELECT product, COUNT(*) FROM products GROUP BY product HAVING product IN (SELECT product FROM orders)": (
        "subquery-private"
    ),
    f"{COUNTS} ORDER BY n LIMIT 3": "order",
    f"{COUNTS} ORDER BY product LIMIT 3": "order",
    "SELECT product, AVG(amount) AS m, COUNT(*) AS n FROM orders GROUP BY product ORDER BY m DESC LIMIT 3": "aggregate",
    "SELECT product, COUNT(*) AS n FROM orders GROUP BY product ORDER BY n DESC LIMIT 3 OFFSET 3": "limit",
    "SELECT product, COUNT(*) * amount AS n FROM orders GROUP BY product": "not-a-key",
    "SELECT product, SUM(amount) / COUNT(*) AS m FROM orders GROUP BY product ORDER BY m DESC LIMIT 3": "order",
    "SELECT product, COUNT(*) * 2 AS n FROM orders GROUP BY product ORDER BY n LIMIT 3": "order",
    "SELECT product, ROUND(AVG(amount), 2) AS m FROM orders GROUP BY product ORDER BY m DESC LIMIT 3": "aggregate",
    "SELECT date_trunc('day', ts) AS day, COUNT(*) AS n FROM orders GROUP BY day ORDER BY day": "domain",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_could_be_read_in_two_ways_is_refused_and_nothing_is_charged(sql: str) -> None:
    session = session_over()
    with pytest.raises(Error) as refused:
        session.sql(sql)
    assert refused.value.code == REFUSED[sql]
    assert refused.value.hint
    assert session.budget.refunded.spent == 0


@pytest.mark.parametrize("sql", list(READ)[::5])
def test_without_the_setting_a_private_table_needs_the_clause(sql: str) -> None:
    session = session_over(implicit=False)
    with pytest.raises(Error):
        session.sql(sql)
    assert session.budget.refunded.spent == 0


def test_public_tables_and_what_selects_no_row_stay_free() -> None:
    session = session_over()
    for sql, rows in (
        ("SELECT COUNT(*) FROM products", 1),
        ("SELECT product, COUNT(*) FROM orders GROUP BY product LIMIT 0", 0),
        ("SELECT * FROM orders WHERE 1 = 0", 0),
        ("SELECT 1", 1),
    ):
        answer = session.sql(sql)
        assert len(answer) == rows
        assert answer.receipt.items_charged == 0
        assert answer.receipt.read_as == ""


def test_the_setting_is_a_key_of_the_policy_and_a_keyword(tmp_path: Path) -> None:
    text = '[budget]\nepsilon = 1\ndelta = 1e-6\n[tables.orders]\nprivacy_unit = "user_id"\n'
    path = tmp_path / "policy.toml"
    path.write_text(f"{text}[sql]\nimplicit = true\n[limits]\ndefault_k = 7\n")
    policy = dpsql.Policy.from_toml(path)
    assert (policy.implicit, policy.limits.default_k) == (True, 7)
    assert not policy.with_implicit(implicit=False).implicit
    path.write_text(text)
    assert not dpsql.Policy.from_toml(path).implicit
    sql = "SELECT COUNT(DISTINCT user_id) FROM orders"
    with duckdb.connect() as connection:
        connection.execute(CREATE)
        with dpsql.connect(connection, policy=path, ledger=":memory:", implicit=True) as session:
            assert len(session.sql(sql)) == 1
        with dpsql.connect(connection, policy=path, ledger=":memory:") as session, pytest.raises(Error):
            session.sql(sql)
    for wrong in ('[sql]\nimplicit = "yes"\n', "[sql]\nimplied = true\n", "[limits]\ndefault_k = 0\n"):
        path.write_text(text + wrong)
        with pytest.raises(dpsql.PolicyError):
            dpsql.Policy.from_toml(path)
    with pytest.raises(dpsql.PolicyError, match="above max_k"):
        dpsql.Limits(default_k=20, max_k=10)


def test_a_refusal_of_what_the_first_groups_would_answer_says_what_to_write() -> None:
    session = session_over()
    with pytest.raises(Error) as refused:
        session.sql(f"SELECT AVG(n) FROM ({COUNTS}) AS x")
    assert "LIMIT 5" in refused.value.hint
    assert session.sql(f"SELECT AVG(n) FROM ({COUNTS} LIMIT 5) AS x").receipt.read_as == "TOP 5 PRIVATE"
    with pytest.raises(Error) as refused:
        session.sql(f"{COUNTS} HAVING n < 100")
    assert "HAVING ... >= 100" in refused.value.hint
    assert session.sql(f"{COUNTS} HAVING n >= 100").receipt.read_as
    with pytest.raises(Error) as refused:
        session.sql(f"SELECT * FROM ({COUNTS}) AS x WHERE n < 100")
    assert session.sql(refused.value.hint.partition(": ")[2]).receipt.read_as == "TOP 5 PRIVATE"


MISSPELT = {
    "SELECT product, COUNT(*) AS readers FROM orders GROUP BY product ORDER BY reeders DESC LIMIT 3": "readers",
    "SELECT product, COUNT(*) AS readers FROM orders GROUP BY product HAVING reeders > 5": "readers",
    "SELECT product, COUNT(*) * 2 AS readers FROM orders GROUP BY 1 ORDER BY reeders DESC LIMIT 3": "readers",
    "SELECT product, COUNT(*) AS n FROM orders o GROUP BY 1 ORDER BY o.prodict DESC NULLS LAST LIMIT 3": "product",
    "SELECT product, COUNT(*) AS n FROM orders GROUP BY 1 HAVING nn > 5": "",
}


@pytest.mark.parametrize("sql", MISSPELT)
def test_a_misspelt_name_in_order_by_or_having_is_called_so(sql: str) -> None:
    with pytest.raises(Error) as refused:
        session_over().sql(sql)
    assert refused.value.code == "unknown-column"
    assert (f"Did you mean {MISSPELT[sql]}?" in refused.value.hint) == bool(MISSPELT[sql])
    assert ("readers" if "readers" in sql else " n,") in refused.value.hint


OF_ONE_UNIT = [
    "SELECT user_id, COUNT(*) FROM orders GROUP BY user_id ORDER BY 2 DESC LIMIT 5",
    "SELECT o.user_id, product, COUNT(*) FROM orders o WHERE amount > 0 GROUP BY product, o.user_id",
    "SELECT user_id AS u, COUNT(*) FROM orders GROUP BY u LIMIT 5",
    "SELECT user_id, COUNT(*) FROM orders GROUP BY 1 LIMIT 5",
    "SELECT user_id, COUNT(*) FROM orders GROUP BY ALL LIMIT 5",
    "SELECT DISTINCT user_id FROM orders",
]


@pytest.mark.parametrize("sql", OF_ONE_UNIT)
@pytest.mark.parametrize("implicit", [True, False])
def test_groups_of_one_unit_are_refused_with_the_reason_and_a_total(sql: str, implicit: bool) -> None:
    session = session_over(implicit=implicit)
    with pytest.raises(Error) as refused:
        session.sql(sql)
    assert "Each group would be one user_id" in refused.value.reason
    assert len(session.sql(refused.value.hint.partition(": ")[2])) == 1


def test_what_is_computed_from_the_unit_is_a_key() -> None:
    for key in ("1", "half", "ALL"):
        sql = f"SELECT user_id % 2 AS half, COUNT(*) AS n FROM orders GROUP BY {key} LIMIT 2"
        assert session_over().sql(sql).receipt.read_as == "TOP 2 PRIVATE"


def test_rows_as_they_are_are_refused_with_the_reason() -> None:
    for sql in ("SELECT * FROM orders", "SELECT product, amount FROM orders LIMIT 10", "SELECT amount FROM orders"):
        session = session_over()
        with pytest.raises(Error) as refused:
            session.sql(sql)
        assert "Rows are not released as they are" in refused.value.reason
        assert len(session.sql(refused.value.hint.partition(": ")[2]))


SAID = {
    "SELECT CUONT(*) FROM orders": "Did you mean count?",
    "SELECT product, CUONT(*) FROM orders GROUP BY product": "Did you mean count?",
    "SELECT SUMM(amount) FROM orders": "Did you mean sum?",
    "SELECT MODE(amount) FROM orders": "Write COUNT(DISTINCT user_id), or COUNT(*), SUM or AVG.",
    "SELECT COUNT(*) FROM (SELECT user_id, amount FROM orders GROUP BY ROLLUP (user_id, amount)) AS x": (
        "one with GROUP BY user_id, amount, one with GROUP BY user_id and one without for the total."
    ),
    "SELECT COUNT(*) FROM (SELECT user_id, amount FROM orders GROUP BY CUBE (user_id, amount)) AS x": (
        "one with GROUP BY user_id, amount, one with GROUP BY user_id, one with GROUP BY amount and one without"
    ),
    "SELECT COUNT(*) FROM (SELECT user_id FROM orders GROUP BY GROUPING SETS ((user_id), (user_id, amount))) AS x": (
        "each grouping: one with GROUP BY user_id and one with GROUP BY user_id, amount."
    ),
    "SELECT COUNT(*) FROM (SELECT user_id FROM orders GROUP BY user_id WITH ROLLUP) AS x": "with GROUP BY and its keys",
    "SELECT COUNT(*) FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)": "in a statement of its own, and",
    "SELECT SUM(amount > 2) FROM orders": (
        "Write COUNT(*) FILTER (WHERE amount > 2), or SUM(CAST(amount > 2 AS INTEGER))."
    ),
    "SELECT AVG(2 < length(product)) FROM orders": (
        "COUNT(*) FILTER (WHERE 2 < length(product)), or AVG(CAST(2 < length(product) AS INTEGER))."
    ),
    "SELECT SUM(product) FROM orders": "Write SUM(CAST(product AS DOUBLE), contribution_bounds_per_group => (0, 500))",
}


@pytest.mark.parametrize("sql", SAID)
def test_a_hint_speaks_of_the_statement(sql: str) -> None:
    with pytest.raises(Error) as refused:
        session_over().sql(sql)
    assert SAID[sql] in refused.value.hint
    assert "TOP k PRIVATE" not in refused.value.hint


def test_one_statement_may_be_read_otherwise_than_the_session() -> None:
    for default in (True, False):
        session = session_over(implicit=default)
        for implicit in (True, False, None):
            if default if implicit is None else implicit:
                assert 1 <= len(session.sql(COUNTS, implicit=implicit)) <= 5
                assert session.replay(COUNTS, implicit=implicit).receipt.replayed
                assert session.describe(COUNTS, implicit=implicit).names == ["product", "n"]
                assert session.prepare(COUNTS, implicit=implicit).schema.names == ["product", "n"]
                assert session.explain(COUNTS, implicit=implicit).worst_items == 10
                assert session.forecast(COUNTS, implicit=implicit).at_worst
                continue
            for act in (
                session.sql,
                session.replay,
                session.describe,
                session.prepare,
                session.explain,
                session.forecast,
            ):
                with pytest.raises(Error):
                    act(COUNTS, implicit=implicit)


def test_a_bound_limit_is_the_number_of_groups() -> None:
    session = session_over()
    sql = f"{COUNTS} ORDER BY n DESC LIMIT $1"
    for limit, clause in ((3, "TOP 3 PRIVATE"), (1000, "TOP 5 PRIVATE"), (0, "")):
        answer = session.sql(sql, [limit])
        assert answer.receipt.read_as == clause
        assert len(answer) <= limit
    offset = f"{sql} OFFSET $2"
    assert 1 <= len(session.sql(offset, [3, 0])) <= 3
    with pytest.raises(Error, match="OFFSET"):
        session.sql(offset, [3, 2])


def test_parameters_keep_their_places() -> None:
    session = session_over()
    sql = "SELECT product, COUNT(*) AS n FROM orders WHERE amount > ? GROUP BY product ORDER BY n DESC LIMIT 2"
    assert len(session.sql(sql, [10])) == 2
    assert session.prepare(sql).parameters == ("DOUBLE",)
    limited = sql.replace("LIMIT 2", "LIMIT ?")
    assert len(session.sql(limited, [10, 4])) == 4


def test_errors_point_into_the_text_that_was_written() -> None:
    session = session_over()
    text = "SELECT product,\n  MODE(amount) AS m\nFROM orders GROUP BY product LIMIT 3"
    with pytest.raises(Error) as refused:
        session.sql(text)
    place = refused.value.place
    assert isinstance(place, dpsql.errors.Place)
    assert text.split("\n")[place.line - 1][place.column - 1 :].startswith(place.fragment)


SERIES = (
    f"SELECT date_trunc('day', ts) AS day, COUNT(*) AS n, AVG(amount) AS mean FROM orders WHERE {JANUARY} GROUP BY day"
)
TOTALS = (
    "SELECT COUNT(*) AS n, SUM(amount) AS a, COUNT(DISTINCT user_id) AS c, COUNT(amount) AS d, "
    "COUNT(*) FILTER (WHERE amount > 9) AS e, COUNT(*) FILTER (WHERE amount > 19) AS f FROM orders"
)
TOO_DEAR = {
    "SELECT product, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY product ORDER BY n DESC LIMIT 4": [
        "SELECT product, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY product ORDER BY n DESC LIMIT {LIMIT}",
        "SELECT product, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY product ORDER BY n DESC {TOP}",
    ],
    "SELECT DISTINCT product FROM orders": ["SELECT DISTINCT product FROM orders LIMIT {LIMIT}"],
    f"{SERIES} ORDER BY day": [f"{SERIES} ORDER BY day {{GROUPS}}", f"{SERIES} ORDER BY day {{ALL}}"],
    TOTALS: [f"{TOTALS} {{TOTAL}}"],
}
WRITTEN = {
    "LIMIT": r"\bLIMIT (\d+) at",
    "TOP": r"(TOP \d+ PRIVATE WITH \(epsilon = \S+\)) in place of LIMIT",
    "GROUPS": r"(ALL PRIVATE WITH \(max_groups_contributed = \d+\)) at its end",
    "ALL": r"(ALL PRIVATE WITH \(epsilon = \S+\)) at its end",
    "TOTAL": r"(?<!ALL )(PRIVATE WITH \(epsilon = \S+\)) at its end",
}


@pytest.mark.parametrize("sql", TOO_DEAR)
def test_what_would_fit_into_the_budget_can_be_written_into_standard_sql(sql: str) -> None:
    budget = dpsql.Budget(1, "1e-6", items=5, queries=1)
    limits = dpsql.Limits(default_k=6)
    with session_over(dpsql.Policy(budget, TABLES, implicit=True, limits=limits)) as session:
        with pytest.raises(dpsql.BudgetExceeded) as short:
            session.sql(sql)
        hint = str(short.value.hint)
        found = {name: match[1] for name, pattern in WRITTEN.items() if (match := re.search(pattern, hint))}
        assert {name for text in TOO_DEAR[sql] for name in WRITTEN if f"{{{name}}}" in text} <= found.keys(), hint
        for text in TOO_DEAR[sql]:
            (worst,) = session.explain_all(text.format(**found))
            assert worst.price(worst.worst_case).refundable <= session.budget.remaining.refundable


def test_options_of_the_whole_query_are_made_smaller_where_they_are_written() -> None:
    sql = """SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {}, delta = 1e-7)
        product, COUNT(DISTINCT user_id) AS n FROM orders GROUP BY product"""
    with session_over(dpsql.Policy(dpsql.Budget(1, "1e-6"), TABLES)) as session:
        with pytest.raises(dpsql.BudgetExceeded) as short:
            session.sql(sql.format(2))
        assert short.value.hint == "Write a smaller epsilon into OPTIONS."
        session.sql(sql.format("0.5"))


def test_hints_about_an_order_that_is_not_private_work() -> None:
    counts = "SELECT product, COUNT(DISTINCT user_id) AS n FROM orders GROUP BY product"
    with session_over() as session:
        with pytest.raises(dpsql.Refusal) as refused:
            session.sql(f"{counts} ORDER BY n LIMIT 5")
        assert "Write ORDER BY n DESC, or end the query with TOP 5 PRIVATE ORDER BY n" in str(refused.value.hint)
        session.sql(f"{counts} ORDER BY n DESC LIMIT 5")
        session.sql(f"{counts} TOP 5 PRIVATE ORDER BY n")
        with pytest.raises(dpsql.Refusal) as refused:
            session.sql(f"SELECT COUNT(*) AS n FROM ({counts}) AS t")
        assert "End the inner query with LIMIT 5" in str(refused.value.hint)
        session.sql(f"SELECT COUNT(*) AS n FROM ({counts} LIMIT 5) AS t")


@pytest.mark.parametrize(("asked", "key"), [("product, amount", "product"), ("amount", "amount"), ("*", "product")])
def test_the_hint_of_plain_rows_counts_the_column_that_was_asked_for(asked: str, key: str) -> None:
    with session_over(implicit=False) as session:
        with pytest.raises(dpsql.Refusal) as refused:
            session.sql(f"SELECT {asked} FROM orders")
        text = str(refused.value.hint).partition(": ")[2]
        assert text.startswith(f"SELECT {key}, ")
        session.sql(text)


def test_the_receipt_of_several_queries_says_what_each_returned() -> None:
    with session_over() as session:
        answer = session.sql(
            "SELECT a.n, b.product FROM (SELECT COUNT(*) AS n FROM orders) AS a, "
            "(SELECT product FROM orders WHERE product = 'none' GROUP BY product ORDER BY COUNT(*) DESC LIMIT 3) AS b"
        )
        assert str(answer.receipt).startswith("2 private queries; answered 1 of 1 and 0 of 3; ")


def test_the_name_of_an_expression_is_no_noun() -> None:
    with session_over() as session:
        sql = (
            "SELECT product || ts::VARCHAR || user_id AS seen FROM orders GROUP BY seen ORDER BY COUNT(*) DESC LIMIT 3"
        )
        assert session.sql(sql).explanation.startswith("No value of seen stood out, or there is none.")
