"""Identity of keys: what is computed from which stored columns, whatever else the query says."""

from __future__ import annotations

import time

import pytest

from dpsql.plan.identity.replay_key import identify_keys
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import parse_type

COLUMNS = tuple(
    (name, parse_type(type_)) for name, type_ in (("u", "BIGINT"), ("a", "VARCHAR"), ("b", "VARCHAR"), ("n", "INTEGER"))
)
CATALOG = Catalog(
    (
        Table("reads", ("main", "reads"), COLUMNS, "u"),
        Table("likes", ("main", "likes"), COLUMNS, "u"),
        Table("names", ("main", "names"), COLUMNS[1:], None),
    )
)


def keys(text: str) -> tuple[str, ...]:
    query = analyze(text, CATALOG, accepts_pattern=bool)
    assert isinstance(query, PrivateQuery)
    return identify_keys(query)


def of(key: str, source: str, more: str = "") -> tuple[str, ...]:
    return keys(f"SELECT {key} FROM {source} GROUP BY ALL TOP 5 PRIVATE {more}")


SAME = [
    ("a", "reads WHERE n > 3"),
    ("x.a", "reads AS x JOIN names AS y ON x.b = y.b"),
    ("x.a", "names AS y JOIN reads AS x ON x.b = y.b"),
    ("a", "(SELECT a, u FROM reads WHERE n = 3) AS s"),
    ("c", "(SELECT a AS c, u FROM (SELECT u, a FROM reads) AS t) AS s"),
    ("a", "(SELECT a, u FROM reads UNION ALL SELECT a, u FROM reads WHERE n > 1) AS s"),
]
OTHER = [("b", "reads"), ("a", "likes"), ("upper(a)", "reads"), ("CAST(n AS VARCHAR)", "reads")]


@pytest.mark.parametrize(("key", "source"), SAME)
def test_the_same_column_is_the_same_key(key: str, source: str) -> None:
    assert of(key, source) == of("a", "reads")


@pytest.mark.parametrize(("key", "source"), OTHER)
def test_another_column_table_or_expression_is_another_key(key: str, source: str) -> None:
    assert of(key, source) != of("a", "reads")


def test_parts_of_an_expression_may_be_computed_in_a_subquery() -> None:
    whole = of("length(upper(a))", "reads")
    assert of("length(c)", "(SELECT upper(a) AS c, u FROM reads) AS s") == whole
    assert of("length(c)", "(SELECT lower(a) AS c, u FROM reads) AS s") != whole


def test_constants_of_an_expression_and_types_count() -> None:
    assert of("n % 3", "reads") != of("n % 4", "reads")
    assert of("n", "reads") != of("CAST(n AS BIGINT)", "reads")


def test_options_measures_and_the_order_of_keys_do_not_count() -> None:
    assert of("a", "reads", "WITH (epsilon = 0.1, mechanism = weighted_gaussian)") == of("a", "reads")
    assert of("a, COUNT(DISTINCT u)", "reads") == of("a", "reads")
    assert sorted(of("a, b", "reads")) == sorted(of("b, a", "reads"))


def test_outputs_that_name_others_twice_take_no_time() -> None:
    source = "reads"
    for _ in range(25):
        source = f"(SELECT u, n % 7 + n % 5 AS n FROM {source}) AS s"
    started = time.perf_counter()
    assert len(of("n", source)) == 1
    assert time.perf_counter() - started < 2
