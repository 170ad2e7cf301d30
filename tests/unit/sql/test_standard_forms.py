"""Forms of standard SQL and DuckDB that mean what another statement says, and are read as that one."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import pytest
from support.sql_reference import NOON, accepts_pattern, catalog_of, corpus_catalog, corpus_tables, private

from dpsql.errors import Error, Place, Refusal, Unsupported
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.lexer import scan
from dpsql.sql.syntax.implied import StandardSQL

CATALOG = corpus_catalog(corpus_tables())
N = "COUNT(DISTINCT user_id) AS n"


def meaning(value: object) -> object:
    """Return all of a query but its text and the places in it."""
    if isinstance(value, Place):
        return None
    if is_dataclass(value):
        kept = (field.name for field in fields(value) if field.name != "text")
        return type(value).__name__, *((name, meaning(getattr(value, name))) for name in kept)
    return [meaning(part) for part in value] if isinstance(value, list | tuple) else repr(value)


def read(text: str, *, implicit: bool = False) -> object:
    standard = StandardSQL(is_private=implicit)
    return meaning(analyze(text, CATALOG, accepts_pattern=accepts_pattern, clock=lambda: NOON, standard=standard))


def key(expression: str, alias: str = " AS x") -> str:
    return f"SELECT {expression}{alias}, {N} FROM reads GROUP BY x TOP 5 PRIVATE"


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("SUBSTRING(article FROM 2 FOR 3)", "substring(article, 2, 3)"),
        ("substring(article from 2)", "substring(article, 2)"),
        ("SUBSTRING(article FOR 3)", "substring(article, 1, 3)"),
        ("SUBSTRING(article FOR 3 FROM 2)", "substring(article, 2, 3)"),
        ("SUBSTRING(SUBSTRING(article FROM 2) FROM 1 FOR 2)", "substring(substring(article, 2), 1, 2)"),
        ("TRIM(BOTH 'x' FROM article)", "trim(article, 'x')"),
        ("TRIM(LEADING 'x' FROM article)", "ltrim(article, 'x')"),
        ("TRIM(TRAILING 'x' FROM article)", "rtrim(article, 'x')"),
        ("TRIM('x' FROM article)", "trim(article, 'x')"),
        ("TRIM(FROM article)", "trim(article)"),
        ("TRIM(BOTH FROM article)", "trim(article)"),
        ("TRIM(LEADING FROM article)", "ltrim(article)"),
        ("TRIM(BOTH article)", "trim(article)"),
        ("TRIM(LEADING article)", "ltrim(article)"),
        ("POSITION('x' IN article)", "strpos(article, 'x')"),
        ("POSITION(left(country, 1) IN SUBSTRING(article FROM 2))", "strpos(substring(article, 2), left(country, 1))"),
        ("EXTRACT('hour' FROM ts)", "EXTRACT(hour FROM ts)"),
        ("article = ANY (['a', 'b'])", "article IN ('a', 'b')"),
        ("article <> ALL (['a'])", "article NOT IN ('a')"),
        ("article = ANY (CAST(['a'] AS VARCHAR[]))", "article IN ('a')"),
    ],
)
def test_calls_with_words_in_them_mean_calls_with_commas(written: str, plain: str) -> None:
    assert read(key(written)) == read(key(plain))


@pytest.mark.parametrize("expression", ["substring(article)", "position(article)", "trim()"])
def test_half_of_such_a_call_is_refused(expression: str) -> None:
    with pytest.raises(Error):
        read(key(expression))


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("GROUP BY (article, country)", "GROUP BY article, country"),
        ("GROUP BY (article), country", "GROUP BY article, country"),
        ("GROUP BY ((article), (country))", "GROUP BY article, country"),
        ("GROUP BY (1), 2", "GROUP BY 1, 2"),
        ("GROUP BY (article, ()), (country)", "GROUP BY article, country"),
    ],
)
@pytest.mark.parametrize("ending", ["TOP 5 PRIVATE", "ORDER BY n DESC LIMIT 5"])
def test_parentheses_in_group_by_group_nothing(written: str, plain: str, ending: str) -> None:
    text = f"SELECT article, country, {N} FROM reads {{}} {ending}"
    implicit = "PRIVATE" not in ending
    assert read(text.format(written), implicit=implicit) == read(text.format(plain), implicit=implicit)


def test_group_by_nothing_is_a_total() -> None:
    total = read(f"SELECT {N} FROM reads PRIVATE")
    assert read(f"SELECT {N} FROM reads GROUP BY () PRIVATE") == total
    assert read(f"SELECT {N} FROM reads GROUP BY ()", implicit=True) == read(f"SELECT {N} FROM reads", implicit=True)
    with pytest.raises(Error):  # one row of its own, whatever the table has
        read("SELECT 1 AS one FROM countries GROUP BY ()")


@pytest.mark.parametrize("direction", ["", " DESC", " ASC NULLS FIRST", " DESC NULLS LAST"])
def test_order_by_all_orders_by_every_column(direction: str) -> None:
    private_ = f"SELECT article, country, {N} FROM reads GROUP BY ALL TOP 5 PRIVATE ORDER BY "
    every = ", ".join(f"{at}{direction}" for at in (1, 2, 3))
    assert read(f"{private_}ALL{direction}") == read(private_ + every)
    public = "SELECT country, continent, 1 AS one FROM countries ORDER BY "
    pair = ", ".join(f"{at}{direction}" for at in (1, 2))
    assert read(f"{public}ALL{direction}") == read(public + pair)


def test_order_by_all_stands_alone() -> None:
    with pytest.raises(Refusal) as caught:
        read(f"SELECT article, {N} FROM reads GROUP BY 1 TOP 5 PRIVATE ORDER BY ALL, article")
    assert caught.value.code == "order"
    total = read(f"SELECT {N} FROM reads PRIVATE ORDER BY ALL")
    assert read(f"SELECT {N} FROM reads ORDER BY ALL PRIVATE") == total


@pytest.mark.parametrize(
    "expression",
    [
        "ts::DATE",
        "dwell::DECIMAL(10, 2)",
        "dwell::DOUBLE PRECISION",
        "article::CHARACTER VARYING",
        "article::VARCHAR(10)",
        "ts::TIMESTAMP WITHOUT TIME ZONE",
        "ts::DATE::VARCHAR",
        "ts - INTERVAL '1 day'",
        "ts - INTERVAL '1' DAY",
        "ts + INTERVAL 1 DAY",
        "ts + INTERVAL (1) DAY",
        "CASE WHEN dwell > 1 THEN 'a' END",
        "dwell IS NULL",
        'article COLLATE "C"',
        "'a'",
        "1",
        "DATE '2026-01-31'",
        "current_date",
        "reads.article",
    ],
)
@pytest.mark.parametrize("computed", ["", ", COUNT(*) * 2 AS twice"])
def test_an_alias_needs_no_as(expression: str, computed: str) -> None:
    def found(alias: str) -> object:
        text = key(expression + alias, "").replace(" FROM reads", f"{computed} FROM reads")
        try:
            return read(text)
        except Error as error:
            return error.code, error.reason

    assert found(" x") == found(" AS x")
    assert found(" x")[0] != "unknown-column"  # type: ignore[index]


@pytest.mark.parametrize("expression", ["big::INTEGER", "zoned::DATE"])
def test_without_as_the_reason_is_the_true_one(expression: str) -> None:
    con = corpus_tables()
    con.execute("CREATE TABLE odd(user_id BIGINT, big UBIGINT, zoned TIMESTAMPTZ)")
    catalog = catalog_of(con, {"odd": "user_id"}, [])
    with pytest.raises(Unsupported) as caught:
        private(f"SELECT {expression} x, {N} FROM odd GROUP BY x TOP 5 PRIVATE", catalog)
    assert caught.value.code == "type"


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("{'a':n}", []),
        ("{'a' :n}", []),
        ("{a:n}", []),
        ("{a :n}", []),
        ("MAP {k:n}", []),
        ("k[1:n]", []),
        ("list_transform(l, lambda x:x + 1)", []),
        ("f(x):n", []),
        ("{'a': :n}", [":n"]),
        ("k[:n]", [":n"]),
        ("x = :n AND y IN (:m)", [":n", ":m"]),
        ("LIMIT :n", [":n"]),
        ("a::b", []),
    ],
)
def test_a_colon_behind_an_operand_begins_no_parameter(text: str, parameters: list[str]) -> None:
    found = scan(f"SELECT {text}", lenient=True).values
    assert [value.content for value in found if value.kind == "parameter"] == parameters


@pytest.mark.parametrize("text", ["x LIKE:p", "x IN:p", "NOT:p", "LIMIT:p"])
def test_a_parameter_that_runs_into_a_word_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        scan(f"SELECT {text}")
    assert caught.value.code == "character"


@pytest.mark.parametrize(
    ("text", "code", "fragment"),
    [
        (f"SELECT country, {N} FROM reads GROUP BY ROLLUP (country)", "construct", "ROLLUP"),
        (f"SELECT country, {N} FROM reads GROUP BY CUBE (country)", "construct", "CUBE"),
        (f"SELECT country, {N} FROM reads GROUP BY GROUPING SETS ((country), ())", "construct", "GROUPING SETS"),
        (f"SELECT country, {N} FROM reads GROUP BY country WITH ROLLUP", "construct", "WITH"),
        (f"SELECT ts AT TIME ZONE 'UTC' AS x, {N} FROM reads GROUP BY x", "type", "AT"),
        (f"SELECT ts::TIMESTAMP WITH TIME ZONE x, {N} FROM reads GROUP BY x", "type", "TIMESTAMP"),
        (f"SELECT OVERLAY(article PLACING 'x' FROM 1) AS x, {N} FROM reads GROUP BY x", "function", "OVERLAY"),
        (f"SELECT country, {N} FROM reads GROUP BY country QUALIFY n > 1", "syntax", "QUALIFY"),
    ],
)
@pytest.mark.parametrize("ending", ["", " TOP 10 PRIVATE"])
def test_what_is_not_supported_is_named(text: str, code: str, fragment: str, ending: str) -> None:
    with pytest.raises((Refusal, Unsupported)) as caught:
        read(text + ending)
    assert (caught.value.code, caught.value.place.fragment) == (code, fragment)  # type: ignore[union-attr]
    assert ("PRIVATE" in caught.value.hint) or ending  # type: ignore[operator]


def test_the_text_and_not_the_reading_decides_the_name_of_a_column() -> None:
    found = private(f"SELECT SUBSTRING(article FROM 2), {N} FROM reads GROUP BY 1 TOP 5 PRIVATE", CATALOG)
    assert isinstance(found, PrivateQuery)
    assert [output.name for output in found.outputs] == ["SUBSTRING(article FROM 2)", "n"]
    assert replace(found, text="").keys
