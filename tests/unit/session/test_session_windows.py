"""Windows and other computations over rankings: what the first groups decide, what is refused, and what a note says.

Every refusal's statement is pasted and run, and compared with what plain DuckDB says of all rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import duckdb
import pytest
from support.session_kit import session_on, shared

import dpsql
from dpsql.answer import Answer
from dpsql.report.answer_json import encode_answer, encode_notes
from dpsql.session import Session

CREATE = "CREATE TABLE reads (user_id BIGINT, country VARCHAR, article VARCHAR, age BIGINT, dwell BIGINT, ts TIMESTAMP)"
ROWS = (  # country c has 3000 - 180 c users, one row each; articles have 5 : 4 : 3 : 2 : 1 of them
    "INSERT INTO reads SELECT u, 'c' || lpad(c::VARCHAR, 2, '0'), 'a' || (CASE WHEN u % 15 < 5 THEN 0 WHEN u % 15 < 9 "
    "THEN 1 WHEN u % 15 < 12 THEN 2 WHEN u % 15 < 14 THEN 3 ELSE 4 END), 20 + c, 10 + c, TIMESTAMP '2026-01-01' + "
    "INTERVAL (u % 96) HOUR FROM range(3000) users(u), range(15) countries(c) WHERE u < 3000 - 180 * c"
)
PUBLIC = "CREATE TABLE countries AS SELECT 'c' || lpad(c::VARCHAR, 2, '0') AS country FROM range(4) t(c)"
TABLES = {
    "reads": dpsql.PrivateTable("user_id", bounds={"rows": 15, "dwell": {"max": 300}}),
    "countries": dpsql.PublicTable(),
}
TOLERANCE = 0.06  # of a value, and 60 besides: several sigma of every count here


def open_session(*, implicit: bool = True, tables: dict[str, object] | None = None) -> Session:
    limits = dpsql.Limits(max_epsilon=100, max_delta="4e-3", default_k=3)
    budget = dpsql.Budget(100, "1e-2", items=80, queries=3)
    policy = dpsql.Policy(budget, TABLES if tables is None else tables, limits=limits)  # type: ignore[arg-type]
    return session_on(shared(CREATE, ROWS, PUBLIC), policy, implicit=implicit)


def run_plainly(text: str) -> list[tuple[object, ...]]:
    return shared(CREATE, ROWS, PUBLIC).execute(text).fetchall()


def is_near(one: object, other: object) -> bool:
    if isinstance(one, str) or one is None or other is None:
        return one == other
    small = 0.02 if abs(float(other)) <= 1 else 60 if abs(float(other)) > 100 else 0.3  # type: ignore[arg-type]
    return abs(float(one) - float(other)) <= small + TOLERANCE * abs(float(other))  # type: ignore[arg-type]


def assert_rows_are_among(rows: Sequence[tuple[object, ...]], every: Sequence[tuple[object, ...]]) -> None:
    """Check that each row is one of `every`, by its texts, with near numbers."""
    known = {tuple(value for value in row if isinstance(value, str)): row for row in every}
    assert rows
    for row in rows:
        exact = known[tuple(value for value in row if isinstance(value, str))]
        assert all(map(is_near, row, exact)), (row, exact)


def paste(session: Session, text: str) -> tuple[dpsql.Error, str, Answer]:
    """Run a statement that is refused, and then the one that its hint says."""
    with pytest.raises(dpsql.Error) as refused:
        session.sql(text)
    assert session.budget.refunded.spent == 0
    found = re.search(r": ((?:SELECT|WITH|FROM|\().*)$", str(refused.value.hint), re.DOTALL)
    assert found is not None, refused.value.hint
    return refused.value, found[1], session.sql(found[1])


COUNTED = "SELECT country, COUNT(*) AS n"
BY_COUNTRY = "FROM reads GROUP BY country"
PAIRS = "FROM reads GROUP BY country, article"
LIST = f"(SELECT country, COUNT(*) AS n {BY_COUNTRY})"
SHARES = [
    f"SELECT country, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS p {BY_COUNTRY}",
    f"SELECT country, 100.0*COUNT(*)/SUM(COUNT(*)) OVER () AS p {BY_COUNTRY} ORDER BY p DESC LIMIT 5;",
    f"{COUNTED}, n / SUM(n) OVER () AS p {BY_COUNTRY} ORDER BY 2 DESC",
    (
        "SELECT country, COUNT(*) / SUM(COUNT(*)) OVER w AS p FROM reads AS r WHERE dwell < 20 "
        "AND article <> 'SUM(x) OVER ()' GROUP BY country WINDOW w AS () ORDER BY p DESC"
    ),
    f"SELECT country, COUNT(DISTINCT user_id) * 1.0 / SUM(COUNT(DISTINCT user_id)) OVER () AS p {BY_COUNTRY}",
    f"SELECT country, article, COUNT(DISTINCT user_id) AS n, n / SUM(n) OVER () AS p {PAIRS} ORDER BY n DESC LIMIT 3",
    f"SELECT country, SUM(dwell) AS s, ROUND(100 * SUM(dwell) / SUM(SUM(dwell)) OVER (), 1) AS p {BY_COUNTRY}",
    (
        "SELECT upper(country) AS c, COUNT(*) FILTER (WHERE dwell < 15) * 100 "
        "/ SUM(COUNT(*) FILTER (WHERE dwell < 15)) OVER () AS p FROM reads GROUP BY upper(country)"
    ),
    (
        "WITH late AS (SELECT * FROM reads WHERE ts > TIMESTAMP '2026-01-02') "
        "SELECT country, COUNT(*) / SUM(COUNT(*)) OVER () AS p FROM late GROUP BY country"
    ),
    f"SELECT * FROM (SELECT country, COUNT(*) / SUM(COUNT(*)) OVER () AS p {BY_COUNTRY}) AS x WHERE p > 0.05",
    f"SELECT country, n / SUM(n) OVER () AS p FROM {LIST} AS x ORDER BY p DESC",
    f"WITH q AS {LIST} SELECT country, 100 * n / (SELECT SUM(n) FROM q) AS p FROM q",
    f"SELECT SUM(n) AS s FROM {LIST} AS x",
    f"SELECT SUM(x.n) FROM {LIST} AS x",
]


@pytest.mark.parametrize("text", SHARES)
def test_a_share_of_all_divides_by_a_private_total(text: str) -> None:
    error, pasted, answer = paste(open_session(), text)
    assert error.code in {"window", "wrapping"}
    assert "SUM(n)" not in pasted.replace("AS SUM(n)", "")
    assert_rows_are_among(answer.fetchall(), run_plainly(text.replace(" LIMIT 3", "")))


@pytest.mark.parametrize(
    ("measures", "ending"),
    [
        ("AVG(dwell) AS a", "GROUP BY ALL LIMIT 3"),
        ("MEDIAN(dwell, contribution_bounds_per_row => (0, 50)) AS a", "GROUP BY ALL LIMIT 3"),
        ("AVG(dwell) AS a, COUNT(*) AS n", "GROUP BY ALL ORDER BY measure_2 DESC LIMIT 3"),
        ("COUNT(*) AS n, SUM(dwell) AS a", "GROUP BY ALL ORDER BY measure_1 DESC LIMIT 3"),
    ],
)
def test_the_statement_to_paste_ranks_by_what_can_rank(measures: str, ending: str) -> None:
    _, pasted, answer = paste(open_session(), f"SELECT country, {measures}, RANK() OVER (ORDER BY a) AS r {BY_COUNTRY}")
    assert ending in pasted
    assert len(answer) == 3


def test_a_share_of_all_is_refused_where_the_clause_is_written() -> None:
    text = f"SELECT country, COUNT(*) / SUM(COUNT(*)) OVER () AS p {BY_COUNTRY} TOP 5 PRIVATE ORDER BY p DESC"
    _, pasted, answer = paste(open_session(implicit=False), text)
    assert "(SELECT COUNT(*, contribution_bounds_per_group => (0, 75)) FROM reads PRIVATE)" in pasted
    assert_rows_are_among(answer.fetchall(), run_plainly(text.replace("TOP 5 PRIVATE", "")))


@pytest.mark.parametrize("text", SHARES[:4])
def test_the_statement_to_paste_has_the_clause_that_the_text_lacks(text: str) -> None:
    _, pasted, answer = paste(open_session(implicit=False), text)
    assert pasted.count("PRIVATE") == 2
    assert_rows_are_among(answer.fetchall(), run_plainly(text))


TIGHT = {
    "reads": dpsql.PrivateTable(
        "user_id", bounds={"rows": 1, "dwell": {"max": 24}, "age": {"each": {"min": -1, "max": 35}}}
    )
}
TOTALS = {  # each user has one row of each country, which the bounds of a country just hold
    "COUNT(*)": "COUNT(*, contribution_bounds_per_group => (0, 15))",
    "SUM(dwell)": "SUM(dwell, contribution_bounds_per_group => (0, 360))",
    "SUM(Age::DOUBLE)": "SUM(Age::DOUBLE, contribution_bounds_per_group => (-15, 525))",
    "SUM(dwell) FILTER (WHERE age > 19)": (
        "SUM(dwell, contribution_bounds_per_group => (0, 360)) FILTER (WHERE age > 19)"
    ),
    "SUM(dwell, contribution_bounds_per_group => (0, 24.5))": "SUM(dwell, contribution_bounds_per_group => (0, 367.5))",
}


@pytest.mark.parametrize(("measure", "total"), TOTALS.items())
def test_a_share_divides_by_a_total_that_counts_a_unit_in_all_groups(measure: str, total: str) -> None:
    text = f"SELECT country, COUNT(*) AS n, 100.0 * {measure} / SUM({measure}) OVER () AS p {BY_COUNTRY}"
    _, pasted, answer = paste(open_session(tables=TIGHT, implicit=False), f"{text} ORDER BY n DESC LIMIT 15")
    assert f"(SELECT {total} FROM reads PRIVATE)" in pasted
    assert len(answer.fetchall()) > 10
    plain = text.replace(", contribution_bounds_per_group => (0, 24.5)", "")
    assert_rows_are_among(answer.fetchall(), run_plainly(plain))


def test_rows_of_a_cte_are_counted_in_all_groups_too() -> None:
    text = f"SELECT country, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS p {BY_COUNTRY.replace('reads', 'late')}"
    text = f"WITH late AS (SELECT * FROM reads WHERE dwell > 0) {text} LIMIT 15"
    _, pasted, answer = paste(open_session(tables=TIGHT, implicit=False), text)
    assert "COUNT(*, contribution_bounds_per_group => (0, 15))" in pasted
    assert_rows_are_among(answer.fetchall(), run_plainly(text))


def test_parameters_that_are_there_twice_are_numbered() -> None:
    text = "SELECT country, COUNT(*) / SUM(COUNT(*)) OVER () AS p FROM reads WHERE dwell < ? GROUP BY country LIMIT ?"
    session = open_session()
    with pytest.raises(dpsql.Refusal) as refused:
        session.sql(text, [20, 3])
    pasted = str(refused.value.hint).partition(": ")[2]
    assert pasted.count("$1") == 2
    answer = session.sql(pasted, [20, 3])
    assert_rows_are_among(answer.fetchall(), run_plainly(text.replace("?", "20", 1).partition(" LIMIT")[0]))


RANK = "ROW_NUMBER() OVER (PARTITION BY country ORDER BY COUNT(*) DESC)"
TOPS = {  # the top of each group, and its k
    f"SELECT * FROM (SELECT country, article, COUNT(*) AS n, {RANK} AS r {PAIRS}) WHERE r <= 3": 3,
    "SELECT * FROM (SELECT country, article, COUNT(DISTINCT user_id) n, RANK() OVER (PARTITION BY country ORDER BY "
    "COUNT(DISTINCT user_id) DESC) r FROM reads GROUP BY 1, 2) AS x WHERE r < 3": 2,
    f"SELECT country, article, COUNT(*) AS n {PAIRS} QUALIFY {RANK} <= 2": 2,
    f"SELECT country, article, COUNT(*) AS n, {RANK} AS r {PAIRS} QUALIFY 2 >= r": 2,
    "SELECT country, article, COUNT(*) AS n FROM reads GROUP BY 1, 2 "
    "WINDOW w AS (PARTITION BY country ORDER BY n DESC) QUALIFY DENSE_RANK() OVER w = 1": 1,
    f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY country ORDER BY n DESC) AS r FROM (SELECT country, "
    f"article, COUNT(*) AS n {PAIRS})) WHERE r <= 2": 2,
    f"WITH q AS (SELECT country, article, COUNT(*) AS n {PAIRS}), p AS (SELECT q.*, ROW_NUMBER() OVER (PARTITION BY "
    "q.country ORDER BY q.n DESC) AS r FROM q) SELECT * FROM p WHERE r = 1": 1,
}


@pytest.mark.parametrize("text", TOPS)
def test_the_top_of_each_group_is_per(text: str) -> None:
    error, pasted, answer = paste(open_session(), text)
    assert error.code == "window"
    assert f"TOP {TOPS[text]} PRIVATE PER country WITH (partitions = 'countries.country')" in pasted
    plain = [row for row in run_plainly(text) if str(row[0]) < "c04"]
    assert len(answer) == len(plain)
    assert_rows_are_among(answer.fetchall(), plain)


def test_partitions_are_those_of_the_statement_or_the_policy() -> None:
    head = f"SELECT country, article, COUNT(*) AS n, {RANK} AS r FROM reads WHERE country IN ('c03', 'c''01') AND TRUE "
    text = f"{head.replace(chr(39) * 2, '')} GROUP BY 1, 2"
    _, pasted, answer = paste(open_session(tables={"reads": TABLES["reads"]}), text)
    assert pasted.endswith("TOP 3 PRIVATE PER country WITH (partitions = ['c03', 'c01'])")
    assert_rows_are_among(answer.fetchall(), run_plainly(text))
    rank = RANK.replace("country", "dwell > 15")
    text = f"SELECT dwell > 15 AS long, article, COUNT(*) AS n, {rank} AS r FROM reads GROUP BY 1, 2"
    _, pasted, answer = paste(open_session(), text)
    assert "PER long WITH (partitions = ['False', 'True'])" in pasted
    assert len(answer) == 6


def test_partitions_that_are_not_public_are_asked_for_first() -> None:
    text = f"SELECT country, article, COUNT(*) AS n, {RANK} AS r FROM reads WHERE dwell < 13 GROUP BY 1, 2"
    session = open_session(tables={"reads": TABLES["reads"]})
    error, names, answer = paste(session, text)
    assert names == "SELECT country FROM reads WHERE dwell < 13 GROUP BY ALL TOP 3 PRIVATE"
    clause = str(error.hint).partition("Write ")[2].partition(" at the end")[0]
    listed = ", ".join(f"'{name}'" for (name,) in answer.fetchall())
    answer = open_session().sql(f"{text} {clause.replace(repr('...') + ', ' + repr('...'), listed)}")
    assert len(answer) == 9
    assert_rows_are_among(answer.fetchall(), run_plainly(text))


LISTED = [  # what no prefix decides: over the released rows, which the statement then says
    f"{COUNTED}, NTILE(4) OVER (ORDER BY COUNT(*) DESC) AS q {BY_COUNTRY}",
    f"{COUNTED}, LEAD(COUNT(*)) OVER (ORDER BY COUNT(*) DESC) AS q {BY_COUNTRY}",
    f"{COUNTED}, LAG(COUNT(*)) OVER (ORDER BY COUNT(*)) AS q {BY_COUNTRY}",
    f"{COUNTED}, ROW_NUMBER() OVER (ORDER BY COUNT(*)) AS q {BY_COUNTRY}",
    f"{COUNTED}, COUNT(*) OVER () AS q {BY_COUNTRY}",
    f"{COUNTED}, FIRST_VALUE(country) OVER (ORDER BY COUNT(*)) AS q {BY_COUNTRY}",
    (
        f"{COUNTED}, LAST_VALUE(country) OVER (ORDER BY COUNT(*) DESC ROWS BETWEEN UNBOUNDED PRECEDING "
        f"AND UNBOUNDED FOLLOWING) AS q {BY_COUNTRY}"
    ),
    (
        f"{COUNTED}, SUM(COUNT(*)) OVER (ORDER BY COUNT(*) DESC ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) "
        f"AS q {BY_COUNTRY}"
    ),
    f"{COUNTED}, SUM(COUNT(*)) OVER (ORDER BY ROUND(COUNT(*), -3) DESC) AS q {BY_COUNTRY}",
    f"{COUNTED}, RANK() OVER (ORDER BY SUM(dwell) DESC) AS q {BY_COUNTRY} ORDER BY n DESC",
    f"{COUNTED}, COUNT(*) / SUM(COUNT(*)) OVER () AS q {BY_COUNTRY} HAVING COUNT(*) > 100",
    f"SELECT country, article, COUNT(*) AS n, n / SUM(n) OVER (PARTITION BY country) AS q {PAIRS}",
    f"{COUNTED} {BY_COUNTRY} QUALIFY NTILE(4) OVER (ORDER BY n DESC) = 1",
    f"SELECT 'a;b -- x' AS t, country, NTILE(4) OVER (ORDER BY COUNT(*) DESC) AS q /* ; */ {BY_COUNTRY};",
    f"SELECT * FROM ({COUNTED}, NTILE(2) OVER (ORDER BY COUNT(*) DESC) AS q {BY_COUNTRY}) WHERE q = 1",
    f"SELECT country, n, NTILE(4) OVER (ORDER BY n DESC) AS q FROM {LIST} AS x",
    f"SELECT COUNT(*) AS q FROM {LIST} AS x",
    f"SELECT MAX(n) AS q FROM {LIST} AS x WHERE country <> 'c00'",
    f"SELECT country, SUM(n) AS q FROM (SELECT country, article, COUNT(*) AS n {PAIRS} ORDER BY 1) GROUP BY country",
    "SELECT COUNT(*) AS q FROM (SELECT DISTINCT country FROM reads) AS x",
    f"SELECT COUNT(*) AS q FROM (SELECT country, COUNT(*) AS n {BY_COUNTRY} LIMIT 300) AS x",
    f"SELECT c.country, x.n FROM countries AS c LEFT JOIN {LIST} AS x USING (country)",
    f"SELECT c.country, x.n FROM {LIST} AS x RIGHT JOIN countries AS c USING (country)",
    f"SELECT c.country FROM countries AS c WHERE NOT (c.country IN (SELECT country FROM {LIST} AS x))",
    f"SELECT c.country, c.country IN (SELECT country {BY_COUNTRY}) AS q FROM countries AS c",
    f"SELECT country FROM countries WHERE country NOT IN (SELECT country {BY_COUNTRY})",
    f"SELECT country FROM countries EXCEPT SELECT country FROM {LIST} AS x",
    f"SELECT 5000 > ALL (SELECT n FROM {LIST} AS x) AS q",
    f"SELECT (SELECT n FROM {LIST} AS x WHERE country = 'c14') AS q",
    f"SELECT country FROM {LIST} AS x ORDER BY country DESC LIMIT 2",
    f"SELECT x.country, x.n FROM ({COUNTED}, SUM(dwell) AS s {BY_COUNTRY}) AS x ORDER BY s DESC LIMIT 2",
]


@pytest.mark.parametrize("text", LISTED)
def test_what_needs_other_groups_says_that_it_is_computed_from_released_rows(text: str) -> None:
    error, pasted, answer = paste(open_session(), text)
    assert error.code in {"window", "wrapping"}
    assert re.search(r"computed over at most \d+ released rows", answer.note)
    if "ORDER BY" in pasted.upper() and "LAST_VALUE" not in text:  # DuckDB takes the same groups
        assert len(answer) == len(run_plainly(pasted))
    assert answer.columns == [name for name, *_ in shared(CREATE, ROWS, PUBLIC).execute(text).description or []]


DECIDED = [
    f"{COUNTED}, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC) AS q {BY_COUNTRY}",
    f"{COUNTED}, RANK() OVER (ORDER BY n DESC, country) AS q {BY_COUNTRY} ORDER BY country",
    f"{COUNTED}, DENSE_RANK() OVER w AS q {BY_COUNTRY} WINDOW w AS (ORDER BY COUNT(*) * 2 DESC)",
    f"{COUNTED}, SUM(COUNT(*)) OVER (ORDER BY COUNT(*) DESC) AS q {BY_COUNTRY}",
    f"{COUNTED}, AVG(COUNT(*)) OVER (ORDER BY COUNT(*) DESC ROWS 2 PRECEDING) AS q {BY_COUNTRY}",
    f"{COUNTED}, COUNT(*) OVER (ORDER BY COUNT(*) DESC) AS q {BY_COUNTRY}",
    (
        f"{COUNTED}, MIN(COUNT(*)) OVER (ORDER BY COUNT(*) ROWS BETWEEN 0 FOLLOWING AND UNBOUNDED "
        f"FOLLOWING) AS q {BY_COUNTRY}"
    ),
    f"{COUNTED}, LAG(COUNT(*), 2, 0) OVER (ORDER BY COUNT(*) DESC) AS q {BY_COUNTRY}",
    f"{COUNTED}, LEAD(country) OVER (ORDER BY COUNT(*)) AS q {BY_COUNTRY}",
    f"{COUNTED}, COUNT(*) / FIRST_VALUE(COUNT(*)) OVER (ORDER BY COUNT(*) DESC) AS q {BY_COUNTRY}",
    f"{COUNTED}, COUNT(*) / MAX(COUNT(*)) OVER () AS q {BY_COUNTRY}",
    f"{COUNTED}, NTH_VALUE(country, 2) OVER (ORDER BY COUNT(*) DESC) AS q {BY_COUNTRY}",
    (
        f"{COUNTED}, RANK() OVER (ORDER BY COUNT(DISTINCT user_id) DESC) AS q, COUNT(DISTINCT user_id) "
        f"AS s {BY_COUNTRY} ORDER BY s DESC"
    ),
    f"{COUNTED} {BY_COUNTRY} QUALIFY RANK() OVER (ORDER BY n DESC) <= 3",
    f"SELECT country, n, RANK() OVER (ORDER BY n DESC) AS q FROM {LIST} AS x",
    f"WITH x AS {LIST} SELECT country, n, SUM(n) OVER (ORDER BY n DESC) AS q FROM x",
    f"SELECT MAX(n) AS q FROM {LIST} AS x",
    f"WITH x AS {LIST} SELECT country, n / (SELECT MAX(n) FROM x) AS q FROM x",
    f"SELECT country, n FROM {LIST} AS x ORDER BY n DESC LIMIT 2",
]


@pytest.mark.parametrize("text", DECIDED)
def test_what_the_first_groups_decide_is_what_sql_says(text: str) -> None:
    answer = open_session().sql(text)
    assert "released rows" not in answer.note
    assert_rows_are_among(answer.fetchall(), run_plainly(text))


BANDS = "CASE WHEN dwell < 15 THEN 'short' WHEN dwell < 20 THEN 'long' ELSE 'very long' END"
KNOWN = [  # every group is there, so every window is right, and no note is needed
    f"SELECT {BANDS} AS b, COUNT(*) AS n, n / SUM(n) OVER () AS q FROM reads GROUP BY b",
    f"SELECT {BANDS} AS b, COUNT(*) AS n, n / SUM(n) OVER () AS q FROM reads GROUP BY b ORDER BY n DESC LIMIT 1",
    f"SELECT {BANDS} AS b, COUNT(*) AS n, NTILE(3) OVER (ORDER BY COUNT(*)) AS q FROM reads GROUP BY b ORDER BY q",
    f"SELECT b, n, SUM(n) OVER () AS q FROM (SELECT {BANDS} AS b, COUNT(*) AS n FROM reads GROUP BY b) AS x",
    f"SELECT AVG(n) AS q FROM (SELECT {BANDS} AS b, COUNT(*) AS n FROM reads GROUP BY b) AS x",
    "SELECT (age < 30)::VARCHAR AS b, COUNT(*) AS n FROM reads WHERE age > 0 GROUP BY b ORDER BY b",
]


@pytest.mark.parametrize("text", KNOWN)
def test_where_all_groups_are_known_every_window_is_right(text: str) -> None:
    answer = open_session().sql(text)
    assert answer.receipt.list_note == ""
    assert_rows_are_among(answer.fetchall(), run_plainly(text))


def test_a_domain_that_is_listed_has_all_of_its_groups() -> None:
    share = f"SELECT country, COUNT(*) / SUM(COUNT(*)) OVER () AS p {BY_COUNTRY}"
    for clause in ("ALL PRIVATE WITH (domain = ['c00', 'c01'])", "TOP 2 PRIVATE WITH (domain = ['c00', 'c01'])"):
        answer = open_session().sql(f"{share} {clause}")
        assert sum(float(str(row[1])) for row in answer.fetchall()) == pytest.approx(1)
        assert answer.receipt.list_note == ""
    with pytest.raises(dpsql.Refusal, match="window"):
        open_session().sql(f"{share} TOP 1 PRIVATE WITH (domain = ['c00', 'c01'])")


PER = f"{PAIRS} TOP 2 PRIVATE PER country WITH (partitions = ['c00', 'c03'])"


def test_windows_with_per_are_within_its_partitions() -> None:
    head = "SELECT country, article, COUNT(*) AS n"
    answer = open_session().sql(f"{head}, {RANK} AS r {PER}")
    assert_rows_are_among(answer.fetchall(), run_plainly(f"{head}, {RANK} AS r {PAIRS}"))
    _, pasted, answer = paste(open_session(), f"{head}, RANK() OVER (ORDER BY COUNT(*) DESC) AS r {PER}")
    assert pasted.count("PER country WITH (partitions = ['c00', 'c03'])") == 1
    assert "computed over at most 2 released rows of each country" in answer.note


WRITTEN = [
    f"SELECT *, SUM(n) OVER () AS s FROM (SELECT country, COUNT(*) AS n {BY_COUNTRY} TOP 2 PRIVATE) AS x",
    f"WITH x AS (SELECT country, COUNT(*) AS n {BY_COUNTRY} ORDER BY n DESC LIMIT 2) SELECT SUM(n) FROM x",
    f"SELECT n > 9, COUNT(*) FROM (SELECT country, COUNT(*) AS n {BY_COUNTRY} LIMIT 2) AS x GROUP BY 1",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_around_a_list_that_is_written_out_a_note_says_that_its_rows_are_meant(text: str) -> None:
    answer = open_session().sql(text)
    assert "computed over at most 2 released rows: other groups are left out" in answer.notes()[-1]
    plain = f"SELECT x.country, x.n FROM (SELECT country, COUNT(*) AS n {BY_COUNTRY} TOP 5 PRIVATE) AS x WHERE n > 1"
    assert open_session().sql(plain).receipt.list_note == ""


THE_FIRST = "the 3 most frequent of all groups"
MORE = "TOP 30 PRIVATE"
CUT = {
    "SELECT age, COUNT(*) AS n FROM reads GROUP BY age ORDER BY age": (
        "the 3 most frequent of all groups; write ORDER BY n DESC LIMIT 3 for these alone or "
        f"{MORE} before ORDER BY for more"
    ),
    "SELECT age FROM reads GROUP BY age": (
        f"the 3 most frequent of all groups; write LIMIT 3 for these alone or {MORE} at the end of the query for more"
    ),
    "SELECT DISTINCT age FROM reads": (
        f"the 3 most frequent of all groups; write LIMIT 3 for these alone or {MORE} at the end of the query for more"
    ),
    "SELECT age, COUNT(*) AS n FROM reads GROUP BY age ORDER BY n DESC LIMIT 12": (
        "the 3 most frequent of the 12 groups that LIMIT asks for; write LIMIT 3 for these alone or "
        "TOP 12 PRIVATE before ORDER BY for more"
    ),
    "SELECT age, SUM(dwell) AS s FROM reads GROUP BY age LIMIT 50000": (
        "the 3 largest of the 50,000 groups that LIMIT asks for; write LIMIT 3 for these alone or "
        f"{MORE} before LIMIT for more"
    ),
    "SELECT age, COUNT(*) * 2 AS n FROM reads GROUP BY age ORDER BY age": (
        f"the 3 most frequent of all groups; write {MORE} before ORDER BY for more"
    ),
    "SELECT age, COUNT(*) AS n FROM reads GROUP BY age HAVING COUNT(*) > 50 ORDER BY age": (
        "the 3 most frequent of all groups; write ORDER BY n DESC LIMIT 3 for these alone or "
        f"{MORE} before ORDER BY for more"
    ),
    f"{COUNTED} {BY_COUNTRY} ORDER BY country": (
        "the 3 most frequent of all groups; write ORDER BY n DESC LIMIT 3 for these alone, "
        f"{MORE} before ORDER BY for more or ALL PRIVATE WITH (domain = 'countries.country') before ORDER BY for all "
        "of countries.country"
    ),
    f"SELECT * FROM {LIST} AS x WHERE country = 'c14'": THE_FIRST,
    f"SELECT country FROM countries WHERE country IN (SELECT country {BY_COUNTRY})": THE_FIRST,
    f"SELECT x.country, x.n, y.n FROM {LIST} AS x JOIN {LIST} AS y USING (country)": THE_FIRST,
    f"SELECT country FROM {LIST} AS x UNION ALL SELECT 'all'": THE_FIRST,
}


@pytest.mark.parametrize("text", CUT)
def test_a_list_that_is_cut_says_so_and_how_to_have_more(text: str) -> None:
    session = open_session()
    answer = session.sql(text)
    assert answer.note.startswith(CUT[text])
    assert session.sql(text).note == answer.note  # of a stored answer, too
    session = open_session()
    if "write ORDER BY n DESC LIMIT 3" in answer.note:
        alone = session.sql(f"{text.rpartition(' ORDER BY ')[0]} ORDER BY n DESC LIMIT 3")
        assert (len(alone), alone.receipt.list_note) == (3, "")
    if "TOP 30 PRIVATE before ORDER BY" in answer.note:
        more = session.sql(text.replace(" ORDER BY", f" {MORE} ORDER BY"))
        assert (len(more) > 3, more.receipt.list_note) == (True, "")
    if "TOP 30 PRIVATE at the end" in answer.note and " AS x" not in text and "IN (" not in text:
        more = session.sql(f"{text} {MORE}")
        assert (len(more) > 3, more.receipt.list_note) == (True, "")
    if "domain" in answer.note and "ORDER BY" in text:
        clause = "ALL PRIVATE WITH (domain = 'countries.country')"
        assert len(session.sql(text.replace(" ORDER BY", f" {clause} ORDER BY"))) == 4


INSIDE = {
    f"SELECT * FROM {LIST} AS x WHERE n > 9 ORDER BY n": ", after GROUP BY country,",
    f"WITH x AS {LIST} SELECT * FROM x ORDER BY n": ", after GROUP BY country,",
    f"WITH x(c, m) AS {LIST} SELECT * FROM x ORDER BY m": ", after GROUP BY country,",
    f"SELECT * FROM ({COUNTED} {BY_COUNTRY} HAVING COUNT(*) > 5) AS x": ", after HAVING COUNT(*) > 5,",
    "SELECT * FROM (SELECT DISTINCT country FROM reads WHERE age IN (20, 21)) AS x": ", after WHERE age IN (20, 21),",
    f"SELECT * FROM ({COUNTED} {BY_COUNTRY} ORDER BY country) AS x": "",
}


@pytest.mark.parametrize("text", INSIDE)
def test_the_note_of_a_list_inside_says_where_the_words_belong(text: str) -> None:
    note = open_session().sql(text).receipt.list_note
    place = INSIDE[text].removeprefix(", after ").removesuffix(",")
    proposed = note.partition(f"write inside the parentheses{INSIDE[text]} ")[2]
    where = place or " ORDER BY country"
    alone = re.search(r"(?:ORDER BY n DESC )?LIMIT 3", proposed)[0]  # type: ignore[index]
    for words in (alone, MORE):
        ordered = " ORDER BY country" if not place and words == MORE else ""
        pasted = text.replace(where, f"{where if place else ''} {words}{ordered}", 1)
        answer = open_session().sql(pasted)
        assert len(answer)
        assert "most frequent" not in answer.receipt.list_note


def test_the_largest_value_of_what_ranks_needs_no_other_groups() -> None:
    for text in (f"SELECT MAX(n) FROM {LIST} AS x", f"WITH x AS {LIST} SELECT MAX(n) AS m FROM x"):
        answer = open_session().sql(text)
        assert answer.receipt.list_note == ""
        assert_rows_are_among(answer.fetchall(), run_plainly(text))
    ranked = f"SELECT n, RANK() OVER (ORDER BY n DESC) AS r FROM {LIST} AS x"
    assert THE_FIRST in open_session().sql(ranked).receipt.list_note


SMALL = [
    "n < 100",
    "n <= 5",
    "100 > n",
    "n = 5",
    "n <> 5",
    "n BETWEEN 5 AND 9",
    "NOT n > 100",
    "n > 100 OR country = 'c14'",
    "(x.n < 100) AND country <> 'c00'",
    "n % 2 = 0",
    "n > 2 AND n < 100",
    "n IN (1, 2)",
]


@pytest.mark.parametrize("test", SMALL)
def test_a_test_that_other_groups_pass_is_refused_around_a_list(test: str) -> None:
    for text in (f"SELECT * FROM {LIST} AS x WHERE {test}", f"WITH x AS {LIST} SELECT * FROM x WHERE {test}"):
        refused, pasted, answer = paste(open_session(), text)
        assert "others pass this test, too" in refused.reason
        assert "LIMIT 3" in pasted
        assert answer.receipt.read_as == "TOP 3 PRIVATE"


def test_a_statement_to_paste_has_a_limit_in_each_ranking() -> None:
    some = [f"SELECT article FROM reads WHERE country = 'c0{at}' GROUP BY article" for at in (0, 1)]
    for text in (
        f"SELECT x.article FROM ({some[0]}) AS x WHERE x.article NOT IN ({some[1]})",
        f"SELECT x.article FROM ({some[0]} LIMIT 2) AS x WHERE x.article NOT IN ({some[1]} LIMIT 50)",
        f"{some[0]} EXCEPT {some[1]}",
        f"({some[0]}) INTERSECT ({some[1]}) ORDER BY 1",
    ):
        _, pasted, answer = paste(open_session(), text)
        assert pasted.count("LIMIT") == len(answer.receipt.parts) == 2


def test_a_measure_under_another_name_is_tested_alike() -> None:
    for text in (
        f"SELECT * FROM {LIST} AS x(a, b) WHERE b < 100",
        f"SELECT * FROM (SELECT country, -COUNT(*) AS n {BY_COUNTRY}) AS x WHERE n > -100",
        f"SELECT * FROM (SELECT country, COUNT(*) AS n, AVG(dwell) AS m {BY_COUNTRY}) AS x WHERE m > 5",
        f"SELECT * FROM (SELECT * FROM {LIST} AS x) AS y WHERE y.n < 100",
    ):
        assert "others pass this test, too" in paste(open_session(), text)[0].reason


LARGE = ["n > 9", "x.n >= 9", "9 < n", "(n > 9) AND n IS NOT NULL", "country = 'c00'"]


@pytest.mark.parametrize("test", LARGE)
def test_a_test_for_large_values_or_keys_is_answered(test: str) -> None:
    assert THE_FIRST in open_session().sql(f"SELECT * FROM {LIST} AS x WHERE {test}").receipt.list_note
    computed = f"(SELECT country, COUNT(*) * 2 AS n {BY_COUNTRY})"
    assert THE_FIRST in open_session().sql(f"SELECT * FROM {computed} AS x WHERE {test}").receipt.list_note


UNCUT = [
    "SELECT age, COUNT(*) AS n FROM reads GROUP BY age ORDER BY n DESC LIMIT 3",
    "SELECT age FROM reads GROUP BY age LIMIT 3",
    "SELECT age, COUNT(*) AS n FROM reads GROUP BY age TOP 5 PRIVATE ORDER BY age",
    "SELECT COUNT(*) AS n FROM reads",
    (
        "SELECT ts::DATE AS day, COUNT(*) AS n FROM reads WHERE ts >= DATE '2026-01-01' AND ts < DATE '2026-01-05' "
        "GROUP BY 1 ORDER BY 1"
    ),
]


@pytest.mark.parametrize("text", UNCUT)
def test_a_list_that_is_whole_says_nothing(text: str) -> None:
    assert open_session().sql(text).receipt.list_note == ""


def test_a_note_proposes_no_clause_where_none_can_be_written() -> None:
    text = "SELECT WITH DIFFERENTIAL_PRIVACY age, COUNT(*) AS n FROM reads GROUP BY age"
    assert (
        open_session().sql(text).receipt.list_note == "the 3 most frequent of all groups; write LIMIT 3 for these alone"
    )
    assert open_session().sql(f"{text} LIMIT 3").receipt.list_note == ""


def test_the_most_that_a_note_proposes_is_within_the_policy() -> None:
    limits = dpsql.Limits(max_epsilon=100, max_delta="4e-3", default_k=3, max_k=12)
    policy = dpsql.Policy(dpsql.Budget(100, "1e-2", items=80, queries=3), TABLES, limits=limits)  # type: ignore[arg-type]
    session = session_on(shared(CREATE, ROWS, PUBLIC), policy, implicit=True)
    assert (
        "TOP 12 PRIVATE before ORDER BY for more"
        in session.sql("SELECT age, COUNT(*) AS n FROM reads GROUP BY age ORDER BY age").note
    )


@pytest.mark.parametrize(("items", "more"), [(80, "TOP 30"), (24, "TOP 12"), (8, "TOP 4"), (7, "")])
def test_no_more_groups_are_proposed_than_the_budget_buys(items: int, more: str) -> None:
    limits = dpsql.Limits(max_epsilon=100, max_delta="4e-3", default_k=3)
    policy = dpsql.Policy(dpsql.Budget(100, "1e-2", items=items, queries=3), TABLES, limits=limits)  # type: ignore[arg-type]
    text = "SELECT age, COUNT(*) AS n FROM reads GROUP BY age"
    open_one = lambda: session_on(shared(CREATE, ROWS, PUBLIC), policy, implicit=True)  # noqa: E731 - short
    note = open_one().sql(text).receipt.list_note
    assert ("for more" in note) == bool(more)
    assert f"{more} PRIVATE at the end of the query for more" in note if more else note.endswith("for these alone")
    assert open_one().sql(f"{text} {more} PRIVATE").receipt.answered if more else True


def test_the_note_stands_beside_the_answer_everywhere() -> None:
    session = open_session()
    text = "SELECT age, COUNT(*) AS n FROM reads GROUP BY age ORDER BY age"
    facts = dict(session.explain(text).facts())
    answer = session.sql(text)
    note = answer.receipt.list_note
    assert facts["note"] == note
    assert note in repr(answer)
    assert note in answer._repr_html_()
    assert note in "\n".join(answer.notes())
    assert note in str(encode_answer(answer)["note"])
    assert note in str(encode_notes(answer)["note"])
    assert note in str(session.sql(f"EXPLAIN {text}").fetchall())


def test_the_note_depends_on_the_text_alone() -> None:
    text = "SELECT age, COUNT(*) AS n FROM reads WHERE age > 1000 GROUP BY age ORDER BY age"
    answer = open_session().sql(text)
    assert len(answer) == 0
    assert answer.note == open_session().sql(text.replace("1000", "0")).receipt.list_note


def test_duckdb_agrees_that_these_statements_are_sql() -> None:
    with duckdb.connect() as connection:
        connection.execute(CREATE)
        connection.execute("CREATE TABLE countries (country VARCHAR)")
        for text in (*SHARES, *TOPS, *LISTED, *DECIDED, *KNOWN, *CUT):
            connection.execute(text)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS p FROM many GROUP BY k ORDER BY p DESC LIMIT 5",
        (
            "SELECT k, 100.0 * COUNT(DISTINCT user_id) / SUM(COUNT(DISTINCT user_id)) OVER () AS p FROM many "
            "GROUP BY k ORDER BY p DESC LIMIT 5"
        ),
        (
            "SELECT k, 100.0 * n / SUM(n) OVER () AS p FROM (SELECT k, COUNT(*) AS n FROM many GROUP BY k) AS q "
            "ORDER BY n DESC LIMIT 5"
        ),
        (
            "SELECT k, 100.0 * n / (SELECT SUM(n) FROM (SELECT k, COUNT(*) AS n FROM many GROUP BY k) AS q) AS p "
            "FROM (SELECT k, COUNT(*) AS n FROM many GROUP BY k) AS r ORDER BY n DESC LIMIT 5"
        ),
    ],
)
def test_a_share_is_right_where_users_are_in_more_groups_than_they_have_rows_in_one(sql: str) -> None:
    """A total under the policy's bound of one group would count a user of ten groups twice, and each share fivefold."""
    rows = "CREATE TABLE many AS SELECT u AS user_id, 'k' || g AS k FROM range(2000) t(u), range(10) s(g)"
    policy = dpsql.Policy(
        dpsql.Budget(100, "1e-2", items=24, queries=3),
        {"many": dpsql.PrivateTable("user_id", bounds={"rows": 2})},
        limits=dpsql.Limits(max_epsilon=100, max_delta="4e-3"),
    )
    with session_on(shared(rows), policy, implicit=True) as session:
        with pytest.raises(dpsql.Refusal) as refused:
            session.sql(sql)
        pasted = str(refused.value.hint).partition(": ")[2]
        answer = session.sql(pasted)
        shares = [row[1] for row in answer.fetchall()]
        assert len(shares) >= 5
        assert all(abs(share - 10.0) < 0.5 for share in shares), pasted
        assert "numbers of different private queries are cut separately" in answer.note
