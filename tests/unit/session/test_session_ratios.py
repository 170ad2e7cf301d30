"""Ratios of measures have ± beside them where people read tables, and nothing else of them changes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.display.released_table import terminal_table
from dpsql.report.answer_json import encode_answer

BOUNDS = {"rows": 10, "dwell": {"min": 0, "max": 1000, "each": {"min": 0, "max": 100}}}
RELEASED = "SELECT page, SUM(dwell) AS s, COUNT(*) AS n FROM visits GROUP BY page TOP 2 PRIVATE"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> dpsql.Session:
    place = tmp_path_factory.mktemp("ratios") / "events.duckdb"
    with duckdb.connect(str(place)) as connection:
        connection.execute("CREATE TABLE visits(who INT, page VARCHAR, dwell INT)")
        connection.execute("INSERT INTO visits SELECT i % 3000, 'p' || i % 2, i % 100 FROM range(24000) t(i)")
    policy = dpsql.Policy(
        dpsql.Budget(100, "1e-6", items=2000, queries=200), {"visits": dpsql.PrivateTable("who", bounds=BOUNDS)}
    )
    return dpsql.connect(place, policy=policy, ledger=":memory:")


def cells(answer: dpsql.Answer) -> list[list[str]]:
    return [line.split(" | ") for line in repr(answer).splitlines()[1 : 1 + len(answer)]]


@pytest.mark.parametrize(
    ("sql", "column", "truth"),
    [
        ("SELECT SUM(dwell) / COUNT(*) AS r FROM visits PRIVATE", 0, 49.5),
        ("SELECT COUNT(*) AS n, SUM(dwell) / COUNT(DISTINCT who) AS r FROM visits PRIVATE", 1, 396.0),
        ("SELECT 100e0 * COUNT(*) FILTER (WHERE dwell < 30) / COUNT(*) AS r FROM visits PRIVATE", 0, 30.0),
        ("SELECT COUNT(*) FILTER (WHERE dwell < 30) / COUNT(*) AS r, COUNT(*) AS n FROM visits PRIVATE", 0, 0.3),
        ("SELECT -2 * SUM(dwell) / COUNT(*) AS r FROM visits PRIVATE", 0, -99.0),
        ("SELECT ROUND(100 * COUNT(*) FILTER (WHERE dwell < 30) / COUNT(*), 1) AS r FROM visits PRIVATE", 0, 30.0),
        ("SELECT 100e0 * COUNT(*) FILTER (WHERE dwell < 30) / NULLIF(COUNT(*), 0) AS r FROM visits PRIVATE", 0, 30.0),
        (f"SELECT page, s / NULLIF(n, 0) AS r FROM ({RELEASED}) AS x", 1, 49.5),
        (f"SELECT page, ROUND(s / n, 1) AS r FROM ({RELEASED}) AS x", 1, 49.5),
        (f"SELECT page, CAST(s / n AS DECIMAL(9, 3)) AS r FROM ({RELEASED}) AS x", 1, 49.5),
        (f"SELECT page, s / n AS r FROM ({RELEASED}) AS x", 1, 49.5),
        (f"SELECT s / n AS r, x.page FROM ({RELEASED}) AS x WHERE n > 0 ORDER BY r DESC LIMIT 1", 0, 49.5),
        (f"WITH x AS ({RELEASED}) SELECT x.*, -1.0 * s / n AS r FROM x", 3, -49.5),
        (f"SELECT *, s / n AS r, row_number() OVER () AS k FROM ({RELEASED}) AS x", 3, 49.5),
    ],
)
def test_a_ratio_is_shown_with_half_the_width_of_its_interval(
    session: dpsql.Session, sql: str, column: int, truth: float
) -> None:
    answer = session.sql(sql)
    for row, values in zip(cells(answer), answer.fetchall(), strict=True):
        found = re.fullmatch(r"(-?[\d.]+) ± ([\d.]+)", row[column])
        assert found is not None, row
        value, half = map(float, found.groups())
        assert abs(value - float(values[column])) <= half / 9  # the digits that its half makes sense of
        assert abs(value - truth) <= 2 * half
        assert half < abs(truth) / 5
    markup = answer._repr_html_()
    assert "± is half the width of the 95 % interval" in markup
    assert markup.count(" ± ") == repr(answer).count(" ± ") - 1  # the note that says what it is
    heads = [head.header for head in terminal_table(answer._release_rows(9)).columns]
    assert any("±" in str(head) for head in heads)


def test_the_interval_is_that_of_value_low_and_value_high(session: dpsql.Session) -> None:
    for sql in (
        "SELECT SUM(dwell) / COUNT(*) AS r, value_low(r) AS low, value_high(r) AS high FROM visits PRIVATE",
        f"SELECT s / n AS r, value_low(s / n) AS low, value_high(s / n) AS high FROM ({RELEASED}) AS x",
        f"SELECT -2 * s / n AS r, value_low(r) AS low, value_high(r) AS high FROM ({RELEASED}) AS x",
    ):
        answer = session.sql(sql)
        shown = answer._release_rows(len(answer)).ends[0]
        assert [tuple(row[1:]) for row in answer.fetchall()] == list(shown)
        assert all(low < value < high for value, low, high in answer.fetchall())
    plain = session.sql(f"SELECT page, s / n AS r FROM ({RELEASED}) AS x")  # read in the language of dpsql
    written = session.sql(f"SELECT page, value_low(s / n), value_high(s / n) FROM ({RELEASED}) AS x")
    ends = {page: ends for (page, _), ends in zip(plain.fetchall(), plain._release_rows(2).ends[1], strict=True)}
    assert ends == {page: (low, high) for page, low, high in written.fetchall()}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(dwell) / COUNT(*) AS r FROM visits PRIVATE",
        f"SELECT page, s / n AS r FROM ({RELEASED}) AS x",
        f"SELECT s / n AS r, * FROM ({RELEASED}) AS x",
    ],
)
def test_programs_see_the_columns_of_the_statement_alone(session: dpsql.Session, sql: str) -> None:
    answer = session.sql(sql)
    names = session.describe(sql).names
    assert answer.columns == names
    assert answer.arrow().column_names == names
    assert (answer.to_csv() or "").splitlines()[0] == ",".join(f'"{name}"' for name in names)
    assert encode_answer(answer)["columns"] == names
    assert all(len(row) == len(names) for row in answer.fetchall())
    assert "interval" not in json.dumps(encode_answer(answer)["rows"])
    assert session.sql(sql).receipt.replayed
    assert answer.receipt.mechanism in str(session.explain(sql))


UNION = f"{RELEASED} UNION ALL (SELECT 'all', SUM(dwell) / COUNT(*), 7 FROM visits PRIVATE)"


@pytest.mark.parametrize(
    "sql",
    [
        UNION,
        f"SELECT * FROM ({UNION}) AS t ORDER BY n DESC",
        f"SELECT s + 1 AS more, s, page, n FROM ({UNION}) AS t WHERE n > 0",
        f"WITH u AS ({UNION}) SELECT * FROM u ORDER BY page DESC",
        f"WITH a AS ({RELEASED}) (SELECT *, 1 AS b FROM a) UNION ALL (SELECT page, s, 7, 2 FROM a WHERE n > 0)",
    ],
)
def test_each_row_of_a_union_has_the_interval_of_its_release(session: dpsql.Session, sql: str) -> None:
    answer = session.sql(sql)
    frame = answer.df(intervals=True)
    is_exact = frame["n"] == 7
    assert (frame["n_low"].isna() == is_exact).all()
    counted = frame[~is_exact]
    half = {(row.n_high - row.n) for row in counted.itertuples()} | {
        (row.n - row.n_low) for row in counted.itertuples()
    }
    assert half == {session.sql(RELEASED).measures[1].half_width(0.95)}
    assert ((frame["s_low"] < frame["s"]) & (frame["s"] < frame["s_high"])).all()
    ratio = frame[is_exact & (frame["page"] == "all")]
    assert (ratio["s_high"] - ratio["s_low"] < 10).all()  # that of a sum is wider
    assert repr(answer).count(" ± ") == 2 * len(frame) - is_exact.sum() + 1
    assert answer.intervals().column_names[-2:] == ["low", "high"]
    assert {"s", "n", "more"}.isdisjoint(answer.intervals().column_names)
    assert answer.to_csv(intervals=True).count("s_low") == 1
    answer.plot()
    with pytest.raises(dpsql.UsageError, match="95 %"):
        answer.df(intervals=True, level=0.9)


def test_a_ratio_has_its_interval_in_every_form(session: dpsql.Session) -> None:
    answer = session.sql(f"SELECT page, CAST(s / n AS INTEGER) AS r FROM ({RELEASED}) AS x")
    frame = answer.df(intervals=True)
    assert frame.columns.tolist() == ["page", "r", "r_low", "r_high"]
    assert (frame["r_low"] <= frame["r"]).all()
    assert (frame["r"] <= frame["r_high"]).all()
    assert answer.intervals().to_pydict()["low"] == frame["r_low"].tolist()
    assert [each["column"] for each in encode_answer(answer)["intervals"]] == [1]
    answer.plot()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT page FROM visits GROUP BY page TOP 2 PRIVATE",
        "SELECT MEDIAN(dwell) AS med FROM visits PRIVATE WITH (max_rows_contributed = 8)",
        f"SELECT page, s + n AS sum FROM ({RELEASED}) AS x",
    ],
)
def test_without_an_interval_the_reason_is_said(session: dpsql.Session, sql: str) -> None:
    for use in (dpsql.Answer.intervals, dpsql.Answer.plot, lambda answer: answer.to_csv(intervals=True)):
        with pytest.raises(dpsql.UsageError, match="no-counts") as caught:
            use(session.sql(sql))
        assert ("keys alone" in caught.value.reason) == ("med" not in sql and "sum" not in sql)


def test_a_median_is_no_key(session: dpsql.Session) -> None:
    sql = "SELECT page, COUNT(*) AS n, MEDIAN(dwell) AS med FROM visits GROUP BY page TOP 2 PRIVATE"
    assert session.sql(sql).intervals().column_names == ["page", "low", "high"]
    computed = session.sql(f"SELECT page, upper(page) AS up, n, 2 * n AS twice FROM ({RELEASED}) AS x")
    assert computed.intervals().column_names == ["page", "up", "low", "high"]


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT DISTINCT s / n AS r FROM ({RELEASED}) AS x",
        f"SELECT max(s) / min(n) AS r FROM ({RELEASED}) AS x",
        f"SELECT s / (n + 5) AS r FROM ({RELEASED}) AS x",
        f"SELECT (s + 1) / n AS r FROM ({RELEASED}) AS x",
        f"SELECT s / n AS r FROM ({RELEASED}) AS x UNION SELECT 1.5",
        f"SELECT s / n AS r FROM ({RELEASED} WITH (monotone = true)) AS x",
        "SELECT SUM(dwell) / COUNT(*) FILTER (WHERE dwell > 1000) AS r FROM visits PRIVATE",
    ],
)
def test_what_has_no_interval_is_shown_as_it_is(session: dpsql.Session, sql: str) -> None:
    assert "±" not in repr(session.sql(sql))


# 12,000 rows of one page and 6,000 of the other, of 24,000 in all; 3,600 of these are below 15
NUMBERS = "COUNT(*) AS n, COUNT(*) FILTER (WHERE dwell < 15) AS m FROM visits"
OF_PAGES = f"SELECT page, {NUMBERS} WHERE page = 'p0' OR dwell < 50 GROUP BY page TOP 2 PRIVATE"


def test_a_quotient_of_two_rows_is_no_share(session: dpsql.Session) -> None:
    found = session.sql(
        f"WITH q AS ({OF_PAGES}) SELECT a.n / b.n AS r, a.m / a.n AS s FROM q AS a, q AS b WHERE a.page <> b.page"
    ).fetchall()
    least, most = sorted(r for r, _ in found)
    assert abs(least - 0.5) < 0.2  # the standard deviation of a count is 40 rows
    assert abs(most - 2.0) < 0.2


def test_private_queries_may_call_their_numbers_alike(session: dpsql.Session) -> None:
    found = session.sql(
        f"SELECT a.page, a.n / b.n AS r, b.m / b.n AS s FROM ({OF_PAGES}) AS a, (SELECT {NUMBERS} PRIVATE) AS b"
    ).fetchall()
    wanted = {"p0": (0.5, 0.15), "p1": (0.25, 0.15)}
    assert all(abs(r - wanted[page][0]) < 0.05 and abs(s - wanted[page][1]) < 0.03 for page, r, s in found)


def test_an_end_of_a_ratio_whose_divisor_is_computed_is_refused(session: dpsql.Session) -> None:
    with pytest.raises(dpsql.Refusal):
        session.sql(f"SELECT s / (2 * n) AS r, value_low(r) AS low FROM ({RELEASED}) AS x")


def test_answers_are_shown_alike_in_a_file_of_the_ledger(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE visits AS SELECT i % 500 AS who, i % 100 AS dwell FROM range(4000) t(i)")
    policy = dpsql.Policy(
        dpsql.Budget(8, "1e-6"), {"visits": dpsql.PrivateTable("who", bounds=BOUNDS)}, ledger=tmp_path / "ledger.sqlite"
    )
    shown = []
    for _ in range(2):
        with dpsql.connect(tmp_path / "events.duckdb", policy=policy) as session:
            answer = session.sql("SELECT SUM(dwell) / COUNT(*) AS r FROM visits PRIVATE")
            shown.append(cells(answer))
    assert shown[0] == shown[1]
    assert "±" in shown[0][0][0]
