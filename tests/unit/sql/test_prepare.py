"""Statements whose literals are made parameters: prepared without their values, they say what they say with them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from support.sql_golden import load
from support.sql_reference import NOON, accepts_pattern, catalog_of
from support.sql_statements import open_tables, public_statement

from dpsql.errors import Error
from dpsql.sql.analysis.analyze import UNKNOWN, analyze, prepare_statement
from dpsql.sql.ir.statements import PrivateQuery, PublicQuery
from dpsql.sql.ir.tree import Family, Type
from dpsql.sql.lexer import scan

CATALOG = catalog_of(open_tables(), {"nasty": "unit"}, ["open", "void", "public", "names"])
Given = list[object] | Mapping[str, object]


def asked(text: str, given: Given = ()) -> PrivateQuery | PublicQuery:
    query = analyze(text, CATALOG, parameters=given, accepts_pattern=accepts_pattern, clock=lambda: NOON)
    assert isinstance(query, PrivateQuery | PublicQuery)
    return query


def with_parameters(text: str) -> tuple[str, list[object]]:
    """Return the statement with ? for its whole numbers and texts, and their values."""
    statement, values, at, parts = scan(text), list[object](), 0, list[str]()
    for token in statement.tokens:
        value = statement.value(token.text)
        if value is None and not (token.token_type.name == "NUMBER" and token.text.isdigit()):
            continue
        values.append(int(token.text) if value is None else value.content)
        parts += [text[at : token.start], "?"]
        at = token.end + 1
    return "".join([*parts, text[at:]]), values


def columns(query: PrivateQuery | PublicQuery) -> list[tuple[str, Type | None]]:
    if isinstance(query, PublicQuery):
        return [(name, each.type) for name, each in zip(query.names, query.outputs, strict=True)]
    return [(each.name, None if each.key is None else query.keys[each.key].type) for each in query.outputs]


def alike(told: Type | None, found: Type | None) -> bool:
    """Say whether columns are of one type, or whole numbers, or numbers told as DOUBLE."""
    if told is None or found is None or told == found:
        return told == found
    return told.is_number and found.is_number and told.family in {Family.DOUBLE, found.family}


def check(text: str) -> bool:
    """Prepare a statement and compare it with what it is once its values are bound; say whether it could be."""
    written, values = with_parameters(text)
    try:
        bound = asked(written, values)
    except Error:
        return False  # a position, or a part of EXTRACT, is no value
    types, told, _ = prepare_statement(written, (), read=lambda given: asked(written, given))
    assert len(types) == len(values)
    known = [(name, type_) for (name, type_) in columns(told) if UNKNOWN not in types]
    assert not known or [name for name, _ in known] == [name for name, _ in columns(bound)]
    assert all(alike(one[1], other[1]) for one, other in zip(known, columns(bound), strict=False)), written
    return True


TWICE = ["ORDER BY COUNT(DISTINCT unit) FILTER (WHERE i32 > 0)"]  # what is repeated is the same only with its values


@pytest.mark.parametrize("file", ["analyze", "clause", "total", "canonical", "rewrite"])
def test_what_golden_statements_say_of_their_columns_does_not_take_the_values(file: str) -> None:
    texts = [case.given for case in load(file) if not set("?$") & set(case.given) and ":k" not in case.given]
    done = [check(text) for text in texts if not any(part in text for part in TWICE)]
    assert sum(done) > len(done) / 3


def test_nor_do_selects_of_public_tables() -> None:
    random, done = Random(8), 0
    for _ in range(250):
        text = public_statement(random)[0]
        if "GROUP BY" not in text:
            done += check(text)
    assert done > 20
