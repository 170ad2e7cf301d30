"""value_low, value_high and WITH (intervals = true): the ends of intervals in SQL, free of charge."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from support.session_kit import shared

import dpsql
from dpsql.errors import Error
from dpsql.session import Session

CREATE = (
    "CREATE TABLE reads (user_id BIGINT, article VARCHAR, day DATE, price DECIMAL(8, 2), dwell DOUBLE, n_low BIGINT)"
)
ROWS = (
    "INSERT INTO reads SELECT i % 500, 'a' || i % 3, make_date(2026, 1, 1 + i % 4), 1.5, .25, 1 FROM range(3000) t(i)"
)
BOUNDS = {"rows": 10, "price": {"max": 50}, "dwell": {"max": 4}}
SIGNED = {"rows": 10, "price": {"min": -5, "max": 5}, "dwell": {"max": 4}}
RANKED = (
    "SELECT article, COUNT(DISTINCT user_id) AS n{} FROM reads GROUP BY article{} TOP 3 PRIVATE WITH (epsilon = 1{})"
)


def session_over(bounds: object = BOUNDS, *, rows: str = ROWS, implicit: bool = False, **table: object) -> Session:
    private = dpsql.PrivateTable("user_id", bounds=bounds, **table)  # type: ignore[arg-type]
    policy = dpsql.Policy(dpsql.Budget(60, "1e-6"), {"reads": private})
    connection = shared(CREATE, rows)
    return dpsql.connect(connection, policy=policy, ledger=":memory:", implicit=implicit)


SHAPES = {
    "ranking": "SELECT article, {} FROM reads GROUP BY article TOP 3 PRIVATE WITH (epsilon = 1, {})",
    "total": "SELECT {} FROM reads PRIVATE WITH (epsilon = 1, {})",
    "list": "SELECT article, {} FROM reads GROUP BY 1 ALL PRIVATE WITH (domain = ['a0', 'zz'], epsilon = 1, {})",
    "calendar": (
        "SELECT day, {} FROM reads WHERE day >= DATE '2026-01-03' AND day < DATE '2026-01-09' GROUP BY day "
        "ALL PRIVATE WITH (epsilon = 1, {})"
    ),
}
MEASURES = {
    "COUNT(DISTINCT user_id)": pa.int64(),
    "COUNT(*)": pa.int64(),
    "SUM(price)": pa.decimal128(38, 2),
    "SUM(dwell)": pa.float64(),
}


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("shape", SHAPES)
def test_ends_are_those_of_the_answers_intervals(shape: str, measure: str) -> None:
    session = session_over()
    sql = SHAPES[shape].format(f"{measure} AS m", "intervals = false")
    answer = session.sql(sql)
    spent = session.budget.refunded.spent
    for level in (0.95, 0.8):
        wanted = answer.intervals(level)
        written = SHAPES[shape].format(
            f"value_low(m) AS lo, {measure} AS m, value_high({measure}) AS hi", "intervals = {}"
        )
        found = session.sql(written.format(level).replace("lo,", "lo, "))
        assert found.receipt.replayed
        assert [found.arrow().column(name).to_pylist() for name in ("lo", "hi")] == [
            wanted.column(name).to_pylist() for name in ("low", "high")
        ]
        assert {found.arrow().schema.field(name).type for name in ("lo", "hi", "m")} == {MEASURES[measure]}
    assert session.budget.refunded.spent == spent


@pytest.mark.parametrize("shape", SHAPES)
def test_averages_and_signed_sums_have_ends(shape: str) -> None:
    if shape == "ranking":
        session, first = session_over(), "COUNT(*) AS rows_read, "
    else:
        session, first = session_over(SIGNED), ""
    columns = f"{first}AVG(price) AS mean, SUM(price) AS total, value_low(AVG(price)) AS lo, value_high(mean) AS hi"
    answer = session.sql(SHAPES[shape].format(columns, "intervals = true"))
    beside = answer.df(intervals=True)
    assert answer.arrow().column("lo").to_pylist() == answer.arrow().column("mean_low").to_pylist()
    assert answer.arrow().column("hi").to_pylist() == answer.arrow().column("mean_high").to_pylist()
    plain = session.sql(SHAPES[shape].format(f"{first}AVG(price) AS mean, SUM(price) AS total", "intervals = false"))
    assert plain.receipt.replayed
    assert plain.df(intervals=True).equals(beside[plain.df(intervals=True).columns])
    for mean, low, high in zip(
        *(answer.arrow().column(name).to_pylist() for name in ("mean", "lo", "hi")), strict=True
    ):
        assert (mean is None) == (low is None) == (high is None)
        assert mean is None or low <= mean <= high
    assert answer.arrow().schema.field("lo").type == pa.float64()


def test_an_average_alone_has_intervals() -> None:
    session = session_over()
    answer = session.sql("SELECT AVG(price) AS mean FROM reads PRIVATE WITH (epsilon = 1)")
    assert answer.counts is None
    assert answer.df(intervals=True).columns.tolist() == ["mean", "mean_low", "mean_high"]
    assert answer.intervals().column_names == ["low", "high"]
    low = answer.intervals().column("low")[0].as_py()
    lowest, highest = (column[0].as_py() for column in answer.intervals(1 - 1e-8).columns)
    assert lowest <= 1.5 <= highest
    assert lowest < low
    assert "at most 10 rows" in answer.bound_note
    assert answer.bound_note in answer.notes()
    wrapped = session.sql("SELECT y.mean FROM (SELECT AVG(price) AS mean FROM reads PRIVATE WITH (epsilon = 1)) AS y")
    assert wrapped.receipt.replayed
    assert wrapped.bound_note == answer.bound_note
    assert wrapped.intervals().equals(answer.intervals())


def test_intervals_of_averages_follow_the_order_that_is_shown() -> None:
    session = session_over()
    sql = (
        "SELECT article, COUNT(*) AS n, AVG(dwell) AS m, value_low(m) AS lo FROM reads GROUP BY article "
        "HAVING lo >= 0 TOP 3 PRIVATE WITH (epsilon = 1) ORDER BY m LIMIT 2"
    )
    answer = session.sql(sql)
    frame = answer.df(intervals=True)
    assert len(frame) == 2
    assert frame.m_low.tolist() == frame.lo.tolist()
    assert frame.m.tolist() == sorted(frame.m)


def test_the_measure_is_charged_once_and_ends_alone_are_charged_as_it_is() -> None:
    ranked = RANKED.replace("WITH (", "WITH (mechanism = limited_domain, ")  # two answers of it cost the same
    plain = session_over().sql(ranked.format("", "", ""))
    session = session_over()
    alone = "SELECT article, value_low(COUNT(DISTINCT user_id)) AS lo, value_high(COUNT(DISTINCT user_id)) AS hi "
    options = "mechanism = limited_domain, epsilon = 1"
    ends = session.sql(f"{alone}FROM reads GROUP BY article TOP 3 PRIVATE WITH ({options})")
    assert ends.columns == ["article", "lo", "hi"]
    assert ends.receipt.items_charged == plain.receipt.items_charged == 6
    assert ends.receipt.loss == plain.receipt.loss
    for sql in (
        ranked.format("", "", ""),
        ranked.format("", "", ", intervals = true"),
        ranked.format(", value_low(n) AS lo", "", ", intervals = 0.5"),
    ):
        again = session.sql(sql)
        assert again.receipt.replayed
        assert again.receipt.items_charged == 0
        assert session.explain(sql).key == session.explain(ranked.format("", "", "")).key
    shown = session.sql(ranked.format("", "", ""))
    low, high = (shown.intervals().column(name).to_pylist() for name in ("low", "high"))
    assert ends.fetchall() == list(zip(shown.arrow().column(0).to_pylist(), low, high, strict=True))


def test_the_option_puts_two_columns_after_each_measure() -> None:
    session = session_over()
    sql = (
        "SELECT article, COUNT(*) AS n, AVG(price), value_low(n) AS low FROM reads GROUP BY 1 "
        "TOP 3 PRIVATE WITH (intervals = true, epsilon = 1) ORDER BY 2, 1"
    )
    answer = session.sql(sql)
    assert answer.columns == [
        "article",
        "n",
        "n_low",
        "n_high",
        "AVG(price)",
        "AVG(price)_low",
        "AVG(price)_high",
        "low",
    ]
    assert answer.arrow().column("n").to_pylist() == sorted(answer.arrow().column("n").to_pylist())
    assert answer.arrow().column("low") == answer.arrow().column("n_low")
    assert session.describe(sql) == answer.arrow().schema
    assert session.prepare(sql).schema == answer.arrow().schema
    called = session.sql(
        "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article "
        "TOP 3 PRIVATE WITH (epsilon = 1, intervals = true) ORDER BY n_high DESC"
    )
    assert called.columns == ["article", "n", "n_low", "n_high"]


def test_an_empty_answer_has_the_same_columns() -> None:
    session = session_over(rows="DELETE FROM reads")
    sql = RANKED.format(", value_low(n) AS lo", "", ", intervals = true")
    answer = session.sql(sql)
    assert len(answer) == 0
    assert answer.arrow().schema == session.describe(sql)
    assert session.sql(f"{sql} LIMIT 0").arrow().schema == session.describe(sql)


def test_order_and_having_take_ends() -> None:
    session = session_over()
    found = session.sql(
        RANKED.format(", value_low(n) AS lo", " HAVING value_low(n) >= 100 AND lo < 10000", "")
        + " ORDER BY value_low(n) DESC, 1"
    )
    values = found.arrow().column("lo").to_pylist()
    assert len(values) == 3
    assert values == sorted(values, reverse=True)
    assert not len(session.sql(RANKED.format(", value_high(n) AS hi", " HAVING hi < 5", "")))
    ranked = session.explain(
        "SELECT article, COUNT(*) AS n, SUM(price) AS s, value_low(s) AS lo FROM reads GROUP BY article "
        "ORDER BY lo DESC TOP 3 PRIVATE WITH (epsilon = 1)"
    )
    assert [measure.aggregate.name for measure in ranked.query.measures] == ["SUM", "ROWS"]


def test_averages_that_are_null_pass_no_having() -> None:
    session = session_over(rows="DELETE FROM reads")
    sql = (
        "SELECT article, AVG(price) AS mean FROM reads GROUP BY article HAVING mean >= 0 AND mean < 1e30 "
        "ALL PRIVATE WITH (domain = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l'], epsilon = 1)"
    )
    answer = session.sql(sql)
    assert None not in answer.arrow().column("mean").to_pylist()
    assert len(answer) < 12  # each is NULL with probability one half


def test_an_outer_select_reads_ends() -> None:
    session = session_over()
    inner = RANKED.format(", value_low(n) AS lo", "", "")
    answer = session.sql(f"SELECT x.article, x.lo FROM ({inner}) AS x")
    assert answer.columns == ["article", "lo"]
    assert answer.arrow().schema == session.describe(f"SELECT x.article, x.lo FROM ({inner}) AS x")
    inside = session.sql(inner)
    assert inside.receipt.replayed
    assert answer.fetchall() == [(article, low) for article, _, low in inside]
    added = session.sql(
        f"WITH x AS ({RANKED.format('', '', ', intervals = true')}) SELECT n_high - n_low AS w, n FROM x"
    )
    assert added.receipt.replayed
    low, high = (added.intervals().column(name).to_pylist() for name in ("low", "high"))
    assert added.arrow().column("w").to_pylist() == [b - a for a, b in zip(low, high, strict=True)]


def test_subqueries_without_an_alias_are_told_apart() -> None:
    session = session_over()
    one, other = (f"SELECT COUNT(*) AS {name} FROM reads WHERE article = '{name}' PRIVATE" for name in ("a0", "a1"))
    ends = [
        session.sql(f"SELECT x.{name}, value_low(x.{name}) FROM ({sql}) AS x").fetchall()[0]
        for name, sql in (("a0", one), ("a1", other))
    ]
    joined = f"FROM ({one}) CROSS JOIN ({other})"
    assert session.sql(f"SELECT a0, value_low(a0), a1, value_low(a1) {joined}").fetchall() == [(*ends[0], *ends[1])]
    named = f"SELECT unnamed_subquery2.a1, value_low(unnamed_subquery2.a1) {joined}"
    assert session.sql(named).fetchall() == [ends[1]]
    assert session.sql(f"SELECT *, value_low(a0) {joined}").fetchall() == [(ends[0][0], ends[1][0], ends[0][1])]


def test_ends_are_no_keys_of_intervals_and_frames() -> None:
    answer = session_over().sql(RANKED.format(", value_low(n) AS lo", "", ""))
    assert answer.intervals().column_names == ["article", "low", "high"]
    assert answer.df(intervals=True).columns.tolist() == ["article", "n", "n_low", "n_high", "lo"]
    assert answer.plot().get_title(loc="left") == "n by article"


def test_standard_sql_takes_ends() -> None:
    session = session_over(implicit=True)
    answer = session.sql("SELECT COUNT(DISTINCT user_id) AS n, value_low(n), value_high(n) FROM reads")
    assert answer.receipt.read_as == "PRIVATE"
    ranked = session.sql(
        "SELECT article, COUNT(*) AS n, value_high(n) AS hi FROM reads GROUP BY 1 ORDER BY hi DESC LIMIT 2"
    )
    assert ranked.receipt.read_as == "TOP 2 PRIVATE"
    assert len(ranked) == 2


def test_a_stored_answer_keeps_the_noise_it_was_drawn_with() -> None:
    """Its ends are those of its own epsilon, not of the default that a larger budget brings later."""
    session = session_over()
    plain = "SELECT article, COUNT(DISTINCT user_id) AS n{} FROM reads GROUP BY article TOP 3 PRIVATE"
    drawn = session.sql(plain.format(""))
    parts = session._dependencies
    later = Session(replace(parts, terms=replace(parts.terms, epsilon=dpsql.Epsilon(parts.terms.epsilon.value / 4))))
    again = later.sql(plain.format(", value_low(n) AS lo, value_high(n) AS hi"))
    assert again.receipt.replayed
    for name, end in (("lo", "low"), ("hi", "high")):
        assert again.arrow().column(name).to_pylist() == drawn.intervals().column(end).to_pylist()
    fresh = later.sql(f"{plain.format(', value_low(n) AS lo')} WITH (fresh = true)")
    assert fresh[0][1] - fresh[0][2] > 2 * (again[0][1] - again[0][2])


REFUSED = {
    RANKED.format(", value_low(article) AS lo", "", ""): "aggregate",
    RANKED.format(", value_low(m) AS lo", "", ""): "aggregate",
    RANKED.format(", value_low() AS lo", "", ""): "aggregate",
    RANKED.format(", value_low(n, n) AS lo", "", ""): "aggregate",
    RANKED.format(", value_low(value_low(n)) AS lo", "", ""): "aggregate",
    RANKED.format(", value_low(COUNT(DISTINCT article, day)) AS lo", "", ""): "aggregate",
    RANKED.format(", value_low(n) AS n", "", ""): "output-names",
    RANKED.format(", value_low(n) AS N_Low", "", ", intervals = true"): "output-names",
    RANKED.format("", "", ", intervals = yes"): "option",
    RANKED.format("", "", ", intervals = 1"): "option",
    RANKED.format("", "", ", intervals = 'true'"): "option",
    RANKED.format("", "", ", intervals = true, monotone = true"): "option",
    RANKED.format(", value_low(n) AS lo", "", ", monotone = true"): "option",
    "SELECT article FROM reads WHERE value_low(dwell) > 1 GROUP BY 1 TOP 3 PRIVATE": "function",
    "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (intervals = true)": "option",
    "SELECT article, value_low(n) AS lo FROM reads GROUP BY article TOP 3 PRIVATE": "aggregate",
    "SELECT value_low(1)": "not-row-local",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_has_no_interval_is_refused_and_nothing_is_charged(sql: str) -> None:
    session = session_over()
    with pytest.raises(Error) as refused:
        session.sql(sql)
    assert refused.value.code == REFUSED[sql]
    assert refused.value.hint
    assert refused.value.place is not None
    assert session.budget.refunded.spent == 0


def test_the_level_is_no_parameter_because_it_decides_the_columns() -> None:
    session = session_over()
    for values in ((True,), (0.9,)):
        with pytest.raises(dpsql.Refusal, match="decides which columns"):
            session.sql(RANKED.format("", "", ", intervals = ?"), values)
    with pytest.raises(dpsql.Refusal, match="decides which columns"):
        session.prepare(RANKED.format("", "", ", intervals = $1"))


def test_signed_bounds_are_told_with_both_ends() -> None:
    answer = session_over(SIGNED).sql("SELECT SUM(price) AS s FROM reads PRIVATE WITH (epsilon = 1)")
    assert answer.bound_note == (
        "SUM(price): each user counted with -5 to 5, as is each row, so the true sum can be higher or lower; "
        "intervals are of the values counted so"
    )
    assert answer.receipt.bounds == answer.bound_note


def test_the_receipt_names_the_bounds_where_counts_are_computed_with() -> None:
    session = session_over(max_groups_contributed=2)
    inner = RANKED.format("", "", "")
    answer = session.sql(f"SELECT 2 * x.n AS twice FROM ({inner}) AS x")
    note = "each user counted in at most 2 groups: true counts can be higher"
    assert (answer.bounded_by, answer.bound_note) == (2, note)
    assert dict(answer.receipt.details())["bounds"] == note
    names = session.sql("SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (epsilon = 1)")
    assert (names.bounded_by, names.bound_note) == (None, "")
