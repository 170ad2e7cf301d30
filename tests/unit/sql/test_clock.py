"""The clock: one constant of the query, cut and moved as DuckDB cuts and moves, and nothing where there is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import duckdb
import pytest
from support.sql_reference import NOON, accepts_pattern, as_newest, catalog_of, corpus_tables, private

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery, PublicQuery
from dpsql.sql.ir.tree import Literal
from dpsql.sql.render.duckdb import Writer
from dpsql.sql.rewrite.engine_query import rewrite_leaders
from dpsql.sql.rewrite.public_query import rewrite_public

CON = corpus_tables()
CATALOG = catalog_of(CON, {"reads": "user_id"}, ["countries"])
UNITS = "microsecond millisecond second minute hour day week month quarter year".split()
DAYS = ["2024-02-29 23:59:59.999999", "2026-01-01 00:00:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59", "1969-12-31"]


def key(expression: str) -> object:
    return private(f"SELECT {expression} AS k, article FROM reads GROUP BY ALL TOP 10 PRIVATE", CATALOG).keys[0]


def asked(text: str, moment: datetime) -> PrivateQuery:
    query = analyze(text, CATALOG, accepts_pattern=accepts_pattern, clock=lambda: moment)
    assert isinstance(query, PrivateQuery)
    return query


@pytest.mark.parametrize(
    "call",
    ["now()", "NOW()", "get_current_timestamp()", "transaction_timestamp()", "current_timestamp", "localtimestamp"],
)
def test_the_time_is_one_time_stamp_of_the_clock(call: str) -> None:
    assert str(key(call)) == str(key(f"TIMESTAMP '{NOON}'"))


@pytest.mark.parametrize("call", ["today()", "current_date", "CURRENT_DATE", "current_date()", "now()::DATE"])
def test_the_day_is_one_date_of_the_clock(call: str) -> None:
    assert str(key(call)) == str(key(f"DATE '{NOON.date()}'"))


def test_a_statement_reads_the_clock_once_and_only_when_it_asks() -> None:
    readings: list[datetime] = []

    def clock() -> datetime:
        readings.append(NOON + timedelta(hours=len(readings)))
        return readings[-1]

    def ask(condition: str) -> object:
        text = f"SELECT article FROM reads WHERE {condition} GROUP BY article TOP 3 PRIVATE"
        return analyze(text, CATALOG, accepts_pattern=accepts_pattern, clock=clock)

    ask("ts > '2026-01-01'")
    assert not readings
    ask("ts BETWEEN now() AND now() OR ts IN (SELECT now() FROM countries) OR ts::DATE = current_date")
    assert len(readings) == 1


def test_a_clock_with_a_zone_is_read_in_utc() -> None:
    text = "SELECT article FROM reads WHERE ts > now() GROUP BY article TOP 3 PRIVATE"
    eastern = NOON.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=-5)))
    assert asked(text, eastern) == asked(text, NOON)


def test_a_column_of_that_name_comes_before_the_clock() -> None:
    text = "WITH t AS (SELECT user_id, article AS current_date FROM reads) SELECT current_date FROM t GROUP BY ALL"
    query = private(f"{text} TOP 3 PRIVATE", CATALOG)
    assert not isinstance(query.keys[0], Literal)


def test_an_output_of_that_name_is_not_taken_for_the_clock() -> None:
    text = "SELECT article AS current_date FROM reads WHERE ts > {} GROUP BY current_date TOP 3 PRIVATE"
    assert not isinstance(private(text.format("today()"), CATALOG).keys[0], Literal)
    with pytest.raises(Refusal) as refused:
        private(text.format("current_date"), CATALOG)
    assert refused.value.code == "ambiguous-column"


@pytest.mark.parametrize("word", ["now()", "current_date", "today()"])
def test_without_a_clock_there_is_no_time(word: str) -> None:
    text = f"SELECT article FROM reads WHERE ts > {word} GROUP BY article TOP 3 PRIVATE"
    with pytest.raises(Unsupported) as refused:
        analyze(text, CATALOG, accepts_pattern=accepts_pattern)
    assert refused.value.code == "clock"
    assert refused.value.hint


@pytest.mark.parametrize("argument", ["now(1)", "today(1)", "current_date(article)"])
def test_the_clock_takes_no_arguments(argument: str) -> None:
    with pytest.raises(Exception, match="arguments"):
        key(argument)


@pytest.mark.parametrize("day", DAYS)
@pytest.mark.parametrize(
    "form",
    [
        *(f"date_trunc('{unit}', {{}})" for unit in UNITS),
        *(f"{{}} {sign} INTERVAL {n} {unit}" for unit in UNITS[2:] for n in (1, 11) for sign in "+-"),
        "({})::DATE",
        "date_trunc('month', CAST({} AS DATE))",
        "CAST({} AS DATE) - INTERVAL '1 month'",
        "date_trunc('week', {} - INTERVAL 7 DAY)",
    ],
)
def test_a_constant_is_cut_and_moved_as_duckdb_does(form: str, day: str) -> None:
    expression = form.format(f"TIMESTAMP '{day}'")
    counting = rewrite_leaders(
        private(f"SELECT {expression} AS k, article FROM reads GROUP BY ALL TOP 10 PRIVATE", CATALOG), 10
    )
    found = {str(row[0]) for row in CON.execute(counting.sql, list(counting.parameters)).fetchall()}
    assert found == {str(duckdb.execute(f"SELECT {as_newest(expression)}").fetchall()[0][0])}


@pytest.mark.parametrize(
    ("condition", "stays"),
    [
        ("ts > now()", timedelta(0)),
        ("ts > now() - INTERVAL 7 DAY", timedelta(0)),
        ("ts > date_trunc('hour', now())", timedelta(minutes=25)),
        ("ts > date_trunc('hour', now()) - INTERVAL 1 MONTH", timedelta(minutes=25)),
        ("ts > date_trunc('hour', now() - INTERVAL 90 DAY)", timedelta(minutes=25)),
        ("ts > current_date", timedelta(hours=11)),
        ("ts::DATE > current_date - 7", timedelta(hours=11)),
        ("ts > now()::DATE - INTERVAL 1 WEEK", timedelta(hours=11)),
        ("year(ts) = year(date_trunc('year', now()))", timedelta(days=240)),
    ],
)
def test_the_same_question_lasts_as_long_as_its_constant(condition: str, stays: timedelta) -> None:
    text = f"SELECT article FROM reads WHERE {condition} GROUP BY article TOP 3 PRIVATE"
    assert asked(text, NOON) == asked(text, NOON + stays)
    assert asked(text, NOON) != asked(text, NOON + max(stays * 2, timedelta(microseconds=1)))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT article, current_date FROM reads GROUP BY ALL TOP 3 PRIVATE",
        "SELECT article, CURRENT_DATE AS d FROM reads GROUP BY article, d TOP 3 PRIVATE",
        "SELECT article, current_date AS current_date FROM reads GROUP BY ALL TOP 3 PRIVATE",
        "SELECT article, d FROM (SELECT *, current_date AS d FROM reads) AS x GROUP BY ALL TOP 3 PRIVATE",
        "SELECT article, x.current_date FROM (SELECT *, current_date FROM reads) AS x GROUP BY ALL TOP 3 PRIVATE",
    ],
)
def test_a_word_of_the_clock_may_be_a_whole_column(text: str) -> None:
    query = private(text, CATALOG)
    writer = Writer()
    shown = writer.body(query.body) + " ".join(map(writer.expression, query.keys))
    assert str(NOON.date()) in map(str, writer.parameters), shown
    assert query.outputs[1].name.lower() in {"d", "current_date"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SELECT current_date", "current_date"),
        ("SELECT Current_Date FROM countries", "Current_Date"),
        ("SELECT (current_date) AS d FROM countries", "d"),
        ("SELECT DISTINCT current_date AS d FROM countries", "d"),
        ("SELECT current_date AS d, COUNT(*) AS n FROM countries GROUP BY current_date", "d"),
        ("SELECT country, current_date FROM countries GROUP BY country, current_date", "country"),
        ("SELECT d FROM (SELECT current_date AS d FROM countries UNION SELECT current_date FROM countries) AS u", "d"),
        (
            "SELECT continent FROM countries WHERE DATE '2026-04-29' IN (SELECT current_date FROM countries)",
            "continent",
        ),
    ],
)
def test_also_of_public_tables_and_of_none(text: str, name: str) -> None:
    query = analyze(text, CATALOG, accepts_pattern=accepts_pattern, clock=lambda: NOON)
    assert isinstance(query, PublicQuery)
    assert query.names[0] == name
    counting = rewrite_public(query, 10)
    assert str(NOON.date()) in map(str, counting.parameters)
    CON.execute(counting.sql, list(counting.parameters))


def test_no_word_of_the_clock_passes_for_the_unit() -> None:
    with pytest.raises(Refusal) as refused:
        private(
            "SELECT user_id FROM (SELECT current_date AS user_id FROM reads) AS x GROUP BY 1 TOP 3 PRIVATE", CATALOG
        )
    assert refused.value.code == "unit-name"
