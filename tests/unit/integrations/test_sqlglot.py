"""The dialect for sqlglot: what tools read and write again with it is the same question to dpsql."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

import pytest
import sqlglot
from sqlglot.errors import ParseError
from support.sql_reference import NOON, accepts_pattern, corpus_catalog, corpus_tables, select_parser

from dpsql.errors import Error, Place
from dpsql.integrations.sqlglot import Dpsql
from dpsql.sql.analysis.analyze import analyze

ROOT = Path(__file__).parents[3]
SUPERSETS = "28.10.*"
CATALOG = corpus_catalog(corpus_tables())
POSTGRESQLS = """SELECT article FROM reads
WHERE ts >= TO_TIMESTAMP('2026-02-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')
AND ts < to_date('2026-03-01', 'YYYY-MM-DD') GROUP BY article TOP 10 PRIVATE"""
AGAIN = """
import json, sys
import sqlglot
from dpsql.integrations.sqlglot import Dpsql

def again(sql):
    try:
        (tree,) = sqlglot.parse(sql, read="dpsql")
    except (sqlglot.errors.SqlglotError, RecursionError):
        return []
    return [tree.copy().sql("dpsql"), tree.sql("dpsql", pretty=True)]

json.dump({"version": sqlglot.__version__, "again": [again(sql) for sql in json.load(sys.stdin)]}, sys.stdout)
"""


def meaning(value: object) -> object:
    """Return all of a query but its text and the places in it."""
    if isinstance(value, Place):
        return None
    if is_dataclass(value):
        kept = (field.name for field in fields(value) if field.name != "text")
        return type(value).__name__, *((name, meaning(getattr(value, name))) for name in kept)
    if isinstance(value, list | tuple):
        return [meaning(part) for part in value]
    return sorted((key, meaning(part)) for key, part in value.items()) if hasattr(value, "items") else repr(value)


def asked(sql: str) -> object:
    return meaning(analyze(sql, CATALOG, accepts_pattern=accepts_pattern, clock=lambda: NOON))


@cache
def accepted() -> dict[str, object]:
    """Return what is asked by every statement that is accepted, of the documentation and of the corpus."""
    corpus = (ROOT / "tests" / "properties" / "attacks" / "statements.jsonl").read_text().splitlines()
    pages = sorted((ROOT / "docs" / "reference" / "sql").glob("*.md"))
    texts = [text for page in pages for text in re.findall(r"```sql\n(.*?)```", page.read_text(), re.DOTALL)]
    texts += [json.loads(line)["sql"] for line in corpus if json.loads(line)["expect"] != "reject"]
    texts = [text for text in texts if "SELECT WITH DIFFERENTIAL_PRIVACY" not in text]  # sqlglot cannot read it
    texts.append(POSTGRESQLS)
    found = {}
    for text in texts:
        try:
            found[text] = asked(text)
        except Error:
            continue
    return found


@pytest.fixture(scope="module")
def older(pytestconfig: pytest.Config) -> Path:
    """Return a folder with the release of sqlglot that Apache Superset wants, without its compiled half."""
    folder = pytestconfig.cache.mkdir("sqlglot-of-superset")
    if not (folder / "sqlglot").exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        outside = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
        done = subprocess.run([*pip, f"sqlglot=={SUPERSETS}"], check=False, capture_output=True, env=outside)
        if done.returncode:
            pytest.skip(f"sqlglot {SUPERSETS} cannot be installed here")
    return folder


def written_by(folder: Path | None, texts: list[str]) -> dict[str, list[str]]:
    """Return the texts that a process makes of each, compact and pretty, with the sqlglot of the folder."""
    path = os.pathsep.join(map(str, filter(None, [folder, ROOT])))
    process = subprocess.run(
        [sys.executable, "-c", AGAIN],
        check=True,
        capture_output=True,
        input=json.dumps(texts).encode(),
        env={**os.environ, "PYTHONPATH": path},
    )
    body = json.loads(process.stdout)
    assert body["version"].startswith("28.10." if folder else "30.")
    return dict(zip(texts, body["again"], strict=True))


def check_same_questions(folder: Path | None, *, may_fail: int) -> None:
    questions = accepted()
    assert len(questions) > 130
    assert POSTGRESQLS in questions
    written = written_by(folder, list(questions))
    assert sum(not texts for texts in written.values()) <= may_fail
    for text, texts in written.items():
        for again in texts:
            assert asked(again) == questions[text], again


def test_what_is_accepted_is_the_same_question_when_it_is_written_anew() -> None:
    check_same_questions(None, may_fail=0)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("PERCENTILE_CONT(0.2) WITHIN GROUP (ORDER BY dwell DESC)", "PERCENTILE_CONT(dwell, 0.8)"),
        ("PERCENTILE_DISC(0.2) WITHIN GROUP (ORDER BY (dwell + 1))", "PERCENTILE_DISC((dwell + 1), 0.2)"),
        ("MEDIAN(dwell) FILTER(WHERE dwell > 1)", "MEDIAN(dwell) FILTER(WHERE dwell > 1)"),
        ("APPROX_QUANTILES(dwell, 4)[OFFSET(2)]", "APPROX_QUANTILES(dwell, 4)[OFFSET(2)]"),
    ],
)
def test_a_quantile_stays_one(text: str, written: str) -> None:
    (tree,) = Dpsql().parse(f"SELECT {text} AS q FROM reads PRIVATE")
    assert Dpsql().generate(tree) == f"SELECT {written} AS q FROM reads PRIVATE"


@pytest.mark.server  # a client in a Python of its own
def test_also_with_the_sqlglot_of_superset(older: Path) -> None:
    check_same_questions(older, may_fail=1)  # it cannot read E'\\''


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT article FROM reads GROUP BY article TOP 10 PRIVATE",
        "SELECT article FROM reads GROUP BY article TOP ADAPTIVE PRIVATE",
        "SELECT TOP 10 PRIVATE article FROM reads GROUP BY article WITH (epsilon = 0.05)",
        "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 9 PRIVATE ORDER BY n",
        "SELECT country, article FROM reads GROUP BY ALL TOP 10 PRIVATE PER country WITH (partitions = ['DE', 'FR'])",
    ],
)
def test_a_limit_that_a_tool_adds_cuts_the_released_rows(sql: str) -> None:
    limited = sqlglot.parse_one(sql, read="dpsql").limit(7).sql("dpsql")
    assert limited.endswith(("LIMIT 7", "LIMIT 7 WITH (epsilon = 0.05)")) or "WITH (epsilon = 0.05) LIMIT 7" in limited
    found = analyze(limited, CATALOG, accepts_pattern=accepts_pattern)
    assert found.limit == 7
    plain = analyze(sql, CATALOG, accepts_pattern=accepts_pattern)
    assert (found.clause.k, found.clause.options.keys()) == (plain.clause.k, plain.clause.options.keys())


def test_a_limit_that_was_put_before_the_clause_comes_after_it() -> None:
    sql = "SELECT article FROM reads GROUP BY article LIMIT 7 TOP 10 PRIVATE WITH (epsilon = 0.05)"
    assert sqlglot.transpile(sql, "dpsql", "dpsql") == [
        "SELECT article FROM reads GROUP BY article TOP 10 PRIVATE WITH (epsilon = 0.05) LIMIT 7"
    ]


def test_a_tool_may_wrap_a_private_query() -> None:
    inner = sqlglot.parse_one("SELECT country FROM reads GROUP BY country TOP 10 PRIVATE", read="dpsql")
    wrapped = sqlglot.select("*").from_(inner.subquery("virtual_table")).limit(1001).sql("dpsql")
    assert wrapped == (
        "SELECT * FROM (SELECT country FROM reads GROUP BY country TOP 10 PRIVATE) AS virtual_table LIMIT 1001"
    )
    assert analyze(wrapped, CATALOG, accepts_pattern=accepts_pattern, parser=select_parser())


@pytest.mark.parametrize(
    "sql",
    [
        "SHOW BUDGET",
        "SHOW TABLES",
        "DESCRIBE reads",
        "EXPLAIN SELECT TOP 3 PRIVATE lower(article) AS a FROM reads GROUP BY a WITH (epsilon = 0.05)",
        "EXPLAIN SELECT article FROM reads GROUP BY article TOP 3 PRIVATE",
    ],
)
def test_what_is_no_select_stays_as_it_is(sql: str) -> None:
    assert sqlglot.parse_one(sql, read="dpsql").sql("dpsql", pretty=True) == sql


@pytest.mark.parametrize("key", ["- ~age", "~ -age", "~ ~age", "~(- ~age)", "- -age", "age - ~age", "-(~age)"])
def test_signs_one_after_another_stay_two(key: str) -> None:
    sql = f"SELECT {key} AS k FROM users GROUP BY {key} TOP 9 PRIVATE"
    assert asked(sqlglot.parse_one(sql, read="dpsql").sql("dpsql")) == asked(sql)


def test_functions_keep_their_names() -> None:
    sql = "SELECT date_trunc('week', ts) AS w, strpos(article, 'x') AS p FROM reads GROUP BY ALL TOP 9 PRIVATE"
    assert sqlglot.parse_one(sql, read="dpsql").sql("dpsql", normalize_functions=False) == sql
    assert "STRPOS(article, 'x')" in sqlglot.parse_one(sql, read="dpsql").sql("dpsql")


@pytest.mark.parametrize("measure", ["SUM(x, {})", "AVG(x, {})", "COUNT(*, {})", "COUNT(x, {})"])
def test_stated_bounds_stay(measure: str) -> None:
    bounds = "contribution_bounds_per_group => (-2.5, 5)"
    sql = f"SELECT {measure.format(bounds)} AS m, SUM(x) AS s FROM t PRIVATE"
    assert sqlglot.parse_one(sql, read="dpsql").sql("dpsql") == sql
    assert sqlglot.parse_one("SELECT SUM(x) AS s FROM t PRIVATE", read="dpsql").find(sqlglot.exp.Sum)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT article FROM reads GROUP BY article QUALIFY n = 1 TOP 10 PRIVATE",
        "SELECT article FROM reads GROUP BY article TOP 10 PRIVATE TOP 5 PRIVATE",
        "SELECT article FROM reads GROUP BY article TOP 10 PRIVATE AND 1 = 1",
        "SELECT article FROM reads GROUP BY article TOP 10 PRIVATE WITH (epsilon = 0.05",
        "SELECT article FROM reads WHERE TOP 10 PRIVATE",
        "SELECT article FROM reads GROUP BY article LIMIT ? TOP ? PRIVATE",
    ],
)
def test_what_would_be_lost_or_moved_is_an_error(sql: str) -> None:
    with pytest.raises(ParseError):
        sqlglot.parse_one(sql, read="dpsql")


@pytest.mark.parametrize(
    "condition",
    [
        "dwell = ANY (ARRAY[1, 2])",
        "country <> ALL (ARRAY['DE'])",
        "country = ANY (ARRAY['DE', 'FR']::text[])",
        "country = ANY ('{DE,FR}'::text[])",
        "country = SOME (ARRAY['DE'])",
        "country = ANY (['DE'])",
        "user_id = ANY (SELECT user_id FROM likes)",
        "SUBSTRING(article FROM 2 FOR 3) = 'x'",
        "SUBSTRING(article FROM 2) = 'x'",
        "TRIM(BOTH 'x' FROM article) = 'a'",
        "TRIM(LEADING FROM article) = 'a'",
        "POSITION('a' IN SUBSTRING(article FROM 2)) = 1",
        "EXTRACT('hour' FROM ts) = 7",
        "ts > TIMESTAMP '2026-01-01 00:00:00' - INTERVAL '1 day'",
        "dwell::DECIMAL(10, 2) > 1",
    ],
)
def test_a_condition_means_the_same_when_it_is_written_again(condition: str) -> None:
    check_written_again(
        f"SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE {condition} GROUP BY article TOP 9 PRIVATE"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT article FROM reads GROUP BY article TOP 9 PRIVATE ORDER BY ALL DESC",
        "SELECT article, country FROM reads GROUP BY (article, country) TOP 9 PRIVATE",
        "SELECT COUNT(DISTINCT user_id) AS n FROM reads GROUP BY () PRIVATE",
        "SELECT ts - INTERVAL '1 day' x, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY x TOP 3 PRIVATE",
        "SELECT ts - INTERVAL 1 DAY x, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY x TOP 3 PRIVATE",
        "SELECT ts::DATE x, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY x TOP 3 PRIVATE",
    ],
)
def test_a_form_of_duckdb_means_the_same_when_it_is_written_again(sql: str) -> None:
    check_written_again(sql)


def check_written_again(sql: str) -> None:
    for pretty in (False, True):
        (written,) = sqlglot.transpile(sql, read="dpsql", write="dpsql", pretty=pretty)
        assert asked(written) == asked(sql), written


@pytest.mark.parametrize("condition", ["POSITION(? IN article) = 1", "TRIM(? FROM article) = 'a'"])
def test_a_mark_moves_past_no_other(condition: str) -> None:
    one = f"SELECT article FROM reads WHERE {condition} GROUP BY article TOP 9 PRIVATE"
    assert "?" in sqlglot.transpile(one, read="dpsql", write="dpsql")[0]
    with pytest.raises(ParseError):
        sqlglot.transpile(one.replace("article)", "?)"), read="dpsql", write="dpsql")


@pytest.mark.parametrize("k", ["10", "ADAPTIVE", "?", "$1", "$k", ":k"])
def test_every_way_to_write_k(k: str) -> None:
    sql = f"SELECT article FROM reads GROUP BY article TOP {k} PRIVATE"
    assert sqlglot.parse_one(sql, read="dpsql").sql("dpsql") == sql


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT top, private FROM t WHERE a = 'TOP 10 PRIVATE'",
        "SELECT a, top, private, b FROM t",
        "SELECT a FROM t WHERE top - private > 1 AND t.top = private",
    ],
)
def test_words_of_the_clause_stay_names_and_texts(sql: str) -> None:
    assert sqlglot.parse_one(sql, read="dpsql").sql("dpsql") == sql


def test_an_installed_dpsql_tells_sqlglot_of_its_dialect() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert '[project.entry-points."sqlglot.dialects"]\ndpsql = "dpsql.integrations.sqlglot:Dpsql"' in text
    assert sqlglot.Dialect.get("dpsql") is Dpsql
