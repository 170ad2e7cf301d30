"""Which queries ask for no row by their text alone."""

from __future__ import annotations

from functools import partial

import duckdb
import pytest
from support.sql_golden import Case, check, load
from support.sql_reference import TOP_ARTICLES as TOP
from support.sql_reference import (
    accepts_pattern,
    catalog_of,
    corpus_catalog,
    corpus_tables,
    nasty_tables,
    outer_select,
    private,
)

from dpsql.errors import Error, Place
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.analysis.row_facts import is_empty_by_text
from dpsql.sql.ir.catalog import Catalog, Link, Table
from dpsql.sql.ir.statements import PublicQuery
from dpsql.sql.ir.tree import BIGINT, TEXT
from dpsql.sql.rewrite.engine_query import EngineQuery
from dpsql.sql.rewrite.public_query import rewrite_public

CON = corpus_tables()
CATALOG = corpus_catalog(CON)
around = partial(outer_select, catalog=CATALOG)
NONE = "(SELECT user_id, article FROM reads WHERE 1 = 0)"
NO_COUNTRY = "(SELECT country AS c, continent FROM countries WHERE 1 = 0) AS c"


@pytest.mark.parametrize(
    ("condition", "empty"),
    [
        ("FALSE", True),
        ("1 = 0", True),
        ("(0=1)", True),
        ("1 <> 1", True),
        ("2 < 2", True),
        ("3 <= 2", True),
        ("2 > 2", True),
        ("1 >= 2", True),
        ("n > 3 AND FALSE", True),
        ("FALSE OR 1 = 2", True),
        ("NULL", True),
        ("TRUE", False),
        ("1 = 1", False),
        ("2 >= 2", False),
        ("n > 3 OR FALSE", False),
        ("n <> n", False),
    ],
)
def test_a_where_that_is_never_true_asks_for_no_row(condition: str, empty: bool) -> None:
    assert around(f"SELECT article FROM ({TOP}) AS x WHERE {condition}").is_empty is empty
    inside = f"SELECT COUNT(*) FROM (SELECT n FROM ({TOP}) AS x WHERE {condition}) AS y"
    assert around(inside).is_empty is empty
    text = TOP.replace("GROUP BY", f"WHERE {condition.replace('n ', 'dwell ').replace(' n', ' dwell')} GROUP BY")
    assert is_empty_by_text(private(text, CATALOG)) is empty


@pytest.mark.parametrize(
    ("condition", "empty"),
    [
        ("article = NULL", True),
        ("NULL > user_id AND dwell > 3", True),
        ("article IN (NULL)", True),
        ("article IN (NULL, 'a')", False),
        ("article = NULL OR dwell > 3", False),
        ("article IS NOT DISTINCT FROM NULL", False),
        ("article IS NULL", False),
    ],
)
def test_a_comparison_with_null_selects_no_row(condition: str, empty: bool) -> None:
    assert is_empty_by_text(private(TOP.replace("GROUP BY", f"WHERE {condition} GROUP BY"), CATALOG)) is empty


def test_limit_0_asks_for_no_row() -> None:
    assert around(f"SELECT COUNT(*) FROM ({TOP}) AS x LIMIT 0").is_empty
    assert is_empty_by_text(private(f"{TOP} LIMIT 0", CATALOG))
    assert not is_empty_by_text(private(f"{TOP} LIMIT 1", CATALOG))
    assert not around(f"SELECT COUNT(*) FROM ({TOP} LIMIT 0) AS x").is_empty


@pytest.mark.parametrize(
    ("source", "empty"),
    [
        (f"{NONE} AS r", True),
        (f"(SELECT user_id, article FROM {NONE} AS s) AS r", True),
        (f"(SELECT DISTINCT user_id, article FROM {NONE} AS s) AS r", True),
        (f"(SELECT user_id, MAX(article) AS article FROM {NONE} AS s GROUP BY user_id) AS r", True),
        (f"(SELECT user_id, MAX(article) AS article FROM {NONE} AS s GROUP BY ALL) AS r", True),
        (f"(SELECT user_id, article FROM {NONE} AS s UNION ALL SELECT user_id, article FROM reads) AS r", False),
        (f"(SELECT user_id, article FROM {NONE} AS s UNION ALL SELECT user_id, article FROM {NONE} AS t) AS r", True),
        (f"(SELECT user_id, article FROM {NONE} AS s EXCEPT SELECT user_id, article FROM reads) AS r", True),
        (f"(SELECT user_id, article FROM reads EXCEPT SELECT user_id, article FROM {NONE} AS s) AS r", False),
        (f"(SELECT user_id, article FROM reads INTERSECT SELECT user_id, article FROM {NONE} AS s) AS r", True),
        (f"{NONE} AS r JOIN likes USING (user_id)", True),
        (f"{NONE} AS r LEFT JOIN likes USING (user_id)", True),
        (f"{NONE} AS n RIGHT JOIN reads AS r USING (user_id)", False),
        (f"reads AS r LEFT JOIN {NONE} AS n USING (user_id)", False),
        (f"reads AS r RIGHT JOIN {NONE} AS n USING (user_id)", True),
        (f"reads AS r JOIN {NONE} AS n USING (user_id)", True),
        (f"reads AS r SEMI JOIN {NONE} AS n USING (user_id)", True),
        (f"reads AS r ANTI JOIN {NONE} AS n USING (user_id)", False),
        *((f"{NONE} AS r {kind} JOIN likes USING (user_id)", True) for kind in ("SEMI", "ANTI")),
        (f"{NO_COUNTRY} RIGHT JOIN reads AS r ON c = article", False),
        (f"{NO_COUNTRY} FULL JOIN reads AS r ON c = article", False),
        (f"(SELECT MAX(continent) AS m FROM {NO_COUNTRY}) AS m CROSS JOIN reads AS r", False),
        ("reads AS r JOIN (SELECT country AS c FROM countries LIMIT 0) AS p ON p.c = r.country", True),
        ("reads AS r LEFT JOIN (SELECT country AS c FROM countries LIMIT 0) AS p ON p.c = r.country", False),
        ("reads AS r CROSS JOIN (SELECT COUNT(*) AS c FROM countries WHERE FALSE) AS p", False),
    ],
)
def test_a_source_without_a_row_leaves_none(source: str, empty: bool) -> None:
    text = f"SELECT r.article FROM {source} GROUP BY r.article TOP 5 PRIVATE"
    assert is_empty_by_text(private(text, CATALOG)) is empty


@pytest.mark.parametrize(
    ("source", "empty"),
    [
        (f"(SELECT country FROM countries WHERE FALSE) AS c RIGHT JOIN ({TOP}) AS x ON TRUE", False),
        (f"(SELECT country FROM countries WHERE FALSE) AS c FULL JOIN ({TOP}) AS x ON c.country = x.article", False),
        (f"(SELECT COUNT(*) AS c FROM countries WHERE 1 = 0) AS c CROSS JOIN ({TOP}) AS x", False),
        (f"(SELECT MAX(continent) AS m FROM {NO_COUNTRY}) AS m CROSS JOIN ({TOP}) AS x", False),
        (f"(SELECT country FROM countries WHERE FALSE) AS c LEFT JOIN ({TOP}) AS x ON c.country = x.article", False),
        (f"countries AS c JOIN (SELECT * FROM ({TOP}) AS x WHERE 1 = 0) AS y ON c.country = y.article", True),
        (f"(SELECT COUNT(*) AS c FROM ({TOP}) AS x WHERE FALSE) AS y", True),
    ],
)
def test_around_a_private_query_every_kind_of_join_is_told_apart(source: str, empty: bool) -> None:
    assert around(f"SELECT 1 AS one FROM {source}").is_empty is empty


@pytest.mark.parametrize("ending", ["WHERE 1=0", "WHERE 0 = 1", "WHERE FALSE", "WHERE NOT TRUE", "WHERE 'a' = 'b'"])
def test_a_known_domain_changes_nothing_of_it(ending: str) -> None:
    text = TOP.replace("GROUP BY", f"{ending} GROUP BY") + " WITH (domain = ['a', 'b'])"
    assert is_empty_by_text(private(text, CATALOG))
    assert not is_empty_by_text(private(text.replace(ending, ""), CATALOG))


def test_one_row_of_aggregates_may_hold_what_a_subquery_finds_in_the_answer() -> None:
    found = "(SELECT MAX(n) FROM x)"
    for text in (f"{found} AS most, COUNT(*) AS c", f"COUNT(*) AS c, 9 IN {found.replace('MAX(n)', 'n')} AS nine"):
        assert not around(f"WITH x AS ({TOP}) SELECT {text} FROM countries WHERE FALSE").is_empty
    having = f"WITH x AS ({TOP}) SELECT COUNT(*) AS c FROM countries WHERE FALSE HAVING {found} > 1"
    assert not around(having).is_empty
    assert around(f"{having} LIMIT 0").is_empty


NASTY = nasty_tables()
NASTY.execute("CREATE TABLE every AS SELECT * FROM test_all_types()")
NASTY.execute("""CREATE TABLE quoted("a ""b" ENUM('it''s', 'a"b', ');--'), s STRUCT("x y" INTEGER), l DATE[])""")
ABOUT = Link("about", "id", BIGINT, ("memory", "main", "nasty"), "unit", BIGINT)
NOTES = Table("notes", ("memory", "main", "notes"), (("word", TEXT), ("unit", BIGINT)), "unit", ABOUT)
KNOWN = catalog_of(NASTY, {"nasty": "unit"}, ["public", "names"])
NOTED = Catalog((*KNOWN.tables, NOTES))
EMPTY_DATABASE = duckdb.connect()


def asked(text: str, catalog: Catalog) -> EngineQuery:
    """Return what the engine runs for a SELECT without the clause."""
    question = analyze(text, catalog, accepts_pattern=accepts_pattern)
    assert isinstance(question, PublicQuery)
    return rewrite_public(question, 100)


def columns(text: str) -> str:
    """Return the columns that an engine without any table answers with, and that it has no row."""
    question = analyze(text, NOTED, accepts_pattern=accepts_pattern)
    assert isinstance(question, PublicQuery)
    counting = asked(text, NOTED)
    found = EMPTY_DATABASE.execute(counting.sql, list(counting.parameters))
    types = [str(column[1]) for column in found.description]
    assert found.fetchall() == []
    return "\n".join(f"{name}: {type_}" for name, type_ in zip(question.names, types, strict=True))


def refusal(text: str) -> str:
    with pytest.raises(Error) as raised:
        analyze(text, NOTED, accepts_pattern=accepts_pattern)
    place = raised.value.place
    assert isinstance(place, Place)
    return f"{raised.value.code} {place.line}:{place.column} {place.fragment}"


NO_ROW = [case for case in load("no_row") if duckdb.__version__ >= "2" or '"NULL"' not in case.expected]


@pytest.mark.parametrize("case", NO_ROW, ids=str)  # before DuckDB 2.0, NULL has another type where nothing else has one
def test_no_row_of_a_private_table_is_asked_for_and_its_columns_are_told_without_it(case: Case) -> None:
    check(case, columns)


@pytest.mark.parametrize("case", load("no_row__refused"), ids=str)
def test_whatever_could_have_a_row_of_a_private_table_is_refused(case: Case) -> None:
    check(case, refusal)


@pytest.mark.parametrize(
    ("table", "selected"),
    [
        ("every", "*"),
        ("every", "COUNT(*), SUM(int), SUM(dec_4_1), AVG(float), MIN(small_enum), MAX(uuid)"),
        ("every", "int + 1, float * 2, -dec_4_1, dec_4_1 * int, varchar || 'a', date + 1, 1.5, 'a', NULL, TRUE"),
        ("every", "tinyint + smallint, utinyint // 2, int::DOUBLE, CASE WHEN bool THEN int ELSE bigint END"),
        ("every", "year(date), date_trunc('day', timestamp), timestamp - INTERVAL 3 DAY, length(varchar)"),
        (
            "every",
            "DATE '2026-01-31' AS d, coalesce(int, 3), 5000000000, greatest(int, 2), abs(tinyint), round(dec_4_1, 1)",
        ),
        ("quoted", "*"),
    ],
)
def test_the_columns_are_of_the_types_that_a_public_table_is_answered_in(table: str, selected: str) -> None:
    text, unit = f"SELECT {selected} FROM {table} LIMIT 0", {"every": "int", "quoted": 'a "b'}[table]
    wanted, found = (
        NASTY.sql(each.sql, params=list(each.parameters)).to_arrow_table().schema
        for each in (asked(text, catalog_of(NASTY, {}, [table])), asked(text, catalog_of(NASTY, {table: unit}, [])))
    )
    assert found == wanted


def test_a_parameter_may_say_that_no_row_is_asked_for() -> None:
    for text, given in (("SELECT t FROM nasty LIMIT ?", [0]), ("SELECT t FROM nasty WHERE :a = :b", {"a": 1, "b": 2})):
        assert isinstance(analyze(text, NOTED, parameters=given, accepts_pattern=accepts_pattern), PublicQuery)
    for text, given in (("SELECT t FROM nasty LIMIT ?", [1]), ("SELECT t FROM nasty WHERE :a = :b", {"a": 1, "b": 1})):
        with pytest.raises(Error, match="not-private"):
            analyze(text, NOTED, parameters=given, accepts_pattern=accepts_pattern)
