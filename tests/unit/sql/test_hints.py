"""Hints that are followed: what a refusal says to write is written, and no other fault comes to light that was there.

Each statement of the refused fixtures and of the hostile corpus is refused, with its clause and without it. Where the
hint has text to paste, that text is put in its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from support.sql_golden import load
from support.sql_reference import NOON, accepts_pattern, catalog_of, corpus_catalog, corpus_tables, nasty_tables

from dpsql.engines.duckdb.evaluator import DuckDBEvaluator
from dpsql.errors import Error, Place
from dpsql.plan import EvaluatorParser
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.measures import SPREADS
from dpsql.sql.syntax.block import EVERY_AGGREGATE
from dpsql.sql.syntax.forms import CONDITIONAL_CALLS

CORPUS = Path(__file__).parents[2] / "properties" / "attacks" / "statements.jsonl"
CLAUSE = re.compile(r"\s*\b(?:TOP (?:\d+|ADAPTIVE) |ALL )?PRIVATE\b(?: WITH \([^)]*\))?")
N = "COUNT(DISTINCT user_id) AS n"
RELEASED = {"count", "approx_count_distinct", "sum", "avg", "median", "grouping", "grouping_id"}
CALLS = [
    *(f"{name}(dwell)" for name in sorted(EVERY_AGGREGATE - RELEASED - CONDITIONAL_CALLS - SPREADS.keys())),
    "percentile_cont(1) WITHIN GROUP (ORDER BY dwell)",
    "MEDIAN(DISTINCT dwell) FILTER (WHERE dwell > 1)",
    "APPROX_QUANTILES(dwell, 4)",
    "COUNT(DISTINCT country, dwell)",
    "SUM(DISTINCT dwell)",
]
WRITTEN = [
    *(f"SELECT country, {call} AS x FROM reads GROUP BY country" for call in CALLS),
    *(f"SELECT {call} AS x FROM reads" for call in CALLS),
    f"SELECT country, {N} FROM reads GROUP BY ROLLUP (country)",
    f"SELECT country, {N} FROM reads GROUP BY country WITH ROLLUP",
    f"SELECT country, {N} FROM reads GROUP BY country QUALIFY row_number() OVER (ORDER BY n) = 1",
    f"SELECT country, {N} FROM reads GROUP BY country FETCH FIRST 3 ROWS ONLY",
    f"SELECT * FROM (SELECT country, {N} FROM reads GROUP BY country) AS q WHERE n > 3",
    f"SELECT * FROM (SELECT country, {N} FROM reads GROUP BY country LIMIT 3) AS q",
    "SELECT country, COUNT(DISTINCT userid) AS n FROM reads GROUP BY country",
    f"SELECT contry, {N} FROM reads GROUP BY contry",
    "SELECT r.country, COUNT(DISTINCT r.userid) AS n FROM reads r GROUP BY 1",
    f"SELECT country, {N} FROM reeds GROUP BY country",
    f"SELECT country, {N} FROM raeds GROUP BY country",
    f"SELECT country, {N} FROM READ GROUP BY country",
    f'SELECT country, {N} FROM reads WHERE country = "DE" GROUP BY country',
    f"WITH a AS (SELECT user_id, country AS land FROM reads) SELECT lnad, {N} FROM a GROUP BY 1",
    "SELECT r.country, COUNT(DISTINCT r.user_id) AS n FROM reads r JOIN likes l ON r.article = l.article GROUP BY 1",
    "SELECT r.country, COUNT(DISTINCT r.user_id) AS n FROM reads r, likes l, users u GROUP BY 1",
]
AFTER_ON = re.compile(r"\b(?:WHERE|GROUP|JOIN|LEFT|RIGHT|FULL|CROSS|SEMI|ANTI)\b")
PARTS = 8  # of the statements, so that several processes share them
LEFT_OUT = {
    "decode",  # a name near to that of a function is a guess
    "5!",  # no operand is negated
    "AT (",
    "article)",  # has two faults of grammar
    "ORDER BY (SELECT max",  # which of the two aggregates is meant is a guess
}


@cache
def catalogs() -> tuple[Catalog, Catalog]:
    nasty = catalog_of(nasty_tables(empty=True), {"nasty": "unit"}, ["public", "names"])
    return corpus_catalog(corpus_tables()), nasty


def list_statements() -> Iterator[tuple[str, int]]:
    corpus = [json.loads(line)["sql"] for line in CORPUS.read_text().splitlines()]
    names = ("analyze", "canonical", "rewrite", "total")
    nasty = [case.given for name in names for case in (*load(name), *load(f"{name}__refused"))]
    for texts, number in ((WRITTEN, 0), (corpus, 0), (nasty, 1)):
        for text in texts:
            if len(text) < 3_000:
                yield text, number
                yield CLAUSE.sub("", text), number


@pytest.fixture(scope="module")
def parser() -> Iterator[EvaluatorParser]:
    with closing(DuckDBEvaluator()) as evaluator:
        yield EvaluatorParser(evaluator)


def find_refusal(text: str, number: int, parser: EvaluatorParser) -> Error | None:
    try:
        analyze(text, catalogs()[number], accepts_pattern=accepts_pattern, clock=lambda: NOON, parser=parser)
    except Error as error:
        return error
    return None


def put(text: str, place: Place, new: str) -> str:
    """Return a text with other words in place of a fragment."""
    start = sum(len(line) + 1 for line in text.split("\n")[: place.line - 1]) + place.column - 1
    return text[:start] + new + text[start + len(place.fragment) :]


def replace_condition(text: str, condition: str) -> str:
    """Return a text with another condition behind its only ON."""
    start = end = re.search(r"\bON\b", text).end()  # type: ignore[union-attr]
    depth = 0
    while end < len(text) and depth >= 0 and not (not depth and AFTER_ON.match(text, end)):
        depth += (text[end] == "(") - (text[end] == ")")
        end += depth >= 0
    return f"{text[:start]} {condition} {text[end:]}"


def follow(text: str, refused: Error) -> str | None:
    """Return the statement that a hint says to write, None where it has no text to paste."""
    hint, place, found = refused.hint or "", refused.place, text.rstrip().rstrip(";")
    if whole := re.search(r"(?:^|: )(SELECT .* PRIVATE\b[^.]*)$", hint):
        return whole[1]
    if isinstance(place, Place) and "…" not in place.fragment:
        near, text_ = re.search(r"Did you mean (\S+)\?", hint), re.search(r"write ('.*') for text", hint)
        if near:
            found = put(found, place, re.sub(r'["\w]+$', near[1], place.fragment))
        elif text_:
            found = put(found, place, text_[1])
    joins = re.search(r"Write JOIN \.\.\. ON (.*), joined to", hint)
    if joins and len(re.findall(r"\bON\b", text)) == 1:
        found = replace_condition(found, joins[1])
    tied = re.search(r"Write WHERE (.*), joined to", hint)
    if tied and " WHERE " not in text:
        found = found.replace(" GROUP BY", f" WHERE {tied[1]} GROUP BY", 1)
    if limit := re.search(r"Write (TOP \d+ PRIVATE) in place of (.*?)(?: in the (?:inner )?query.*)?\.?$", hint):
        found = found.replace(limit[2], limit[1], 1)
    elif ending := re.search(r"End the (inner )?query with ((?:GROUP BY ALL )?(?:TOP \d+ |ALL )?PRIVATE)\b", hint):
        inner = found.rpartition(")") if ending[1] else (found, "", "")
        found = f"{inner[0]} {ending[2]}{inner[1]}{inner[2]}"
    return None if found == text.rstrip().rstrip(";") else found


@pytest.mark.parametrize("part", range(PARTS))
def test_hints_that_are_followed_lead_to_no_other_refusal(part: int, parser: EvaluatorParser) -> None:
    statements = list(dict.fromkeys(list_statements()))[part::PARTS]
    followed = 0
    for text, number in statements:
        refused = find_refusal(text, number, parser)
        written = None if refused is None else follow(text, refused)
        if refused is None or written is None or any(each in text for each in LEFT_OUT):
            continue
        followed += 1
        again = find_refusal(written, number, parser)
        assert again is None or (again.code, again.reason) == (refused.code, refused.reason), (text, written, again)
    assert followed > len(statements) // 6


@pytest.mark.parametrize("call", CALLS)
def test_an_aggregate_that_is_not_released_is_the_reason(call: str, parser: EvaluatorParser) -> None:
    for text in (f"SELECT country, {call} AS x FROM reads GROUP BY country", f"SELECT {call} AS x FROM reads"):
        refused = find_refusal(text, 0, parser)
        assert refused is not None
        assert refused.code in {"not-row-local", "aggregate"}


BY_COUNTRY = f"SELECT country, {N} FROM reads GROUP BY country"
FOLLOWED = [  # a statement, words of its hint, and the statement as the hint has it
    (f"{BY_COUNTRY} ORDER BY n LIMIT 7 PRIVATE", "TOP 7 PRIVATE ORDER BY n,", f"{BY_COUNTRY} TOP 7 PRIVATE ORDER BY n"),
    (
        "SELECT country, COUNT(*) FROM reads GROUP BY country ORDER BY COUNT(*) LIMIT 7 PRIVATE",
        "TOP 7 PRIVATE ORDER BY COUNT(*),",
        "SELECT country, COUNT(*) FROM reads GROUP BY country TOP 7 PRIVATE ORDER BY COUNT(*)",
    ),
    (
        f"{BY_COUNTRY} HAVING n < 9 ORDER BY n DESC LIMIT 7 PRIVATE",
        "SELECT * FROM (... TOP 7 PRIVATE) AS t WHERE ...",
        f"SELECT * FROM ({BY_COUNTRY} TOP 7 PRIVATE) AS t WHERE n < 9",
    ),
    *(
        (
            f"{BY_COUNTRY} TOP 7 PRIVATE {words}",
            f"TOP 7 PRIVATE WITH ({option})",
            f"{BY_COUNTRY} TOP 7 PRIVATE WITH ({option})",
        )
        for option in ("epsilon = 0.1", "epsilon = 0.1, mechanism = 'joint'")
        for words in (f"WITH {option}", option, f"({option})")
    ),
    (
        f"{BY_COUNTRY} TOP 7 PRIVATE WHERE dwell > 1",
        "before GROUP BY",
        f"{BY_COUNTRY.replace(' GROUP', ' WHERE dwell > 1 GROUP')} TOP 7 PRIVATE",
    ),
    (f"{BY_COUNTRY} TOP 7 PRIVAT", "Write TOP 7 PRIVATE.", f"{BY_COUNTRY} TOP 7 PRIVATE"),
    (f"{BY_COUNTRY} PRIVATE TOP 7", "Write TOP 7 PRIVATE.", f"{BY_COUNTRY} TOP 7 PRIVATE"),
    (f"{BY_COUNTRY} PRIVATE LIMIT 7", "Write TOP 7 PRIVATE,", f"{BY_COUNTRY} TOP 7 PRIVATE"),
    (
        BY_COUNTRY.replace("SELECT", "SELECT TOP 7"),
        "Write TOP 7 PRIVATE.",
        BY_COUNTRY.replace("SELECT", "SELECT TOP 7 PRIVATE"),
    ),
    (
        f"{BY_COUNTRY.replace('SELECT', 'SELECT TOP 7')} PRIVATE",
        "Write TOP 7 PRIVATE. Leave PRIVATE out at the end.",
        BY_COUNTRY.replace("SELECT", "SELECT TOP 7 PRIVATE"),
    ),
    (f"{BY_COUNTRY} TOP 0 PRIVAT", "Write TOP 10 PRIVATE.", f"{BY_COUNTRY} TOP 10 PRIVATE"),
    *(
        (f"{BY_COUNTRY.replace(',', '')} {end}", "Write a comma behind country.", f"{BY_COUNTRY} {end}")
        for end in ("TOP 7 PRIVATE", "ORDER BY n DESC LIMIT 7 PRIVATE")
    ),
    *(
        (
            f"{BY_COUNTRY.replace('GROUP', f'WHERE dwell > 1 AND {call} > 3 GROUP')} TOP 7 PRIVATE",
            f"HAVING {call} >= 100.",
            f"{BY_COUNTRY.replace('GROUP', 'WHERE dwell > 1 GROUP')} HAVING {call} >= 100 TOP 7 PRIVATE",
        )
        for call in ("COUNT(*)", "COUNT(DISTINCT user_id)", "SUM(dwell)")
    ),
    (
        "SELECT month(ts) AS m, COUNT(*) FROM reads GROUP BY m ALL PRIVATE WITH (domain = [1, 2, -3])",
        "domain = ['1', '2', '-3'].",
        "SELECT month(ts) AS m, COUNT(*) FROM reads GROUP BY m ALL PRIVATE WITH (domain = ['1', '2', '-3'])",
    ),
    *(
        (
            f"SELECT {name}({column}) FROM reads PRIVATE",
            f"Write {name}({value}, contribution_bounds_per_{of} => (0, {most}))",
            f"SELECT {name}({value}, contribution_bounds_per_{of} => (0, {most})) FROM reads PRIVATE",
        )
        for name, of in (("AVG", "group"), ("SUM", "group"), ("STDDEV", "row"))
        for column, value, most in (
            ("article", "CAST(article AS DOUBLE)", 500),
            ("ts", "date_diff('day', DATE '2026-01-01', ts)", 365),
        )
    ),
]


@pytest.mark.parametrize(("text", "words", "written"), FOLLOWED)
def test_a_hint_has_what_was_written_and_works(text: str, words: str, written: str, parser: EvaluatorParser) -> None:
    refused = find_refusal(text, 0, parser)
    assert refused is not None
    assert words in (refused.hint or "")
    assert find_refusal(written, 0, parser) is None
