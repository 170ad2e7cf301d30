"""A statement that is asked again: kept where nothing but its text decides, read again where anything else does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib import import_module
from types import ModuleType

import pytest
from support.sql_reference import NOON, accepts_pattern, catalog_of, corpus_tables

from dpsql.errors import Error
from dpsql.sql.analysis.analyze import MAX_STATEMENT_LENGTH, MAX_STATEMENTS, AnalysisCache
from dpsql.sql.ir.statements import PrivateQuery

MODULE: ModuleType = import_module("dpsql.sql.analysis.analyze")
CATALOG = catalog_of(corpus_tables(), {"reads": "user_id"}, ["countries"])
TOP = "SELECT article FROM reads {}GROUP BY article TOP 3 PRIVATE"
PLAIN = TOP.format("")


def moments() -> Iterator[datetime]:
    at = NOON
    while True:
        yield at
        at += timedelta(hours=1)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the texts that were read, in their order."""
    texts, analyze = list[str](), MODULE.analyze

    def reading(text: str, *given: object, **named: object) -> object:
        texts.append(text)
        return analyze(text, *given, **named)

    monkeypatch.setattr(MODULE, "analyze", reading)
    return texts


@pytest.fixture
def analyses() -> AnalysisCache:
    return AnalysisCache(CATALOG, accepts_pattern, clock=moments().__next__, default_k=10)


@pytest.mark.parametrize("text", [PLAIN, f"EXPLAIN {PLAIN}", "SELECT country FROM countries", "SHOW TABLES"])
def test_a_statement_is_read_once(text: str, analyses: AnalysisCache, read: list[str]) -> None:
    assert analyses.read(text, ()) == analyses.read(text, []) == analyses.read(text, {})
    assert read == [text]


def test_any_other_text_is_another_statement(analyses: AnalysisCache, read: list[str]) -> None:
    texts = [
        PLAIN,
        PLAIN.lower(),
        f"{PLAIN} ",
        TOP.format("WHERE article <> 'a' "),
        TOP.format("WHERE article <> 'A' "),
    ]
    asked = [analyses.read(text, ()) for text in texts]
    assert read == texts
    assert asked[3] != asked[4]


def test_a_statement_with_parameters_says_what_they_say_each_time(analyses: AnalysisCache, read: list[str]) -> None:
    text = TOP.format("WHERE article <> ? ")
    first, second = analyses.read(text, ["a"]), analyses.read(text, ["b"])
    assert isinstance(first, PrivateQuery)
    assert isinstance(second, PrivateQuery)
    assert first.body != second.body
    with pytest.raises(Error, match=r"\[parameters\]"):
        analyses.read(text, ())
    assert len(read) == 3


def test_parameters_that_nobody_wants_are_refused_for_a_statement_that_is_known(analyses: AnalysisCache) -> None:
    analyses.read(PLAIN, ())
    for given in (["a"], {"name": 1}, "text", "", None):
        with pytest.raises(Error, match=r"\[parameters\]"):
            analyses.read(PLAIN, given)  # type: ignore[arg-type]


@pytest.mark.parametrize("moment", ["now()", "today()", "current_timestamp"])
def test_a_statement_that_asks_the_time_is_told_it_each_time(
    moment: str, analyses: AnalysisCache, read: list[str]
) -> None:
    text = TOP.format(f"WHERE ts > date_trunc('hour', {moment}::TIMESTAMP) ")
    asked = [analyses.read(text, ()) for _ in range(25)]
    assert len({str(query) for query in asked}) > 1
    assert len(read) == 50  # the second time a second later: is it another query then?


def test_a_refused_statement_is_refused_again(analyses: AnalysisCache, read: list[str]) -> None:
    for _ in range(2):
        with pytest.raises(Error, match=r"\[not-private\]"):
            analyses.read("SELECT article FROM reads", ())
    assert len(read) == 2


def test_no_more_is_kept_than_the_last_of_short_statements(analyses: AnalysisCache, read: list[str]) -> None:
    long = PLAIN + " " * MAX_STATEMENT_LENGTH
    for text in (
        long,
        long,
        *(f"{PLAIN}{' ' * at}" for at in range(MAX_STATEMENTS)),
        PLAIN,
        f"{PLAIN}  -- more",
        PLAIN,
    ):
        analyses.read(text, ())
    assert len(read) == 2 + MAX_STATEMENTS + 1 + 1
