"""A query over several private tables keeps to the strictest of their policies, wherever a table is read."""

from __future__ import annotations

import duckdb
import pytest
from support.sql_reference import catalog_of, private

import dpsql
from dpsql.errors import Refusal
from dpsql.plan import Plan, build_plan
from dpsql.plan.identity.replay_key import compute_release_key
from dpsql.terms import Terms

CON = duckdb.connect()
CON.execute("CREATE TABLE reads(unit BIGINT, w VARCHAR, n BIGINT); CREATE TABLE likes AS FROM reads")
CATALOG = catalog_of(CON, {"reads": "unit", "likes": "unit"}, [])
TABLES = {
    "reads": dpsql.PrivateTable("unit", max_groups_contributed=9, min_units=2, one_value_per_unit=["w"]),
    "likes": dpsql.PrivateTable("unit", max_groups_contributed=3, min_units=50),
}
TERMS = Terms.of_policy(dpsql.Policy(dpsql.Budget(1, "1e-6"), TABLES))
BOTH = [
    "FROM reads a JOIN likes b ON a.unit = b.unit",
    "FROM likes b FULL JOIN reads a USING (unit)",
    "FROM reads a ANTI JOIN likes b USING (unit)",
    "FROM reads a WHERE a.unit NOT IN (SELECT unit FROM likes)",
    "FROM (SELECT * FROM reads AS c WHERE EXISTS (SELECT 1 FROM likes b WHERE b.unit = c.unit)) AS a",
]


def plan_of(text: str) -> Plan:
    return build_plan(private(text, CATALOG), TERMS, salts=(1, 2))


@pytest.mark.parametrize("origin", BOTH)
def test_the_least_bound_and_the_most_units_apply(origin: str) -> None:
    plan = plan_of(f"SELECT a.n {origin} GROUP BY ALL TOP 5 PRIVATE")
    assert plan.max_groups_contributed == 3
    facts = dict(plan.facts())
    assert facts["privacy unit"] == "unit of likes and reads"
    assert "min_units = 50" in str(plan)
    with pytest.raises(Refusal, match="option-range"):
        plan_of(f"SELECT a.n {origin} GROUP BY ALL TOP 5 PRIVATE WITH (max_groups_contributed = 4)")


def test_one_table_keeps_its_own_policy() -> None:
    plan = plan_of("SELECT n FROM reads GROUP BY 1 TOP 5 PRIVATE")
    assert plan.max_groups_contributed == 9
    assert "min_units = 2" in str(plan)


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        ("a.w", True),
        ("upper(a.w)", True),
        ("b.w", False),
        ("CASE WHEN EXISTS (SELECT 1 FROM likes c WHERE c.unit = a.unit AND c.n = a.n) THEN a.w END", False),
        ("CASE WHEN a.w IN (SELECT c.w FROM likes c WHERE c.unit = a.unit) THEN a.w END", False),
    ],
)
def test_one_value_per_unit_is_said_of_a_column_of_its_own_table(key: str, *, kept: bool) -> None:
    text = f"SELECT {key} AS k, a.n FROM reads a JOIN likes b ON a.unit = b.unit GROUP BY ALL TOP 2 PRIVATE PER k"
    plan = plan_of(f"{text} WITH (partitions = ['x', 'y'])")
    assert plan.query.partitions is not None
    assert (plan.query.partitions.salts is not None) is kept


def test_queries_that_name_another_row_outside_have_other_replay_keys() -> None:
    def key(where: str) -> str:
        return compute_release_key(
            plan_of(f"SELECT a.n FROM reads a JOIN reads b ON a.unit = b.unit WHERE {where} GROUP BY 1 TOP 5 PRIVATE")
        )

    tied = "EXISTS (SELECT 1 FROM likes c WHERE c.unit = {0}.unit AND c.w = {1}.w)"
    deeper = "EXISTS (SELECT 1 FROM likes d WHERE d.unit = {0}.unit AND d.w = {1}.w)"
    deep = f"EXISTS (SELECT 1 FROM likes c WHERE c.unit = a.unit AND {deeper})"
    looked = "a.unit IN (SELECT c.unit FROM likes c WHERE c.w = {0}.w)"
    wheres = [
        *(tied.format(one, two) for one in "ab" for two in "abc"),
        *(deep.format(one, two) for one in "abc" for two in "abcd"),
        *(looked.format(one) for one in "abc"),
        *("NOT " + looked.format(one) for one in "abc"),
        "a.w IN (SELECT c.w FROM likes c WHERE c.unit = a.unit)",
        "a.w IN (SELECT c.w FROM likes c WHERE c.unit = b.unit)",
        "a.w IN (SELECT b.w FROM likes c WHERE c.unit = b.unit)",
        "b.w IN (SELECT c.w FROM likes c WHERE c.unit = a.unit)",
    ]
    assert len({key(where) for where in wheres}) == len(wheres)
    assert key(tied.format("a", "b")) == key(tied.format("a", "b").replace("c.", "z.").replace(" c ", " z "))


def test_queries_that_name_another_of_two_lists_have_other_replay_keys() -> None:
    lists = "unnest([a.w, 'x']) AS x(item) LEFT JOIN unnest([a.w, 'x']) AS y(item) ON FALSE"
    texts = [f"SELECT {name}.item FROM reads a CROSS JOIN {lists} GROUP BY 1 TOP 5 PRIVATE" for name in "xy"]
    assert len({compute_release_key(plan_of(text)) for text in texts}) == len(texts)
