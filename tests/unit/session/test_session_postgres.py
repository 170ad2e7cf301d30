"""Sessions that read a text as PostgreSQL does: SELECTs around private queries and over public tables."""

from __future__ import annotations

import pytest
from support.session_kit import session_on, shared

import dpsql
from dpsql.session import Session

VISITS = """
CREATE TABLE visits AS SELECT u AS user_id, 'k' || (u % 4) AS k, (u % 10)::BIGINT AS b, (u % 10)::SMALLINT AS sm
FROM range(4000) AS t(u)
"""
FACTS = r"""
CREATE TABLE facts AS
SELECT * FROM (VALUES (1, 'a_b', 'a\_b', 7), (2, 'axb', 'a\', -7), (3, NULL, 'b', NULL)) AS t(id, t, pattern, n)
"""
UP_TO_TEN = {"min": 0, "max": 10}
POLICY = dpsql.Policy(
    dpsql.Budget(100, "1e-2", items=300),
    {
        "visits": dpsql.PrivateTable("user_id", bounds={"rows": 1, "b": UP_TO_TEN, "sm": UP_TO_TEN}),
        "facts": dpsql.PublicTable(),
    },
    limits=dpsql.Limits(max_epsilon=50),
    implicit=True,
)
INNER = "(SELECT k, COUNT(*) AS n, SUM(b) AS s, SUM(sm) AS sm FROM visits GROUP BY k ORDER BY 2 DESC LIMIT 4) AS x"


@pytest.fixture(scope="module")
def session() -> Session:
    return session_on(shared(VISITS, FACTS), POLICY)


def read(session: Session, text: str, *values: object) -> list[object]:
    return [value for (value, *_) in session.sql(text, values, postgres=True).fetchall()]


@pytest.mark.parametrize(
    ("expression", "values", "wanted"),
    [
        (r"t LIKE 'a\_b'", [], [True, False, None]),
        (r"t NOT LIKE 'a\_b'", [], [False, True, None]),
        ("t LIKE ?", [r"a\_b"], [True, False, None]),
        ("t ILIKE ?", [r"A\_%"], [True, False, None]),
        ("t ~~ ?", ["a_b"], [True, True, None]),
        ("t LIKE pattern", [], [True, False, None]),
        ("'a' LIKE pattern", [], [False, True, False]),  # one ends in its escape, where PostgreSQL stops
        (r"t LIKE 'a\_b' ESCAPE ''", [], [False, False, None]),
        ("t LIKE 'a!_b' ESCAPE '!'", [], [True, False, None]),
        ("n / 2", [], [3, -3, None]),
        ("n / ?", [2], [3, -3, None]),
        ("n / 2.0", [], [3.5, -3.5, None]),
        ("n / 0", [], [None, None, None]),
        ("n / (n - 7)", [], [None, 0, None]),
        ("sum(n) OVER (ORDER BY id) / 2", [], [3.5, 0.0, 0.0]),
        ("count(*) OVER () / 2", [], [1, 1, 1]),
        ("round(n) / 2", [], [3.5, -3.5, None]),
        ("date_part('day', DATE '2026-01-03') / 2", [], [1.5, 1.5, 1.5]),
        ("substring(t, 0, 3)", [], ["a_", "ax", None]),
        ("substring(t, ?)", [-1], ["a_b", "axb", None]),
        ("'a\nb' ~ 'a.b'", [], [True, True, True]),
        ("'a\nb' ~* ?", ["A.B"], [True, True, True]),
        ("regexp_matches(t, 'A.', 'i')", [], [True, True, None]),
        ("row_number() OVER (ORDER BY n DESC)", [], [2, 3, 1]),
        ("(SELECT string_agg(coalesce(t, '-'), ',' ORDER BY t DESC) FROM facts)", [], ["-,axb,a_b"] * 3),
        ("(interval '1 day' / 2)::text", [], ["12:00:00"] * 3),
        ("((TIMESTAMP '2026-01-02' - TIMESTAMP '2026-01-01') / 2)::text", [], ["12:00:00"] * 3),
        ("(n * interval '1 hour' / 7 + n / 2 * interval '1 hour')::text", [], ["04:00:00", "-04:00:00", None]),
        ("list_transform([n], lambda x: x / 2)", [], ["[3]", "[-3]", "[NULL]"]),
    ],
)
def test_an_expression_that_duckdb_computes_means_what_it_does_in_postgres(
    expression: str, values: list[object], wanted: list[object], session: Session
) -> None:
    assert read(session, f"SELECT {expression}, ARRAY[1] FROM facts ORDER BY id", *values) == wanted


@pytest.mark.parametrize("text", ["SELECT n FROM facts ORDER BY n DESC", "SELECT n, [1] FROM facts ORDER BY n DESC"])
def test_nulls_come_first_where_an_order_falls(text: str, session: Session) -> None:
    assert read(session, text) == [None, 7, -7]
    assert read(session, f"{text} NULLS LAST") == [7, -7, None]


def test_the_names_of_columns_stay(session: Session) -> None:
    text = "SELECT n / 2, t LIKE pattern, sum(n) OVER () / 2, n + 1, n / 2 AS half, [1] FROM facts"
    assert session.sql(text, postgres=True).columns == session.sql(text).columns


@pytest.mark.parametrize("end", ["ORDER BY k", "ORDER BY k, ARRAY[1]"])
def test_a_select_around_a_private_query_divides_as_postgres(end: str, session: Session) -> None:
    text = f"SELECT n / 3, s / 3, sm / 3, n, s, sm FROM {INNER} {end}"
    for count, total, small, *released in session.sql(text, postgres=True).fetchall():
        assert count == int(released[0]) // 3
        assert total == pytest.approx(float(released[1]) / 3)  # the sum of a BIGINT is NUMERIC
        assert small == int(released[2]) // 3  # and that of a SMALLINT a BIGINT
        assert isinstance(small, int)


def test_shares_of_a_total_are_no_whole_numbers(session: Session) -> None:
    shares = read(session, f"SELECT 100 * n / sum(n) OVER () FROM {INNER}")
    assert all(24 < float(str(share)) < 26 for share in shares)
    assert sum(float(str(share)) for share in shares) == pytest.approx(100)


@pytest.mark.parametrize("end", ["", ", [1]"])
def test_a_share_of_a_sum_that_a_subquery_computes_is_no_whole_number(end: str, session: Session) -> None:
    sums = "SELECT id % 2 AS odd, sum(abs(n)) AS s FROM facts GROUP BY 1"
    shares = f"WITH q AS ({sums}), r AS (SELECT *, sum(s) OVER () AS t FROM q) SELECT s / t{end} FROM r"
    assert read(session, shares) == [0.5, 0.5]
    counts = "SELECT id % 2 AS odd, count(*) AS c FROM facts GROUP BY 1"
    assert read(session, f"SELECT c / 2{end} FROM ({counts}) AS q ORDER BY c") == [0, 1]


def test_a_sum_of_a_subquery_is_cast_before_a_private_query_divides_it(session: Session) -> None:
    sums = "(SELECT user_id, SUM(b) AS s FROM visits GROUP BY user_id) AS x"
    text = f"SELECT COUNT(DISTINCT user_id) FROM {sums} WHERE s / 2 >= 4"
    with pytest.raises(dpsql.Unsupported, match="NUMERIC"):
        session.sql(text, postgres=True)
    for cast, wanted in (("DOUBLE", 800), ("BIGINT", 800)):
        (count,) = read(session, text.replace("s / 2", f"CAST(s AS {cast}) / 2"))
        assert abs(int(str(count)) - wanted) < 40


def test_a_quotient_of_measures_is_that_of_their_types(session: Session) -> None:
    ((whole, share),) = session.sql(
        "SELECT SUM(sm) / COUNT(*), SUM(b) / COUNT(*) FROM visits", postgres=True
    ).fetchall()
    assert (whole, type(whole)) == (4, int)
    assert share == pytest.approx(4.5, abs=0.1)


@pytest.mark.parametrize("text", [f"SELECT k LIKE 'a\\', [n] FROM {INNER}", f"SELECT k LIKE ?, [n] FROM {INNER}"])
def test_a_pattern_that_ends_in_its_escape_is_refused_before_anything_is_charged(text: str, session: Session) -> None:
    charges = session.history.num_rows
    values = ["k\\"] if "?" in text else []
    with pytest.raises(dpsql.Refusal) as refused:
        session.sql(text, values, postgres=True)
    assert refused.value.code == "pattern"
    assert session.history.num_rows == charges


def test_what_is_read_alike_is_one_question(session: Session) -> None:
    text = "SELECT COUNT(DISTINCT user_id) FROM visits WHERE k LIKE 'k1%' AND b / 2 = 2"
    (answer,) = read(session, text)
    charges = session.history.num_rows
    assert session.sql(text.replace("/", "//")).fetchall() == [(answer,)]
    assert session.sql(f"SELECT n + 0 FROM ({text.replace('/', '//').replace(')', ') AS n', 1)}) AS x").fetchall() == [
        (answer,)
    ]
    assert session.history.num_rows == charges
    session.sql(text)
    assert session.history.num_rows == charges + 1


def test_a_repeated_statement_is_found_by_how_it_is_read(session: Session) -> None:
    text = "SELECT n / 2 FROM facts ORDER BY id LIMIT 1"
    for postgres, value in ((True, 3), (False, 3.5), (True, 3), (False, 3.5)):
        assert session.sql(text, postgres=postgres).fetchall() == [(value,)]
    assert session.prepare(text, postgres=True).schema != session.prepare(text).schema


def test_a_stored_answer_is_peeked_at_by_how_it_is_read(session: Session) -> None:
    text = "SELECT COUNT(DISTINCT user_id) FROM visits WHERE b / 2 = 3"
    for postgres in (True, False):
        session.sql(text, postgres=postgres)
    for postgres in (True, False):
        assert session.peek(text, postgres=postgres) is None  # nothing is stored under how it is read here
        stored = session.sql(text, postgres=postgres).fetchall()
        known = session.peek(text, postgres=postgres)
        assert known is not None
        assert known.fetchall() == stored


def test_a_tree_with_types_that_are_no_text_is_read(session: Session) -> None:
    text = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 3) SELECT sum(i) / 4, [1] FROM r"
    assert read(session, text) == [1.5]
    assert read(session, "SELECT n / 2, [1] FROM facts USING SAMPLE 100 PERCENT ORDER BY id") == [3, -3, None]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("SELECT b / 2 AS h FROM visits GROUP BY 1 TOP 4 PRIVATE", "SELECT b / 2 AS h FROM visits GROUP BY 1 TOP 2"),
        (
            "SELECT b / 2 AS h FROM visits GROUP BY 1 TOP 4 PRIVATE",
            "SELECT b / 2 AS h, COUNT(DISTINCT user_id) AS n FROM visits GROUP BY 1 ALL",
        ),
        (
            r"SELECT k LIKE '\k%' AS h FROM visits GROUP BY 1 TOP 2 PRIVATE",
            r"SELECT k LIKE '\k%' AS h, COUNT(*) AS n FROM visits GROUP BY 1 ALL",
        ),
    ],
)
def test_names_of_a_key_that_dpsql_itself_reads_otherwise_are_known(first: str, second: str) -> None:
    session = session_on(shared(VISITS, FACTS), POLICY)
    assert len(session.sql(first, postgres=True)) > 0
    assert len(session.sql(f"{second} PRIVATE WITH (domain = released)", postgres=True)) > 0
