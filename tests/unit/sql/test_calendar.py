"""Calendars: the buckets that the statement tells are those that DuckDB finds between the same bounds."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import partial

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sql_reference import accepts_pattern, catalog_of

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import LiteralDomain, PrivateQuery

CON = duckdb.connect()
CON.execute('CREATE TABLE reads (user_id BIGINT, ts TIMESTAMP, d DATE, t VARCHAR, "order" DATE)')
CATALOG = catalog_of(CON, {"reads": "user_id"}, [])
NOON = datetime(2026, 4, 29, 12, 0, 0)  # noqa: DTZ001 - in UTC, as DuckDB's TIMESTAMP
UNITS = {"second": 60, "minute": 3600, "hour": 86_400, "day": 5_000_000, "week": 20_000_000, "month": 90_000_000}
UNITS |= {"quarter": 200_000_000, "year": 900_000_000}  # the longest time between bounds, in seconds


def read(key: str, where: str, *, catalog: Catalog = CATALOG) -> PrivateQuery:
    text = f"SELECT {key} AS k, COUNT(DISTINCT user_id) AS n FROM reads WHERE {where} GROUP BY k ALL PRIVATE"
    query = analyze(text, catalog, accepts_pattern=accepts_pattern, clock=lambda: NOON)
    assert isinstance(query, PrivateQuery)
    return query


def buckets(key: str, where: str) -> list[object]:
    query = read(key, where)
    assert isinstance(query.domain, LiteralDomain)
    assert {value.type for value in query.domain.values} == {query.keys[0].type}
    return [value.value for value in query.domain.values]  # type: ignore[attr-defined]


@given(
    st.sampled_from(list(UNITS)),
    st.datetimes(datetime(1600, 1, 1), datetime(2200, 1, 1)),  # noqa: DTZ001 - as above
    st.integers(0, 10**6),
    st.sampled_from([">=", ">"]),
    st.sampled_from(["<", "<="]),
)
def test_buckets_of_time_stamps_are_those_of_duckdb(
    unit: str, low: datetime, share: int, above: str, below: str
) -> None:
    seconds = UNITS[unit] * share // 10**6
    high = low + timedelta(seconds=seconds, microseconds=2)
    found = buckets(f"date_trunc('{unit}', ts)", f"ts {above} TIMESTAMP '{low}' AND ts {below} TIMESTAMP '{high}'")
    first = low if above == ">=" else low + timedelta(microseconds=1)
    last = high if below == "<=" else high - timedelta(microseconds=1)
    wanted = CON.execute(
        f"SELECT DISTINCT date_trunc('{unit}', x)::TIMESTAMP::VARCHAR FROM ("
        f"SELECT unnest(generate_series(date_trunc('{unit}', $1::TIMESTAMP), $2::TIMESTAMP, INTERVAL 1 {unit})) AS x "
        "UNION ALL SELECT $2::TIMESTAMP) ORDER BY 1",
        [first, last],
    ).fetchall()
    assert found == [text for (text,) in wanted]


@pytest.mark.parametrize(
    ("where", "days"),
    [
        ("d >= '2026-01-30' AND d < '2026-02-02'", ["2026-01-30", "2026-01-31", "2026-02-01"]),
        ("d > '2026-01-30' AND d <= '2026-02-01'", ["2026-01-31", "2026-02-01"]),
        ("d BETWEEN DATE '2026-02-28' AND DATE '2026-03-01'", ["2026-02-28", "2026-03-01"]),
        ("'2026-01-01' <= d AND '2026-01-02' >= d", ["2026-01-01", "2026-01-02"]),
        ("d = '2026-01-01'", ["2026-01-01"]),
        ("d > current_date - 2 AND d <= current_date", ["2026-04-28", "2026-04-29"]),
        ("d > TIMESTAMP '2026-01-01 10:00:00' AND d < TIMESTAMP '2026-01-03 10:00:00'", ["2026-01-02", "2026-01-03"]),
        (
            "d >= '2026-01-01' AND d >= '2026-01-05' AND d < '2026-01-07' AND d < '2027-01-01'",
            ["2026-01-05", "2026-01-06"],
        ),
        ("(d >= '2026-01-01' OR t = 'x') AND d = '2026-01-04'", ["2026-01-04"]),
    ],
)
def test_days_of_a_date_column(where: str, days: list[str]) -> None:
    assert buckets("d", where) == days


def test_the_day_of_a_time_stamp_and_the_weeks_of_a_date() -> None:
    assert buckets("ts::DATE", "ts >= '2026-01-01' AND ts < '2026-01-03'") == ["2026-01-01", "2026-01-02"]
    assert buckets("CAST(ts AS DATE)", "ts BETWEEN '2026-01-01' AND '2026-01-02'") == ["2026-01-01", "2026-01-02"]
    weeks = ["2025-12-29 00:00:00", "2026-01-05 00:00:00"]
    assert buckets("date_trunc('week', d)", "d >= '2026-01-01' AND d < '2026-01-12'") == weeks
    hours = [f"2026-04-28 {hour:02}:00:00" for hour in range(12, 24)] + [f"2026-04-29 {n:02}:00:00" for n in range(13)]
    assert buckets("date_trunc('hour', ts)", "ts >= now() - INTERVAL 1 DAY AND ts <= now()") == hours


@given(
    st.sampled_from(["1 minute", "5 minutes", "15 minutes", "90 minutes", "30 seconds", "6 hours", "24 hours"]),
    st.datetimes(datetime(1600, 1, 1), datetime(2200, 1, 1)),  # noqa: DTZ001 - as above
    st.integers(0, 100_000),
)
def test_buckets_of_time_bucket_are_those_of_duckdb(width: str, low: datetime, seconds: int) -> None:
    high = low + timedelta(seconds=seconds, microseconds=2)
    key = f"time_bucket(INTERVAL '{width}', ts)"
    found = buckets(key, f"ts >= TIMESTAMP '{low}' AND ts <= TIMESTAMP '{high}'")
    begin = f"time_bucket(INTERVAL '{width}', $1::TIMESTAMP)"
    wanted = CON.execute(
        f"SELECT x::VARCHAR FROM (SELECT unnest(generate_series({begin}, $2::TIMESTAMP, INTERVAL '{width}')) AS x) "
        "ORDER BY x",
        [low, high],
    ).fetchall()
    assert found == [text for (text,) in wanted]


@pytest.mark.parametrize("width", ["7 minutes", "1 week", "5 days", "1 month", "36 hours"])
def test_buckets_that_do_not_begin_at_midnight_have_no_calendar(width: str) -> None:
    assert read(f"time_bucket(INTERVAL '{width}', ts)", "ts >= '2026-01-01' AND ts < '2026-01-02'").domain is None


@pytest.mark.parametrize(
    ("written", "width"),
    [
        ("date_trunc('hour', ts) + INTERVAL '15 minutes' * FLOOR(EXTRACT(MINUTE FROM ts) / 15)", "15 minutes"),
        ("date_trunc('minute', ts) + INTERVAL 20 SECOND * FLOOR(EXTRACT(second FROM ts) / 20)", "20 seconds"),
    ],
)
def test_what_tools_write_in_postgresql_is_time_bucket(written: str, width: str) -> None:
    where = "ts >= '2026-01-01' AND ts < '2026-01-01 01:00:00'"
    assert read(written, where).keys == read(f"time_bucket(INTERVAL '{width}', ts)", where).keys
    sql = f"SELECT bool_and({written} = time_bucket(INTERVAL '{width}', ts)) FROM moments"
    moments = "SELECT TIMESTAMP '1969-12-31 22:00:01' + x * INTERVAL 7919 MILLISECOND AS ts FROM range(9999) t(x)"
    assert CON.execute(f"WITH moments AS ({moments}) {sql}").fetchone() == (True,)


@pytest.mark.parametrize(
    "key",
    [
        "date_trunc('hour', ts) + INTERVAL '7 minutes' * FLOOR(EXTRACT(MINUTE FROM ts) / 7)",
        "date_trunc('hour', ts) + INTERVAL '15 minutes' * FLOOR(EXTRACT(MINUTE FROM ts) / 30)",
        "date_trunc('hour', ts) - INTERVAL '15 minutes' * FLOOR(EXTRACT(MINUTE FROM ts) / 15)",
        "date_trunc('day', ts) + INTERVAL '15 minutes' * FLOOR(EXTRACT(MINUTE FROM ts) / 15)",
        "date_trunc('hour', ts) + INTERVAL '15 minutes' * FLOOR(EXTRACT(second FROM ts) / 15)",
        "date_trunc('hour', ts) + INTERVAL '15 seconds' * FLOOR(EXTRACT(MINUTE FROM ts) / 15)",
        "date_trunc('hour', ts) + INTERVAL '15 minutes' * 2",
        "user_id + INTERVAL '15 minutes' * 2",
    ],
)
def test_an_interval_is_not_multiplied_otherwise(key: str) -> None:
    where = "ts >= '2026-01-01' AND ts < '2026-01-01 01:00:00'"
    with pytest.raises(Unsupported, match="not multiplied") as refused:
        read(key, where)
    written = str(refused.value.hint).removeprefix("Write ").partition(" for ")[0]
    assert len(buckets(written, where)) == 4


def test_a_calendar_ends_with_the_calendar_of_python() -> None:
    assert buckets("date_trunc('year', ts)", "ts >= '9998-05-01' AND ts <= '9999-12-31 23:59:59.999999'") == [
        "9998-01-01 00:00:00",
        "9999-01-01 00:00:00",
    ]


CUT = {
    "date_trunc('day', ts)|ts >= '2026-01-01' AND ts < '2026-02-01'": "",
    "date_trunc('day', ts)|ts >= '2026-01-01 00:00:00.000001' AND ts < '2026-01-03'": "the first day (2026-01-01)",
    "date_trunc('day', ts)|ts >= '2026-01-01' AND ts <= '2026-01-03'": "the last day (2026-01-03)",
    "date_trunc('day', ts)|ts > '2026-01-01' AND ts < '2026-01-03 12:00:00'": "the first day (2026-01-01) and the last "
    "day (2026-01-03)",
    "date_trunc('week', ts)|ts >= '2026-01-05' AND ts < '2026-02-01'": "the last week (2026-01-26)",
    "date_trunc('week', ts)|ts >= '2026-01-01' AND ts < '2026-01-03'": "the only week (2025-12-29)",
    "date_trunc('hour', ts)|ts >= '2026-01-01 10:30:00' AND ts < '2026-01-01 12:00:00'": "the first hour (2026-01-01 "
    "10:00:00)",
    "time_bucket(INTERVAL 15 MINUTE, ts)|ts >= '2026-01-01 10:20:00' AND ts < '2026-01-01 12:00:00'": "the first "
    "bucket (2026-01-01 10:15:00)",
    "date_trunc('month', d)|d >= '2026-01-01' AND d <= '2026-01-31'": "",
    "date_trunc('month', d)|d > '2025-12-31' AND d < '2026-02-01'": "",
    "date_trunc('month', d)|d > '2026-01-01' AND d < '2026-02-01'": "the first month (2026-01-01)",
    "date_trunc('month', d)|d >= '2026-01-01' AND d < '2026-01-31'": "the last month (2026-01-01)",
    "d|d >= TIMESTAMP '2026-01-01 10:00:00' AND d <= TIMESTAMP '2026-01-05 10:00:00'": "",
    "date_trunc('year', ts)|ts >= '9999-01-01' AND ts <= '9999-12-31 23:59:59.999999'": "",
}


@pytest.mark.parametrize("case", CUT)
def test_the_buckets_that_a_bound_cuts_are_named(case: str) -> None:
    key, _, where = case.partition("|")
    assert read(key, where).bucket_note == (f"WHERE cuts {CUT[case]}" if CUT[case] else "")


def test_a_calendar_of_10000_buckets_is_the_longest() -> None:
    where = "ts >= TIMESTAMP '2026-01-01 00:00:00' AND ts {} TIMESTAMP '2026-01-01 02:46:40'"
    assert len(buckets("date_trunc('second', ts)", where.format("<"))) == 10_000
    with pytest.raises(Refusal, match="more than 10,000 buckets"):
        buckets("date_trunc('second', ts)", where.format("<="))


JANUARY = (("ts", date(2026, 1, 10), date(2026, 1, 12)), ("d", date(2026, 1, 31), date(2026, 2, 1)))
STATED = {
    "ts::DATE|TRUE": ["2026-01-10", "2026-01-11", "2026-01-12"],
    "ts::DATE|ts >= '2026-01-11 05:00:00'": ["2026-01-11", "2026-01-12"],
    "ts::DATE|ts >= '2026-01-08' AND ts < '2026-01-09'": ["2026-01-08"],
    "ts::DATE|ts < '2026-01-11'": ["2026-01-10"],
    "date_trunc('month', d)|TRUE": ["2026-01-01 00:00:00", "2026-02-01 00:00:00"],
    "EXTRACT(year FROM ts)|TRUE": [2026, None],
}


@pytest.mark.parametrize("case", STATED)
def test_the_days_of_the_policy_count_where_where_has_no_bound(case: str) -> None:
    key, _, where = case.partition("|")
    catalog = replace(CATALOG, tables=tuple(replace(table, calendar=JANUARY) for table in CATALOG.tables))
    query = read(key, where, catalog=catalog)
    assert isinstance(query.domain, LiteralDomain)
    assert [value.value for value in query.domain.values] == STATED[case]  # type: ignore[attr-defined]
    assert ("first day" in query.bucket_note) == ("05:00" in case)
    inside = (
        f"SELECT day, COUNT(DISTINCT user_id) AS n FROM (SELECT user_id, {{}} AS day FROM reads) AS v WHERE {where}"
    )
    text = f"{inside} GROUP BY day ALL PRIVATE"
    if case.startswith("ts::DATE|TRUE"):
        for column, known in (("d", True), ("d + 1", False)):
            asked = partial(analyze, text.format(column), catalog, accepts_pattern=accepts_pattern)
            if known:
                assert asked().domain is not None  # type: ignore[union-attr]
                continue
            with pytest.raises(Refusal, match="a first and a last time"):  # a column of another meaning
                asked()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("bound", ["TRUE", "ts >= TIMESTAMP '2027-05-05 01:00:00'", "ts < '2020-01-01'"])
def test_the_hint_adds_the_bounds_that_are_missing(unit: str, bound: str) -> None:
    key = f"date_trunc('{unit}', ts)"
    with pytest.raises(Refusal) as refused:
        buckets(key, bound)
    hint = str(refused.value.hint)
    added = hint.removeprefix("Add to WHERE, for example: ").partition(". Or name")[0]
    assert 1 <= len(buckets(key, f"{bound} AND {added}")) <= 10_000
    assert "[tables.reads.calendar] ts = {first = 2026-01-01, last = 2026-12-31}" in hint


@pytest.mark.parametrize("column", ["ts", "d"])
@pytest.mark.parametrize("year", ["year({})", "EXTRACT(YEAR FROM {})", "date_part('year', {})"])
def test_a_year_in_where_bounds_its_calendar(column: str, year: str) -> None:
    part, months = year.format(column), buckets("month(ts)", "ts >= '2028-01-01' AND ts < '2029-01-01'")
    assert buckets(f"month({column})", f"{part} = 2028") == months == list(range(1, 13))
    days = buckets(f"date_trunc('day', {column})", f"{part} = 2028")
    assert (len(days), str(days[0])[:10], str(days[-1])[:10]) == (366, "2028-01-01", "2028-12-31")
    assert len(buckets(f"date_trunc('day', {column})", f"{part} = 2028 AND {column} >= '2028-12-30'")) == 2
    for where in (f"{part} = 0", f"{part} = 9999", f"{part} >= 2028", f"NOT {part} = 2028", f"{part} = 2028 OR TRUE"):
        with pytest.raises(Refusal, match="a first and a last time"):
            buckets(f"date_trunc('day', {column})", where)


REFUSED = {
    "d|d >= '2026-01-01'": "a first and a last time",
    "d|TRUE": "d >= DATE '2026-01-01' AND d < DATE",
    '"order"|TRUE': "\"order\" >= DATE '2026-01-01'",
    "d|d >= '2026-01-01' OR d < '2026-02-01'": "a first and a last time",
    "d|d >= '2026-01-01' AND ts < '2026-02-01'": "a first and a last time",
    "d|d <> '2026-01-01'": "a first and a last time",
    "d|d >= '2026-01-05' AND d < '2026-01-05'": "no time between the bounds",
    "date_trunc('second', ts)|ts >= '2026-01-01' AND ts < '2026-01-02'": "more than 10,000 buckets",
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_calendar_without_bounds_or_with_too_many_buckets_is_refused(case: str) -> None:
    key, _, where = case.partition("|")
    with pytest.raises(Refusal) as refused:
        buckets(key, where)
    assert refused.value.code == "domain"
    assert REFUSED[case] in str(refused.value)


def test_a_key_that_is_no_bucket_has_no_calendar() -> None:
    for key in ("ts", "t", "date_trunc('millisecond', ts)", "date_trunc('day', ts + INTERVAL 1 DAY)"):
        text = (
            f"SELECT {key} AS k, COUNT(DISTINCT user_id) AS n FROM reads WHERE ts = '2026-01-01' GROUP BY k ALL PRIVATE"
        )
        query = analyze(text, CATALOG, accepts_pattern=accepts_pattern)
        assert isinstance(query, PrivateQuery)
        assert query.domain is None
