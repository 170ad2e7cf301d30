"""COUNT(DISTINCT x): a unit raises the number of different values of a group by 0 to D, and changes nothing else.

The generated SQL is run on all families of values of 3 users, under all orders in which each of them can draw 3 values,
and on random tables. The laws of what is released are computed from these numbers, in both directions.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import permutations, product

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.laws import cks, discrete_gaussian_law, excess, hockey_stick, named, peeling_law
from support.session_kit import session_on
from support.sql_reference import drop_unit, find_moves, keep_unit
from support.sql_reference import fill as fill_table

import dpsql
from dpsql.mechanisms import LimitedDomain, NoisyCounts
from dpsql.mechanisms.base import Histogram
from dpsql.session import Session
from dpsql.sql.render.duckdb import Writer

Counts = npt.NDArray[np.int64]
USERS = VALUES = 3
FAMILIES = 2 ** (USERS * VALUES)
ORDERS = list(product(permutations(range(VALUES)), repeat=USERS))
CON = duckdb.connect()
CON.execute("CREATE TABLE visits (unit BIGINT, k BIGINT, x BIGINT)")
CON.execute("CREATE TABLE few (unit BIGINT, k BIGINT, x BIGINT)")
CON.execute("CREATE TABLE rows (unit BIGINT, k VARCHAR, x DOUBLE, t VARCHAR, n INTEGER)")
BOUNDS = {"rows": 20, "x": {"distinct": 2}, "t": {"distinct": 2}}
BY_DRAW = f"list_extract($draws, (dpsql_key_1 // {FAMILIES} * 3 + dpsql_unit) * 3 + dpsql_item_1 + 1)"


def session_over(groups: int | None = None) -> Session:
    table = dpsql.PrivateTable("unit", bounds=BOUNDS, max_groups_contributed=groups)
    return session_on(
        CON, dpsql.Policy(dpsql.Budget(50, "1e-6"), {"visits": dpsql.PrivateTable("unit"), "rows": table})
    )


@pytest.fixture(scope="module")
def draws() -> list[int]:
    """Every family under every order is a group: its number is that of the order times FAMILIES, and of the family."""
    groups = np.arange(len(ORDERS) * FAMILIES)
    family, columns = groups % FAMILIES, [list[npt.NDArray[np.int64]]() for _ in range(3)]
    for user, value in product(range(USERS), range(VALUES)):
        having = groups[(family >> (user * VALUES + value)) & 1 == 1]
        for column, each in zip(columns, (user, 0, value), strict=True):
            column.append(np.full(len(having), each))
        columns[1][-1] = having
    rows = pa.table({name: np.concatenate(each) for name, each in zip(("unit", "k", "x"), columns, strict=True)})
    CON.register("given", rows)
    CON.execute("DELETE FROM visits")
    CON.execute("INSERT INTO visits SELECT unit, k, x FROM given")
    CON.execute("INSERT INTO visits SELECT DISTINCT unit, k, NULL FROM given")  # which is no value
    return [order.index(value) for orders in ORDERS for order in orders for value in range(VALUES)]


def write_counting(most: int, draw: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the SQL of all groups in which a draw is an expression."""
    monkeypatch.setattr(Writer, "draw", lambda *_, **__: draw)
    sql = f"SELECT k, COUNT(DISTINCT x, contribution_bounds_per_group => (0, {most})) AS n FROM visits GROUP BY k"
    counting = session_over().explain(f"{sql} TOP 9 PRIVATE WITH (mechanism = limited_domain)").counting
    assert not counting.parameters
    monkeypatch.undo()
    return counting.sql.rpartition(" ORDER BY ")[0]


def count(sql: str, draws: list[int]) -> Counts:
    """Return the number of each order and family, whose last dimensions are the sets of values of each user."""
    found = CON.sql(sql, params={"draws": draws} if "$draws" in sql else None).to_arrow_table()
    counts = np.zeros(len(ORDERS) * FAMILIES, np.int64)
    counts[found.column(0).to_numpy()] = found.column(1).to_numpy()
    return counts.reshape(len(ORDERS), *[2**VALUES] * USERS)  # the last dimension is that of user 0


def expect(most: int) -> Counts:
    """Return the numbers by the definition: of the union of the first values of each user in its order."""
    kept = {
        (order, values): sum(1 << value for value in [each for each in order if values >> each & 1][:most])
        for order in permutations(range(VALUES))
        for values in range(2**VALUES)
    }
    found = [
        (kept[orders[0], own] | kept[orders[1], second] | kept[orders[2], third]).bit_count()
        for orders in ORDERS
        for third, second, own in product(range(2**VALUES), repeat=USERS)
    ]
    return np.array(found).reshape(len(ORDERS), *[2**VALUES] * USERS)


def find_changes(counts: Counts) -> tuple[int, int]:
    """Return the least and the greatest change that adding any user makes to any family, under any order."""
    changes = [counts - counts.take([0], axis=1 + user) for user in range(USERS)]
    return min(int(each.min()) for each in changes), max(int(each.max()) for each in changes)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_user_adds_at_most_its_values_whatever_the_others_have(
    most: int, draws: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = count(write_counting(most, BY_DRAW, monkeypatch), draws)
    assert np.array_equal(counts, expect(most))
    assert find_changes(counts) == (0, most)


WITHIN, KEPT = "PARTITION BY dpsql_key_1, dpsql_unit ORDER BY", "WHERE dpsql_place_1 <= "
VALUES_COUNTED = "system.main.count(DISTINCT dpsql_part_1)"
NULL_LAST = "CASE WHEN dpsql_item_1 IS NULL THEN 1 ELSE 0 END, dpsql_draw_1,"
BY_FREQUENCY = "system.main.count() OVER (PARTITION BY dpsql_key_1, dpsql_item_1)"
MISTAKES = {  # the number of values of a user, the draw, edits of the SQL, and the least and greatest changes
    "rare values first": (2, BY_FREQUENCY, {}, (0, 2)),
    "frequent values first": (2, f"-{BY_FREQUENCY}", {}, (0, 2)),
    "no PARTITION BY user": (2, BY_DRAW, {WITHIN: "PARTITION BY dpsql_key_1 ORDER BY"}, (-1, 2)),
    "so many values for each user of the group": (
        1,
        BY_DRAW,
        {KEPT: "WHERE 1 <= ", VALUES_COUNTED: f"least({VALUES_COUNTED}, count(DISTINCT dpsql_unit))"},
        (0, 2),
    ),
    "NULL as a value": (1, BY_DRAW, {NULL_LAST: "dpsql_item_1 IS NOT NULL, dpsql_draw_1,"}, (0, 0)),
    "a draw by the value alone": (2, "dpsql_item_1", {}, (0, 2)),
    "all values": (2, BY_DRAW, {KEPT: "WHERE 1 <= "}, (0, 3)),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_what_is_kept_are_told_from_it(
    mistake: str, draws: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    most, draw, edits, changes = MISTAKES[mistake]
    sql = write_counting(most, draw, monkeypatch)
    for old, new in edits.items():
        assert old in sql
        sql = sql.replace(old, new)
    counts = count(sql, draws)
    assert not np.array_equal(counts, expect(most))
    assert find_changes(counts) == changes


@pytest.mark.mutant
def test_rare_values_first_let_a_user_bring_in_the_values_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding a user with one value makes three others keep another value than they did."""
    others = [(user, 0, value) for user, own in enumerate((1, 2, 3)) for value in (9, own)]
    others += [(user, 0, value) for user in (3, 4, 5) for value in (0, 1, 2, 3)]
    changes = []
    for draw in (BY_FREQUENCY, "hash(dpsql_unit * 100 + dpsql_item_1)"):
        sql, found = write_counting(1, draw, monkeypatch).replace('"visits"', '"few"'), []
        for rows in (others, [*others, (6, 0, 9)]):
            CON.execute("DELETE FROM few")
            CON.executemany("INSERT INTO few VALUES (?, ?, ?)", rows)
            found.append(CON.execute(sql).fetchall()[0][1])
        changes.append(found[1] - found[0])
    assert changes[0] == 3
    assert changes[1] in {0, 1}


# Laws of what is released, of the numbers that the SQL counts


def list_changes(counts: Counts) -> list[tuple[int, int]]:
    """Return the numbers without and with a user that some family has."""
    pairs = [
        np.stack([np.broadcast_to(counts.take([0], axis=1 + user), counts.shape), counts]) for user in range(USERS)
    ]
    return [
        (int(less), int(more))
        for less, more in np.unique(np.concatenate([each.reshape(2, -1) for each in pairs], 1), axis=1).T
    ]


def find_law(mechanism: LimitedDomain, counts: tuple[int, int]) -> dict[tuple[str, ...], float]:
    """Return the law of the names that are released of two groups; one without a value is not there."""
    groups = sorted(((-each, label) for label, each in zip("ab", counts, strict=True) if each))
    leaders = Histogram.of_leaders(tuple(-each for each, _ in groups), mechanism.k_bar)
    bottom = float(max(leaders.following + mechanism.threshold_offset, mechanism.least_threshold))
    epsilon = float(mechanism.epsilon) / mechanism.sensitivity
    return named(peeling_law(leaders.leaders, bottom, epsilon, mechanism.k), [label for _, label in groups])


def find_excess(mechanism: LimitedDomain, changes: list[tuple[int, int]]) -> float:
    """Return the worst excess of a ranking of two groups, of which a user changes both, in both directions.

    Others have values that the user has not: none, or so many that the groups are about at the threshold.
    """
    worst = 0.0
    line = math.ceil(mechanism.threshold_offset)
    for ((one, more), (other, others)), rest in product(product(changes, repeat=2), (0, line - 3, line)):
        laws = [find_law(mechanism, (first + rest, second + rest)) for first, second in ((one, other), (more, others))]
        worst = max(worst, excess(mechanism, laws[0], laws[1]), excess(mechanism, laws[1], laws[0]))
    return worst


@pytest.mark.parametrize("most", [1, 2])
def test_the_laws_of_neighbours_are_within_the_price(
    most: int, draws: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ranking of two groups, and the released number of one; half of the sensitivity is told from it."""
    changes = list_changes(count(write_counting(most, BY_DRAW, monkeypatch), draws))
    assert max(more - less for less, more in changes) == most
    measure = f"COUNT(DISTINCT x, contribution_bounds_per_group => (0, {most})) AS n"
    sql = f"SELECT k, {measure} FROM visits GROUP BY k TOP 1 PRIVATE WITH (mechanism = limited_domain, epsilon = 1)"
    plan = session_over().explain(sql)
    mechanism, release = plan.mechanism_plan.selection, plan.mechanism_plan.price.counts
    assert isinstance(mechanism, LimitedDomain)
    assert isinstance(release, NoisyCounts)
    assert find_excess(mechanism, changes) <= 1 + 1e-9
    law, rho = discrete_gaussian_law(release.variance), Fraction(1, 8)
    shifted = {value + most: mass for value, mass in law.items()}
    levels = [0.05, 0.1, 0.25, 0.5, 1.0]
    assert max(hockey_stick(law, shifted, level) / cks(rho, level) for level in levels) <= 1 + 1e-9
    assert max(hockey_stick(shifted, law, level) / cks(rho, level) for level in levels) <= 1 + 1e-9
    if most > 1:
        assert find_excess(replace(mechanism, sensitivity=1), changes) > 1


# Random tables


CELLS = (
    [None, 0, 1, 2, 3],
    [None, "a", "b", "c"],
    [None, math.nan, 0.0, -0.0, 1.5, math.inf, -2.0],
    [None, "", "x", "X", "x "],
    [0, 1, 2],
)
ROWS = st.lists(st.tuples(*map(st.sampled_from, CELLS)), max_size=24)
MEASURES = [
    "COUNT(DISTINCT x{})",
    "COUNT(DISTINCT t{})",
    "COUNT(DISTINCT t{}) FILTER (WHERE n > 0)",
    "COUNT(DISTINCT x * n{})",
]
BESIDE = ["COUNT(DISTINCT unit)", "COUNT(*)", "SUM(n, contribution_bounds_per_group => (0, 100))"]
SESSIONS = {groups: session_over(groups) for groups in (None, 1, 2)}
fill = partial(fill_table, CON, "rows")


def read(sql: str, groups: int | None = None) -> dict[object, tuple[int, ...]]:
    counting = SESSIONS[groups].explain(sql).counting
    found = CON.execute(counting.sql, list(counting.parameters)).fetchall()
    return {row[0]: row[1 : len(row) - counting.has_total] for row in found}  # without the number of all users


@given(ROWS, st.sampled_from(MEASURES))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_without_a_cut_the_numbers_are_those_of_the_engine(rows: list[tuple[object, ...]], measure: str) -> None:
    fill(rows)
    bounds, ending = ", contribution_bounds_per_group => (0, 100)", "TOP 9 PRIVATE WITH (mechanism = limited_domain)"
    listed = f"{measure.format(bounds)} AS m, {', '.join(f'{each} AS b{at}' for at, each in enumerate(BESIDE))}"
    plain = (
        measure.format("")
        .replace("DISTINCT x * n", "DISTINCT nullif(x * n, 'nan')")
        .replace("T x", "T nullif(x, 'nan')")
    )
    expected = CON.execute(
        f"SELECT k, {plain}, count(DISTINCT unit), count(*), sum(n) FROM rows WHERE unit IS NOT NULL GROUP BY k"
    ).fetchall()
    found = read(f"SELECT k, {listed} FROM rows GROUP BY k {ending}")
    assert {key: (row[0], *sorted(row[1:])) for key, row in found.items()} == {
        row[0]: (row[1], *sorted(row[2:])) for row in expected if row[1]
    }


@given(ROWS, st.sampled_from(MEASURES), st.sampled_from(list(SESSIONS)), st.sampled_from([0, 1, 2, 3]))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_user_changes_its_groups_alone(
    rows: list[tuple[object, ...]], measure: str, groups: int | None, user: int
) -> None:
    """By 0 to 2 values each, in so many groups as it counts in, and no more than the values that it has."""
    sql = f"SELECT k, {measure.format(', contribution_bounds_per_group => (0, 2)')} AS m FROM rows "
    sql += "GROUP BY k TOP 9 PRIVATE WITH (mechanism = limited_domain)"
    found = []
    for part in (rows, drop_unit(rows, user), keep_unit(rows, user)):
        fill(part)
        found.append({key: row[0] for key, row in read(sql, groups).items()})
    together, without, alone = found
    changes = find_moves(together, without)
    assert all(0 <= change <= alone.get(key, 0) <= 2 for key, change in changes.items())
    assert len(alone) <= (groups or len(CELLS[1]))
