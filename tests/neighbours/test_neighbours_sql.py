"""Drop one privacy unit from random tables, under random accepted queries: the generated SQL may move no further.

Plain plan: no group's count moves by more than 1, and only in groups that the unit is in. Bounded plan: at most
`Bound.groups` groups move, no unit keeps more, and nobody else's kept groups change.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sql_reference import Row, catalog_of, counts, private, reference_counts, reference_sql

from dpsql.sql.query import PrivateQuery
from dpsql.sql.rewrite import UNIT, Bound, rewrite

UNITS = [None, 0, 1, 2, 3]
WORDS = [None, "", "a", "A", "b", "aa"]
NUMBERS = [None, 0, 1, -1, 5, 2**62]
DOUBLES = [None, 0.0, -0.0, 1.5, float("nan"), float("inf")]
CON = duckdb.connect()
CON.execute("""
    CREATE TABLE events(unit BIGINT, w VARCHAR, c VARCHAR COLLATE NOCASE, n BIGINT, x DOUBLE, b BOOLEAN);
    CREATE TABLE tags(w VARCHAR, tag VARCHAR, n BIGINT);
    INSERT INTO tags VALUES
        ('a', 'one', 1), ('a', 'two', 5), ('A', 'one', 0), ('b', NULL, 1), (NULL, 'none', NULL), ('', 'one', 5)
""")
CATALOG = catalog_of(CON, {"events": "unit"}, ["tags"])
KEYS = [
    "w",
    "c",
    "n",
    "x",
    "b",
    "upper(w) AS k",
    "n % 3 AS m",
    "n > 0 AS p",
    "coalesce(w, c) AS z",
    "x * 2 AS y",
    "left(c, 1) AS l",
]
FILTERS = [
    "n > 0",
    "w <> 'a'",
    "c = 'a'",
    "b IS NOT TRUE",
    "x >= 0",
    "n BETWEEN 0 AND 5",
    "w IN ('a', 'b')",
    "w IS NULL",
    "unit <> 1",
]
ROWS = st.lists(
    st.tuples(*map(st.sampled_from, (UNITS, WORDS, WORDS, NUMBERS, DOUBLES, [None, True, False]))), max_size=14
)
SALTS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
BOUNDED = 200


def condition(random: Random) -> str:
    first, second = random.choice(FILTERS), random.choice(FILTERS)
    return random.choice(["{0}", "{0} AND {1}", "{0} OR {1}", "NOT ({0} AND {1})"]).format(first, second)


def source(random: Random, text: str) -> str:
    """Return a query whose names `events` come through a filter, a derived table, a CTE or nothing."""
    inner = f"SELECT * FROM events WHERE {condition(random)}"
    match random.randrange(4):
        case 0:
            return text.replace("@", f"({inner}) AS events")
        case 1:
            return f"WITH events AS ({inner}) " + text.replace("@", "events")
        case 2:
            return f"WITH a AS ({inner}), z AS (SELECT unit, w, c, n, x, b FROM a) " + text.replace("@", "z AS events")
        case _:
            return text.replace("@", "events")


@st.composite
def statements(draw: st.DrawFn) -> str:
    """Draw a statement of the accepted grammar over `events` and `tags`."""
    random = draw(st.randoms(use_true_random=False))
    chosen = random.sample(KEYS, random.randint(1, 3))
    tables, keys = "@", chosen
    if random.random() < 0.4:
        kind = random.choice(["JOIN", "LEFT JOIN"])
        match random.randrange(3):
            case 0:
                tables = f"@ {kind} tags AS g ON events.w = g.w"
            case 1:
                tables = (
                    f"@ {kind} (SELECT w AS word, tag, n AS nn FROM tags WHERE n > 0) AS g ON c = g.word AND n >= nn"
                )
            case _:
                tables = "tags AS g JOIN @ ON events.w = g.w OR events.n = g.n"
        keys = [*[f"events.{key}" for key in chosen if len(key) == 1][:2], "g.tag"]
    select = ", ".join(keys)
    where = ""
    if random.random() < 0.6 and "tags" not in tables:
        where = f" WHERE {condition(random)}"
    count = ", COUNT(DISTINCT events.unit) AS units" if random.random() < 0.3 else ""
    positions = ", ".join(str(at) for at in range(1, len(keys) + 1))
    group = random.choice([f" GROUP BY {positions}", " GROUP BY ALL"])
    if not count and random.random() < 0.2:
        return source(random, f"SELECT DISTINCT {select} FROM {tables}{where} TOP 10 PRIVATE")
    return source(random, f"SELECT {select}{count} FROM {tables}{where}{group} TOP 10 PRIVATE")


def fill(rows: list[Row]) -> None:
    CON.execute("DELETE FROM events")
    if rows:
        CON.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)


def without(rows: list[Row], unit: object) -> list[Row]:
    return [row for row in rows if row[0] != unit]


def kept(query: PrivateQuery, bound: Bound) -> dict[object, set[Row]]:
    """Return the groups that the bounded plan keeps of each unit, by the plan's own innermost stages."""
    counting = rewrite(query, 1_000, bound=bound)
    text = counting.sql
    start, end = text.index("FROM (") + len("FROM ("), text.rindex(") GROUP BY")
    inner = (
        text[start:end].replace("SELECT ", f"SELECT {UNIT}, ", 1).replace("FROM (SELECT ", f"FROM (SELECT {UNIT}, ", 1)
    )
    found: dict[object, set[Row]] = {}
    for unit, *group in CON.execute(inner, list(counting.parameters)).fetchall():
        found.setdefault(unit, set()).add(tuple(map(repr, group)))
    return found


def moved(before: dict[Row, int], after: dict[Row, int]) -> dict[Row, int]:
    return {key: before.get(key, 0) - after.get(key, 0) for key in before.keys() | after.keys()}


EXAMPLES = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@EXAMPLES
@given(statements(), ROWS, st.sampled_from(UNITS[1:]))
def test_dropping_a_unit_moves_no_count_by_more_than_one(text: str, rows: list[Row], unit: int) -> None:
    query = private(text, CATALOG)
    fill(rows)
    before = counts(CON, query)
    fill(without(rows, unit))
    after = counts(CON, query)
    fill([row for row in rows if row[0] == unit])
    alone = counts(CON, query)
    changes = moved(before, after)
    assert set(changes.values()) <= {0, 1}
    assert {key for key, change in changes.items() if change} == set(alone)


@settings(EXAMPLES, max_examples=500)
@given(statements(), ROWS, st.sampled_from(UNITS[1:]), st.integers(1, 3))
def test_the_bounded_plan_moves_at_most_its_bound(text: str, rows: list[Row], unit: int, groups: int) -> None:
    query, bound = private(text, CATALOG), Bound(groups, SALTS)
    fill(rows)
    before, plain, of_all = counts(CON, query, bound), counts(CON, query), kept(query, bound)
    assert all(len(chosen) <= groups for chosen in of_all.values())
    assert sum(before.values()) == sum(map(len, of_all.values()))
    assert all(count <= plain[key] for key, count in before.items())
    fill(without(rows, unit))
    after, of_others = counts(CON, query, bound), kept(query, bound)
    changes = moved(before, after)
    assert set(changes.values()) <= {0, 1}
    assert sum(changes.values()) <= groups
    assert of_others == {other: chosen for other, chosen in of_all.items() if other != unit}
    fill([(99, *row[1:]) for row in rows[:5]] + rows)
    assert {other: chosen for other, chosen in kept(query, bound).items() if other != 99} == of_all


@settings(EXAMPLES, max_examples=150)
@given(statements(), ROWS)
def test_counts_equal_the_reference(text: str, rows: list[Row]) -> None:
    """The reference compares NOCASE text without case, so it runs on spellings that case does not tell apart."""
    query = private(text, CATALOG)
    fill([(*row[:2], row[2] and str(row[2]).lower(), *row[3:]) for row in rows])
    assert "dpsql_n" in reference_sql(text, "events.unit", counted=False)
    try:
        wanted = reference_counts(CON, query, "events.unit")
    except duckdb.Error:
        return  # such as an overflow on a row: NULL in the generated SQL
    assert counts(CON, query) == wanted


def test_rows_without_a_unit_count_for_nobody() -> None:
    query = private("SELECT w FROM events GROUP BY w TOP 10 PRIVATE", CATALOG)
    fill([(None, "a", None, 1, 0.0, True)] * 5)
    assert counts(CON, query) == counts(CON, query, Bound(3, SALTS)) == {}
    fill([(None, "a", None, 1, 0.0, True), (7, "a", None, 1, 0.0, True)])
    assert list(counts(CON, query).values()) == list(counts(CON, query, Bound(3, SALTS)).values()) == [1]


@pytest.mark.parametrize("groups", [1, 3, 20])
def test_a_heavy_unit_keeps_its_bound_and_others_all_their_groups(groups: int) -> None:
    query = private("SELECT n FROM events GROUP BY n TOP 10 PRIVATE", CATALOG)
    fill([(1, "a", "a", at, 0.0, True) for at in range(BOUNDED)] + [(2, "a", "a", 1, 0.0, True)] * 3)
    chosen = kept(query, Bound(groups, SALTS))
    assert {unit: len(of_unit) for unit, of_unit in chosen.items()} == {1: groups, 2: 1}


def test_other_salts_choose_other_groups() -> None:
    query = private("SELECT n FROM events GROUP BY n TOP 10 PRIVATE", CATALOG)
    fill([(1, "a", "a", at, 0.0, True) for at in range(BOUNDED)])
    first, second = kept(query, Bound(10, SALTS)), kept(query, Bound(10, (SALTS[1], SALTS[0])))
    assert first != second
    assert first == kept(query, Bound(10, SALTS))


def test_units_that_a_collation_confuses_are_counted_apart() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE visits(who VARCHAR COLLATE NOCASE, page VARCHAR)")
    con.execute("INSERT INTO visits VALUES ('Ann', 'x'), ('ann', 'x'), ('ann', 'y'), ('bob', 'x')")
    query = private("SELECT page FROM visits GROUP BY page TOP 10 PRIVATE", catalog_of(con, {"visits": "who"}, []))
    assert sorted(counts(con, query).values()) == [1, 3]
    assert sorted(counts(con, query, Bound(5, SALTS)).values()) == [1, 3]


def operators(sql: str, parameters: Sequence[object] = ()) -> list[str]:
    """Return the operators of DuckDB's plan, with the aggregates they compute."""
    ((_, plan),) = CON.execute(f"EXPLAIN (FORMAT json) {sql}", list(parameters)).fetchall()
    found, rest = [], json.loads(plan)
    while rest:
        node = rest.pop(0)
        found.append(f"{node['name']} {node['extra_info'].get('Aggregates', '')}".strip())
        rest = node["children"] + rest
    return [name for name in found if name != "PROJECTION"]


@pytest.mark.parametrize("keys", ["n", "w", "w, n", "x"])
@pytest.mark.parametrize("groups", [1, 2, 5, 20, 100])
def test_the_bounded_plan_sorts_and_is_not_rewritten(keys: str, groups: int) -> None:
    """A window with one sort key would become arg_min lists: slower, and out of memory on large tables."""
    fill([(at % 50, "a", "a", at, 0.0, True) for at in range(500)])
    query = private(f"SELECT {keys} FROM events GROUP BY ALL TOP 10 PRIVATE", CATALOG)
    counting = rewrite(query, 100, bound=Bound(groups, SALTS))
    plan = operators(counting.sql, counting.parameters)
    assert "WINDOW" in plan
    assert not any("arg_min" in name or "UNNEST" in name for name in plan)


def test_the_guard_sees_the_rewriting_it_guards_against() -> None:
    fill([(at % 50, "a", "a", at, 0.0, True) for at in range(500)])
    rank = "row_number() OVER (PARTITION BY unit ORDER BY hash(n))"
    plan = operators(f"SELECT n FROM (SELECT n, {rank} AS r FROM events) WHERE r <= 5")
    assert any("arg_min" in name for name in plan)
    assert "WINDOW" not in plan


@pytest.mark.parametrize(("keys", "order"), [("n", "n"), ("w", "w COLLATE C"), ("w, n", "w COLLATE C, n")])
def test_the_unbounded_plan_is_the_plain_one(keys: str, order: str) -> None:
    """What the analyst runs today, with the ties broken: the same operators in the same order."""
    fill([(at % 50, "a", "a", at, 0.0, True) for at in range(500)])
    counting = rewrite(private(f"SELECT {keys} FROM events GROUP BY ALL TOP 10 PRIVATE", CATALOG), 100)
    counted = f"SELECT {keys}, COUNT(DISTINCT unit) AS c FROM events WHERE unit IS NOT NULL GROUP BY ALL"
    plan = operators(counting.sql, counting.parameters)
    assert plan == operators(f"{counted} ORDER BY c DESC, {order} LIMIT 100")
    assert "TOP_N" in plan
