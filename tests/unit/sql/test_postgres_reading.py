"""Statements of the PostgreSQL port: they become the nodes that other surfaces write in other words."""

from __future__ import annotations

import pytest
from support.sql_reference import accepts_pattern, catalog_of, nasty_tables

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.analyze import analyze, find_key, prepare_statement
from dpsql.sql.ir.statements import Statement
from dpsql.sql.lexer import ParameterValues

CATALOG = catalog_of(nasty_tables(), {"nasty": "unit"}, ["public", "names"])
QUERY = "SELECT t FROM nasty WHERE {} GROUP BY t TOP 10 PRIVATE"


def read(text: str, parameters: ParameterValues = (), *, postgres: bool) -> Statement:
    return analyze(text, CATALOG, parameters=parameters, accepts_pattern=accepts_pattern, postgres=postgres)


def body(condition: str, parameters: ParameterValues = (), *, postgres: bool) -> object:
    return read(QUERY.format(condition), parameters, postgres=postgres).body  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("over_the_port", "elsewhere"),
    [
        (r"t LIKE 'a\_b%'", r"t LIKE 'a\_b%' ESCAPE '\'"),
        (r"t NOT LIKE 'a\_b%'", r"t NOT LIKE 'a\_b%' ESCAPE '\'"),
        (r"t ILIKE 'a\%'", r"t ILIKE 'a\%' ESCAPE '\'"),
        (r"t NOT ILIKE 'a\\'", r"t NOT ILIKE 'a\\' ESCAPE '\'"),
        (r"t LIKE 'a' || '\_' || 'b'", r"t LIKE 'a\_b' ESCAPE '\'"),
        (r"UPPER(t) LIKE UPPER('a\_b')", r"UPPER(t) LIKE 'A\_B' ESCAPE '\'"),
        (r"t LIKE E'a\\_b'", r"t LIKE 'a\_b' ESCAPE '\'"),
        (r"t LIKE 'a\b' ESCAPE ''", r"t LIKE 'a\b'"),
        ("t LIKE 'a!_b' ESCAPE '!'", "t LIKE 'a!_b' ESCAPE '!'"),
        ("t LIKE 'a_b'", "t LIKE 'a_b'"),
        (r"t ~~ 'a\_'", r"t LIKE 'a\_' ESCAPE '\'"),
        ("t !~~ 'a_'", "t NOT LIKE 'a_'"),
        ("t ~~* 'a_'", "t ILIKE 'a_'"),
        ("t !~~* 'a_'", "t NOT ILIKE 'a_'"),
        ("t LIKE ANY (ARRAY['a%', 'b%'])", "t LIKE 'a%' OR t LIKE 'b%'"),
        ("t LIKE ANY (ARRAY['a%'])", "t LIKE 'a%'"),
        (r"t NOT LIKE ALL (ARRAY['a\_', 'b%']::text[])", r"t NOT LIKE 'a\_' ESCAPE '\' AND t NOT LIKE 'b%'"),
        ("t ILIKE SOME ('{a%,\"b\\\\_\"}')", r"t ILIKE 'a%' OR t ILIKE 'b\_' ESCAPE '\'"),
        ("t LIKE ALL ('{a%,%b}')", "t LIKE 'a%' AND t LIKE '%b'"),
        ("t ~~ ANY (ARRAY['a%', 'b%'])", "t LIKE 'a%' OR t LIKE 'b%'"),
        ("NOT t LIKE ANY (ARRAY['a%', 'b%'])", "NOT (t LIKE 'a%' OR t LIKE 'b%')"),
        ("t LIKE ANY ('{}')", "FALSE"),
        ("t LIKE ALL ('{}')", "TRUE"),
        ("t ~ '^a'", "t ~ '^a'"),
        ("t ~ 'a.b'", "regexp_matches(t, 'a.b', 's')"),
        ("t ~* '^a'", "regexp_matches(t, '^a', 'i')"),
        ("t ~* '^a.'", "regexp_matches(t, '^a.', 'is')"),
        ("t !~ '^a'", "NOT t ~ '^a'"),
        ("t !~* '^a'", "NOT regexp_matches(t, '^a', 'i')"),
        ("i32 / 2 = 3", "i32 // 2 = 3"),
        ("i32 / i64 = 3", "i32 // i64 = 3"),
        ("(i32 + 1) / 2 = 3", "(i32 + 1) // 2 = 3"),
        ("length(t) / 2 = 3", "length(t) // 2 = 3"),
        ("-i32 / 2 = 3", "-i32 // 2 = 3"),
        ("i32 / 2.0 = 3", "i32 / 2.0 = 3"),
        ("d / 2 = 3", "d / 2 = 3"),
        ("dec / 2 = 3", "dec / 2 = 3"),
        ("round(i32) / 2 = 3", "round(i32) / 2 = 3"),
        ("sign(i32) / 2 = 3", "sign(i32) / 2 = 3"),
        ("EXTRACT(hour FROM ts) / 5 = 3", "EXTRACT(hour FROM ts) / 5 = 3"),
        ("CAST(EXTRACT(hour FROM ts) AS INTEGER) / 5 = 3", "CAST(EXTRACT(hour FROM ts) AS INTEGER) // 5 = 3"),
        ("coalesce(i32, 0) / 2 = 3", "coalesce(i32, 0) // 2 = 3"),
        ("CASE WHEN b THEN i32 END / 2 = 3", "CASE WHEN b THEN i32 END // 2 = 3"),
        ("(SELECT max(low) FROM public) / 2 = 3", "(SELECT max(low) FROM public) // 2 = 3"),
        ("substring(t, 0, 3) = 'a'", "substring(t, 1, 2) = 'a'"),
        ("substring(t, -5, 3) = 'a'", "substring(t, 1, 0) = 'a'"),
        ("substr(t, -1) = 'a'", "substr(t, 1) = 'a'"),
        ("substring(t, 2, 3) = 'a'", "substring(t, 2, 3) = 'a'"),
        ("left(t, -1) = 'a'", "left(t, -1) = 'a'"),
    ],
)
def test_a_condition_is_the_one_that_means_it_elsewhere(over_the_port: str, elsewhere: str) -> None:
    assert body(over_the_port, postgres=True) == body(elsewhere, postgres=False)


@pytest.mark.parametrize("condition", [r"t LIKE 'a\_b%'", "i32 / 2 = 3", "t ~ 'a.b'", "substring(t, 0, 3) = 'a'"])
def test_other_surfaces_read_what_they_did(condition: str) -> None:
    assert body(condition, postgres=True) != body(condition, postgres=False)


@pytest.mark.parametrize(
    ("condition", "values", "elsewhere"),
    [
        ("t LIKE $1", [r"a\_b"], r"t LIKE 'a\_b' ESCAPE '\'"),
        ("t LIKE '%' || $1", [r"\_b"], r"t LIKE '%\_b' ESCAPE '\'"),
        ("UPPER(t) LIKE UPPER($1)", [r"a\_b"], r"UPPER(t) LIKE 'A\_B' ESCAPE '\'"),
        ("t LIKE $1 ESCAPE $2", ["a!_b", "!"], "t LIKE 'a!_b' ESCAPE '!'"),
        ("t LIKE ANY ($1)", [["a%", r"b\_"]], r"t LIKE 'a%' OR t LIKE 'b\_' ESCAPE '\'"),
        ("t LIKE ANY (ARRAY[$1, $2])", ["a%", "b%"], "t LIKE 'a%' OR t LIKE 'b%'"),
        ("i32 / $1 = 3", [2], "i32 // 2 = 3"),
        ("substring(t, $1, $2) = 'a'", [0, 3], "substring(t, 1, 2) = 'a'"),
    ],
)
def test_parameters_are_read_as_literals_are(condition: str, values: list[object], elsewhere: str) -> None:
    assert body(condition, values, postgres=True) == body(elsewhere, postgres=False)


@pytest.mark.parametrize(
    ("condition", "types"),
    [
        ("i32 / $1 = 3", ("BIGINT",)),
        ("$1 / i32 = 3", ("BIGINT",)),
        ("d / $1 = 3", ("DOUBLE",)),
        ("t ~~ $1", ("VARCHAR",)),
        ("t LIKE ANY ($1)", ("VARCHAR[]",)),
    ],
)
def test_a_parameter_of_a_division_has_the_type_of_the_other_side(condition: str, types: tuple[str, ...]) -> None:
    text = QUERY.format(condition)
    found, _, _ = prepare_statement(text, (), read=lambda values: read(text, values, postgres=True))
    assert found == types


@pytest.mark.parametrize(
    ("condition", "followed"),
    [
        ("t LIKE 'a\\'", r"t LIKE 'a\\'"),
        (r"t LIKE 'a\\\'", r"t LIKE 'a\\\' ESCAPE ''"),
        ("t LIKE ANY (ARRAY['a\\'])", r"t LIKE ANY (ARRAY['a\\'])"),
        ("t SIMILAR TO '(ab|cd)'", "t ~ '^(ab|cd)$'"),
        ("t NOT SIMILAR TO '(ab|cd)'", "NOT t ~ '^(ab|cd)$'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_hint_that_works(condition: str, followed: str) -> None:
    with pytest.raises((Refusal, Unsupported)) as refused:
        body(condition, postgres=True)
    assert refused.value.code == "pattern"
    assert refused.value.place is not None
    body(followed, postgres=True)


@pytest.mark.parametrize("operator", ["~~", "!~~", "~~*", "!~~*", "~*", "!~", "!~*"])
def test_operators_of_postgres_are_those_of_the_port_alone(operator: str) -> None:
    body(f"t {operator} 'a'", postgres=True)
    with pytest.raises(Unsupported):
        body(f"t {operator} 'a'", postgres=False)


@pytest.mark.parametrize(
    ("term", "nulls_first"),
    [("low", False), ("low DESC", True), ("low DESC NULLS LAST", False), ("low NULLS FIRST", True), ("low ASC", False)],
)
def test_nulls_are_ordered_as_the_greatest_values(term: str, nulls_first: bool) -> None:
    (found,) = read(f"SELECT low FROM public ORDER BY {term}", postgres=True).order  # type: ignore[union-attr]
    assert found.nulls_first is nulls_first


def test_a_statement_of_the_port_has_a_key_of_its_own() -> None:
    text = "SELECT 7 / 2"
    keys = [find_key(text, (), implicit=False, postgres=postgres) for postgres in (False, True)]
    assert keys[0] != keys[1]
    assert keys[0] == find_key(text, (), implicit=False)
