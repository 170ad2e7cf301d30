"""Weights in the engine: exact sums of the very integers of the mechanism, against a model in Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import duckdb
import pytest
from support.sql_reference import same

from dpsql.mechanisms import WEIGHT_STEPS, unit_weight
from dpsql.sql.render.duckdb import Writer
from dpsql.sql.rewrite.bounding import UNIT, WEIGHT, Bound, UnitRows, bound_contributions, weigh_contributions

SALTS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
BASE = f"SELECT item AS dpsql_key_1, who AS {UNIT} FROM seen WHERE who IS NOT NULL"
Row = tuple[object, ...]


def weights_sql(
    groups: int,
    *,
    base: str = BASE,
    keys: int = 1,
    of_all: bool = False,
    more: str = "",
) -> tuple[str, list[object]]:
    writer, names = Writer(), [f"dpsql_key_{at}" for at in range(1, keys + 1)]
    own = [unit_weight(size) for size in range(1, groups + 1)]
    kept = weigh_contributions(writer, UnitRows(base, names), bound=Bound(groups, SALTS), weights=own, of_all=of_all)
    columns = ", ".join(names)
    summed = f"SELECT {columns}, sum({WEIGHT}) AS w{more} FROM ({kept.source}) GROUP BY {columns}"
    sql = f"WITH {', '.join(kept.ctes)} {summed}"
    return sql, writer.parameters


def weights_of(con: duckdb.DuckDBPyConnection, groups: int, *, base: str = BASE, keys: int = 1) -> dict[Row, int]:
    sql, parameters = weights_sql(groups, base=base, keys=keys)
    rows = con.execute(sql, parameters).fetchall()
    found = {same(group): weight for *group, weight in rows}
    assert len(found) == len(rows)
    assert all(type(weight) is int for weight in found.values())
    return found


def kept_by_unit(con: duckdb.DuckDBPyConnection, groups: int, *, base: str, keys: int) -> dict[object, set[Row]]:
    """Return what the bound keeps of each unit, by the forms that have their own tests."""
    writer, names = Writer(), [f"dpsql_key_{at}" for at in range(1, keys + 1)]
    kept = bound_contributions(writer, UnitRows(base, names), bound=Bound(groups, SALTS))
    opening = f"WITH {', '.join(kept.ctes)} " if kept.ctes else ""
    sql = f"{opening}SELECT {', '.join(names)}, {UNIT} FROM ({kept.source})"
    found: dict[object, set[Row]] = {}
    for *group, unit in con.execute(sql, writer.parameters).fetchall():
        found.setdefault(unit, set()).add(same(group))
    return found


def model(kept: dict[object, set[Row]]) -> dict[Row, int]:
    found: dict[Row, int] = {}
    for own in kept.values():
        for group in own:
            found[group] = found.get(group, 0) + unit_weight(len(own))
    return found


def filled(rows: Sequence[Row], types: str = "who BIGINT, item VARCHAR") -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE seen({types})")
    if rows:
        places = ", ".join([f"({', '.join('?' * len(rows[0]))})"] * len(rows))
        con.execute(f"INSERT INTO seen VALUES {places}", [value for row in rows for value in row])
    return con


def random_rows(seed: int, number: int = 250) -> list[Row]:
    draw = Random(seed)
    units, items = (
        [None, *range(draw.choice([2, 25]))],
        [None, "", "a", "A", "é", *map(str, range(draw.choice([0, 30])))],
    )
    return [(draw.choice(units), draw.choice(items)) for _ in range(number)]


@pytest.mark.parametrize("groups", [1, 2, 5, 16, 100])
@pytest.mark.parametrize("seed", range(4))
def test_weights_are_those_of_the_model(seed: int, groups: int) -> None:
    """A unit keeps the groups of the model: NULL is a group, a NULL unit is none, rows may repeat."""
    with filled(random_rows(seed)) as con:
        kept = kept_by_unit(con, groups, base=BASE, keys=1)
        assert kept
        assert weights_of(con, groups) == model(kept)


@pytest.mark.parametrize("groups", [1, 3, 16])
def test_two_keys_make_one_group(groups: int) -> None:
    draw = Random(7)
    rows = [
        (draw.randrange(9), draw.choice([None, "a", "b", "c"]), draw.choice([None, 0, 1, 2, 3])) for _ in range(200)
    ]
    base = f"SELECT item AS dpsql_key_1, n AS dpsql_key_2, who AS {UNIT} FROM seen WHERE who IS NOT NULL"
    with filled(rows, "who BIGINT, item VARCHAR, n BIGINT") as con:
        assert weights_of(con, groups, base=base, keys=2) == model(kept_by_unit(con, groups, base=base, keys=2))


@pytest.mark.parametrize("groups", [1, 2, 4, 16])
def test_a_unit_moves_the_squares_of_all_weights_by_no_more_than_one(groups: int) -> None:
    rows = random_rows(11)
    with filled(rows) as con:
        before = weights_of(con, groups)
        for unit in sorted({row[0] for row in rows if row[0] is not None}, key=str):
            base = f"{BASE} AND who <> {unit}"
            after = weights_of(con, groups, base=base)
            moved = [before.get(group, 0) - after.get(group, 0) for group in before.keys() | after.keys()]
            assert all(0 <= by <= WEIGHT_STEPS for by in moved)
            assert 0 < sum(by * by for by in moved) <= WEIGHT_STEPS**2
            assert sum(by > 0 for by in moved) <= groups
            assert len({by for by in moved if by}) == 1


def test_no_row_is_no_weight() -> None:
    with filled([]) as con:
        assert weights_of(con, 5) == {}


def test_one_giant_unit_and_one_giant_group() -> None:
    with filled([]) as con:
        con.execute("INSERT INTO seen SELECT 0, 'item ' || i FROM range(10_000) AS t(i)")
        con.execute("INSERT INTO seen SELECT i + 1, 'item 3' FROM range(100_000) AS t(i)")
        found = weights_of(con, 100)
        assert found[same(["item 3"])] in (100_000 * WEIGHT_STEPS, 100_000 * WEIGHT_STEPS + unit_weight(100))
        others = [weight for group, weight in found.items() if group != same(["item 3"])]
        assert set(others) == {unit_weight(100)}
        assert len(others) in (99, 100)


@pytest.mark.parametrize("groups", [3, 16])
def test_threads_row_order_and_other_units_change_nothing(groups: int) -> None:
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE seen AS
        SELECT hash(i // 3) % 900 AS who, 'item ' || hash(hash(i // 2)) % 70 AS item FROM range(40_000) AS t(i)
    """)
    found = []
    for threads in (1, 2, 4):
        con.execute(f"SET threads = {threads}")
        found.append(weights_of(con, groups))
    con.execute("CREATE TABLE again AS FROM (FROM seen UNION ALL FROM seen) ORDER BY hash(item, who)")
    assert all(each == found[0] for each in [*found, weights_of(con, groups, base=BASE.replace("seen", "again"))])


def test_groups_of_equal_draws_are_taken_by_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writer, "draw", lambda *_, **__: "CAST(0 AS UBIGINT)")
    for seed in range(5):
        rows = [(unit, item) for unit in range(5) for item in (None, "", "B", "a", "b")]
        Random(seed).shuffle(rows)
        with filled(rows) as con:
            assert weights_of(con, 2) == dict.fromkeys([same([""]), same(["B"])], 5 * unit_weight(2))


def test_salts_and_weights_are_bound_and_never_written() -> None:
    sql, parameters = weights_sql(3)
    assert parameters == [[unit_weight(1), unit_weight(2), unit_weight(3)], *SALTS]
    assert not any(str(number) in sql for number in (*SALTS, unit_weight(1), unit_weight(3)))


@pytest.mark.parametrize("groups", [1, 2, 5, 16, 100])
@pytest.mark.parametrize("seed", range(3))
def test_every_pair_is_there_once_and_weighs_only_where_it_is_kept(seed: int, groups: int) -> None:
    with filled(random_rows(seed)) as con:
        sql, parameters = weights_sql(groups, of_all=True, more=", count() AS n")
        rows = con.execute(sql, parameters).fetchall()
        raw = con.execute("SELECT item, count(DISTINCT who) FROM seen WHERE who IS NOT NULL GROUP BY ALL").fetchall()
        assert {same(row[:1]): row[2] for row in rows} == {same(row[:1]): row[1] for row in raw}
        assert {same(row[:1]): row[1] for row in rows if row[1]} == weights_of(con, groups)


def plan_of(groups: int, *, of_all: bool) -> list[tuple[str, str]]:
    """Return the operators of DuckDB's plan, with all it says of them."""
    con = duckdb.connect()
    con.execute("CREATE TABLE seen AS SELECT i % 50 AS who, 'item ' || i AS item FROM range(500) AS t(i)")
    sql, parameters = weights_sql(groups, of_all=of_all)
    ((_, plan),) = con.execute(f"EXPLAIN (FORMAT json) {sql}", parameters).fetchall()
    found, rest = [], json.loads(plan)
    while rest:
        node = rest.pop(0)
        found.append((node["name"].split()[0], json.dumps(node["extra_info"])))
        rest = node["children"] + rest
    return found


@pytest.mark.parametrize("groups", [1, 2, 15, 16, 100, 1000])
@pytest.mark.parametrize("of_all", [False, True])
def test_the_plan_reads_the_rows_once_and_sorts_only_units_above_the_bound(*, of_all: bool, groups: int) -> None:
    plan = plan_of(groups, of_all=of_all)
    names = [name for name, _ in plan]
    assert names.count("SEQ_SCAN") == names.count("WINDOW") == 1
    assert names.count("CTE") == 2
    sorted_part = [name for name in names[names.index("WINDOW") :] if name not in {"PROJECTION", "FILTER"}]
    assert sorted_part == ["WINDOW", "HASH_JOIN", "CTE_SCAN", "CTE_SCAN"]
    text = " ".join(info for _, info in plan)
    assert not any(word in text for word in ("arg_min", "UNNEST", "DOUBLE", "FLOAT", "sqrt"))
