"""A SELECT that computes with measures, as text: the private query that is made of it, and the SELECT around that."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from dpsql.errors import Unsupported
from dpsql.sql.lexer import scan
from dpsql.sql.syntax.block import find_selects, nest
from dpsql.sql.syntax.clause import list_select_tokens
from dpsql.sql.syntax.computed import ComputedSelect, split_measures
from dpsql.sql.syntax.select_list import find_direction
from dpsql.sql.syntax.spans import write_parts

R = '"dpsql released"'
M1, M2, M3 = (f'{R}."dpsql measure {number}"' for number in (1, 2, 3))
RELEASED = f"FROM released AS {R}"


def split(text: str) -> ComputedSelect | None:
    statement = scan(text)
    return split_measures(statement, list_select_tokens(statement)[0])


def texts(text: str, *keys: str) -> tuple[str, str]:
    """Return the private query and the SELECT around it, in which the keys have these names."""
    statement, found = scan(text), split(text)
    assert found is not None
    copied = {id(token) for token in found.copied}
    inner = [
        f'"{token.text}"'
        if token.token_type.name == "IDENTIFIER"
        else text[token.start : token.end + 1]
        if id(token) in copied or "\0" in token.text
        else token.text
        for token in found.tokens
    ]
    outer = write_parts(statement, found.write(keys, source="released")[0])
    return " ".join(inner), " ".join(outer.replace('"released"', "released").split())


GOLDEN = {
    "SELECT COUNT(*) * 1.5 FROM t": (
        'SELECT COUNT ( * ) AS "dpsql measure 1" FROM t',
        f'SELECT {M1} * 1.5 AS "COUNT(*) * 1.5" {RELEASED}',
    ),
    "SELECT a, count(*)*2 AS n FROM t WHERE b > 'FROM, x' GROUP BY a ORDER BY n DESC LIMIT 3": (
        "SELECT a , count ( * ) AS \"dpsql measure 1\" FROM t WHERE b > 'FROM, x' GROUP BY a ORDER BY 2 DESC LIMIT 3",
        f'SELECT {R}."a" AS "a", {M1} *2 AS "n" {RELEASED} ORDER BY n DESC LIMIT 3',
    ),
    "SELECT SUM(x) AS s, COUNT( * ) + count(*) + SUM(x) FROM t": (
        (
            'SELECT SUM ( x ) AS "dpsql measure 1" , COUNT ( * ) AS "dpsql measure 2" , '
            'SUM ( x ) AS "dpsql measure 3" FROM t'
        ),
        f'SELECT {M1} AS "s", {M2} + {M2} + {M3} AS "COUNT( * ) + count(*) + SUM(x)" {RELEASED}',
    ),
    "SELECT SUM(x) / COUNT(*) AS m, a FROM t GROUP BY 2 HAVING COUNT(*) > 5 ORDER BY COUNT(*) DESC": (
        (
            'SELECT a , COUNT ( * ) AS "dpsql measure 1" , SUM ( x ) AS "dpsql measure 2" , '
            'COUNT ( * ) AS "dpsql measure 3" FROM t GROUP BY 1 ORDER BY 2 DESC'
        ),
        f'SELECT {M2} / {M3} AS "m", {R}."a" AS "a" {RELEASED} WHERE {M1} > 5 ORDER BY {M1} DESC',
    ),
    "SELECT f(a, ','), COUNT(*) FILTER (WHERE c = ',') / 2 FROM t GROUP BY f(a, ',')": (
        (
            "SELECT f ( a , ',' ) , COUNT ( * ) FILTER ( WHERE c = ',' ) AS \"dpsql measure 1\" FROM t "
            "GROUP BY f ( a , ',' )"
        ),
        f'SELECT {R}."f" AS "f", {M1} / 2 AS "COUNT(*) FILTER (WHERE c = \',\') / 2" {RELEASED}',
    ),
    "SELECT 100 * COUNT(*) / SUM(COUNT(*)) OVER () AS pct FROM t GROUP BY a": (
        'SELECT a , COUNT ( * ) AS "dpsql measure 1" FROM t GROUP BY a',
        f'SELECT 100 * {M1} / SUM( {M1} ) OVER () AS "pct" {RELEASED}',
    ),
    "SELECT CASE WHEN COUNT(*) > 1 THEN upper(t.a) ELSE 'x' END \"k, FROM\" FROM t GROUP BY a": (
        'SELECT a , COUNT ( * ) AS "dpsql measure 1" FROM t GROUP BY a',
        f'SELECT CASE WHEN {M1} > 1 THEN upper( {R}."a" ) ELSE \'x\' END AS "k, FROM" {RELEASED}',
    ),
    "SELECT COUNT(*) - (SELECT COUNT(*) FROM p WHERE a > 1) AS n FROM t": (
        'SELECT COUNT ( * ) AS "dpsql measure 1" FROM t',
        f'SELECT {M1} - (SELECT COUNT(*) FROM p WHERE a > 1) AS "n" {RELEASED}',
    ),
    "WITH c AS (SELECT * FROM t) SELECT /* COUNT(*) FROM */ COUNT(*) -- one\n + 1 AS n FROM c": (
        'WITH c AS ( SELECT * FROM t ) SELECT COUNT ( * ) AS "dpsql measure 1" FROM c',
        f'SELECT {M1} -- one + 1 AS "n" {RELEASED}',
    ),
    "SELECT a AS b, b AS a, COUNT(*) * a AS x, COUNT(*) * b AS y FROM t GROUP BY 1, 2": (
        'SELECT a AS b , b AS a , COUNT ( * ) AS "dpsql measure 1" FROM t GROUP BY 1 , 2',
        f'SELECT {R}."a" AS "a", {R}."b" AS "b", {M1} * {R}."a" AS "x", {M1} * {R}."b" AS "y" {RELEASED}',
    ),
    "SELECT a + b, COUNT(*) * a + b AS x, COUNT(*) * (a + b) AS y FROM t GROUP BY a + b": (
        'SELECT a + b , COUNT ( * ) AS "dpsql measure 1" FROM t GROUP BY a + b',
        f'SELECT {R}."a" AS "a", {M1} * a + b AS "x", {M1} * ( {R}."a" ) AS "y" {RELEASED}',
    ),
    "SELECT a, rank() OVER w AS r FROM t GROUP BY a WINDOW w AS (ORDER BY COUNT(*) DESC) QUALIFY r < 3": (
        'SELECT a , COUNT ( * ) AS "dpsql measure 1" FROM t GROUP BY a',
        f'SELECT {R}."a" AS "a", rank() OVER w AS "r" {RELEASED} WINDOW w AS (ORDER BY {M1} DESC) QUALIFY r < 3',
    ),
    "SELECT a, COUNT(*) + 1 AS n FROM t GROUP BY a FETCH FIRST 5 ROWS ONLY": (
        'SELECT a , COUNT ( * ) AS "dpsql measure 1" FROM t GROUP BY a LIMIT 5',
        f'SELECT {R}."a" AS "a", {M1} + 1 AS "n" {RELEASED} LIMIT 5',
    ),
}


@pytest.mark.parametrize("text", GOLDEN)
def test_a_select_is_split_into_a_private_query_and_a_select_around_it(text: str) -> None:
    keys = ["f" if "f(" in text else "a", "b"]
    inner, outer = texts(text, *keys)
    assert (inner.replace(" FETCH 5", " LIMIT 5"), outer) == GOLDEN[text]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT SUM(COUNT(*)) FROM t",
        "SELECT COUNT(*) + MAX(x) FROM t",
        "SELECT string_agg(COUNT(*), ',') FROM t GROUP BY a",
        "SELECT COUNT(*)::VARCHAR.list() FROM t GROUP BY a",
        "SELECT main.sum(x) + 1 FROM t",
        'SELECT "sum"(x) + 1 FROM t',
        "SELECT DISTINCT COUNT(*) + 1 FROM t",
        "SELECT COUNT(*) + 1 FROM t UNION ALL SELECT 1",
        "SELECT COUNT(*) + 1",
        "SELECT COUNT(*) AS n FROM t",
        "SELECT a, COUNT(*) AS n FROM t GROUP BY a",
        "SELECT a, COUNT(*) + 1 AS n FROM t GROUP BY n",
        "SELECT a, COUNT(*) + 1 AS n FROM t GROUP BY 7",
        "SELECT a, COUNT(*) + 1 AS n FROM t GROUP BY ROLLUP (a)",
        "SELECT a AS b, b AS a, COUNT(*) + (SELECT max(b) FROM p) AS n FROM t GROUP BY 1, 2",
        "SELECT a + 1 FROM t",
    ],
)
def test_what_has_another_aggregate_another_form_or_two_meanings_is_not_split(text: str) -> None:
    assert split(text) is None


def test_having_of_a_key_is_refused() -> None:
    with pytest.raises(Unsupported, match="group key"):
        split("SELECT a, COUNT(*) + 1 AS n FROM t GROUP BY a HAVING a > 1")


DIRECTIONS = {
    "COUNT(*)": True,
    "COUNT(*) * 1.5": True,
    "100.0 * COUNT(*)": True,
    "COUNT(*) / 0.5 + 3 - 2": True,
    "COUNT(*) * 1e0 / 2E-3": True,
    "COUNT(*) * 0e5": None,
    "1 + (COUNT(*))": True,
    "COUNT(*)::DOUBLE": True,
    "CAST(COUNT(*) AS BIGINT)": True,
    "ROUND(COUNT(*) / 7, 2)": True,
    "COALESCE(SUM(x), 0)": True,
    "100 * COUNT(*) / SUM(COUNT(*)) OVER ()": True,
    "COUNT(*) / (SELECT COUNT(*) FROM t)": True,
    "RANK() OVER (ORDER BY COUNT(*) * 2)": True,
    "ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC)": False,
    "COUNT(*) * 0": None,
    "COUNT(*) * 0.00": None,
    "COUNT(*) * -1": None,
    "- COUNT(*)": None,
    "3 - COUNT(*)": None,
    "3 / COUNT(*)": None,
    "COUNT(*) % 7 * 2": None,
    "COUNT(*) / SUM(x)": None,
    "COUNT(*) / SUM(SUM(x)) OVER ()": None,
    "COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY a)": None,
    "COUNT(*) / (SELECT COUNT(*) FROM t WHERE x > a)": None,
    "COUNT(*) / (SELECT SUM(x) FROM t)": None,
    "COUNT(*)::VARCHAR": None,
    "COUNT(*) > 3": None,
    "COALESCE(SUM(x), 7)": None,
    "abs(COUNT(*))": None,
    "ROUND(COUNT(*), -1 * a)": None,
    "ROW_NUMBER() OVER (PARTITION BY a ORDER BY COUNT(*))": None,
    "CASE WHEN COUNT(*) > 3 THEN 1 END": None,
    "COUNT(*) * x": None,
}


@pytest.mark.parametrize("text", DIRECTIONS)
def test_an_order_is_that_of_a_measure_by_its_form_alone(text: str) -> None:
    (select,) = find_selects(nest(scan(f"SELECT {text} FROM t").tokens))[:1]
    found = find_direction(select.clause("SELECT"))
    assert (None if found is None else found[1]) is DIRECTIONS[text]


TABLE = (
    "CREATE TABLE t AS SELECT i % 7 AS a, i % 3 AS b, i % 11 AS x, 'k' || i % 5 AS s, "
    "TIMESTAMP '2026-01-01' + INTERVAL (i) HOUR AS ts FROM range(400) r(i) WHERE i % 13 <> 4"
)
ITEMS = [
    "COUNT(*) * 2",
    "1e2 * COUNT(*) / SUM(COUNT(*)) OVER ()",
    "SUM(SUM(x)) OVER (PARTITION BY a % 2 ORDER BY a, b ROWS UNBOUNDED PRECEDING)",
    "SUM(x) / COUNT(*) + a * b",
    "COUNT(*) FILTER (WHERE x > 3) - COUNT(*) FILTER (WHERE x > 4 AND s <> 'FROM, k1')",
    "CASE WHEN a IN (1, 2) THEN COUNT(*) WHEN t.b = 1 THEN -SUM(x) ELSE (SELECT max(a) FROM t) END",
    "CASE b WHEN 1 THEN COUNT(*) END IS NULL",
    "COALESCE(NULLIF(COUNT(*), a + b), b)",
    "LAG(COUNT(*), 1, a) OVER (ORDER BY a, b)",
    "list_sum([COUNT(*), a, t . b])",
    "(a + b) * COUNT(*) || '/* ' || b || '''' --, \n",
    "COUNT(*) > 5 AND NOT a = 1 OR b BETWEEN a AND SUM(x)",
    "RANK() OVER (ORDER BY SUM(x) + a DESC) + COUNT(*) OVER ()",
    "CAST(a AS VARCHAR) || COUNT(*)::VARCHAR || INTERVAL 1 DAY",
]
HEADS = [
    ("a, b", "GROUP BY a, b"),
    ("a AS b, b AS a", "GROUP BY 1, t.b"),
    ("b, a AS y", "GROUP BY b, y"),
    ("t.b, a", "GROUP BY b, t.a"),
    ("a + 0 AS y, a, b", "GROUP BY a + 0, a, b"),
    ("b", "GROUP BY a, b"),
]
ENDS = ["", "HAVING COUNT(*) > 15 AND SUM(x) * 2 < 170", "HAVING COUNT(*) > 15 ORDER BY a + b, SUM(x) DESC, a LIMIT 7"]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute(TABLE)
        yield opened


@pytest.mark.properties
@pytest.mark.parametrize(
    ("item", "head", "ending"),
    [(item, head, ENDS[(at + to) % 3]) for at, item in enumerate(ITEMS) for to, head in enumerate(HEADS)],
)
def test_both_parts_together_are_what_duckdb_makes_of_the_whole(
    connection: duckdb.DuckDBPyConnection, item: str, head: tuple[str, str], ending: str
) -> None:
    keys, group = head
    text = f"SELECT {keys}, {item} AS c, COUNT(*) AS n FROM t {group} {ending}"
    expected = connection.execute(text).fetchall()
    statement, found = scan(text), split(text)
    if found is None and keys == "a AS b, b AS a":
        return  # a word of a subquery, or of ORDER BY, could mean two things
    assert found is not None
    inner = texts(text, *"abcdef")[0].partition(" LIMIT ")[0].partition(" ORDER BY ")[0]  # those of a ranking
    names = [each[0] for each in connection.execute(inner).description or []]
    connection.execute(f"CREATE OR REPLACE TABLE released AS {inner}")
    outer = write_parts(statement, found.write(names, source="released")[0])
    released = connection.execute(outer).fetchall()
    if "ORDER BY" not in ending:
        released, expected = sorted(released, key=repr), sorted(expected, key=repr)
    assert released == expected
