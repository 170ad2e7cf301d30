"""The everyday language, through a session: the fifteen forms that analysts try, SHOW, DESCRIBE, public queries."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from support.session_kit import filled, session_on, shared

import dpsql
from dpsql.accounting import ZCDP
from dpsql.session import Session

POLICY = dpsql.Policy(
    dpsql.Budget(50, "1e-6", items=1_000, queries=1_000),
    {
        "reads": dpsql.PrivateTable("user_id", max_groups_contributed=9, min_units=3),
        "likes": dpsql.PrivateTable("user_id", ["user_id", "article"]),
        "articles": dpsql.PublicTable(),
    },
)
TABLES = (
    """CREATE TABLE reads AS SELECT i % 2000 AS user_id, 'a' || i % 7 AS article, ['DE', 'FR'][1 + i % 2] AS country
    FROM range(9000) t(i)""",
    "CREATE TABLE likes AS SELECT user_id, article, country FROM reads",
    """CREATE TABLE articles AS SELECT 'a' || i AS article, CASE WHEN i < 3 THEN 'news' ELSE 'sport' END AS topic
    FROM range(9) t(i)""",
    "CREATE TABLE hidden AS SELECT 1 AS x",
)
COUNT = "COUNT(DISTINCT user_id)"
NEWS = "SELECT article FROM articles WHERE topic = 'news'"

# a form that is refused, what its hint says to write, and the statement that follows it
REFUSED = {
    "count star": (
        "SELECT article, COUNT(*) AS n FROM reads GROUP BY article TOP 3 PRIVATE",
        "COUNT(DISTINCT user_id)",
        f"SELECT article, {COUNT} AS n FROM reads GROUP BY article TOP 3 PRIVATE",
    ),
    "per partition": (
        "SELECT country, article, row_number() OVER (PARTITION BY country) AS r FROM reads GROUP BY ALL TOP 3 PRIVATE",
        "TOP 3 PRIVATE PER country WITH (partitions = ['DE', 'FR'])",
        "SELECT country, article FROM reads GROUP BY ALL TOP 3 PRIVATE PER country WITH (partitions = ['DE', 'FR'])",
    ),
    "qualify": (
        "SELECT country, article FROM reads GROUP BY ALL QUALIFY rank() OVER (PARTITION BY country) <= 3 TOP 9 PRIVATE",
        "TOP 3 PRIVATE PER country WITH (partitions = ['DE', 'FR'])",
        "SELECT country, article FROM reads GROUP BY ALL TOP 3 PRIVATE PER country WITH (partitions = ['DE', 'FR'])",
    ),
    "union all": (
        "SELECT article FROM (SELECT * FROM reads UNION ALL SELECT * FROM likes) AS b GROUP BY article TOP 3 PRIVATE",
        "Select the same columns on both sides",
        (
            "SELECT article FROM (SELECT user_id, article FROM reads UNION ALL SELECT user_id, article FROM likes) AS b"
            " GROUP BY article TOP 3 PRIVATE"
        ),
    ),
    "having on a key": (
        "SELECT article FROM reads GROUP BY article HAVING article <> 'a1' TOP 3 PRIVATE",
        "test keys in WHERE",
        "SELECT article FROM reads WHERE article <> 'a1' GROUP BY article TOP 3 PRIVATE",
    ),
    "no clause": (
        "SELECT article FROM reads GROUP BY article ORDER BY 1 LIMIT 3",
        "Write TOP 3 PRIVATE in place of LIMIT 3.",
        "SELECT article FROM reads GROUP BY article ORDER BY 1 TOP 3 PRIVATE",
    ),
    "public top": (
        "SELECT topic FROM articles GROUP BY topic TOP 3 PRIVATE",
        "write ORDER BY ... LIMIT k",
        "SELECT topic FROM articles GROUP BY topic ORDER BY COUNT(*) DESC LIMIT 3",
    ),
}


@pytest.fixture
def session() -> Session:
    return session_on(shared(*TABLES), POLICY)


@pytest.mark.parametrize("form", REFUSED)
def test_a_form_is_refused_with_the_rewriting_that_works(form: str, session: Session) -> None:
    text, hint, rewritten = REFUSED[form]
    before = session.budget
    with pytest.raises((dpsql.Refusal, dpsql.Unsupported)) as raised:
        session.sql(text)
    assert hint in raised.value.hint
    assert session.budget == before
    assert len(session.sql(rewritten)) >= 1


def test_having_filters_what_was_released_and_saves_nothing(session: Session) -> None:
    plain = f"SELECT article, {COUNT} AS n FROM reads GROUP BY article TOP 5 PRIVATE WITH (epsilon = 0.9)"
    plain = plain.replace("0.9)", "0.9, fresh = true)")
    strict = session.sql(plain.replace("TOP 5", "HAVING n > 1000000000 TOP 5"))
    assert strict.fetchall() == []
    assert strict.receipt.items_charged == session.sql(plain).receipt.items_charged == 10
    loose = session.sql(plain.replace("TOP 5", "HAVING n > -1000000000 AND n <> 0.5 TOP 5"))
    assert len(loose) == 5
    assert not loose.receipt.replayed


@pytest.mark.parametrize(
    ("term", "passes"),
    [
        ("n = 7", {7}),
        ("n <> 7", {6, 8}),
        ("n < 7", {6}),
        ("n <= 7", {6, 7}),
        ("n > 7", {8}),
        ("7 <= n", {7, 8}),
        ("6.5 > n", {6}),
        ("-7 <> n", {6, 7, 8}),
    ],
)
def test_having_compares_as_it_is_written(term: str, passes: set[int], session: Session) -> None:
    import pyarrow as pa

    from dpsql.plan.release import filter_rows

    query = session.explain(
        f"SELECT article, {COUNT} AS n FROM reads GROUP BY article HAVING {term} TOP 5 PRIVATE"
    ).query
    table = pa.table({"article": ["x", "y", "z"], "n": [6, 7, 8]})
    assert set(filter_rows(table, query.keep).column("n").to_pylist()) == passes


def test_show_tables_says_what_the_policy_exposes(session: Session) -> None:
    answer = session.sql("SHOW TABLES")
    assert answer.arrow().column_names == ["name", "kind", "privacy_unit", "max_groups_contributed", "min_units"]
    assert answer.fetchall() == [
        ("reads", "private", "user_id", 9, 3),
        ("likes", "private", "user_id", None, None),
        ("articles", "public", None, None, None),
    ]
    assert answer.receipt.loss == ZCDP.nothing()


def test_describe_says_what_columns_exist(session: Session) -> None:
    assert session.sql("DESCRIBE likes").fetchall() == [
        ("user_id", "BIGINT", True, False),
        ("article", "VARCHAR", False, False),
    ]
    assert session.sql("DESC main.articles").fetchall() == [
        ("article", "VARCHAR", False, False),
        ("topic", "VARCHAR", False, False),
    ]
    for text in ("DESCRIBE hidden", "SELECT x FROM hidden, articles"):
        with pytest.raises(dpsql.Refusal) as raised:
            session.sql(text)
        assert raised.value.code == "unknown-table"


@pytest.mark.parametrize("text", ["SHOW TABLES", "DESCRIBE reads", "SELECT * FROM articles", "SHOW BUDGET"])
def test_what_reads_no_private_row_is_free_even_when_nothing_is_left(text: str, tmp_path: Path) -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6", items=1), POLICY.tables, ledger=tmp_path / "ledger.sqlite")
    with dpsql.connect(shared(*TABLES), policy=policy) as session:
        session.sql("SELECT article FROM reads GROUP BY article TOP 1 PRIVATE")
        with pytest.raises(dpsql.BudgetExceeded):
            session.sql("SELECT article FROM reads GROUP BY article TOP 1 PRIVATE WITH (fresh = true)")
        spent = (tmp_path / "ledger.sqlite").read_bytes()
        answer = session.sql(text)
        assert str(answer.receipt) == "no private row was read; nothing was charged"
        assert answer.receipt.loss == ZCDP.nothing()
        assert (tmp_path / "ledger.sqlite").read_bytes() == spent


def test_a_public_query_is_answered_exactly(session: Session) -> None:
    answer = session.sql(
        "SELECT topic, COUNT(*) AS n FROM articles GROUP BY topic HAVING COUNT(*) > ? ORDER BY n LIMIT ?", [1, 9]
    )
    assert answer.arrow().column_names == ["topic", "n"]
    assert answer.fetchall() == [("news", 3), ("sport", 6)]
    assert answer.statement().endswith("read no private row.")
    with pytest.raises(dpsql.Refusal):
        session.explain("SELECT topic FROM articles")


def test_a_public_answer_has_at_most_a_million_rows() -> None:
    session = session_on(
        shared(*TABLES, "CREATE OR REPLACE TABLE articles AS SELECT i AS article FROM range(1000001) t(i)"), POLICY
    )
    with pytest.raises(dpsql.Unsupported) as raised:
        session.sql("SELECT * FROM articles")
    assert raised.value.code == "too-many-rows"
    assert len(session.sql("SELECT * FROM articles LIMIT 1000000")) == 1_000_000


def test_a_public_query_that_the_engine_cannot_answer_charges_nothing() -> None:
    connection = filled(*TABLES)
    session = session_on(connection, POLICY)
    before = session.budget
    connection.execute("DROP TABLE articles")
    with pytest.raises(dpsql.EngineError) as raised:
        session.sql("SELECT * FROM articles")
    assert "charged" not in raised.value.reason
    assert session.budget == before


@pytest.mark.parametrize(
    ("text", "given", "code"),
    [
        (
            "SELECT abs(CASE WHEN article IN ({news}) THEN 1 END) AS k FROM reads GROUP BY k TOP 3 PRIVATE",
            [],
            "subquery",
        ),
        (
            "SELECT 1 AS k FROM reads WHERE 1 + CASE WHEN article IN ({news}) THEN 1 END > 1 GROUP BY k TOP 3 PRIVATE",
            [],
            "subquery",
        ),
        (
            "SELECT article FROM reads JOIN (SELECT x.* FROM articles) AS a ON TRUE GROUP BY 1 TOP 3 PRIVATE",
            [],
            "unknown-table",
        ),
        ("SELECT article FROM reads, (SELECT FROM articles) AS a GROUP BY 1 TOP 3 PRIVATE", [], "syntax"),
        ("SELECT article FROM reads WHERE article LIKE ? GROUP BY 1 TOP 3 PRIVATE", [date(2026, 1, 1)], "pattern"),
        ("SELECT article FROM likes GROUP BY 1 TOP 3 PRIVATE WITH (domain = ?)", [["\ud800"]], "parameter-type"),
        ("SELECT (TRUE IN ((article IN ({news})))) AS k FROM reads GROUP BY k TOP 3 PRIVATE", [], "precedence"),
    ],
)
def test_what_the_engine_would_not_bind_is_refused_before_anything_is_charged(
    text: str, given: list[object], code: str
) -> None:
    session = session_on(shared(*TABLES), POLICY)
    before = session.budget
    for ask in (session.sql, session.explain):
        with pytest.raises(dpsql.Error) as raised:
            ask(text.replace("{news}", NEWS), given)
        assert raised.value.code == code
        assert raised.value.hint
    assert session.budget == before


def test_a_public_answer_of_any_type_can_be_fetched() -> None:
    session = session_on(shared(*TABLES[:2], "CREATE TABLE articles AS SELECT * FROM test_all_types()"), POLICY)
    answer = session.sql("SELECT * FROM articles")
    assert len(answer.fetchall()) == 3
    assert "24:00:00-15:59:59" in repr(answer)
    assert len(answer.df()) == 3
