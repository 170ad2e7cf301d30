"""Values of keys that the statement tells: DuckDB finds no other in random rows, and each is a group of its own."""

from __future__ import annotations

import calendar
import math
from collections import Counter
from dataclasses import replace
from datetime import date, datetime

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.sql_reference import accepts_pattern, catalog_of

from dpsql.errors import Refusal
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import LiteralDomain, PrivateQuery, ProductDomain, TableDomain, count_groups
from dpsql.sql.ir.tree import Literal
from dpsql.sql.rewrite import engine_query
from dpsql.sql.rewrite.engine_query import rewrite_all

CON = duckdb.connect()
CON.execute("CREATE TABLE reads (user_id BIGINT, ts TIMESTAMP, d DATE, t VARCHAR, n INTEGER, x DOUBLE, b BOOLEAN)")
CON.execute("CREATE TABLE countries (code VARCHAR)")
CON.execute("INSERT INTO countries VALUES ('DE'), ('FR'), (NULL)")
CATALOG = catalog_of(CON, {"reads": "user_id"}, ["countries"])
PARTS = ["month", "quarter", "day", "dow", "isodow", "doy", "week"]
KEYS = {  # each with the number of its values, NULL included
    "CASE WHEN n < 0 THEN 'low' WHEN n < 10 THEN 'some' END": 3,
    "CASE WHEN n < 0 THEN 'low' ELSE 'high' END": 2,
    "CASE WHEN n IS NULL THEN 0 WHEN x > 0 THEN 1.5 ELSE 2 END": 3,
    "CASE n WHEN 0 THEN 'a' WHEN 1 THEN 'A' WHEN 2 THEN 'a' ELSE NULL END": 3,
    "CASE WHEN b THEN 0e0 WHEN n > 1 THEN -0e0 ELSE 1e0 END": 2,
    "CASE WHEN b THEN 0e0 WHEN n > 1 THEN 'NaN'::DOUBLE END": 3,
    "CASE WHEN b THEN 1.5 END": 2,
    "CASE WHEN b THEN DATE '2026-01-01' END": 2,
    "CASE WHEN b THEN CASE WHEN n > 1 THEN 'x' ELSE 'y' END WHEN x > 1 THEN 'z' END": 4,
    "CASE WHEN n > 1 THEN b ELSE TRUE END": 3,
    "if(b, 'yes', 'no')": 2,
    "coalesce(CASE WHEN b THEN 'x' END, 'none')": 2,
    "coalesce(b, FALSE)": 2,
    "'all'": 1,
    "b": 3,
    "NOT b": 3,
    "b IS NULL": 2,
    "b IS TRUE": 2,
    "n > 0": 3,
    "n > 0 AND b": 3,
    "n IN (1, 2)": 3,
    "n IS NOT DISTINCT FROM 3": 2,
    "t LIKE 'a%'": 3,
    "n // 0 > 1": 3,
    "n BETWEEN 1 AND 5": 3,
    "CAST(b AS VARCHAR)": 3,
    "CAST(EXTRACT(hour FROM ts) AS VARCHAR)": 25,
    "CAST(EXTRACT(month FROM ts) AS DOUBLE)": 13,
    "LEAST(GREATEST(n, 0), 5)": 6,
    "GREATEST(LEAST(n // 10, 3), -1)": 5,
    "CAST(LEAST(GREATEST(x, 0e0), 3e0) AS INTEGER)": 4,
    "width_bucket(x, -1.5, 2, 4)": 7,
    "width_bucket(n, 0, 10, 5)": 8,
    "width_bucket(CASE WHEN n > 0 THEN x END, 0, 1e3, 3)": 6,
    "dayname(ts)": 8,
    "monthname(d)": 13,
    "hour(ts)": 25,
    "EXTRACT(minute FROM ts)": 61,
    "date_part('second', ts)": 61,
    "EXTRACT(hour FROM ts + INTERVAL 90 MINUTE)": 25,
    **{f"EXTRACT({part} FROM {column})": None for part in PARTS for column in ("ts", "d")},
}
TIMES = [
    None,
    "infinity",
    "-infinity",
    "1969-12-31 23:59:59.999999",
    "2024-02-29 12:00:00",
    "2024-12-31 23:59:59",
    "0001-01-01",
    "0044-03-15 (BC) 10:20:30",
    "290000-12-31",
]
ROWS = st.lists(
    st.tuples(
        st.sampled_from(TIMES) | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(str),  # noqa: DTZ001 - UTC
        st.sampled_from([None, "infinity", "-infinity", "5000000-01-01", "0044-03-15 (BC)"]) | st.dates().map(str),
        st.sampled_from([None, "", "a", "ab", "B"]),
        st.none() | st.integers(-3, 12) | st.sampled_from([2**31 - 1, -(2**31)]),
        st.none() | st.sampled_from([0.0, -0.0, -1.5, 2.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7e308]),
        st.sampled_from([None, True, False]),
    ),
    max_size=12,
)


def read(key: str, where: str = "TRUE", more: str = "") -> PrivateQuery:
    text = f"SELECT {key} AS k, COUNT(DISTINCT user_id) AS n FROM reads WHERE {where} GROUP BY k ALL PRIVATE{more}"
    query = analyze(text, CATALOG, accepts_pattern=accepts_pattern)
    assert isinstance(query, PrivateQuery)
    return query


def listed(key: str, where: str = "TRUE") -> list[object]:
    domain = read(key, where).domain
    assert isinstance(domain, LiteralDomain)
    return [value.value for value in domain.values if isinstance(value, Literal)]


def fill(rows: list[tuple[object, ...]]) -> None:
    CON.execute("DELETE FROM reads")
    for unit, row in enumerate(rows):
        CON.execute("INSERT INTO reads VALUES (?, ?, ?, ?, ?, ?, ?)", [unit, *row])


@settings(max_examples=examples(400), deadline=None)
@given(st.sampled_from(list(KEYS)), ROWS)
@pytest.mark.properties
def test_every_row_is_in_one_of_the_groups_that_the_statement_tells(key: str, rows: list[tuple[object, ...]]) -> None:
    """Each row is of a unit of its own. If none is lost, the counts of all groups add up to the rows."""
    fill(rows)
    counting = rewrite_all(read(key))
    found = CON.execute(counting.sql, list(counting.parameters)).fetchall()
    assert sum(count for _, count in found) == len(rows)
    labels = [repr(label) for label, _ in found]
    assert len(set(labels)) == len(labels)
    if KEYS[key] is not None:
        assert len(found) == KEYS[key]
    if "width_bucket" not in key:  # which DuckDB does not have
        wanted = CON.execute(f"SELECT {key} AS k, COUNT(*) FROM reads GROUP BY k").fetchall() if is_total(key) else []
        counts = {repr(label): count for label, count in found}
        assert all(counts[repr(label).replace("-0.0", "0.0")] == count for label, count in wanted)


def is_total(key: str) -> bool:
    """Whether DuckDB itself computes a key of every row: it fails beyond the end of the calendar."""
    return "FROM d" not in key and "(d)" not in key and "INTERVAL" not in key and "//" not in key


WITHOUT_NULL = {
    "b|b IS NOT NULL": [False, True],
    "b|b": [False, True],
    "n > 0|n < 5": [False, True],
    "n > 0|n IN (1, 2) AND x > 0": [False, True],
    "n > 0|NOT (n IS NULL)": [False, True],
    "width_bucket(n, 0, 2, 2)|n >= 0": [0, 3, 1, 2],
    "EXTRACT(isodow FROM d)|d >= '2026-01-01' AND d < '2026-02-01'": [1, 2, 3, 4, 5, 6, 7],
    "quarter(ts)|ts BETWEEN '2026-01-01' AND '2026-02-01'": [1, 2, 3, 4],
}


@pytest.mark.parametrize("case", WITHOUT_NULL)
def test_null_is_no_group_where_a_condition_takes_it_away(case: str) -> None:
    key, _, where = case.partition("|")
    assert listed(key, where) == WITHOUT_NULL[case]
    for weaker in (f"({where}) OR x > 1", "TRUE", f"NOT ({where})"):
        assert None in listed(key, weaker)


READ = "reads"
DECLARED = {  # FROM, a key, and whether NULL is among its values where the policy says that b, n and d are never NULL
    f"{READ}|b": False,
    f"{READ}|n > 0": False,
    f"{READ}|n > 0 AND b": False,
    f"{READ}|x > 0": True,
    f"{READ}|n > x": True,
    f"{READ}|EXTRACT(isodow FROM d)": False,
    f"{READ}|dayname(d)": False,
    f"{READ}|dayname(ts)": True,
    f"{READ}|CASE WHEN n > 0 THEN 1 END": True,
    "(SELECT user_id, n AS m, d AS e FROM reads) AS r|m > 0": False,
    "(SELECT user_id, n AS m, d AS e FROM reads) AS r|monthname(e)": False,
    "(SELECT user_id, n + 0 AS m FROM reads) AS r|m > 0": True,
    "countries AS c JOIN reads AS r ON r.t = c.code|r.n > 0": False,
    "countries AS c LEFT JOIN reads AS r ON r.t = c.code|r.n > 0": False,  # rows without a unit do not count
    "reads AS q LEFT JOIN reads AS r ON r.user_id = q.user_id AND r.x > 0|r.n > 0": True,
    "reads AS q LEFT JOIN (SELECT user_id, n AS m FROM reads) AS r ON r.user_id = q.user_id|r.m > 0": True,
    "reads AS r LEFT JOIN countries AS c ON r.t = c.code|r.n > 0": False,
    "reads AS r LEFT JOIN countries AS c ON r.t = c.code|c.code > 'a'": True,
}


@pytest.mark.parametrize("case", DECLARED)
def test_null_is_no_group_of_columns_that_the_policy_says_are_never_null(case: str) -> None:
    source, _, key = case.partition("|")
    unit = "q.user_id" if "AS q" in source else "user_id"
    tables = [replace(each, not_null=("b", "n", "d") if each.name == READ else ()) for each in CATALOG.tables]
    text = f"SELECT {key} AS k, COUNT(DISTINCT {unit}) AS n FROM {source} GROUP BY k ALL PRIVATE"
    domains = []
    for catalog in (CATALOG, replace(CATALOG, tables=tuple(tables))):
        query = analyze(text, catalog, accepts_pattern=accepts_pattern)
        assert isinstance(query, PrivateQuery)
        assert isinstance(query.domain, LiteralDomain)
        domains.append([value.value for value in query.domain.values if isinstance(value, Literal)])
    assert domains[1] == [value for value in domains[0] if value is not None or DECLARED[case]]
    assert None in domains[0]


def test_years_are_between_the_bounds() -> None:
    where = "ts >= TIMESTAMP '1999-12-31 23:00:00' AND ts < DATE '2003-01-01'"
    assert listed("EXTRACT(year FROM ts)", where) == [1999, 2000, 2001, 2002]
    assert listed("year(ts)", where) == [1999, 2000, 2001, 2002]
    assert listed("EXTRACT(decade FROM ts)", where) == [199, 200]
    assert listed("EXTRACT(century FROM ts)", where) == [20, 21]
    assert listed("EXTRACT(millennium FROM ts)", where) == [2, 3]
    assert listed("EXTRACT(isoyear FROM d)", "d >= '2021-01-01' AND d <= '2021-01-05'") == [2020, 2021]


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from(["year", "isoyear", "decade", "century", "millennium"]),
    st.dates(date(1, 1, 1), date(9900, 1, 1)),
    st.integers(0, 36_000),
    st.integers(0, 36_000),
)
@pytest.mark.properties
def test_the_years_of_all_days_between_two_bounds_are_those_of_duckdb(part: str, low: date, days: int, at: int) -> None:
    high = date.fromordinal(low.toordinal() + days)
    found = listed(f"EXTRACT({part} FROM d)", f"d >= DATE '{low}' AND d <= DATE '{high}'")
    within = date.fromordinal(low.toordinal() + at % (days + 1))
    ((first, last, one),) = CON.execute(
        f"SELECT date_part('{part}', $1::DATE), date_part('{part}', $2::DATE), date_part('{part}', $3::DATE)",
        [low, high, within],
    ).fetchall()
    assert found == list(range(first, last + 1))
    assert one in found


def test_names_of_days_and_months_are_those_of_duckdb() -> None:
    assert set(listed("dayname(ts)")) == {*calendar.day_name, None}
    assert set(listed("monthname(ts)")) == {*list(calendar.month_name)[1:], None}


def bucket(value: float, low: float, high: float, count: int) -> int:
    """Return the bucket as SQL:2003 has it, of doubles that divide exactly."""
    if math.isnan(value) or value >= high:
        return count + 1
    return 0 if value < low else math.floor((value - low) / (high - low) * count) + 1


@given(
    st.lists(st.floats(width=32) | st.integers(-20, 20).map(float), max_size=20),
    st.sampled_from([(0.0, 16.0, 4), (-8.0, 8.0, 1), (-1.5, 2.5, 8)]),
)
def test_width_bucket_counts_what_it_means(values: list[float], ends: tuple[float, float, int]) -> None:
    fill([(None, None, None, None, value, None) for value in values])
    counting = rewrite_all(read(f"width_bucket(x, {ends[0]}, {ends[1]}, {ends[2]})"))
    found = dict(CON.execute(counting.sql, list(counting.parameters)).fetchall())
    wanted = Counter(bucket(value, *ends) for value in values)
    assert {key: count for key, count in found.items() if count} == wanted
    assert found.keys() == {*range(ends[2] + 2), None}


@pytest.mark.parametrize("key", ["b", "CASE WHEN b THEN 'x' END", "CASE WHEN b THEN 1e0 END"])
def test_a_join_by_equality_would_lose_the_group_of_null(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill([(None, None, None, None, None, None)] * 3)

    def count() -> list[tuple[object, int]]:
        counting = rewrite_all(read(key))
        return CON.execute(counting.sql, list(counting.parameters)).fetchall()

    assert count()[-1] == (None, 3)
    with monkeypatch.context() as patched:
        patched.setattr(engine_query, "_EQUALS_NULL", "=")
        assert count()[-1] == (None, 0)
    with monkeypatch.context() as patched:
        patched.setattr(LiteralDomain, "has_null", False)
        assert None not in dict(count())


DERIVED = {
    "SELECT *, CASE WHEN n > 0 THEN 'up' ELSE 'down' END AS k FROM reads": ["up", "down"],
    "SELECT user_id, MAX(n) > 3 AS k FROM reads GROUP BY user_id": [False, True, None],
    "SELECT user_id, n > 3 AS k FROM reads WHERE n > 1": [False, True],
    "SELECT user_id, 'x' AS k FROM reads UNION ALL SELECT user_id, 'y' FROM reads": ["x", "y"],
    "SELECT z.k, z.user_id FROM (SELECT user_id, hour(ts) < 12 AS k FROM reads) AS z": [False, True, None],
    "SELECT r.user_id, z.k FROM reads AS r LEFT JOIN (SELECT user_id, 'x' AS k FROM reads) AS z "
    "ON r.user_id = z.user_id": ["x", None],
    "SELECT r.user_id, z.k FROM reads AS r JOIN (SELECT user_id, 'x' AS k FROM reads) AS z ON r.user_id = z.user_id": [
        "x"
    ],
}


@pytest.mark.parametrize("source", DERIVED)
def test_the_values_of_a_subquery_are_those_of_its_expression(source: str) -> None:
    text = f"SELECT k, COUNT(DISTINCT user_id) AS n FROM ({source}) AS v GROUP BY k ALL PRIVATE"
    query = analyze(text, CATALOG, accepts_pattern=accepts_pattern)
    assert isinstance(query, PrivateQuery)
    assert isinstance(query.domain, LiteralDomain)
    assert [value.value for value in query.domain.values if isinstance(value, Literal)] == DERIVED[source]


@pytest.mark.parametrize("clause", ["ALL PRIVATE", "TOP 5 PRIVATE"])
def test_a_chain_of_subqueries_that_name_a_column_many_times_is_read_once(clause: str) -> None:
    """Each read by itself would be 8 to the power of 12 reads, which is hours."""
    steps = ["s0 AS (SELECT user_id, b AS k FROM reads)"]
    again = ", ".join(["k"] * 8)
    steps += [f"s{n} AS (SELECT user_id, coalesce({again}) AS k FROM s{n - 1})" for n in range(1, 13)]
    text = f"WITH {', '.join(steps)} SELECT k, COUNT(DISTINCT user_id) AS n FROM s12 GROUP BY k {clause}"
    query = analyze(text, CATALOG, accepts_pattern=accepts_pattern)
    assert isinstance(query, PrivateQuery)
    assert query.key_column == ("reads", "b")
    assert count_groups(query.domain) == (3 if clause == "ALL PRIVATE" else None)


UNTOLD = {
    "CASE WHEN b THEN t END": "",
    "CASE WHEN b THEN 'x' ELSE t END": "",
    "n % 3": "",
    "LEAST(n, 5)": "",
    "GREATEST(n, 0)": "",
    "LEAST(GREATEST(n, 0), 10000)": "",
    "width_bucket(x, 0, 1, 9999)": "",
    "upper(CASE WHEN b THEN 'x' END)": "",
    "EXTRACT(year FROM ts)": "ts >= DATE '2026-01-01' AND ts < DATE '2026-02-01'",
    "EXTRACT(year FROM d)": "d >= DATE '2026-01-01' AND d < DATE '2026-02-01'",
    "epoch(ts)": "date_trunc('day', ts)",
    "millisecond(ts)": "date_trunc('day', ts)",
    "EXTRACT(yearweek FROM ts)": "date_trunc('day', ts)",
}


@pytest.mark.parametrize("key", UNTOLD)
def test_a_key_of_untold_values_has_no_domain_and_a_hint_says_what_helps(key: str) -> None:
    if not UNTOLD[key]:
        assert read(key).domain is None
        return
    with pytest.raises(Refusal) as refused:
        read(key)
    assert refused.value.code == "domain"
    assert UNTOLD[key] in str(refused.value.hint)
    followed = (
        read(key, UNTOLD[key])
        if "AND" in UNTOLD[key]
        else read(UNTOLD[key], "ts >= '2026-01-01' AND ts < '2026-02-01'")
    )
    assert count_groups(followed.domain)


def test_an_option_lists_fewer_of_the_values() -> None:
    domain = read("EXTRACT(isodow FROM ts)", more=" WITH (domain = ['6', '7'])").domain
    assert isinstance(domain, LiteralDomain)
    assert len(domain.values) == 2


def test_several_keys_have_all_combinations() -> None:
    text = (
        "SELECT ts::DATE AS day, b, {} COUNT(DISTINCT user_id) AS n FROM reads "
        "WHERE ts >= DATE '2026-03-01' AND ts < DATE '2026-03-05' GROUP BY ALL ALL PRIVATE{}"
    )
    told = analyze(text.format("", ""), CATALOG, accepts_pattern=accepts_pattern)
    assert isinstance(told, PrivateQuery)
    assert isinstance(told.domain, ProductDomain)
    assert count_groups(told.domain) == 4 * 3
    option = text.format("t,", " WITH (domain = 'countries.code')")
    stored = analyze(option, CATALOG, accepts_pattern=accepts_pattern)
    assert isinstance(stored, PrivateQuery)
    assert isinstance(stored.domain, ProductDomain)
    assert [type(each) for each in stored.domain.factors] == [LiteralDomain, LiteralDomain, TableDomain]
    assert count_groups(stored.domain) is None
    refused = {
        text.format("", " WITH (domain = ['x'])"): "Leave the domain out",
        text.format("t,", ""): "Group by one key",
        text.format("t, n AS m,", " WITH (domain = ['x'])"): "Group by one of them",
        text.format("EXTRACT(doy FROM ts) AS y, week(ts),", ""): "Group by fewer keys",
    }
    for wrong, hint in refused.items():
        with pytest.raises(Refusal, match=hint):
            analyze(wrong, CATALOG, accepts_pattern=accepts_pattern)
