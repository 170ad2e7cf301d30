"""Hints that are followed to the letter: the statement is then answered, or refused for another reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sql_reference import accepts_pattern, corpus_catalog, corpus_tables

from dpsql.errors import Error, Place
from dpsql.sql.analysis.analyze import analyze

STATEMENTS = [json.loads(line) for line in Path(__file__).with_name("statements.jsonl").read_text().splitlines()]
CATALOG = corpus_catalog(corpus_tables())
NEWCOMERS = [
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article ORDER BY n DESC LIMIT 10",
    "SELECT article, COUNT(*) AS n FROM reads GROUP BY article ORDER BY n DESC LIMIT 10",
    "SELECT article, COUNT(*) FROM reads GROUP BY article TOP 5 PRIVATE",
    "SELECT article FROM reads GROUP BY article LIMIT 10 TOP 5 PRIVATE",
    "SELECT article, COUNT(DISTINCT user_id) FROM reads GROUP BY article",
    "SELECT COUNT(*) FROM reads",
    "SELECT COUNT(*) FROM raeds",
    "SELECT AVG(dwell) FROM reads WHERE country = 'DE'",
    "SELECT * FROM reads",
    "SELECT * FROM reads LIMIT 5",
    "SELECT DISTINCT article FROM reads",
    "SELECT artcle FROM reads GROUP BY artcle TOP 5 PRIVATE",
    "SELECT article FROM raeds GROUP BY article TOP 5 PRIVATE",
    "SELECT lenght(article) AS x FROM reads GROUP BY x TOP 5 PRIVATE",
    "SELECT article FROM reads GROUP BY article TOP 5 PRIVATE WITH (epsilom = 0.1)",
    "SELECT country, article FROM reads GROUP BY country, article TOP 5 PRIVATE PER country",
    "SELECT country, article FROM reads GROUP BY country, article TOP 5 PRIVATE PER contry",
    "SELECT contnent FROM countries",
    "DESCRIBE raeds",
    "SELECT article AS day FROM reads ORDER BY ts TOP 10 PRIVATE",
]


def refused(text: str) -> Error | None:
    try:
        analyze(text, CATALOG, accepts_pattern=accepts_pattern)
    except Error as error:
        return error
    return None


def swap_fragment(text: str, error: Error, new: str) -> str:
    """Return the statement with another text at the place of the error."""
    assert isinstance(error.place, Place)
    lines = text.split("\n")
    row, start = lines[error.place.line - 1], error.place.column - 1
    lines[error.place.line - 1] = row[:start] + new + row[start + len(error.place.fragment) :]
    return "\n".join(lines)


def nearest(text: str, error: Error, found: re.Match[str]) -> str:
    """Write the proposed name wherever the misspelt one, the first word of the fragment, is."""
    wrong = re.match(r"\w+", error.place.fragment)  # type: ignore[union-attr]
    assert wrong
    return re.sub(rf"\b{wrong[0]}\b", found[1], text)


Follow = Callable[[str, Error, re.Match[str]], str]
FOLLOW: list[tuple[str, Follow]] = [
    (r"Did you mean (\S+)\?", nearest),
    (r"End the query with (TOP 10 PRIVATE)\.", lambda text, _, found: f"{text.rstrip().rstrip(';')} {found[1]}"),
    (r"Write (TOP \d+ PRIVATE) in place of (LIMIT \d+)\.", lambda text, _, found: text.replace(found[2], found[1])),
    (r"Ask for the most frequent values of a column: (.+)", lambda _text, _, found: found[1]),
    (
        r"Write LIMIT after TOP k PRIVATE",
        lambda text, *_: re.sub(r"(LIMIT \d+) (TOP \d+ PRIVATE)", r"\2 \1", text),
    ),
    (r"Write (COUNT\(DISTINCT \w+\))\.", lambda text, _, found: swap_counted(text, found[1])),
    (
        r"Write (TOP \S+ PRIVATE PER \w+ WITH \(partitions = \['first', 'second'\]\))",
        lambda text, _, found: re.sub(r"TOP \S+ PRIVATE.*", found[1], text),
    ),
    (r"Quote it with double quotes", lambda text, error, _: swap_fragment(text, error, f'"{fragment(error)}"')),
    (r"Add GROUP BY and the columns", lambda text, *_: re.sub(r"(ORDER BY \w+ )?(TOP)", r"GROUP BY 1 \2", text)),
    (r"Leave it out", lambda text, error, _: swap_fragment(text, error, "")),
    (r"Name the columns to group by\.", lambda text, *_: text.replace("*", "article", 1)),
    (r"^Write TOP 10 PRIVATE\.", lambda text, *_: re.sub(r"TOP.*", "TOP 10 PRIVATE", text, flags=re.DOTALL)),
    (r"^Write one, such as (SHOW TABLES)\.", lambda _text, _, found: found[1]),
]


def fragment(error: Error) -> str:
    assert isinstance(error.place, Place)
    return error.place.fragment


def swap_counted(text: str, counted: str) -> str:
    return re.sub(r"\b(?:COUNT|count|MIN|APPROX_COUNT_DISTINCT)\((?:[^()]|\([^()]*\))*\)", counted, text, count=1)


def follow(text: str, error: Error) -> str | None:
    """Return the statement as the hint wants it; None for a hint that gives nothing to write."""
    for pattern, how in FOLLOW:
        found = re.search(pattern, error.hint)
        if found:
            return how(text, error, found)
    return None


@pytest.mark.parametrize("text", NEWCOMERS)
def test_a_newcomers_statement_is_answered_after_at_most_two_hints(text: str) -> None:
    for _ in range(2):
        error = refused(text)
        assert error is not None
        followed = follow(text, error)
        assert followed is not None, error
        assert followed != text, error
        text = followed
        again = refused(text)
        if again is None:
            return
        assert again.reason != error.reason, text
    raise AssertionError(refused(text))


def corpus_refusals() -> list[pytest.param]:
    found = []
    for statement in STATEMENTS:
        error = refused(statement["sql"])
        if error is not None and follow(statement["sql"], error) not in {None, statement["sql"]}:
            found.append(pytest.param(statement["sql"], error, id=statement["id"]))
    return found


@pytest.mark.parametrize(("text", "error"), corpus_refusals())
def test_a_hint_of_the_corpus_leads_on(text: str, error: Error) -> None:
    followed = follow(text, error)
    assert followed is not None
    again = refused(followed)
    assert again is None or (again.reason, again.place) != (error.reason, error.place), f"{followed}: {again}"


def test_enough_hints_are_followed() -> None:
    assert len(corpus_refusals()) >= 45
