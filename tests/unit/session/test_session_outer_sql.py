"""DuckDB's own SQL around private queries, through a session: what it means, what it charges and what it refuses."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

import duckdb
import pyarrow as pa
import pytest
from support.session_kit import COUNTS, NAMES, filled, rebuilt, session_on, shared, values_rows
from support.sql_reference import as_newest

import dpsql
from dpsql.engines import Exact, Statement
from dpsql.engines.duckdb.evaluator import SharedEvaluator, WorkerEvaluator
from dpsql.report.answer_json import encode_receipt
from dpsql.session import Session

GROUPS = {"b": 3000, "a": 2500, "d": 2000, "c": 1500}
TOPICS = (
    "CREATE TABLE topics AS SELECT * FROM (VALUES ('a', 'new', 0.5::FLOAT, ['x']), ('d', 'old', 0.25::FLOAT, ['y']), "
    "('z', NULL, NULL, NULL)) AS t(article, topic, weight, tags)"
)
POLICY = dpsql.Policy(
    dpsql.Budget(50, "1e-6"),
    {
        "reads": dpsql.PrivateTable("user_id", max_groups_contributed=9, min_units=3),
        "topics": dpsql.PublicTable(),
    },
)
OTHER = COUNTS.replace("0.05", "0.06")


@pytest.fixture
def session() -> Session:
    return session_on(shared(*values_rows(GROUPS), TOPICS), POLICY)


@pytest.fixture(scope="module")
def stored() -> tuple[Session, duckdb.DuckDBPyConnection]:
    """A session that has answered COUNTS, and a database with that answer as the table `released`."""
    session = session_on(shared(*values_rows(GROUPS), TOPICS), POLICY)
    reference = filled(TOPICS)
    reference.register("answer", session.sql(COUNTS).arrow())
    reference.execute("CREATE TABLE released AS FROM answer")
    return session, reference


def refusing(_: Statement, __: object) -> Exact:
    pytest.fail("a row was read")


MEANT = [
    "SELECT article, row_number() OVER (ORDER BY n DESC) AS r, n - lag(n) OVER (ORDER BY n) AS d FROM {} x ORDER BY r",
    "SELECT n::DECIMAL(10, 2) AS d, (n::DECIMAL(10, 2) * 1.1)::DECIMAL(12, 3) AS e FROM {} x ORDER BY n",
    "SELECT n::float / 7 AS f, CAST(n AS FLOAT) / 3 AS g, n / 2.5 AS h FROM {} x ORDER BY n",
    "SELECT article FROM {} x UNION SELECT article FROM {} y ORDER BY 1",
    "({}) UNION ALL ({}) ORDER BY n, article",
    "((SELECT n, article FROM {} x)) UNION ALL SELECT -0.5, 'z' ORDER BY 1",
    "(SELECT article FROM {} x EXCEPT SELECT article FROM topics) ORDER BY 1 LIMIT 1",
    "WITH x AS {} SELECT a.article, a.n * 1.0 / b.n AS s FROM x AS a JOIN x AS b ON a.n <= b.n ORDER BY 1, 2",
    "WITH x AS {}, t AS (SELECT SUM(n) AS s FROM x) SELECT article, round(100.0 * n / s, 2) FROM x, t ORDER BY 2",
    "WITH x(a, k) AS {} SELECT a, k::DOUBLE FROM x ORDER BY k",
    "WITH x AS MATERIALIZED {} SELECT max(n)::DOUBLE FROM x",
    "SELECT article, n / (SELECT SUM(n) FROM {} y) AS share FROM {} x ORDER BY 1",
    "SELECT topic FROM topics WHERE article IN (SELECT article FROM {} x) ORDER BY 1",
    "SELECT topic FROM topics AS t WHERE EXISTS (SELECT 1 FROM {} x WHERE x.article = t.article) ORDER BY 1",
    "SELECT string_agg(article, ', ' ORDER BY n DESC) AS s FROM {} x",
    "SELECT strftime(DATE '2026-01-01' + n::INT, '%Y-%m') AS m FROM {} x ORDER BY 1",
    "SELECT regexp_replace(article, '[a-c]', 'z') AS z FROM {} x WHERE article ~ '^[ab]'",
    "SELECT article, n FROM {} x QUALIFY row_number() OVER (ORDER BY n DESC) <= 2 ORDER BY n",
    "SELECT n > 2 AS b, article, SUM(n)::BIGINT AS s FROM {} x GROUP BY GROUPING SETS ((1), (1, 2), ()) ORDER BY ALL",
    "SELECT n > 2 AS big, SUM(n)::BIGINT AS s, GROUPING(n > 2) AS g FROM {} x GROUP BY ROLLUP (n > 2) ORDER BY ALL",
    "SELECT * FROM (PIVOT (SELECT * FROM {} x) ON article IN ('a', 'b') USING MAX(n))",
    "WITH x AS {} SELECT * FROM (UNPIVOT (SELECT MIN(n) AS low, MAX(n) AS high FROM x) ON low, high) ORDER BY 1",
    (
        "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t WHERE i < 4), x AS {} "
        "SELECT i, MIN(n) FROM t, x GROUP BY i ORDER BY i"
    ),
    "SELECT x.article, y.v FROM {} x, LATERAL (SELECT x.n * 2.5 AS v) AS y ORDER BY 1",
    "SELECT list_aggregate(list(n ORDER BY n), 'max') AS m FROM {} x",
    "SELECT x.* EXCLUDE (n), n AS readers FROM {} x ORDER BY ALL",
    "SELECT COUNT(*) FILTER (n > 2200) AS c, median(n) AS m, quantile_cont(n, 0.5) AS q FROM {} x",
    "SELECT article FROM {} x WHERE n > ALL (SELECT 2200) ORDER BY 1",
    "FROM {} AS x SELECT article, n::DOUBLE / 3 ORDER BY ALL",
    "(FROM {} x) UNION ALL (VALUES ('z', 1)) ORDER BY ALL",
    "SELECT t.topic, x.n FROM topics t ASOF JOIN {} x ON x.article <= t.article ORDER BY ALL",
    "SELECT article, topic, n FROM {} x LEFT JOIN topics USING (article) ORDER BY 1",
    "SELECT COUNT(*) AS c FROM {} x CROSS JOIN topics",
]


@pytest.mark.parametrize("text", MEANT)
def test_it_means_what_duckdb_means_of_the_released_rows(
    stored: tuple[Session, duckdb.DuckDBPyConnection], text: str
) -> None:
    session, reference = stored
    released = "(SELECT * FROM released)" if "({})" not in text else "SELECT * FROM released"
    private = f"({COUNTS})" if "({})" not in text else COUNTS
    answer = session.sql(text.replace("{}", private))
    expected = reference.execute(text.replace("{}", released))
    assert answer.fetchall() == expected.fetchall()
    assert answer.fetchall()
    assert answer.arrow().column_names == [column[0] for column in expected.description]
    assert answer.receipt.replayed
    assert session.describe(text.replace("{}", private)) == answer.arrow().schema


GRID = (
    "SELECT article, COUNT(DISTINCT user_id) AS n, d, country FROM reads GROUP BY ALL TOP 40 PRIVATE "
    "WITH (epsilon = 0.5)"
)
COUNTRIES = "CREATE TABLE countries AS SELECT * FROM (VALUES ('DE', 'Europe'), ('US', 'America')) v(country, continent)"


@pytest.fixture(scope="module")
def grid() -> tuple[Session, duckdb.DuckDBPyConnection]:
    """A session, and a database that holds what it released as the table `released`."""
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


TYPES = {
    "[1, 2]": ("[1, 2]", pa.string()),
    "{'a': 1, 'b': 'x'}": ("{'a': 1, 'b': x}", pa.string()),
    "MAP {'a': 1}": ("{a=1}", pa.string()),
    "list_transform([1, 2], lambda v: v + 1)": ("[2, 3]", pa.string()),
    "INTERVAL 1 DAY": ("1 day", pa.string()),
    "TIME '01:02:03'": ("01:02:03", pa.string()),
    "'x'::BLOB": ("x", pa.string()),
    "TIMESTAMPTZ '2026-01-01 00:00:00+00'": ("2026-01-01 00:00:00+00", pa.string()),
    "UUID '00000000-0000-0000-0000-000000000001'": ("00000000-0000-0000-0000-000000000001", pa.string()),
    "NULL": (None, pa.string()),
    "1::UBIGINT": (Decimal(1), pa.decimal128(20, 0)),
    "1::HUGEINT": (Decimal(1), pa.decimal128(38, 0)),
    "1::TINYINT": (1, pa.int8()),
    "0.5::FLOAT": (0.5, pa.float64()),
    "1.25": (Decimal("1.25"), pa.decimal128(3, 2)),
    "DATE '2026-01-02'": (date(2026, 1, 2), pa.date32()),
    "TIMESTAMP_S '2026-01-02 03:04:05' = TIMESTAMP '2026-01-02 03:04:05'": (True, pa.bool_()),
}


@pytest.mark.parametrize("expression", TYPES)
def test_other_types_come_back_as_text(stored: tuple[Session, duckdb.DuckDBPyConnection], expression: str) -> None:
    session, _ = stored
    value, type_ = TYPES[expression]
    text = f"SELECT {expression} AS v FROM ({COUNTS}) AS x QUALIFY row_number() OVER () = 1"
    answer = session.sql(text)
    assert answer.fetchall() == [(value,)]
    assert answer.arrow().schema == pa.schema([("v", type_)]) == session.describe(text)
    assert session.sql(f"SELECT {expression} AS v, [1] AS l").fetchall() == [(value, "[1]")]


@pytest.mark.properties
def test_a_worker_computes_what_this_process_does(stored: tuple[Session, duckdb.DuckDBPyConnection]) -> None:
    session, _ = stored
    texts = [each.replace("{}", f"({COUNTS})" if "({})" not in each else COUNTS) for each in MEANT[::3]]
    texts += [f"SELECT {each} AS v FROM ({COUNTS}) AS x QUALIFY row_number() OVER () = 1" for each in TYPES]
    failing = {FAILING[1].format(COUNTS): "wrapping-failed", NESTED[0]: "too-large", NESTED[4]: "too-large"}
    with closing(WorkerEvaluator()) as workers:
        elsewhere = Session(replace(session._dependencies, evaluator=SharedEvaluator(workers)))
        for text in texts:
            assert elsewhere.sql(text).arrow().equals(session.sql(text).arrow()), text
            assert elsewhere.describe(text) == session.describe(text)
        for text, code in failing.items():
            with pytest.raises(dpsql.Error) as caught:
                elsewhere.sql(text)
            assert caught.value.code == code


def test_statements_without_a_private_table_are_free(session: Session) -> None:
    session = rebuilt(session, engine=None)
    for text, rows in {
        "SELECT topic[1:2] AS t, [weight] AS w FROM topics WHERE weight > 0.3": [("ne", "[0.5]")],
        "SELECT unnest([1, 2]) AS v": [(1,), (2,)],
        "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t WHERE i < 3) SELECT MAX(i) FROM t": [(3,)],
        "SELECT 1.5 UNION ALL SELECT 2": [(Decimal("1.5"),), (Decimal(2),)],
        "SELECT * FROM range(2)": [(0,), (1,)],
    }.items():
        answer = session.sql(text)
        assert answer.fetchall() == rows
        assert answer.receipt.mechanism == "none"
        assert session.describe(text) == answer.arrow().schema
    assert session.history.num_rows == 0


PRIVATE_WITH = (
    "(SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE article <> {} GROUP BY article TOP {} PRIVATE)"
)
BOUND = {
    f"SELECT article, ?::FLOAT AS f FROM {PRIVATE_WITH.format('?', '?')} AS x WHERE article <> ? LIMIT ?": (
        0.5,
        "a",
        3,
        "b",
        1,
    ),
    f"SELECT article, $5::FLOAT AS f FROM {PRIVATE_WITH.format('$4', '$2')} AS x WHERE article <> $1 LIMIT $3": (
        "b",
        3,
        1,
        "a",
        0.5,
    ),
    f"SELECT article, :f::FLOAT AS f FROM {PRIVATE_WITH.format(':no', ':k')} AS x WHERE article <> :neither LIMIT :m": {
        "m": 1,
        "no": "a",
        "k": 3,
        "neither": "b",
        "f": 0.5,
    },
}


@pytest.mark.parametrize("text", BOUND)
def test_parameters_stand_inside_and_outside_in_any_order(session: Session, text: str) -> None:
    values = BOUND[text]
    answer = session.sql(text, values)
    assert answer.fetchall() == [("d", 0.5)]
    assert session.describe(text, values) == answer.arrow().schema
    found = session.prepare(text)
    assert len(found.parameters) == 5
    assert found.schema.names == ["article", "f"]
    assert found.fitted(answer.arrow()).schema == found.schema
    assert session.sql(text, values).receipt.replayed


def test_a_value_that_is_bound_is_a_value_and_no_sql(session: Session) -> None:
    hostile = "'); SELECT 1; --"
    answer = session.sql(f"SELECT ? || '' AS v, [1] AS l FROM ({COUNTS}) AS x LIMIT 1", [hostile])
    assert answer.fetchall() == [(hostile, "[1]")]
    assert session.sql("SELECT ? AS v, [?] AS l", [True, 1]).fetchall() == [(True, "[1]")]
    day = session.sql(
        "SELECT ? + 1 AS d, [?] AS l, ? - INTERVAL 1 HOUR AS h",
        [date(2026, 1, 1), 2, datetime.fromisoformat("2026-01-01 00:00")],
    )
    assert day.fetchall() == [(date(2026, 1, 2), "[2]", datetime.fromisoformat("2025-12-31 23:00"))]
    assert session.sql("SELECT ? AS v, [?] AS l", [1, True]).fetchall() == [(1, "[true]")]  # 1 = True in Python


EMPTY = [
    ("SELECT n::FLOAT AS f FROM ({}) AS x LIMIT 0", [], []),
    ("SELECT n::FLOAT AS f FROM ({}) AS x LIMIT ?", [0], []),
    ("SELECT n::FLOAT AS f FROM ({}) AS x LIMIT $1 OFFSET $2", [0, 3], []),
    ("SELECT n::FLOAT AS f FROM ({}) AS x WHERE 1 = 0", [], []),
    ("SELECT n::FLOAT AS f FROM ({}) AS x WHERE (0 = 1) LIMIT 1000", [], []),
    ("SELECT n::FLOAT AS f FROM ({}) AS x WHERE FALSE", [], []),
    ("SELECT n::FLOAT AS f FROM ({}) AS x WHERE 1 <> 1 AND n > 2", [], []),
    ("SELECT n::FLOAT AS f FROM ({}) AS x WHERE NOT TRUE ORDER BY 1", [], []),
    ("SELECT * FROM (SELECT n::FLOAT AS f FROM ({}) AS x) AS y WHERE 1 = 0", [], []),
    ("SELECT * FROM (SELECT n::FLOAT AS f FROM ({}) AS x LIMIT 0) AS y", [], []),
    ("WITH x AS ({}) SELECT n::FLOAT AS f FROM x WHERE 1 = 0", [], []),
    ("WITH x AS ({}), y AS (SELECT n::FLOAT AS f FROM x) SELECT f FROM y LIMIT 0", [], []),
    ("({}) UNION ALL SELECT 'x', 1.5 LIMIT 0", [], []),
    ("SELECT COUNT(*)::FLOAT AS c FROM ({}) AS x WHERE 1 = 0", [], [(0.0,)]),
    ("WITH x AS ({}) SELECT topic, [1] AS l FROM topics WHERE topic = 'new'", [], [("new", "[1]")]),
]


@pytest.mark.parametrize(("text", "values", "rows"), EMPTY)
def test_what_needs_no_released_row_releases_none(
    session: Session, text: str, values: list[object], rows: list[object]
) -> None:
    asked = text.format(COUNTS)
    charged = session.sql(asked, values)
    assert charged.fetchall() == rows
    assert charged.receipt.mechanism == "none"
    assert session.history.num_rows == 0
    assert session.describe(asked, values) == charged.arrow().schema


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n::FLOAT FROM ({}) AS x LIMIT 1",
        "SELECT n::FLOAT FROM ({}) AS x WHERE 1 = 1",
        "SELECT n::FLOAT FROM ({}) AS x WHERE 1 = 0 OR n > 0",
        "SELECT (SELECT MAX(n)::FLOAT FROM ({}) AS x) AS m WHERE 1 = 1",
        "SELECT (SELECT MAX(n) FROM ({}) AS x), COUNT(*)::FLOAT FROM topics WHERE 1 = 0",
        "SELECT n::FLOAT FROM ({}) AS x UNION ALL SELECT 1 WHERE 1 = 0",
        "WITH x AS ({}) SELECT n::FLOAT FROM x UNION ALL (SELECT n FROM x LIMIT 0)",
    ],
)
def test_what_needs_one_releases_it(session: Session, text: str) -> None:
    assert session.sql(text.format(COUNTS)).receipt.items_charged == 9
    assert session.history.num_rows == 1


@pytest.mark.parametrize(
    "more", ["", ", domain = ['a', 'b']", ", partitions = ['a', 'b']"], ids=["unknown", "known", "partitions"]
)
def test_a_private_query_of_no_row_has_its_columns_and_costs_nothing(more: str) -> None:
    keys, per = ("article", "") if "partitions" not in more else ("article, length(article) AS long", " PER article")
    texts = [
        f"SELECT {keys}, COUNT(DISTINCT user_id) AS n FROM {source} GROUP BY ALL TOP 5 PRIVATE{per} "
        f"WITH (epsilon = 0.05{more})"
        for source in (
            "reads WHERE 1 = 0",
            "(SELECT user_id, article FROM reads WHERE 1 = 0) AS r",
            "reads JOIN (SELECT user_id AS u FROM reads WHERE 1 = 0) AS r ON r.u = reads.user_id",
        )
    ]
    texts.append(texts[0].replace("WHERE 1 = 0 ", "") + " LIMIT 0")
    session = rebuilt(session_on(shared(*values_rows(GROUPS))), engine=refusing)
    types = {"article": pa.string(), "long": pa.int64(), "n": pa.int64()}
    for text in (*texts, *(f"SELECT * FROM ({text}) AS x WHERE n > 3" for text in texts)):
        answer = session.sql(text)
        assert answer.arrow().schema == pa.schema([(name, types[name]) for name in answer.arrow().column_names])
        assert len(answer) == 0
        assert answer.receipt.mechanism == "none"
        session.explain(text)
    assert session.history.num_rows == 0
    assert session.budget.rho.spent == session.budget.rho.reserved == 0


def test_rows_stay_in_rank_order_and_so_do_ties() -> None:
    rows = (*values_rows(GROUPS), "INSERT INTO reads SELECT i, NULL FROM range(1000) t(i)")
    session = session_on(shared(*rows))
    ranked = session.sql(NAMES).fetchall()
    assert session.sql(f"SELECT * FROM ({NAMES}) AS x").fetchall() == ranked
    nested = f"SELECT a FROM (SELECT article AS a FROM ({NAMES}) AS x WHERE article IS NOT NULL) AS y"
    assert session.sql(nested).fetchall() == [row for row in ranked if row[0] is not None]
    tied = f"SELECT article FROM ({NAMES}) AS x ORDER BY article IS NULL"
    assert session.sql(tied).fetchall() == sorted(ranked, key=lambda row: row[0] is None)
    inside = session.sql(f"SELECT * FROM ({NAMES} ORDER BY article DESC NULLS LAST LIMIT 3) AS x").fetchall()
    assert inside == [("d",), ("c",), ("b",)]


def test_a_probe_of_what_the_policy_refuses_is_refused(session: Session) -> None:
    with pytest.raises(dpsql.Refusal):
        session.sql(f"SELECT * FROM ({COUNTS.replace('0.05', '99')}) AS x LIMIT 0")


def test_explain_and_forecast_speak_of_the_private_query(session: Session) -> None:
    text = f"SELECT article FROM ({COUNTS}) AS x LIMIT 2"
    facts = dict(session.sql(f"EXPLAIN {text}").fetchall())
    assert facts["items at most"].startswith("10 ")  # five names, and five counts
    assert "costs nothing" in facts["around it"]
    assert "around it" not in dict(session.sql(f"EXPLAIN {COUNTS}").fetchall())
    assert session.explain(text).engine_sql == session.explain(COUNTS).engine_sql
    assert session.forecast(text, times=2).fits
    assert session.history.num_rows == 0


def test_monotone_counts_are_what_is_computed_with(session: Session) -> None:
    inner = COUNTS.replace("0.05)", "0.05, monotone = true)")
    around = session.sql(f"SELECT n FROM ({inner}) AS x")
    assert around.fetchall() == [(n,) for _, n in session.sql(inner).fetchall()]
    with pytest.raises(dpsql.UsageError):
        around.intervals()


def test_types_are_those_of_the_private_query() -> None:
    session = session_on(
        shared(
            "CREATE TABLE reads (user_id BIGINT, i SMALLINT, u UINTEGER, d DATE, t TIMESTAMP, x DOUBLE, b BOOLEAN, "
            "m DECIMAL(9,2), s VARCHAR, f FLOAT)",
            "INSERT INTO reads SELECT u, -3, 4294967295, 'infinity', TIMESTAMP '2026-01-02 03:04:05.678901', 'nan', "
            "true, 1.25, NULL, 0.1 FROM range(4000) AS r(u)",
        ),
        dpsql.Policy(dpsql.Budget(50, "1e-6"), {"reads": dpsql.PrivateTable("user_id", max_groups_contributed=9)}),
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


def test_each_private_query_is_charged_once_and_replayed_by_itself(session: Session) -> None:
    both = f"SELECT a.article, a.n::FLOAT / b.n AS q FROM ({COUNTS}) AS a JOIN ({OTHER}) AS b USING (article)"
    first = session.sql(both)
    assert first.receipt.items_charged == 18
    assert not first.receipt.replayed
    assert [part.items_charged for part in first.receipt.parts] == [9, 9]
    assert sum((part.used for part in first.receipt.parts), Fraction(0)) == first.receipt.used
    left = session.budget.remaining
    for text in (both, COUNTS, OTHER, f"WITH x AS ({OTHER}) SELECT median(n) FROM x", f"({OTHER}) EXCEPT ({COUNTS})"):
        again = session.sql(text)
        assert again.receipt.replayed
        assert again.receipt.items_charged == 0
    assert session.sql(both).fetchall() == first.fetchall()
    assert session.budget.remaining == left
    assert session.history.num_rows == 2


def test_one_that_is_stored_is_not_charged_beside_another_that_is_not(session: Session) -> None:
    session.sql(COUNTS)
    answer = session.sql(f"SELECT a.n::FLOAT FROM ({COUNTS}) AS a, ({OTHER}) AS b")
    assert [part.replayed for part in answer.receipt.parts] == [True, False]
    assert not answer.receipt.replayed
    assert answer.receipt.items_charged == 9
    assert session.history.num_rows == 2


def test_the_same_question_in_other_words_is_one_charge(session: Session) -> None:
    named = COUNTS.replace("0.05", "0.05, mechanism = limited_domain")
    answer = session.sql(f"SELECT a.n - b.n AS d FROM ({COUNTS}) AS a JOIN ({named}) AS b USING (article)")
    assert answer.fetchall() == [(0,)] * 4
    assert [part.items_charged for part in answer.receipt.parts] == [9, 0]
    assert session.history.num_rows == 1


@pytest.mark.parametrize("error", [RuntimeError("a"), KeyboardInterrupt()], ids=lambda error: type(error).__name__)
def test_what_was_released_before_another_failed_is_stored(session: Session, error: BaseException) -> None:
    runs = list[Statement]()

    def fail_second(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        runs.append(statement)
        if len(runs) == 2:
            raise error
        return execute(statement)

    both = f"SELECT a.n::FLOAT AS n FROM ({COUNTS}) AS a JOIN ({OTHER}) AS b USING (article)"
    with pytest.raises((dpsql.EngineError, KeyboardInterrupt)):
        rebuilt(session, engine=fail_second).sql(both)
    failed = "failed" if isinstance(error, RuntimeError) else "interrupted"
    assert session.history.column("state").to_pylist() == ["answered", failed]
    charged, reserved = (session.history.column(f"rho_{name}").to_pylist() for name in ("charged", "reserved"))
    assert charged[1] == reserved[1]
    assert session.explain(COUNTS).stored
    assert not session.explain(OTHER).stored
    again = session.sql(both)
    assert [part.replayed for part in again.receipt.parts] == [True, False]
    assert session.history.num_rows == 3


def test_what_was_released_before_a_stop_is_stored(session: Session) -> None:
    both = f"SELECT a.n::FLOAT AS n FROM ({COUNTS}) AS a JOIN ({OTHER}) AS b USING (article)"
    with pytest.raises(dpsql.EngineError):
        session.sql(both, stop=lambda: session.history.num_rows > 0)
    assert session.history.column("state").to_pylist() == ["answered"]
    assert session.explain(COUNTS).stored


def test_identical_private_queries_of_one_statement_are_one_charge(session: Session) -> None:
    answer = session.sql(f"SELECT a.n - b.n AS d FROM ({COUNTS}) AS a JOIN ({COUNTS}) AS b USING (article)")
    assert answer.fetchall() == [(0,)] * 4
    assert answer.receipt.items_charged == 9
    assert session.history.num_rows == 1


def test_a_private_query_in_a_cte_that_nothing_reads_is_not_charged(session: Session) -> None:
    answer = session.sql(f"WITH a AS ({COUNTS}), b AS ({OTHER}) SELECT n::FLOAT FROM b ORDER BY 1")
    assert len(answer) == 4
    assert answer.receipt.parts == ()
    assert session.sql(OTHER).receipt.replayed
    assert session.history.num_rows == 1


def test_the_sum_of_the_worst_cases_fits_or_nothing_is_charged() -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    session = session_on(shared(*values_rows(GROUPS)), policy)
    queries = [COUNTS.replace("TOP 5", f"TOP {k}") for k in range(20, 80)]
    query, other = [text for text in queries if session.forecast(text).at_worst == 1][-2:]
    with pytest.raises(dpsql.BudgetExceeded) as caught:
        rebuilt(session, engine=refusing).sql(f"SELECT a.n::FLOAT FROM ({query}) AS a, ({other}) AS b")
    assert caught.value.code == "budget-exceeded"
    assert session.history.num_rows == 0
    assert session.budget.rho.spent == session.budget.rho.reserved == 0
    same = session.sql(f"SELECT a.n::FLOAT FROM ({query}) AS a JOIN ({query}) AS b USING (article)")
    assert len(same) == 4  # two that are equal need room for one
    assert session.history.num_rows == 1


def test_explain_of_two_has_the_plan_of_each(session: Session) -> None:
    text = f"SELECT a.n::FLOAT FROM ({COUNTS}) AS a, ({OTHER}) AS b"
    rows = session.sql(f"EXPLAIN {text}").fetchall()
    assert [value for name, value in rows if name == "private query"] == ["1 of 2", "2 of 2"]
    assert len([value for name, value in rows if name == "items at most"]) == 2
    assert session.describe(f"EXPLAIN {text}").names == session.sql(f"EXPLAIN {text}").arrow().column_names
    with pytest.raises(dpsql.Refusal) as caught:
        session.explain(text)
    assert caught.value.code == "not-a-query"
    assert session.history.num_rows == 0


def test_explain_of_what_reads_no_private_query_says_that_it_is_free(session: Session) -> None:
    text = f"EXPLAIN WITH x AS ({COUNTS}) SELECT [1] AS l FROM topics"
    assert session.sql(text).fetchall() == [("reads", "no private row"), ("cost", "nothing")]
    assert session.describe(text).names == ["property", "value"]
    with pytest.raises(dpsql.Refusal, match="outer-select"):
        session.sql("EXPLAIN SELECT [nothing] AS l FROM topics")


def test_explain_verbose_shows_the_sql_of_the_engine_and_explain_does_not(session: Session) -> None:
    short = {"reads": "no private row", "cost": "nothing"}
    assert dict(session.sql("EXPLAIN SELECT article FROM topics").fetchall()) == short
    assert "topics" in dict(session.sql("EXPLAIN VERBOSE SELECT article FROM topics").fetchall())["engine SQL"]
    private = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE"
    for words in (private, f"({private})", f"SELECT upper(article) FROM ({private})"):
        short, whole = (session.sql(f"{explain} {words}").fetchall() for explain in ("EXPLAIN", "explain Verbose"))
        assert [fact for fact in whole if not str(fact[0]).startswith("engine SQL")] == short
        assert len(whole) > len(short)
        assert [names for names, _ in short] == session.sql(f"EXPLAIN {words}")["property"]
    assert session.history.num_rows == 0
    assert session.describe("EXPLAIN SELECT article FROM topics").names == ["property", "value"]
    with pytest.raises(dpsql.Refusal, match="not-a-query"):
        session.explain("SELECT article FROM topics")


def test_arrays_around_an_answer_are_values_and_texts(session: Session) -> None:
    first = session.sql(f"SELECT article, [1] AS l FROM ({NAMES}) AS x").fetchall()[0][0]
    for condition, values in (
        ("article = ANY (?)", [[first]]),
        ("article = ANY (?)", ["{" + first + "}"]),
        ("article = ANY ('{" + first + "}'::text[])", []),
        ("list_contains(?, article)", [[first]]),
    ):
        found = session.sql(f"SELECT article, [1] AS l FROM ({NAMES}) AS x WHERE {condition}", values)
        assert [row[0] for row in found.fetchall()] == [first]
    with pytest.raises(dpsql.Refusal, match="literal"):
        session.sql(f"SELECT article, [1] AS l FROM ({NAMES}) AS x WHERE article = ANY ('{first}')")


def test_the_receipt_has_the_parts_as_json_too(session: Session) -> None:
    receipt = session.sql(f"SELECT article FROM ({NAMES}) AS a INTERSECT SELECT article FROM ({COUNTS}) AS b").receipt
    assert str(receipt).startswith("2 private queries; ")
    encoded = encode_receipt(receipt)
    assert encoded["parts"] == [encode_receipt(part) for part in receipt.parts]
    assert [part["items_charged"] for part in encoded["parts"]] == [5, 9]  # type: ignore[attr-defined]
    assert encoded["items_charged"] == 14
    assert {name for name, _ in receipt.details()} >= {"query 1: charged", "query 2: charged", "remaining"}
    assert encode_receipt(session.sql(COUNTS).receipt)["parts"] == []


UNCHANGED = {
    "SELECT article, n, n::FLOAT AS f FROM ({}) AS x": (1,),
    "SELECT n AS readers, [1] AS l, n FROM ({}) AS x WHERE n > 3 ORDER BY n LIMIT 3": (0, 2),
    "WITH x AS ({}) SELECT x.*, [1] AS l FROM x": (1,),
    "SELECT * FROM (SELECT * FROM ({}) AS x) AS y QUALIFY row_number() OVER () < 3": (1,),
    "SELECT article, SUM(n)::BIGINT AS n, [1] AS l FROM ({}) AS x GROUP BY article": None,
    "SELECT * REPLACE (n + 1 AS n) FROM ({}) AS x": None,
    "SELECT * FROM (SELECT * REPLACE (n + 1 AS n) FROM ({}) AS x) AS y": None,
    "SELECT * FROM (SELECT COLUMNS(*) + '1' FROM (SELECT n FROM ({}) AS x)) AS y": None,
    "SELECT a AS n, [1] AS l FROM ({}) AS x(a, n)": None,
    "SELECT -n AS n, article, [1] AS l FROM ({}) AS x": None,
    "({}) UNION ALL ({})": None,
}


@pytest.mark.parametrize("text", UNCHANGED)
def test_counts_are_of_columns_that_are_passed_on_unchanged(
    stored: tuple[Session, duckdb.DuckDBPyConnection], text: str
) -> None:
    session, _ = stored
    answer = session.sql(text.replace("{}", COUNTS))
    columns = UNCHANGED[text]
    assert (None if answer.counts is None else answer.counts.columns) == columns
    if columns is not None:
        assert len(answer.intervals()) == len(answer)


def test_fresh_noise_is_charged_each_time(session: Session) -> None:
    fresh = COUNTS.replace("0.05)", "0.05, fresh = true)")
    for _ in range(2):
        answer = session.sql(f"SELECT MAX(n)::FLOAT FROM ({fresh}) AS x")
        assert answer.receipt.items_charged == 9
        assert not answer.receipt.replayed
    assert session.history.num_rows == 2


FAILING = [
    "SELECT CAST(article AS INTEGER) AS i, [1] AS l FROM ({}) AS x",
    "SELECT error(article) FROM ({}) AS x",
    "SELECT (repeat('9', n) || article)::BIGINT AS c, [1] AS l FROM ({}) AS x",
]


@pytest.mark.parametrize("text", FAILING)
def test_a_select_that_fails_on_a_released_value_leaves_the_private_answer_stored(session: Session, text: str) -> None:
    with pytest.raises(dpsql.EngineError) as caught:
        session.sql(text.format(COUNTS))
    assert caught.value.code == "wrapping-failed"
    assert "cost nothing again" in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert session.history.num_rows == 1
    again = session.sql(f"SELECT TRY_CAST(article AS INTEGER) AS i, [1] AS l FROM ({COUNTS}) AS x")
    assert again.receipt.replayed
    assert again.fetchall() == [(None, "[1]")] * 4


REFUSED = {
    "SELECT foo, [1] AS l FROM ({}) AS x": ("outer-select", '"foo"'),
    "SELECT n + $1 + foo::FLOAT FROM ({}) AS x": ("outer-select", '"foo"'),
    "SELECT foo_bar(n) FROM ({}) AS x": ("outer-select", "foo_bar"),
    "SELECT fool(n) FROM ({}) AS x": ("outer-select", '"floor"? Hint: '),
    "SELECT article, SUM(n)::FLOAT FROM ({}) AS x": ("outer-select", "GROUP BY"),
    "SELECT n::NOTYPE FROM ({}) AS x": ("outer-select", "NOTYPE"),
    "SELECT [n, FROM ({}) AS x": ("syntax", ""),
    "SELECT n::FLOAT FROM ({}) AS x; SELECT 1": ("multiple", ""),
    "SELECT n::FLOAT FROM ({}) AS x, nowhere": ("unknown-table", "nowhere"),
    "SELECT n::FLOAT FROM ({}) AS x, reads": ("wrapping", "private table"),
    "SELECT n::FLOAT FROM ({}) AS x, read_csv('a.csv')": ("function", "read_csv"),
    "SELECT current_setting('threads'), [1] AS l FROM ({}) AS x": ("function", "CURRENT_SETTING"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_bound_charges_nothing_and_says_why(session: Session, text: str) -> None:
    session = rebuilt(session, engine=refusing)
    code, reason = REFUSED[text]
    with pytest.raises((dpsql.Refusal, dpsql.Unsupported)) as caught:
        session.sql(text.format(COUNTS), [1] if "$1" in text else [])
    assert caught.value.code == code
    assert reason in str(caught.value)
    assert session.history.num_rows == 0


NESTED = [
    f"SELECT {'abs(' * 400}n{')' * 400}::FLOAT AS v FROM ({COUNTS}) AS x",
    f"SELECT {'[' * 450}1{']' * 450} AS v FROM ({COUNTS}) AS x",
    f"SELECT {' + '.join(['n::FLOAT'] * 1500)} AS v FROM ({COUNTS}) AS x",
    f"SELECT {'NOT ' * 2000} TRUE AS v, [1] AS l FROM ({COUNTS}) AS x",
    "SELECT a FROM (" * 900 + f"SELECT n::FLOAT AS a FROM ({COUNTS}) AS x" + ") AS q" * 900,
    "SELECT (SELECT MAX(a) FROM (" * 300 + f"SELECT n::FLOAT AS a FROM ({COUNTS}) AS x" + ") AS q) AS a" * 300,
]


@pytest.mark.properties
@pytest.mark.parametrize("text", NESTED, ids=range(len(NESTED)))
def test_what_nests_too_deeply_is_refused(session: Session, text: str) -> None:
    gc.collect()
    gc.disable()  # what other tests have left would be finalized at the end of the stack
    try:
        with pytest.raises(dpsql.Refusal) as caught:
            session.sql(text)
    finally:
        gc.enable()
    assert caught.value.code == "too-large"
    assert session.history.num_rows == 0
    nested = f"SELECT {'abs(' * 100}n{')' * 100}::FLOAT AS v FROM ({COUNTS}) AS x"
    assert len(session.sql(nested)) == 4


SHARED = "WITH late AS (SELECT user_id, article FROM reads WHERE user_id >= 100), "
READS_LATE = (
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM late GROUP BY article TOP {} PRIVATE WITH (epsilon = 0.1)"
)


@pytest.mark.properties
def test_private_queries_share_ctes_of_private_rows(session: Session) -> None:
    text = f"{SHARED}a AS ({READS_LATE.format(3)}), b AS ({READS_LATE.format(4)}) SELECT COUNT(*)::FLOAT FROM a, b"
    answer = session.sql(text)
    assert answer.fetchall() == [(12.0,)]
    assert session.history.num_rows == 2
    alone = session.sql(
        READS_LATE.format(3).replace("late", "(SELECT user_id, article FROM reads WHERE user_id >= 100)")
    )
    assert len(alone) == 3
    derived = f"{SHARED}d AS (SELECT [1, 2] AS l) SELECT x.n, d.l FROM d, ({READS_LATE.format(3)}) AS x LIMIT 1"
    assert session.sql(derived).receipt.replayed  # a CTE of DuckDB's SQL beside it is no part of the private query
    with pytest.raises(dpsql.Refusal) as caught:
        session.sql(f"{SHARED}a AS ({READS_LATE.format(3)}) SELECT a.n::FLOAT FROM a, late")
    assert caught.value.code == "wrapping"


def test_a_private_query_reads_no_answer_of_another(session: Session) -> None:
    inner = COUNTS.replace("GROUP BY", "WHERE article IN (SELECT article FROM x) GROUP BY")
    with pytest.raises(dpsql.Refusal) as caught:
        session.sql(f"WITH x AS ({NAMES}), y AS ({inner}) SELECT n::FLOAT FROM x, y")
    assert caught.value.code == "unknown-table"
    assert session.history.num_rows == 0


@pytest.mark.parametrize("name", ['"Late"', "late", "LATE"])
def test_a_cte_means_itself_however_it_is_written(session: Session, name: str) -> None:
    inner = READS_LATE.format(3).replace("late", name)
    text = f"WITH \"late\" AS (SELECT user_id, article FROM reads WHERE article = 'a'), x AS ({inner}) "
    assert session.sql(f"{text} SELECT article, [n > 0] AS l FROM x").fetchall() == [("a", "[true]")]


@pytest.mark.properties
def test_a_repeated_statement_is_parsed_and_bound_once(session: Session) -> None:
    evaluator = session._dependencies.evaluator
    asked: list[str] = []

    class Counting:
        def compute(self, tables: object, statement: Statement, **more: object) -> pa.Table:
            asked.append(statement.sql)
            return evaluator.compute(tables, statement, **more)  # type: ignore[arg-type]

        def close(self) -> None: ...

    counted = Session(replace(session._dependencies, evaluator=Counting()))
    for text, values in (
        (f"SELECT n::FLOAT FROM ({COUNTS}) AS x", []),
        (f"SELECT n::FLOAT + ? FROM ({COUNTS}) AS x", [1]),
    ):
        first = counted.sql(text, values)
        asked.clear()
        counted._answers._known.clear()  # else nothing is computed at all
        assert counted.sql(text, values).fetchall() == first.fetchall()
        assert len(asked) == 1
        assert counted.sql(text, values).fetchall() == first.fetchall()
        assert len(asked) == 1
    for at in range(70):
        counted.sql(f"SELECT n::FLOAT + {at} FROM ({COUNTS}) AS x LIMIT 0")
    assert len(counted._free_answers._bound) == 64


def test_implicit_statements_have_duckdbs_sql_around_them() -> None:
    policy = dpsql.Policy(
        dpsql.Budget(50, "1e-6"),
        {"reads": dpsql.PrivateTable("user_id", max_groups_contributed=9), "topics": dpsql.PublicTable()},
        implicit=True,
    )
    session = session_on(shared(*values_rows(GROUPS), TOPICS), policy)
    inner = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article ORDER BY n DESC LIMIT 9"
    answer = session.sql(f"SELECT article, rank() OVER (ORDER BY n DESC) AS r, n::FLOAT AS f FROM ({inner}) AS x")
    assert [row[:2] for row in answer.fetchall()] == [("b", 1), ("a", 2), ("d", 3), ("c", 4)]
    assert "TOP 9 PRIVATE" in answer.receipt.read_as
    assert session.sql(f"SELECT max(n)::FLOAT FROM ({inner}) AS x").receipt.replayed


def test_the_citation_names_the_tables_of_all_private_queries() -> None:
    policy = dpsql.Policy(
        dpsql.Budget(50, "1e-6"),
        {"reads": dpsql.PrivateTable("user_id"), "likes": dpsql.PrivateTable("member")},
    )
    likes = "CREATE TABLE likes AS SELECT i AS member FROM range(900) t(i)"
    asked = session_on(shared(*values_rows(GROUPS), likes), policy)
    both = asked.sql(
        "SELECT a.n + b.n AS n FROM (SELECT COUNT(DISTINCT user_id) AS n FROM reads PRIVATE) AS a, "
        "(SELECT COUNT(DISTINCT member) AS n FROM likes PRIVATE) AS b"
    )
    assert both.statement().startswith("Each user_id of reads and member of likes is protected")
