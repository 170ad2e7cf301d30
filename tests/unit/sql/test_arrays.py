"""Arrays in PostgreSQL's text format, and as values of parameters: each is the list of its items."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sql_reference import accepts_pattern, catalog_of, nasty_tables

from dpsql.errors import Refusal, UsageError
from dpsql.sql.analysis.analyze import analyze, prepare_statement
from dpsql.sql.coercion import parse_text_array
from dpsql.sql.ir.statements import Statement
from dpsql.sql.lexer import ParameterValues

CATALOG = catalog_of(nasty_tables(), {"nasty": "unit"}, ["public", "names"])
QUERY = "SELECT t FROM nasty WHERE {} GROUP BY t TOP 10 PRIVATE"


def read(condition: str, parameters: ParameterValues = ()) -> Statement:
    return analyze(QUERY.format(condition), CATALOG, parameters=parameters, accepts_pattern=accepts_pattern)


def body(condition: str, parameters: ParameterValues = ()) -> object:
    return read(condition, parameters).body  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("{}", []),
        (" { } ", []),
        ("{a}", ["a"]),
        ('{a, b c ,"d,e","{}"}', ["a", "b c", "d,e", "{}"]),
        (r'{"q\"x\\y",NULL,null,"NULL",""}', ['q"x\\y', None, None, "NULL", ""]),
        ("{1,-2.5,t}", ["1", "-2.5", "t"]),
    ],
)
def test_the_text_of_an_array_has_its_items(text: str, items: list[str | None]) -> None:
    assert parse_text_array(text) == items


@pytest.mark.parametrize(
    "text", ["", "{", "}", "{a", "a}", "{a,}", "{,a}", "{a}b", "{{a}}", '{"a}', '{"a"b}', "{a\\}", "a", "[1:2]={a,b}"]
)
def test_another_text_is_no_array(text: str) -> None:
    assert parse_text_array(text) is None


@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0"))))
def test_items_that_postgresql_quotes_are_read_back(items: list[str | None]) -> None:
    quoted = ("NULL" if each is None else '"' + each.replace("\\", "\\\\").replace('"', '\\"') + '"' for each in items)
    assert parse_text_array("{" + ",".join(quoted) + "}") == items


@pytest.mark.parametrize(
    ("condition", "parameters", "plain"),
    [
        ("t = ANY (?)", [["a", "b"]], "t IN ('a', 'b')"),
        ("t = SOME (?)", [("a", None)], "t IN ('a', NULL)"),
        ("t = ANY (?)", ["{a,b}"], "t IN ('a', 'b')"),
        ("t = ANY (:names::varchar[])", {"names": ["a"]}, "t IN ('a')"),
        ("t <> ALL ($1)", [["a"]], "t NOT IN ('a')"),
        ("t != ALL ('{a,NULL}')", [], "t NOT IN ('a', NULL)"),
        ("i32 = ANY ('{1,2}'::int[])", [], "i32 IN (1, 2)"),
        ("t = ANY (?)", [[]], "FALSE"),
        ("t <> ALL ('{}')", [], "NOT FALSE"),
        ("t = ANY (?)", [None], "t IN (NULL)"),
    ],
)
def test_a_comparison_with_an_array_is_one_with_a_list(condition: str, parameters: ParameterValues, plain: str) -> None:
    assert body(condition, parameters) == body(plain)


def test_a_value_that_is_no_array_is_refused_and_not_quoted() -> None:
    with pytest.raises(Refusal) as caught:
        read("t = ANY (?)", [7])
    assert (caught.value.code, caught.value.place.fragment) == ("literal", "?")  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="parameter-type"):
        read("t = ?", [["a"]])
    with pytest.raises(UsageError, match="parameter-type"):
        read("t = ANY (?)", [[["a"]]])


def test_an_array_counts_as_many_literals_as_it_has_items() -> None:
    read("i32 = ANY (?)", [list(range(3_000))])
    with pytest.raises(Refusal) as caught:
        read("i32 = ANY (?)", [list(range(4_000))])
    assert caught.value.code == "too-long"


@pytest.mark.parametrize(
    ("condition", "types", "found"),
    [
        ("t = ANY ($1)", (), ("VARCHAR[]",)),
        ("i32 = ANY ($1) AND t = $2", (), ("BIGINT[]", "VARCHAR")),
        ("b <> ALL ($1)", ("UNKNOWN",), ("BOOLEAN[]",)),
        ("i32 = ANY ($1)", ("BIGINT[]",), ("BIGINT[]",)),
    ],
)
def test_the_type_of_a_parameter_is_an_array_where_one_is_due(
    condition: str, types: tuple[str, ...], found: tuple[str, ...]
) -> None:
    text = QUERY.format(condition)
    known, _, _ = prepare_statement(text, types, read=lambda values: read(condition, values))
    assert known == found
