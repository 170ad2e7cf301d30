"""Hostile text: whatever is sent, analysis answers with a private query or a `dpsql.Error`, in good time.

What is accepted becomes one SELECT over declared tables, calls qualified functions of the allow-list, and carries no
text of the analyst's but output names, which are not part of it.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.sql_reference import LONGEST, accepts_pattern, corpus_catalog, corpus_tables, strip_clause

from dpsql.errors import Error
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, EngineQuery, rewrite_leaders

CORPUS = Path(__file__).parents[2] / "properties" / "attacks" / "statements.jsonl"
TEXTS = [text for line in CORPUS.read_text().splitlines() if len(text := json.loads(line)["sql"]) < 3_000]
CON = corpus_tables()
TABLES = {"reads", "likes", "users", "countries", "articles"}
CATALOG = corpus_catalog(CON)
TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\w+|\s+|\S")
TOKENS = [found for text in TEXTS if (found := TOKEN.findall(text))]
ALL = [token for tokens in TOKENS for token in tokens]
ODD = [
    *"\x00\x1f\x85\u00a0\u200b\u2028\ufeff\u0130\u212a\u017f\U0001f600\ud800`'\"$?:;{}[]()\\\r\n\t%#@~^&|!<>=.,0e_",
    "--",
    "/*",
    "*/",
    "{#",
    "E'",
    "$$",
]
MARK = "zqxmark"
KNOWN_FUNCTIONS = re.compile(r"system\.main\.([a-z_0-9]+)\(|(?<![\w.])([a-z_0-9]+)\(", re.IGNORECASE)
CONSTRUCTS = {
    "CAST",
    "TRY_CAST",
    "TRY",
    "IN",
    "FROM",
    "WHERE",
    "AND",
    "OR",
    "NOT",
    "ON",
    "COALESCE",
    "OVER",
    "JOIN",
    "SELECT",
    "BETWEEN",
    "LIKE",
    "ILIKE",
    "WHEN",
    "THEN",
    "ELSE",
    "CASE",
    "ROW_NUMBER",
    "DECIMAL",
    "BY",
    "MATERIALIZED",
    "USING",
}
BARE_UNITS = {
    "decade",
    "minutes",
    "decades",
    "minute",
    "day",
    "days",
    "month",
    "year",
    "hour",
    "second",
    "week",
    "quarter",
}


def outcome(text: str) -> PrivateQuery | None:
    """Return the private query or None for a refusal; any other exception, or a long wait, fails the test."""
    started = time.process_time()
    query, refusal = None, None
    try:
        query = analyze(text, CATALOG, accepts_pattern=accepts_pattern)
    except Error as error:
        refusal = error
    assert refusal is None or (refusal.code and refusal.reason)
    assert time.process_time() - started < LONGEST
    return query if isinstance(query, PrivateQuery) else None


def check_generated(counting: EngineQuery) -> None:
    sql = counting.sql
    (statement,) = duckdb.extract_statements(sql)
    assert statement.type == duckdb.StatementType.SELECT
    bindable = re.sub(r"\$[0-9]+|CAST\(\$[0-9]+ AS [^)(]*(\([0-9,]+\))?\)", "NULL", sql).replace(" COLLATE C", "")
    assert {name.rsplit(".", 1)[-1].strip('"') for name in CON.get_table_names(bindable)} <= TABLES
    assert "--" not in sql
    assert "/*" not in sql
    assert "'" not in sql
    assert sql.isascii()
    for qualified, bare in KNOWN_FUNCTIONS.findall(re.sub(r'"[^"]*"| AS t[0-9]+\(c1\)', "x", sql)):
        assert qualified or bare.upper() in CONSTRUCTS, bare
    CON.execute(sql, list(counting.parameters)).fetchall()


def check_parsed_alike(text: str) -> None:
    """What dpsql accepts, DuckDB's own parser accepts too, once the clause is cut out."""
    fault = ""
    try:
        duckdb.extract_statements(strip_clause(text))
    except duckdb.ParserException as error:
        fault = str(error).split('near "')[-1].split('"')[0].lower()
    assert not fault or fault in BARE_UNITS, text  # DuckDB wants AS before such a name


def check(text: str) -> bool:
    query = outcome(text)
    if query is None:
        return False
    query = replace(query, item_salts=(3, 4))
    check_generated(rewrite_leaders(query, 10))
    for groups in (1, 2, 20):
        check_generated(rewrite_leaders(query, 10, bound=Bound(groups, (1, 2))))
    check_parsed_alike(text)
    return True


def mutated(random: Random) -> str:
    tokens = list(random.choice(TOKENS))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(tokens) + 1)
        match random.randrange(7):
            case 0 if tokens:
                tokens.pop(min(at, len(tokens) - 1))
            case 1:
                tokens.insert(at, random.choice(ALL))
            case 2 if len(tokens) > 1:
                first, second = random.sample(range(len(tokens)), 2)
                tokens[first], tokens[second] = tokens[second], tokens[first]
            case 3:
                tokens.insert(at, random.choice(ODD))
            case 4:
                other = random.choice(TOKENS)
                start = random.randrange(len(other))
                tokens[at:at] = other[start : start + random.randint(1, 6)]
            case _ if tokens:
                tokens[min(at, len(tokens) - 1)] = random.choice(ALL)
    return "".join(tokens)


@settings(max_examples=examples(60), deadline=None)
@example(186_762_903_079_297)
@given(st.integers(0, 2**63))
def test_mutated_statements(seed: int) -> None:
    random = Random(seed)
    for _ in range(100):
        check(mutated(random))


@settings(max_examples=examples(150), deadline=None)
@given(st.randoms(use_true_random=False))
def test_shuffled_statements(random: Random) -> None:
    tokens = list(random.choice(TOKENS))
    random.shuffle(tokens)
    check(" ".join(tokens))


@settings(max_examples=examples(300), deadline=None)
@given(
    st.text(max_size=60),
    st.sampled_from(
        [
            "@",
            "SELECT article FROM reads WHERE @ GROUP BY article TOP 10 PRIVATE",
            "SELECT article AS @ FROM reads GROUP BY 1 TOP 3 PRIVATE",
            "SELECT article FROM reads GROUP BY article TOP 10 PRIVATE @",
        ]
    ),
)
def test_random_unicode(text: str, around: str) -> None:
    check(around.replace("@", text))


@settings(max_examples=examples(300), deadline=None)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
def test_a_string_arrives_as_it_was_written_and_only_as_a_parameter(value: str) -> None:
    value = MARK + value
    written = value.replace("'", "''")
    where = f"article <> '{written}' OR country LIKE '{MARK}%'"
    query = outcome(f'SELECT article AS "{MARK}" FROM reads WHERE {where} GROUP BY article TOP 10 PRIVATE')
    assert query is not None
    counting = rewrite_leaders(query, 10)
    check_generated(counting)
    assert MARK not in counting.sql
    assert counting.parameters == (value, f"{MARK}%")
    assert MARK not in repr(counting)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("E'a\\tb\\'c''d\\\\'", "a\tb'c'd\\"),
        ("$$a'b$$", "a'b"),
        ("$tag$a$$b$tag$", "a$$b"),
        ("'-- no comment'", "-- no comment"),
        ("'/* \u00a0 */'", "/* \u00a0 */"),
    ],
)
def test_every_kind_of_string_is_decoded_as_duckdb_does(written: str, value: str) -> None:
    assert duckdb.execute(f"SELECT {written}").fetchall() == [(value,)] or "\u00a0" in value
    query = outcome(f"SELECT article FROM reads WHERE article = {written} GROUP BY article TOP 10 PRIVATE")
    assert query is not None
    assert rewrite_leaders(query, 10).parameters == (value,)


def around(condition: str, key: str = "article") -> str:
    return f"SELECT {key} AS k FROM reads WHERE {condition} GROUP BY k TOP 10 PRIVATE"


SUBQUERY = "SELECT topic FROM articles WHERE topic IN (" + ", ".join(["'a'"] * 600) + ")"
LARGE = {
    "parentheses": around("(" * 900 + "TRUE" + ")" * 900),
    "nots": around("NOT " * 1_900 + "TRUE"),
    "ors": around(" OR ".join(["dwell = 1"] * 450)),
    "many ors": around(" OR ".join(["dwell = 1"] * 1_500)),
    "ands of ors": around(" AND ".join(["(dwell = 1 OR TRUE)"] * 150)),
    "additions": around(" + ".join(["1"] * 900) + " = 1"),
    "casts": around("1" + "::INT" * 900 + " = 1"),
    "minuses": around("- " * 900 + "1 = 1"),
    "cases": around("TRUE", "CASE WHEN TRUE THEN " * 250 + "1" + " END" * 250),
    "simple cases": around("TRUE", "CASE " * 15 + "dwell" + " WHEN 1 THEN 1 WHEN 2 THEN 2 END" * 15),
    "nullifs": around("TRUE", "nullif(" * 28 + "dwell" + ", 1)" * 28),
    "nullifs of a subquery": around("TRUE", "nullif(" * 8 + f"(article IN ({SUBQUERY}))" + ", TRUE)" * 8),
    "cases of a subquery": around("TRUE", f"CASE (article IN ({SUBQUERY})) " + "WHEN TRUE THEN 1 " * 200 + "END"),
    "subqueries in subqueries": around("article IN (SELECT country FROM countries WHERE " * 60 + "TRUE" + ")" * 60),
    "choices": around("dwell IN (" + ", ".join(["1"] * 990) + ")"),
    "too many choices": around("dwell IN (" + ", ".join(map(str, range(3_000))) + ")"),
    "calls": around("abs(" * 400 + "dwell" + ")" * 400 + " = 1"),
    "concatenations": around("TRUE", " || ".join(["article"] * 400)),
    "subqueries": "SELECT article FROM "
    + "(SELECT user_id, article FROM " * 60
    + "reads"
    + ") AS t" * 60
    + " GROUP BY article TOP 10 PRIVATE",
    "joins": "SELECT 1 AS k FROM reads"
    + "".join(f" CROSS JOIN articles AS a{at}" for at in range(200))
    + " GROUP BY k TOP 10 PRIVATE",
    "keys": "SELECT "
    + ", ".join(f"dwell + {at} AS k{at}" for at in range(200))
    + " FROM reads GROUP BY ALL TOP 10 PRIVATE",
    "digits": around("dwell = " + "9" * 9_000),
    "decimals": around("dwell = 0." + "9" * 9_000),
    "exponents": around("dwell = 1e" + "9" * 3_000),
    "positions": "SELECT article FROM reads GROUP BY " + "9" * 9_000 + " TOP 10 PRIVATE",
    "limits": "SELECT article FROM reads GROUP BY article TOP 10 PRIVATE LIMIT " + "9" * 9_000,
    "k": "SELECT article FROM reads GROUP BY article TOP " + "9" * 9_000 + " PRIVATE",
    "option": "SELECT article FROM reads GROUP BY article TOP 9 PRIVATE WITH (epsilon = 1e" + "9" * 9_000 + ")",
    "type sizes": around("dwell::DECIMAL(" + "9" * 9_000 + ") = 1"),
    "names": around("TRUE", "a" * 15_000),
    "comments": around("TRUE " + "/* */" * 3_000),
    "open comments": around("TRUE " + "/*" * 7_000),
    "open strings": around("'" * 8_001),
    "brackets": "SELECT article FROM reads GROUP BY article TOP 9 PRIVATE WITH (domain = "
    + "[" * 900
    + "]" * 900
    + ")",
    "text": around("article <> '" + "x" * 70_000 + "'"),
    "wildcards": around("article LIKE '" + "%a" * 7_000 + "'"),
    "patterns": around("regexp_matches(article, '" + "(a?){100}" * 25 + "')"),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_is_large_is_refused_or_answered_soon(name: str) -> None:
    started = time.process_time()
    query = outcome(LARGE[name])
    if query is not None:
        counting = rewrite_leaders(query, 10)
        assert len(counting.sql) < 50 * len(LARGE[name]) + 5_000
        CON.execute(counting.sql, list(counting.parameters)).fetchall()
    assert time.process_time() - started < LONGEST


def test_sizes_that_an_analyst_writes_are_answered() -> None:
    for name in ("ors", "choices"):
        assert outcome(LARGE[name]) is not None


@pytest.mark.parametrize("not_text", [None, 7, b"SELECT 1", ["SELECT"]])
def test_what_is_no_text_is_refused(not_text: object) -> None:
    assert outcome(not_text) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "WITH r AS (SELECT * FROM reads) \u017fELECT article FROM r GROUP BY article TOP 3 PRIVATE",
        "SELECT article FROM reads cro\u00df JOIN countries GROUP BY article TOP 3 PRIVATE",
        "SELECT article a\u017f k FROM reads GROUP BY article TOP 3 PRIVATE",
    ],
)
def test_only_the_letters_of_ascii_make_a_keyword(text: str) -> None:
    assert outcome(text) is None
    assert outcome(text.replace("\u017f", "s").replace("\u00df", "ss")) is not None


@pytest.mark.parametrize("between", ["/**/", " -- it's\n", " /* BY */ \t"])
def test_a_comment_may_stand_wherever_a_space_may(between: str) -> None:
    query = outcome(f"SELECT article FROM reads GROUP{between}BY article TOP 3 PRIVATE ORDER{between}BY article")
    assert query is not None
    assert query.order
