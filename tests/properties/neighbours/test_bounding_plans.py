"""What DuckDB makes of the generated SQL: each form of bounding keeps the plan it was chosen for."""

from __future__ import annotations

import json
from collections.abc import Sequence

import duckdb
import pytest
from support.sql_reference import catalog_of, private

from dpsql.sql.rewrite.bounding import MIN_GROUPS_SORTED_APART
from dpsql.sql.rewrite.engine_query import Bound, rewrite_all, rewrite_leaders

SALTS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
CON = duckdb.connect()
CON.execute("""
    CREATE TABLE events AS
    SELECT i % 50 AS unit, 'a' AS w, i AS n, CAST(i AS DOUBLE) AS x, i % 7 > 3 AS b FROM range(500) AS t(i)
""")
CATALOG = catalog_of(CON, {"events": "unit"}, [])
KEYS = ["n", "w", "w, n", "x", "b, x, n"]


def operators(sql: str, parameters: Sequence[object] = ()) -> list[str]:
    """Return the operators of DuckDB's plan, with the aggregates they compute."""
    ((_, plan),) = CON.execute(f"EXPLAIN (FORMAT json) {sql}", list(parameters)).fetchall()
    found, rest = [], json.loads(plan)
    while rest:
        node = rest.pop(0)
        found.append(f"{node['name']} {node['extra_info'].get('Aggregates', '')}".strip())
        rest = node["children"] + rest
    return [name for name in found if name != "PROJECTION"]


def bounded_plan(keys: str, groups: int) -> list[str]:
    query = private(f"SELECT {keys} FROM events GROUP BY ALL TOP 10 PRIVATE", CATALOG)
    counting = rewrite_leaders(query, 100, bound=Bound(groups, SALTS))
    return operators(counting.sql, counting.parameters)


def times(plan: list[str], name: str) -> int:
    return sum(operator.split()[0] == name for operator in plan)


@pytest.mark.parametrize("keys", KEYS)
def test_one_group_takes_one_pass_without_window_or_distinct(keys: str) -> None:
    plan = bounded_plan(keys, 1)
    assert times(plan, "SEQ_SCAN") == 1
    assert times(plan, "WINDOW") == 0
    aggregates = [operator.split(maxsplit=1)[1:] for operator in plan if "GROUP_BY" in operator]
    assert aggregates == [["count_star()"], ["min(#1)"]]


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("groups", [2, 5, MIN_GROUPS_SORTED_APART - 1])
def test_a_few_groups_take_a_sort_that_is_not_rewritten(keys: str, groups: int) -> None:
    """A window with one sort key would become arg_min lists: slower, and out of memory on large tables."""
    plan = bounded_plan(keys, groups)
    assert times(plan, "SEQ_SCAN") == times(plan, "WINDOW") == 1
    assert not any("arg_min" in name or "UNNEST" in name for name in plan)


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("groups", [MIN_GROUPS_SORTED_APART, 20, 100])
def test_many_groups_read_the_rows_once_and_sort_only_units_above_the_bound(keys: str, groups: int) -> None:
    plan = bounded_plan(keys, groups)
    assert times(plan, "SEQ_SCAN") == times(plan, "WINDOW") == 1
    assert times(plan, "CTE") == 2
    assert times(plan, "CTE_SCAN") == 5
    assert not any("arg_min" in name or "UNNEST" in name for name in plan)
    sorted_part = plan[plan.index("WINDOW") :]
    assert sorted_part == ["WINDOW", "HASH_JOIN", "CTE_SCAN", "CTE_SCAN"]


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("groups", [1, 5, MIN_GROUPS_SORTED_APART])
def test_all_groups_take_the_plan_of_the_leaders_with_a_sort_in_place_of_the_cut(keys: str, groups: int) -> None:
    query = private(f"SELECT {keys} FROM events GROUP BY ALL TOP 10 PRIVATE", CATALOG)
    counting = rewrite_all(query, bound=Bound(groups, SALTS))
    plan = operators(counting.sql, counting.parameters)
    assert times(plan, "ORDER_BY") == 1
    assert times(plan, "TOP_N") == 0
    assert [name for name in plan if name != "ORDER_BY"] == [
        name for name in bounded_plan(keys, groups) if name != "TOP_N"
    ]


def test_the_guard_sees_the_rewriting_it_guards_against() -> None:
    rank = "row_number() OVER (PARTITION BY unit ORDER BY hash(n))"
    plan = operators(f"SELECT n FROM (SELECT n, {rank} AS r FROM events) WHERE r <= 5")
    rewritten = duckdb.__version__ >= "1.5"  # by those releases alone
    assert any("arg_min" in name for name in plan) == rewritten
    assert ("WINDOW" in plan) != rewritten


def test_the_guard_sees_rows_that_are_read_twice() -> None:
    above = "SELECT unit FROM events GROUP BY unit HAVING count() > 5"
    plan = operators(f"SELECT DISTINCT n, unit FROM events ANTI JOIN ({above}) USING (unit)")
    assert times(plan, "SEQ_SCAN") == 2


@pytest.mark.parametrize(("keys", "order"), [("n", "n"), ("w", "w COLLATE C"), ("w, n", "w COLLATE C, n")])
def test_the_unbounded_plan_is_the_plain_one(keys: str, order: str) -> None:
    """What the analyst runs today, with the ties broken: the same operators in the same order."""
    counting = rewrite_leaders(private(f"SELECT {keys} FROM events GROUP BY ALL TOP 10 PRIVATE", CATALOG), 100)
    counted = f"SELECT {keys}, COUNT(DISTINCT unit) AS c FROM events WHERE unit IS NOT NULL GROUP BY {keys}"
    plan = operators(counting.sql, counting.parameters)
    assert plan == operators(f"{counted} ORDER BY c DESC, {order} LIMIT 100")
    assert "TOP_N" in plan
