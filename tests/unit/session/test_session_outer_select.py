"""A SELECT around a private query, through a session: charged as the private query, computed from what it released."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from support.evaluator_kit import evaluated
from support.session_kit import COUNTS, NAMES, filled, rebuilt, session_on, shared, values_rows
from support.sql_reference import as_newest

import dpsql
from dpsql.engines import Exact, ResultEvaluator, Statement
from dpsql.session import Session

__all__ = ["evaluated"]  # a fixture for every test here

GROUPS = {"b": 3000, "a": 2500, "d": 2000, "c": 1500}
POLICY = dpsql.Policy(
    dpsql.Budget(50, "1e-6"), {"reads": dpsql.PrivateTable("user_id", max_groups_contributed=9, min_units=3)}
)


@pytest.fixture
def session() -> Session:
    return session_on(shared(*values_rows(GROUPS), "INSERT INTO reads SELECT i, NULL FROM range(1000) t(i)"))


def left(session: Session) -> object:
    return session.budget.remaining


def test_it_is_charged_as_the_private_query_and_another_select_around_it_is_a_replay(session: Session) -> None:
    first = session.sql(f"SELECT article, n FROM ({COUNTS}) AS x LIMIT 2")
    assert first.receipt.loss.rho.value == session.budget.rho.spent > 0
    assert 5 < first.receipt.items_charged <= 10  # five counts, and the names by what the looks saw
    assert len(first) == 2
    before = left(session)
    for text in (
        COUNTS,
        f"SELECT * FROM ({COUNTS}) AS x",
        f"WITH x AS ({COUNTS}) SELECT SUM(n) FROM x",
        f"SELECT upper(a) FROM (SELECT article AS a FROM ({COUNTS} ORDER BY n LIMIT 3) AS x) AS y",
    ):
        again = session.sql(text)
        assert again.receipt.replayed
        assert again.receipt.items_charged == 0
    assert left(session) == before
    assert session.history.num_rows == 1


def test_the_private_query_alone_pays_for_the_selects_around_it(session: Session) -> None:
    rows = session.sql(COUNTS).fetchall()
    before = left(session)
    assert session.sql(f"SELECT n, article FROM ({COUNTS}) AS x").fetchall() == [(n, a) for a, n in rows]
    assert session.sql(f"SELECT n FROM ({COUNTS}) AS x ORDER BY n").fetchall() == sorted((n,) for _, n in rows)
    total = session.sql(f"SELECT COUNT(*) AS c, SUM(n) AS s, MAX(n) AS m FROM ({COUNTS}) AS x WHERE n > 1200")
    high = [n for _, n in rows if n > 1200]
    assert total.fetchall() == [(len(high), sum(high), max(high))]
    paged = session.sql(f"SELECT article FROM ({COUNTS}) AS x LIMIT 2 OFFSET 1").fetchall()
    assert paged == [(a,) for a, _ in rows[1:3]]
    inside = session.sql(f"SELECT c + 1 AS c FROM (SELECT COUNT(*) AS c FROM ({COUNTS}) AS x) AS y WHERE c > 1")
    assert inside.fetchall() == [(6,)]
    grouped = session.sql(f"SELECT article IS NULL AS none, COUNT(*) AS c FROM ({COUNTS}) AS x GROUP BY 1 ORDER BY 1")
    assert grouped.fetchall() == [(False, 4), (True, 1)]
    assert left(session) == before


def test_rows_stay_in_rank_order_and_so_do_ties(session: Session) -> None:
    ranked = session.sql(NAMES).fetchall()
    assert session.sql(f"SELECT * FROM ({NAMES}) AS x").fetchall() == ranked
    nested = f"SELECT a FROM (SELECT article AS a FROM ({NAMES}) AS x WHERE article IS NOT NULL) AS y"
    assert session.sql(nested).fetchall() == [row for row in ranked if row[0] is not None]
    tied = f"SELECT article FROM ({NAMES}) AS x ORDER BY article IS NULL"
    assert session.sql(tied).fetchall() == sorted(ranked, key=lambda row: row[0] is None)
    inside = session.sql(f"SELECT * FROM ({NAMES} ORDER BY article DESC NULLS LAST LIMIT 3) AS x").fetchall()
    assert inside == [("d",), ("c",), ("b",)]


@pytest.mark.parametrize("ending", ["LIMIT 0", "WHERE 1 = 0", "WHERE FALSE"])
def test_a_probe_for_columns_releases_and_charges_nothing(session: Session, ending: str) -> None:
    def refusing(_: Statement, __: object) -> Exact:
        pytest.fail("a row was read")

    session = rebuilt(session, engine=refusing)
    answer = session.sql(f"SELECT * FROM ({COUNTS}) AS x {ending}")
    assert answer.arrow().schema == pa.schema([("article", pa.string()), ("n", pa.int64())])
    assert len(answer) == 0
    assert answer.receipt.mechanism == "none"
    plain = f"{COUNTS} {ending}" if ending == "LIMIT 0" else COUNTS.replace("GROUP", f"{ending} GROUP")
    assert session.sql(plain).arrow() == answer.arrow()
    assert session.sql(f"SELECT COUNT(*) FROM ({plain}) AS x").fetchall() == [(0,)]
    assert session.history.num_rows == 0


@pytest.mark.properties
@pytest.mark.parametrize("condition", ["1=0", "1 = 0", "0=1", "FALSE", "1 <> 1", "NOT TRUE"])
@pytest.mark.parametrize(
    "more", ["", ", domain = ['a', 'b']", ", partitions = ['a', 'b']"], ids=["unknown", "known", "partitions"]
)
def test_a_private_query_of_no_row_has_its_columns_and_costs_nothing(
    session: Session, condition: str, more: str
) -> None:
    def refusing(_: Statement, __: object) -> Exact:
        pytest.fail("a row was read")

    keys, per = ("article", "") if "partitions" not in more else ("article, length(article) AS long", " PER article")
    texts = [
        f"SELECT {keys}, COUNT(DISTINCT user_id) AS n FROM {source} GROUP BY ALL TOP 5 PRIVATE{per} "
        f"WITH (epsilon = 0.05{more})"
        for source in (
            f"reads WHERE {condition}",
            f"(SELECT user_id, article FROM reads WHERE {condition}) AS r",
            f"reads JOIN (SELECT user_id AS u FROM reads WHERE {condition}) AS r ON r.u = reads.user_id",
        )
    ]
    texts.append(texts[0].replace(f"WHERE {condition} ", "") + " LIMIT 0")
    session = rebuilt(session, engine=refusing)
    types = {"article": pa.string(), "long": pa.int64(), "n": pa.int64()}
    for text in (*texts, *(f"SELECT * FROM ({text}) AS x WHERE n > 3" for text in texts)):
        answer = session.sql(text)
        assert answer.arrow().schema == pa.schema([(name, types[name]) for name in answer.arrow().column_names])
        assert len(answer) == 0
        assert answer.receipt.mechanism == "none"
        session.explain(text)
    assert session.history.num_rows == 0
    assert session.budget.rho.spent == session.budget.rho.reserved == 0


def test_a_probe_of_what_the_policy_refuses_is_refused(session: Session) -> None:
    with pytest.raises(dpsql.Refusal):
        session.sql(f"SELECT * FROM ({COUNTS.replace('0.05', '99')}) AS x LIMIT 0")


def test_types_are_those_of_the_private_query() -> None:
    session = session_on(
        shared(
            "CREATE TABLE reads (user_id BIGINT, i SMALLINT, u UINTEGER, d DATE, t TIMESTAMP, x DOUBLE, b BOOLEAN, "
            "m DECIMAL(9,2), s VARCHAR, f FLOAT)",
            "INSERT INTO reads SELECT u, -3, 4294967295, 'infinity', TIMESTAMP '2026-01-02 03:04:05.678901', 'nan', "
            "true, 1.25, NULL, 0.1 FROM range(4000) AS r(u)",
        ),
        POLICY,
    )
    inner = "SELECT i, u, d, t, x, b, m, s, f FROM reads GROUP BY ALL TOP 1 PRIVATE WITH (epsilon = 0.5)"
    alone = session.sql(inner)
    assert len(alone) == 1
    for text in (f"SELECT * FROM ({inner}) AS y", f"SELECT * FROM (SELECT * FROM ({inner}) AS y) AS z WHERE x > 1"):
        around = session.sql(text)
        assert around.arrow().schema == alone.arrow().schema
        assert repr(around.fetchall()) == repr(alone.fetchall())
    empty = session.sql(f"SELECT * FROM ({inner.replace('0.5', '0.25')}) AS y LIMIT 0")
    assert empty.arrow().schema == alone.arrow().schema


def test_keys_are_computed_with_and_what_fails_is_null_where_it_is_tried() -> None:
    session = session_on(
        shared(
            "CREATE TABLE reads (user_id BIGINT, i BIGINT, d DATE, m DECIMAL(9,2))",
            "INSERT INTO reads SELECT u, 9223372036854775807, DATE '2026-01-31', 1.25 FROM range(4000) AS r(u)",
        ),
        POLICY,
    )
    inner = "SELECT i, d, m FROM reads GROUP BY ALL TOP 1 PRIVATE WITH (epsilon = 0.5)"
    text = "SELECT {} AS j, date_trunc('month', d) = DATE '2026-01-01' AS first, d, m, SUM(m) AS s FROM "
    text += f"({inner}) AS x GROUP BY i, d, m"
    with pytest.raises(dpsql.EngineError, match="TRY_CAST"):
        session.sql(text.format("i + 1"))
    answer = session.sql(text.format("TRY(i + 1)"))
    assert answer.receipt.replayed
    assert answer.fetchall() == [(None, True, date(2026, 1, 31), Decimal("1.25"), Decimal("1.25"))]


def test_counts_keep_their_intervals_where_they_are_passed_on_alone(session: Session) -> None:
    alone = session.sql(COUNTS)
    passed = session.sql(f"SELECT n AS readers, article FROM ({COUNTS}) AS x WHERE n > 1200")
    assert passed.counts is not None
    assert passed.counts.columns == (0,)
    assert passed.intervals().column_names == ["article", "low", "high"]
    assert passed.intervals().to_pylist() == alone.intervals().to_pylist()[: len(passed)]
    computed = session.sql(f"SELECT article, n * 2 AS n FROM ({COUNTS}) AS x")
    assert computed.counts is None
    with pytest.raises(dpsql.UsageError):
        computed.intervals()


def test_explain_and_forecast_speak_of_the_private_query(session: Session) -> None:
    text = f"SELECT article FROM ({COUNTS}) AS x LIMIT 2"
    facts = dict(session.sql(f"EXPLAIN {text}").fetchall())
    assert facts["items at most"].startswith("10 ")
    assert "costs nothing" in facts["around it"]
    assert "around it" not in dict(session.sql(f"EXPLAIN {COUNTS}").fetchall())
    assert session.explain(text).engine_sql == session.explain(COUNTS).engine_sql
    assert session.forecast(text, times=2).fits
    assert session.history.num_rows == 0


def test_parameters_stand_inside_and_outside(session: Session) -> None:
    text = "SELECT article FROM (SELECT article FROM reads WHERE article <> ? GROUP BY article TOP ? PRIVATE) AS x "
    answer = session.sql(text + "WHERE article <> ? LIMIT ?", ["a", 3, "b", 1])
    assert answer.fetchall() == [("d",)]
    with pytest.raises(dpsql.UsageError):
        session.sql(text + "LIMIT ?", ["a", 3])


REFUSED = [
    f"SELECT x.n FROM ({COUNTS}) AS x JOIN reads AS r ON r.article = x.article",
    f"WITH x AS ({COUNTS}) SELECT article FROM reads",
    f"SELECT * FROM ({COUNTS}) AS x, duckdb_settings",
    f"SELECT * FROM ({COUNTS}) AS x, released",
    f"SELECT current_setting('memory_limit') FROM ({COUNTS}) AS x",
    f"SELECT date_trunc('month', DATE '2026-01-01') + (n IN (SELECT 1)) FROM ({COUNTS}) AS x",
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_is_refused_before_anything_is_reserved(session: Session, text: str) -> None:
    with pytest.raises((dpsql.Refusal, dpsql.Unsupported)):
        session.sql(text)
    assert session.history.num_rows == 0


def test_fresh_noise_is_drawn_and_charged_inside(session: Session) -> None:
    text = f"SELECT SUM(n) FROM ({COUNTS.replace('0.05)', '0.05, fresh = true)')}) AS x"
    for _ in range(2):
        assert 5 < session.sql(text).receipt.items_charged <= 10
    assert session.history.num_rows == 2


JOINED = (
    f"SELECT article, topic, n FROM ({COUNTS}) AS x LEFT JOIN topics USING (article)",
    f"SELECT x.article, t.topic, n FROM topics AS t JOIN ({COUNTS}) AS x ON t.article = x.article ORDER BY weight DESC",
    f"WITH x AS ({COUNTS}) SELECT article FROM x WHERE article IN (SELECT article FROM topics WHERE topic = 'new')",
    f"WITH x AS ({COUNTS}) SELECT topic FROM topics WHERE article IN (SELECT article FROM x) ORDER BY 1",
    f"SELECT COUNT(*) FROM ({COUNTS}) AS x CROSS JOIN topics",
)


def test_public_tables_are_joined_for_nothing() -> None:
    session = session_on(
        shared(
            *values_rows(GROUPS),
            "CREATE TABLE topics AS SELECT * FROM (VALUES ('a', 'new', 0.5::FLOAT, ['x']), ('d', 'old', 0.25::FLOAT, "
            "['y']), ('z', NULL, NULL, NULL)) AS t(article, topic, weight, tags)",
        ),
        dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id"), "topics": dpsql.PublicTable()}),
    )
    counts = dict(session.sql(COUNTS).fetchall())
    answers = [session.sql(text) for text in JOINED]
    assert all(answer.receipt.replayed for answer in answers)
    topics = {"a": "new", "d": "old"}
    assert [answer.fetchall() for answer in answers] == [
        [(article, topics.get(article), n) for article, n in counts.items()],
        [("a", "new", counts["a"]), ("d", "old", counts["d"])],
        [("a",)],
        [("new",), ("old",)],
        [(3 * len(counts),)],
    ]
    lists = session.sql(f"SELECT tags FROM ({COUNTS}) AS x JOIN topics USING (article) ORDER BY 1")
    assert lists.fetchall() == [("[x]",), ("[y]",)]  # a type that dpsql does not compute with comes as text
    assert session.history.num_rows == 1


GRID = (
    "SELECT article, COUNT(DISTINCT user_id) AS n, d, country FROM reads GROUP BY ALL TOP 40 PRIVATE "
    "WITH (epsilon = 0.5)"
)
COUNTRIES = "CREATE TABLE countries AS SELECT * FROM (VALUES ('DE', 'Europe'), ('US', 'America')) v(country, continent)"


@pytest.fixture(scope="module")
def grid(evaluated: None) -> tuple[Session, duckdb.DuckDBPyConnection]:
    """A session, and a database that holds what it released as the table `released`."""
    assert evaluated is None
    session = session_on(
        shared(
            "CREATE TABLE reads AS SELECT i % 4000 AS user_id, 'a' || i % 9 AS article, "
            "['DE', 'FR', NULL][1 + i % 3] AS country, DATE '2026-01-01' + (i % 5)::INT AS d FROM range(60000) t(i)",
            COUNTRIES,
        ),
        dpsql.Policy(
            dpsql.Budget(50, "1e-6"), {"reads": dpsql.PrivateTable("user_id"), "countries": dpsql.PublicTable()}
        ),
    )
    reference = filled(COUNTRIES)
    reference.register("answer", session.sql(GRID).arrow())
    reference.execute("CREATE TABLE released AS FROM answer")
    return session, reference


# as analysts write, and as Tableau, Superset, Metabase and Power BI do around a query that they are given
@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM ({}) AS t ORDER BY n DESC, article, d",
        "SELECT country, SUM(n) AS s, COUNT(*) AS c, MIN(d) AS m FROM ({}) t GROUP BY country ORDER BY s DESC, country",
        "SELECT DISTINCT country FROM ({}) t ORDER BY country NULLS FIRST",
        "SELECT upper(article) AS u, n // 10 AS q FROM ({}) t WHERE country IS NULL OR n > 100 ORDER BY q, u LIMIT 7",
        "SELECT date_trunc('week', d) AS w, AVG(n) AS a FROM ({}) t GROUP BY 1 HAVING COUNT(*) > 1 ORDER BY 1",
        "SELECT t.article, continent FROM ({}) t JOIN countries c ON c.country = t.country ORDER BY 1, d, n",
        (
            "WITH t AS ({}) SELECT a.article, c.continent FROM (SELECT article, country FROM t WHERE n > 3) AS a "
            "LEFT JOIN countries AS c USING (country) ORDER BY 1, 2"
        ),
        "SELECT CASE WHEN n > 0 THEN 'many' ELSE 'few' END AS k, MAX(n) - MIN(n) AS s FROM ({}) t GROUP BY 1",
        "SELECT article, n FROM ({}) t LIMIT 5 OFFSET 3",
        (
            'SELECT "Custom SQL Query"."article" AS "article", SUM("Custom SQL Query"."n") AS "sum:n:ok" FROM (\n{}\n) '
            '"Custom SQL Query" GROUP BY 1 ORDER BY 1'
        ),
        'SELECT SUM(1) AS "c", MIN("t"."n") AS "m" FROM ({}) "t" HAVING (COUNT(1) > 0)',
        (
            'SELECT article AS article, sum(n) AS "SUM(n)" FROM ({}) AS virtual_table GROUP BY article '
            'ORDER BY "SUM(n)" DESC, 1 LIMIT 1000'
        ),
        'SELECT "source"."article" AS "article", "source"."n" AS "n" FROM ({}) AS "source" LIMIT 2000',
        'select "_"."article" from ({}) "_" limit 1000 offset 0',
        "SELECT * FROM ({}) AS t WHERE (0 = 1)",
    ],
)
def test_it_means_what_duckdb_means_of_the_released_table(
    grid: tuple[Session, duckdb.DuckDBPyConnection], text: str
) -> None:
    session, reference = grid
    answer = session.sql(text.format(GRID))
    assert answer.fetchall() == reference.execute(as_newest(text).format("SELECT * FROM released")).fetchall()
    assert answer.receipt.replayed


@dataclass(frozen=True)
class _Broken:
    """An evaluator that computes with no row, as that of a statement that is bound before it is charged."""

    evaluator: ResultEvaluator

    def compute(self, tables: Mapping[tuple[str, str, str], pa.Table], *args: object, **named: object) -> pa.Table:
        if any(table.num_rows for table in tables.values()):
            raise dpsql.EngineError("wrapping-failed", "It fails.", hint="Ask for less.")
        return self.evaluator.compute(tables, *args, **named)  # type: ignore[arg-type]


def test_an_answer_that_cannot_be_computed_with_is_stored_all_the_same(session: Session) -> None:
    own = session._dependencies
    broken = Session(replace(own, evaluator=_Broken(own.evaluator)))
    with pytest.raises(dpsql.EngineError):
        broken.sql(f"SELECT SUM(n) FROM ({COUNTS}) AS x")
    assert session.sql(COUNTS).receipt.replayed


def test_monotone_counts_are_what_is_computed_with(session: Session) -> None:
    inner = COUNTS.replace("0.05)", "0.05, monotone = true)")
    around = session.sql(f"SELECT n FROM ({inner}) AS x")
    assert around.fetchall() == [(n,) for _, n in session.sql(inner).fetchall()]
    with pytest.raises(dpsql.UsageError):
        around.intervals()


def test_a_sealed_session_answers_it_too(example: Path) -> None:
    inner = "SELECT page FROM visits GROUP BY page TOP 2 PRIVATE"
    with dpsql.connect(example / "events.duckdb", policy=example / "policy.toml") as session:
        assert len(session.sql(f"SELECT upper(page) AS p FROM ({inner}) AS x")) == 2
    with dpsql.connect(example / "events.duckdb", policy=example / "policy.toml") as session:
        assert session.sql(f"SELECT COUNT(*) FROM ({inner}) AS x").receipt.replayed
