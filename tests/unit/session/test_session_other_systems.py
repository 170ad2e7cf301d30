"""Statements of other systems, of docs/reference/sql/from-other-systems.md: each is run, and compared with DuckDB's.

The noise is repeatable, so that a comparison that holds once holds again. Where DuckDB runs the same text, every row of
an answer is near a row of DuckDB's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.session_kit import seeded

import dpsql

GENERATE = Path(__file__).parents[3] / "docs" / "generate"
MOST_OPEN = 23  # statements that are refused, and not for good
TOLERANCE = 0.1  # of a value; the noise here is far less


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    sys.path.insert(0, str(GENERATE))
    try:
        yield import_module("other_systems_page")
    finally:
        sys.path.remove(str(GENERATE))


@pytest.fixture(scope="module")
def session(page: Any) -> Iterator[dpsql.Session]:
    with page.open_session(page.load()) as session:
        yield session


@pytest.fixture(scope="module")
def database(page: Any) -> duckdb.DuckDBPyConnection:
    known, connection = page.load(), duckdb.connect(":memory:")
    connection.execute(known["data"] + known["rows"])
    return connection


def is_near(one: object, other: object) -> bool:
    if one is None or other is None or isinstance(one, str | bool):
        return one == other
    if not hasattr(one, "__float__") or not hasattr(other, "__float__"):
        return str(one) == str(other)
    least = 40 if isinstance(one, int) else 1
    return abs(float(one) - float(other)) <= least + TOLERANCE * abs(float(other))


def assert_rows_are_near(rows: Sequence[tuple[object, ...]], every: Sequence[tuple[object, ...]], text: str) -> None:
    for row in rows:
        if None not in row:  # NULL is a group of known values, which no row has here
            assert any(len(row) == len(other) and all(map(is_near, row, other)) for other in every), (text, row)


def test_every_statement_that_the_page_says_runs_is_answered(
    page: Any, session: dpsql.Session, database: duckdb.DuckDBPyConnection
) -> None:
    compared = 0
    for number, each in enumerate(page.statements()):
        if not each.runs or each.runs.startswith("SHOW"):
            continue
        answer = seeded(session, number).sql(each.runs)
        assert answer.arrow().num_rows or "epsilon = 1," in each.runs, each  # so little may return no group
        try:
            every = database.execute(re.sub(r"LIMIT \d+$", "", each.runs)).fetchall()
        except duckdb.Error:  # words that DuckDB does not know, such as PRIVATE
            continue
        compared += 1
        assert_rows_are_near(answer.fetchall(), every, each.runs)
    assert compared > 60


def test_most_statements_are_answered(page: Any) -> None:
    found = page.statements()
    answered = [each for each in found if each.runs]
    refused_for_good = [each for each in found if each.why]
    assert len(found) >= 120
    assert len(answered) >= 100
    assert len(found) - len(answered) - len(refused_for_good) <= MOST_OPEN
    assert not [each for each in refused_for_good if each.runs]


def test_no_statement_is_on_the_page_twice(page: Any) -> None:
    texts = [each.theirs for each in page.statements()]
    assert len(set(texts)) > len(texts) - 6  # simple ones are in several systems


def test_a_text_is_only_given_where_theirs_does_not_run(page: Any) -> None:
    assert not [each.what for each in page.statements() if each.outcome == "as it is" and (each.ours or each.why)]


def test_a_refusal_says_what_to_do(page: Any, session: dpsql.Session) -> None:
    for each in page.statements():
        if each.outcome == "as it is" or each.refusal == "It is no SQL.":
            continue
        with pytest.raises(dpsql.Error) as refused:
            session.sql(each.theirs)
        assert refused.value.hint, each.theirs
