"""Hints that are followed to the letter: the statement is then answered, or refused for another reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from support.sql_reference import analyze_unbounded, corpus_catalog, corpus_tables

from dpsql.errors import Error, Place

STATEMENTS = [json.loads(line) for line in Path(__file__).with_name("statements.jsonl").read_text().splitlines()]
# statements by the steps of a person; None is a step that `follow` makes
BY_HAND: dict[str, list[str | None]] = json.loads(Path(__file__).with_name("followed_by_hand.json").read_text())
CATALOG = corpus_catalog(corpus_tables())
NOON = datetime(2026, 4, 29, 12)  # noqa: DTZ001 - in UTC, as DuckDB's TIMESTAMP
NEWCOMERS = [
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article ORDER BY n DESC LIMIT 10",
    "SELECT article, COUNT(*) AS n FROM reads GROUP BY article ORDER BY n DESC LIMIT 10",
    "SELECT article, COUNT(*) FROM reads GROUP BY article TOP 5 PRIVATE",
    "SELECT article FROM reads GROUP BY article LIMIT 10 TOP 5 PRIVATE",
    "SELECT article FROM reads GROUP BY article TOP 5 PRIVATE (max_groups_contributed = 5)",
    "SELECT article, COUNT(DISTINCT user_id) FROM reads GROUP BY article",
    "SELECT COUNT(*) FROM reads",
    "SELECT COUNT(*) FROM raeds",
    "SELECT COUNT(DISTINCT user_id) AS n FROM reads WHERE country = 'DE'",
    "SELECT country, COUNT(DISTINCT user_id) AS n FROM reads PRIVATE",
    "SELECT COUNT(*) FROM reads PRIVATE",
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
        analyze_unbounded(text, CATALOG, clock=lambda: NOON)
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
    """Write the proposed name wherever the wrong one is: the path of a table, or the first word of the fragment."""
    path = r"[\w.]+" if error.code == "unknown-table" else r"\w+"
    wrong = re.match(path, error.place.fragment)  # type: ignore[union-attr]
    assert wrong
    return re.sub(rf"\b{re.escape(wrong[0])}\b", found[1], text)


Follow = Callable[[str, Error, re.Match[str]], str]


def everywhere(text: str, error: Error, new: str) -> str:
    """Follow a hint wherever the statement has the same fault."""
    again: Error | None = error
    while again is not None and again.hint == error.hint:
        text = swap_fragment(text, again, new)
        again = refused(text)
    return text


def from_place(text: str, error: Error) -> str:
    assert isinstance(error.place, Place)
    return text[text.index(error.place.fragment, error.place.column - 1) :]


def swap_call(text: str, error: Error, new: str) -> str:
    """Return the statement with another text in place of the call that begins at the place of the error."""
    called = re.match(r"\w+\((?:[^()]|\([^()]*\))*\)(?: OVER \([^()]*\))?", from_place(text, error))
    assert called
    return text.replace(called[0], new)


def tie(text: str, _: Error, found: re.Match[str]) -> str:
    """Return the statement with a join on the condition that the hint gives."""
    table = r"(?:CROSS JOIN|SEMI JOIN|LEFT JOIN|POSITIONAL JOIN|JOIN|,) (\w+(?: [a-z])?)"
    return re.sub(
        rf"(?: {table}|{table})(?: (?:ON|USING) .*?)?(?= GROUP BY|\) x|$)", rf" JOIN \1\2 ON {found[1]}", text
    )


def exposed(text: str, error: Error, found: re.Match[str]) -> str:
    wrong = re.match(r'"[^"]+"|[\w.]+', fragment(error))
    assert wrong
    return re.sub(rf"{re.escape(wrong[0])}(?!\w)", found[1], text)


FOLLOW: list[tuple[str, Follow]] = [
    (r"Did you mean (\S+)\?", nearest),
    (
        r"^Write (.+\)), with your own (?:bounds|number|range)",
        lambda text, error, found: swap_fragment(text, error, found[1]),
    ),
    (r"^Write (PERCENTILE_CONT.+\))(?:\.$|, which)", lambda text, error, found: swap_call(text, error, found[1])),
    (
        r"^Write (PRIVATE WITH \(max_rows_contributed = 20\))",
        lambda text, _, found: re.sub(r"PRIVATE$", found[1], text),
    ),
    (r"^Write one text for each row, such as (.+)\.$", lambda text, error, found: swap_call(text, error, found[1])),
    (
        r"End the query with (GROUP BY ALL TOP 10 PRIVATE)",
        lambda text, _, found: re.sub(r"PRIVATE$", found[1], text),
    ),
    (r"End the query with ((?:TOP 10 )?PRIVATE)\.", lambda text, _, found: f"{text.rstrip().rstrip(';')} {found[1]}"),
    (r"Write (TOP \d+ PRIVATE) in place of (LIMIT \d+)\.", lambda text, _, found: text.replace(found[2], found[1])),
    (r"Ask for (?:a total|the most frequent values of a column): (.+)", lambda _text, _, found: found[1]),
    (
        r"Write LIMIT after TOP k PRIVATE",
        lambda text, *_: re.sub(r"(LIMIT \d+) (TOP \d+ PRIVATE)", r"\2 \1", text),
    ),
    (
        r"Write (COUNT\(DISTINCT \w+\)), or COUNT\(\*\), SUM or AVG",
        lambda text, error, found: swap_call(text, error, found[1]),
    ),
    (r"Write (COUNT\(DISTINCT \w+\))[.,]", lambda text, _, found: swap_counted(text, found[1])),
    (
        r"Write (TOP \S+ PRIVATE PER \w+ WITH \(partitions = \['first', 'second'\]\))",
        lambda text, _, found: re.sub(r"TOP \S+ PRIVATE.*", found[1], text),
    ),
    (r"Quote it with double quotes", lambda text, error, _: swap_fragment(text, error, f'"{fragment(error)}"')),
    (r"Add GROUP BY and the columns", lambda text, *_: re.sub(r"(ORDER BY \w+ )?(TOP)", r"GROUP BY 1 \2", text)),
    (r"^Leave it out, or put it before TOP", lambda text, error, _: text.removesuffix(from_place(text, error))),
    (r"^Write WITH before options", lambda text, error, _: swap_fragment(text, error, "WITH (")),
    (r"Leave it out: a sample", lambda text, error, _: swap_fragment(text, error, "")),
    (r"Name the columns to group by\.", lambda text, *_: text.replace("*", "article", 1)),
    (r"Write TOP 10 PRIVATE, or", lambda text, *_: re.sub(r"TOP \S+ PRIVATE", "TOP 10 PRIVATE", text)),
    (
        r"^Write (TOP \d+ PRIVATE)\.$",
        lambda text, _, found: (
            re.sub(r"TOP \d+", found[1], text, count=1)
            if "SELECT TOP" in text
            else re.sub(r"TOP.*", found[1], text, flags=re.DOTALL)
        ),
    ),
    (r"(SHOW FUNCTIONS) lists", lambda _text, _, found: found[1]),
    (r"(SHOW TABLES) lists", lambda _text, _, found: found[1]),
    (r"^Write (?:one, such as )?(SHOW TABLES)", lambda _text, _, found: found[1]),
    (
        r"Write it with its table, such as (.+)\.",
        lambda text, error, found: re.sub(rf"\b{fragment(error)}\b", found[1], text),
    ),
    (r"Write a space in its place", lambda text, error, _: everywhere(text, error, " ")),
    (r"^Remove it\.", lambda text, *_: text.replace("\0", "")),
    (r"Leave out what is before the quote", lambda text, error, _: swap_fragment(text, error, fragment(error)[1:])),
    (r"Write (COLLATE \S+) after a key", lambda text, _, found: re.sub(r"COLLATE \w+", found[1], text)),
    (r"Send one statement at a time", lambda text, *_: text.partition(";")[0]),
    (r"The policy exposes (\w+),", exposed),
    (r"The columns here are \w+, (\w+)", lambda text, error, found: re.sub(rf"\b{fragment(error)}\b", found[1], text)),
    (r"Write JOIN ... ON (.+), joined to other conditions", tie),
    (r"Write (\S+) in its place\.", lambda text, error, found: swap_fragment(text, error, f" {found[1]} ")),
    (r"Put spaces between operators, which are", lambda text, error, _: swap_fragment(text, error, "+")),
    (r"Write it as in (.+)\.$", lambda text, _, found: re.sub(r"WITH \(.*\)$", f"WITH ({found[1]})", text)),
    (r"Set it once", lambda text, *_: re.sub(r"(epsilon=[\d.]+), epsilon=\d+", r"\1", text)),
    (r"The options are .*epsilon", lambda text, *_: re.sub(r"WITH \(.*\)$", "WITH (epsilon = 0.05)", text)),
    (r"or leave WITH out", lambda text, *_: text.replace(" WITH ()", "")),
    (
        r"Write COUNT\(DISTINCT \.\.\.\) of the privacy unit",
        lambda text, error, _: swap_call(text, error, "COUNT(DISTINCT user_id)"),
    ),
    (r"Choose another alias", lambda text, *_: text.replace("AS user_id", "AS other")),
    (
        r"Select (\w+) there too",
        lambda text, error, found: swap_fragment(text, error, f"{found[1]}, {fragment(error)}"),
    ),
    (r"Types are .*(VARCHAR)", lambda text, _, found: re.sub(r"::[A-Z]+", f"::{found[1]}", text)),
    (
        r"Select COUNT\(DISTINCT user_id\) AS n and write HAVING n >= (\d+)",
        lambda text, *_: re.sub(
            r"SELECT (.+?) FROM(.*)HAVING .*(TOP)",
            r"SELECT \1, COUNT(DISTINCT user_id) AS n FROM\2HAVING n >= 100 \3",
            text,
        ),
    ),
    (
        r"Order by an output of the query",
        lambda text, *_: re.sub(r"ORDER BY .*?(?= TOP|$)", "ORDER BY article", text),
    ),
    (r"Positions count the select list from 1", lambda text, *_: re.sub(r"GROUP BY \S+", "GROUP BY 1", text)),
    (
        r"Group by (\w+) too",
        lambda text, _, found: re.sub(
            r"(\(SELECT (?:max|count)\([^)]*\) FROM [^)]*)\)", rf"\1 GROUP BY {found[1]})", text
        ),
    ),
]


def fragment(error: Error) -> str:
    assert isinstance(error.place, Place)
    return error.place.fragment


def swap_counted(text: str, counted: str) -> str:
    return re.sub(
        r"\b(?:COUNT|count|SUM|AVG|MIN|APPROX_COUNT_DISTINCT)\((?:[^()]|\([^()]*\))*\)", counted, text, count=1
    )


def follow(text: str, error: Error) -> str | None:
    """Return the statement as the hint wants it; None for a hint that needs a person's thought."""
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
    refusals = ((statement["id"], statement["sql"], refused(statement["sql"])) for statement in STATEMENTS)
    return [pytest.param(name, text, error, id=name) for name, text, error in refusals if error is not None]


@pytest.mark.parametrize(("name", "text", "error"), corpus_refusals())
def test_every_hint_of_the_corpus_ends_in_something_that_works(name: str, text: str, error: Error) -> None:
    """At most one refusal follows, for another reason; a hint that needs a person's thought was followed by hand."""
    by_hand, first = list(BY_HAND.get(name, ())), error
    for _ in range(2):
        followed = (by_hand.pop(0) if by_hand else None) or follow(text, error)
        assert followed not in {None, text}, f"{text}: {error}"
        text = followed  # type: ignore[assignment]
        again = refused(text)
        if again is None:
            assert not by_hand
            return
        assert (again.reason, again.hint) != (first.reason, first.hint), f"{text}: {again}"
        error = again
    raise AssertionError(f"{text}: {error}")


def test_statements_followed_by_hand_are_of_the_corpus() -> None:
    assert BY_HAND.keys() <= {statement["id"] for statement in STATEMENTS}
