"""An outer SELECT: where the clause of its private query may stand, what it may read, what it passes on."""

from __future__ import annotations

from functools import partial

import pytest
from support.sql_reference import TOP_ARTICLES as TOP
from support.sql_reference import accepts_pattern, corpus_catalog, corpus_tables, outer_select, private, select_parser

from dpsql.errors import Error, Refusal, Unsupported
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.public_query import rewrite_public

CON = corpus_tables()
CATALOG = corpus_catalog(CON)
around = partial(outer_select, catalog=CATALOG)
HERE = "here AS (SELECT user_id, article FROM reads WHERE country = 'DE')"


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        (f"SELECT * FROM ({TOP}) AS x LIMIT 3", TOP),
        (f"SELECT * FROM ({TOP} WITH (epsilon = 0.05) ORDER BY n LIMIT 3) x", f"{TOP} WITH (epsilon = 0.05) LIMIT 3"),
        (f"SELECT n FROM (SELECT * FROM (SELECT article, n FROM ({TOP}) AS a) AS b WHERE n < 9) AS c", TOP),
        (f"SELECT * FROM ((({TOP}))) AS x", TOP),
        (f"WITH x AS ({TOP}) SELECT SUM(n) FROM x", TOP),
        (f"WITH x AS ({TOP}), y AS (SELECT n FROM x WHERE n > 5) SELECT DISTINCT n FROM y", TOP),
        (f"WITH y AS (SELECT * FROM ({TOP}) AS x) SELECT n FROM y", TOP),
        (f"WITH {HERE}, x AS ({TOP.replace('reads', 'here')}) SELECT n FROM x", None),
        (f"WITH {HERE} SELECT n FROM ({TOP.replace('reads', 'here')}) AS x", None),
        (f"SELECT n FROM (WITH {HERE} {TOP.replace('reads', 'here')}) AS x", None),
        (f"WITH {HERE} SELECT n FROM (WITH h AS (SELECT * FROM here) {TOP.replace('reads', 'h')}) AS x", None),
        ("SELECT * FROM (SELECT TOP 5 PRIVATE article FROM reads GROUP BY article WITH (k_bar = 9)) AS x", None),
        ("SELECT * FROM (SELECT article FROM reads GROUP BY article TOP 5 PRIVATE WITH (k_bar = 9)) AS x", None),
    ],
)
def test_the_private_query_is_read_as_if_it_stood_alone(text: str, inner: str | None) -> None:
    (found,) = around(text).inners
    if inner is not None:
        alone = private(inner, CATALOG)
        assert (found.body, found.keys, found.outputs) == (alone.body, alone.keys, alone.outputs)
        assert found.clause.k == alone.clause.k
        assert {name: option.value for name, option in found.clause.options.items()} == {
            name: option.value for name, option in alone.clause.options.items()
        }
    assert found.table == "reads"
    assert found.text == text


def test_a_cte_of_the_private_query_keeps_its_condition() -> None:
    alone = private(f"WITH {HERE} {TOP.replace('reads', 'here')}", CATALOG)
    assert around(f"WITH {HERE}, x AS ({TOP.replace('reads', 'here')}) SELECT n FROM x").inners[0].body == alone.body


REFUSED = {
    f"SELECT * FROM ({TOP}": "syntax",
    f"SELECT article FROM ({TOP}) AS x GROUP BY article TOP 3 PRIVATE": "syntax",
    f"SELECT * FROM ({TOP}) AS x UNION SELECT article, 1 FROM reads": "wrapping",
    f"SELECT * FROM (DELETE FROM reads; {TOP}) AS x": None,
    f"SELECT * FROM duckdb_tables(({TOP}))": "function",
    f"SELECT * FROM ({TOP}) AS x, released": "unknown-table",
    f"SELECT * FROM ({TOP}) AS x, duckdb_settings": "unknown-table",
    f"SELECT * FROM ({TOP}) AS x, information_schema.tables": "unknown-table",
    "SELECT article FROM (SELECT user_id, article FROM reads TOP 5 PRIVATE) AS r GROUP BY article": "no-group",
    "SELECT article FROM (SELECT user_id, article FROM reads TOP ADAPTIVE PRIVATE) AS r GROUP BY article": "no-group",
    f"WITH x AS ({TOP}) SELECT article FROM reads": "wrapping",
    f"WITH x AS ({TOP}) SELECT a.user_id FROM likes AS a CROSS JOIN x": "wrapping",
    f"SELECT x.n FROM ({TOP}) AS x JOIN reads AS r ON r.article = x.article": "wrapping",
    f"SELECT x.n FROM ({TOP}) AS x JOIN (SELECT user_id, article FROM reads) AS r USING (article)": "wrapping",
    f"SELECT n FROM ({TOP}) AS x WHERE article IN (SELECT article FROM reads)": "wrapping",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_reads_more_than_released_and_public_rows_is_refused(text: str) -> None:
    with pytest.raises((Refusal, Unsupported)) as refused:
        analyze(text, CATALOG, accepts_pattern=accepts_pattern, parser=select_parser())
    assert REFUSED[text] in {None, refused.value.code}
    assert refused.value.hint


def test_without_a_parser_it_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        analyze(f"SELECT * FROM ({TOP}) AS x", CATALOG, accepts_pattern=accepts_pattern)
    assert refused.value.code == "clause"


def test_public_tables_are_fetched_by_the_columns_that_are_named() -> None:
    names = [column for column, _ in CATALOG.find("articles").columns]
    text = f"SELECT n, a.{names[1]} FROM ({TOP}) AS x LEFT JOIN articles AS a ON a.{names[0]} = x.article"
    found = around(text)
    ((path, fetching),) = found.beside
    assert {output.name for output in fetching.outputs} == {names[0], names[1]}
    assert f'"{path[-1]}"' in found.sql
    ((_, constant),) = around(f"SELECT n FROM ({TOP}) AS x CROSS JOIN countries").beside
    assert rewrite_public(constant, 10).sql.startswith("SELECT CAST($1 AS BIGINT) AS c1 FROM")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (f"SELECT * FROM ({TOP}) AS x", (1,)),
        (f"SELECT n, article FROM (SELECT * FROM ({TOP}) AS x WHERE n > 9) AS y", (0,)),
        (f"SELECT b, t.n FROM (SELECT n AS b, article AS n FROM ({TOP}) AS x WHERE n > 9 LIMIT 3) AS t", (0,)),
        (f"SELECT b FROM (SELECT * FROM ({TOP}) AS x) AS y(a, b) QUALIFY row_number() OVER () < 3", (0,)),
        (f"WITH y(a, b) AS (SELECT * FROM ({TOP}) AS x), z AS (SELECT b, a FROM y) SELECT * FROM z", (0,)),
        (f"SELECT * FROM ({TOP}) AS x POSITIONAL JOIN countries", ()),
        (f"SELECT * FROM countries AS c JOIN ({TOP}) AS x ON c.country = x.article", (3,)),
        (f"SELECT (n) AS a, article AS n, n AS b FROM ({TOP}) AS x LIMIT 2", (0, 2)),
        (f"SELECT article FROM ({TOP}) AS x", ()),
        (f"SELECT n + 0 AS n FROM ({TOP}) AS x", ()),
        (f"SELECT CAST(n AS BIGINT) AS n FROM ({TOP}) AS x", ()),
        (f"SELECT DISTINCT n FROM ({TOP}) AS x", ()),
        (f"SELECT n FROM ({TOP}) AS x GROUP BY n", ()),
        (f"SELECT MAX(n) AS n FROM ({TOP}) AS x", ()),
        (f"SELECT n FROM ({TOP}) AS x LEFT JOIN countries AS c ON c.country = x.article", (0,)),
        (f"SELECT n FROM countries AS c JOIN ({TOP}) AS x ON c.country = x.article", (0,)),
        (f"SELECT n FROM countries AS c LEFT JOIN ({TOP}) AS x ON c.country = x.article", ()),
        (f"SELECT n FROM countries AS c RIGHT JOIN ({TOP}) AS x ON c.country = x.article", (0,)),
        (f"SELECT n FROM countries AS c FULL JOIN ({TOP}) AS x ON c.country = x.article", ()),
        (f"SELECT n FROM ({TOP}) AS x RIGHT JOIN countries AS c ON c.country = x.article", ()),
        (f"SELECT n FROM ({TOP}) AS x FULL JOIN countries AS c ON c.country = x.article", ()),
    ],
)
def test_counts_are_followed_where_they_are_passed_on(text: str, columns: tuple[int, ...]) -> None:
    assert tuple(each.column for each in around(text).measures if each.output == 1) == columns


def test_a_plain_private_query_is_none_that_is_wrapped() -> None:
    assert isinstance(analyze(TOP, CATALOG, accepts_pattern=accepts_pattern), PrivateQuery)
    with pytest.raises(Error):
        analyze(f"SELECT * FROM ({TOP.removesuffix(' TOP 5 PRIVATE')}) AS x", CATALOG, accepts_pattern=accepts_pattern)
