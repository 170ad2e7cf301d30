"""Drop one privacy unit from random tables, under random accepted queries: the generated SQL may move no further.

Plain plan: no group's count moves by more than 1, and only in groups that the unit is in. Bounded plan: the counts are
the sum of what each unit keeps when it is alone in the table, at most
`Bound.max_groups_contributed` groups of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.sql_reference import (
    Row,
    catalog_of,
    counts,
    drop_unit,
    find_moves,
    keep_unit,
    private,
    reference_counts,
    reference_sql,
)
from support.sql_reference import fill as fill_table

from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite import bounding
from dpsql.sql.rewrite.engine_query import Bound

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
FORMS = ["least", "window", "split"]


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


fill = partial(fill_table, CON, "events")


def alone(query: PrivateQuery, rows: list[Row], bound: Bound | None = None) -> dict[object, dict[Row, int]]:
    """Return, of each unit, the counts on the table that holds its rows only."""
    found = {}
    for unit in {row[0] for row in rows} - {None}:
        fill(keep_unit(rows, unit))
        found[unit] = counts(CON, query, bound)
    return found


def total(parts: Iterable[dict[Row, int]]) -> dict[Row, int]:
    return dict(sum(map(Counter, parts), Counter()))


@contextmanager
def form_of(name: str) -> Iterator[None]:
    """Let bounds that small tables can exceed take the form of large ones too."""
    with pytest.MonkeyPatch.context() as patch:
        if name == "split":
            patch.setattr(bounding, "MIN_GROUPS_SORTED_APART", 2)
        yield


EXAMPLES = settings(max_examples=examples(500), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@EXAMPLES
@given(statements(), ROWS, st.sampled_from(UNITS[1:]))
def test_dropping_a_unit_moves_no_count_by_more_than_one(text: str, rows: list[Row], unit: int) -> None:
    query = private(text, CATALOG)
    fill(rows)
    before = counts(CON, query)
    fill(drop_unit(rows, unit))
    after = counts(CON, query)
    fill(keep_unit(rows, unit))
    alone = counts(CON, query)
    changes = find_moves(before, after)
    assert set(changes.values()) <= {0, 1}
    assert {key for key, change in changes.items() if change} == set(alone)


@pytest.mark.parametrize("form", FORMS)
@settings(EXAMPLES, max_examples=examples(170))
@given(statements(), ROWS, st.randoms(use_true_random=False), st.integers(2, 3))
def test_a_bounded_count_is_the_sum_of_what_each_unit_keeps_alone(
    form: str, text: str, rows: list[Row], random: Random, groups: int
) -> None:
    """So a unit moves at most its bound, by 1 each, and nobody else's groups, whoever else is in the table."""
    query, bound = private(text, CATALOG), Bound(1 if form == "least" else groups, SALTS)
    strangers = [(99, *row[1:]) for row in rows[:5]]
    shuffled = rows + rows[:4]
    random.shuffle(shuffled)
    with form_of(form):
        kept, own = alone(query, rows + strangers, bound), alone(query, rows + strangers)
        for unit, chosen in kept.items():
            assert chosen.keys() <= own[unit].keys()
            assert len(chosen) == sum(chosen.values()) == min(bound.max_groups_contributed, len(own[unit]))
        for present in (rows + strangers, rows, shuffled, drop_unit(rows, 1)):
            fill(present)
            present_units = {row[0] for row in present} - {None}
            assert counts(CON, query, bound) == total(kept[unit] for unit in present_units)


@settings(EXAMPLES, max_examples=examples(150))
@given(statements(), ROWS)
def test_counts_equal_the_reference(text: str, rows: list[Row]) -> None:
    """The reference compares NOCASE text without case, so it runs on spellings that case does not tell apart.

    A mix of both columns is NOCASE too.
    """
    query = private(text, CATALOG)
    folded = {1, 2} if "coalesce(w, c)" in text else {2}
    fill([tuple(cell.lower() if at in folded and cell else cell for at, cell in enumerate(row)) for row in rows])
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


@pytest.mark.parametrize("groups", [1, 3, 15, 16, 20])
def test_a_heavy_unit_keeps_its_bound_and_others_all_their_groups(groups: int) -> None:
    query, bound = private("SELECT n FROM events GROUP BY n TOP 10 PRIVATE", CATALOG), Bound(groups, SALTS)
    rows = [(1, "a", "a", at, 0.0, True) for at in range(BOUNDED)] + [(2, "a", "a", 1, 0.0, True)] * 3
    kept = alone(query, rows, bound)
    assert {unit: len(chosen) for unit, chosen in kept.items()} == {1: groups, 2: 1}
    fill(rows)
    assert counts(CON, query, bound) == total(kept.values())
    assert counts(CON, query, Bound(BOUNDED, SALTS)) == counts(CON, query)


@pytest.mark.parametrize("groups", [1, 10, 20])
def test_other_salts_choose_other_groups(groups: int) -> None:
    query = private("SELECT n FROM events GROUP BY n TOP 10 PRIVATE", CATALOG)
    fill([(1, "a", "a", at, 0.0, True) for at in range(BOUNDED)])
    first, second = SALTS
    chosen = {
        frozenset(counts(CON, query, Bound(groups, salts)))
        for salts in [SALTS, SALTS, (second, first), (first, second + 1), (first + 1, second)]
    }
    assert len(chosen) == 4


def test_units_that_a_collation_confuses_are_counted_apart() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE visits(who VARCHAR COLLATE NOCASE, page VARCHAR)")
    con.execute("INSERT INTO visits VALUES ('Ann', 'x'), ('ann', 'x'), ('ann', 'y'), ('bob', 'x')")
    query = private("SELECT page FROM visits GROUP BY page TOP 10 PRIVATE", catalog_of(con, {"visits": "who"}, []))
    assert sorted(counts(con, query).values()) == [1, 3]
    for groups in (5, 20):
        assert sorted(counts(con, query, Bound(groups, SALTS)).values()) == [1, 3]
    assert sum(counts(con, query, Bound(1, SALTS)).values()) == 3
