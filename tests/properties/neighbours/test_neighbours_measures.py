"""Drop one privacy unit under COUNT(*), SUM and AVG: what each group loses is within the bounds of one unit.

The generated SQL is run on random tables. Its sums equal those of a reference in Python, in any order of rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from functools import partial

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.session_kit import session_on
from support.sql_reference import drop_unit, find_moves, keep_unit
from support.sql_reference import fill as fill_table

import dpsql
from dpsql.session import Session
from dpsql.sql.ir.measures import Aggregate, Measure

Row = tuple[object, ...]
UNITS = [None, 0, 1, 2, 3]
KEYS = [None, "a", "b", "c"]
WHOLE = [None, -7, 0, 1, 3, 4, 5, 40_000]
EXACT = [None, Decimal("-1.25"), Decimal("0.00"), Decimal("0.01"), Decimal("2.50"), Decimal("9.99"), Decimal(400)]
REAL = [None, float("nan"), float("inf"), float("-inf"), -2.5, -0.0, 1e-9, 0.1, 0.3, 7.3, 9.999999, 10.0, 1e300]
CON = duckdb.connect()
CON.execute("CREATE TABLE orders (unit BIGINT, k VARCHAR, n INTEGER, d DECIMAL(10, 2), x DOUBLE, big BIGINT)")
BOUNDS = {
    "rows": 3,
    "n": {"max": 5},
    "d": {"max": 10, "min": -2},
    "x": {"max": 10},
    "big": {"max": 3_000_000, "min": -1_000_000},
}
MEASURES = {
    "COUNT(*)": "rows",
    "COUNT(n)": "rows",
    "COUNT(DISTINCT unit)": "units",
    "COUNT(DISTINCT unit) FILTER (WHERE n > 1)": "units",
    "COUNT(*) FILTER (WHERE x > 0)": "rows",
    "SUM(n)": "n",
    "SUM(n) FILTER (WHERE k <> 'a')": "n",
    "SUM(x)": "x",
    "SUM(LEAST(x, 5e0))": "x",
    "SUM(2 * n)": "n",
    "SUM(n * n)": "n",
    "SUM(n, contribution_bounds_per_group => (0, 40))": "n",
    "SUM(-n)": "signed",
    "SUM(n - x)": "signed",
    "SUM(CAST(d AS INTEGER) - 3)": "signed",
    "SUM(d)": "d",
    "SUM(big)": "big",
    "AVG(n)": "n",
    "AVG(x)": "x",
    "AVG(d) FILTER (WHERE n > 0)": "d",
    "AVG(big)": "big",
}
POSITIVE = [text for text, column in MEASURES.items() if column not in {"d", "big", "signed"}]
ROWS = st.lists(
    st.tuples(*map(st.sampled_from, (UNITS, KEYS, WHOLE, EXACT, REAL, [None, 0, 2_500_000, -9, 10**15]))), max_size=16
)
GROUPS = [None, 1, 2]
ENOUGH = 9  # groups of a unit: more than there are keys
RANKED = [("COUNT(*)", None), ("COUNT(n)", 2), ("SUM(n)", 2), ("SUM(x)", 4)]


def session_over(groups: int | None) -> Session:
    table = dpsql.PrivateTable("unit", bounds=BOUNDS, max_groups_contributed=groups)
    return session_on(CON, dpsql.Policy(dpsql.Budget(50, "1e-6"), {"orders": table}))


SESSIONS = {groups: session_over(groups) for groups in (*GROUPS, ENOUGH)}
fill = partial(fill_table, CON, "orders")


def read(sql: str, groups: int | None) -> dict[tuple[object, ...], tuple[int, ...]]:
    """Return the exact measures, in steps, that a mechanism is given for each group."""
    counting = SESSIONS[groups].explain(sql).counting
    rows = CON.execute(counting.sql, list(counting.parameters)).fetchall()
    keys = int("GROUP BY" in sql)
    return {row[:keys]: row[keys : len(row) - counting.has_total] for row in rows}


def measures_of(sql: str, groups: int | None) -> tuple[Measure, ...]:
    return SESSIONS[groups].explain(sql).query.measures


def forms(names: list[str], shape: str) -> str:
    listed = ", ".join(f"{name} AS m{at}" for at, name in enumerate(names))
    if shape == "total":
        return f"SELECT {listed} FROM orders PRIVATE"
    if shape == "all":
        return f"SELECT k, {listed} FROM orders GROUP BY k ALL PRIVATE WITH (domain = ['a', 'b', 'z'])"
    return f"SELECT k, {listed} FROM orders GROUP BY k TOP 9 PRIVATE WITH (mechanism = limited_domain)"


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(list(MEASURES)), min_size=1, max_size=3, unique=True),
    st.sampled_from(["total", "all", "top"]),
    ROWS,
    st.sampled_from(UNITS[1:]),
    st.sampled_from(GROUPS),
)
def test_dropping_a_unit_moves_each_measure_within_its_bounds(
    names: list[str], shape: str, rows: list[Row], unit: int, groups: int | None
) -> None:
    if shape == "top":
        ranking = next((name for name in names if name in POSITIVE and not name.startswith("AVG")), "COUNT(*)")
        names = [ranking, *(name for name in names if name != ranking)]
    sql = forms(names, shape)
    measures = measures_of(sql, groups)
    fill(rows)
    before = read(sql, groups)
    fill(drop_unit(rows, unit))
    after = read(sql, groups)
    if shape != "top":
        assert before.keys() == after.keys()
    nothing = (0,) * len(measures)
    moved = 0
    for key in before.keys() | after.keys():
        changes = [a - b for a, b in zip(before.get(key, nothing), after.get(key, nothing), strict=True)]
        moved += any(changes)
        for change, measure in zip(changes, measures, strict=True):
            if shape == "top" and (key in before) != (key in after):
                continue  # the first measure of a group that is there or not is checked below
            low, high = (0, 1) if measure.bounds is None else (measure.bounds.low, measure.bounds.high)
            assert low <= change <= high
        if shape == "top" and (key in before) != (key in after):
            first = before.get(key, after.get(key, nothing))[0]
            assert 0 < first <= (1 if measures[0].bounds is None else measures[0].bounds.high)
    assert moved <= (1 if shape == "total" else groups or len(before) + len(after))
    if shape == "top":
        assert all(values[0] > 0 for values in before.values())


def steps_of(value: object, measure: Measure) -> int:
    """Return the steps of one row, by the words of the manual."""
    assert measure.bounds is not None
    low, high, step = measure.bounds.low, measure.bounds.high, measure.bounds.step
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return 0
    if isinstance(value, float) and math.isinf(value):
        return high if value > 0 else low
    return max(low, min(high, math.floor(Fraction(value) / step)))  # type: ignore[arg-type]


def reference(rows: list[Row], measure: Measure, column: int | None) -> dict[object, int]:
    units = defaultdict[tuple[object, object], int](int)
    for row in rows:
        if row[0] is not None:
            units[row[1], row[0]] += 1 if column is None else steps_of(row[column], measure)
    sums = defaultdict[object, int](int)
    for (key, _), total in units.items():
        assert measure.bounds is not None
        sums[key] += max(measure.bounds.low, min(measure.bounds.high, total))
    return dict(sums)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([("COUNT(*)", None), ("SUM(n)", 2), ("SUM(d)", 3), ("SUM(x)", 4), ("SUM(big)", 5)]), ROWS)
def test_the_sums_are_those_of_the_reference_in_any_order(form: tuple[str, int | None], rows: list[Row]) -> None:
    name, column = form
    sql = f"SELECT k, {name} AS m FROM orders GROUP BY k ALL PRIVATE WITH (domain = ['a', 'b', 'c'])"
    (measure,) = measures_of(sql, None)
    expected = reference(rows, measure, column)
    for order in (rows, rows[::-1]):
        fill(order)
        assert {key: value for (key,), (value,) in read(sql, None).items()} == {
            key: expected.get(key, 0) for key in "abc"
        }


def test_a_sum_of_doubles_is_the_same_at_any_number_of_threads_and_order_of_rows() -> None:
    sql = "SELECT k, SUM(x) AS m FROM orders GROUP BY k ALL PRIVATE WITH (domain = ['a', 'b', 'c'])"
    rows = (
        "SELECT i % 700, ['a', 'b', 'c'][i % 3 + 1], 1, 1, sqrt(i) / 30, 1 FROM range(60000) t(i) ORDER BY hash(i + ?)"
    )
    found = set()
    for threads in (1, 2, 4):
        CON.execute(f"SET threads = {threads}")
        fill([])
        CON.execute(f"INSERT INTO orders {rows}", [threads])
        found.add(tuple(sorted(read(sql, None).items())))
    CON.execute("SET threads = 2")
    assert len(found) == 1


def weighing(name: str) -> str:
    return f"SELECT k, {name} AS m FROM orders GROUP BY k TOP 9 PRIVATE WITH (mechanism = weighted_gaussian)"


def contributions(rows: list[Row], measure: Measure, column: int | None) -> dict[object, dict[object, int]]:
    """Return what each unit adds to each group in which it has a row, by the words of the manual."""
    units = defaultdict[object, dict[object, int]](dict)
    for row in rows:
        if row[0] is None:
            continue
        if measure.aggregate is Aggregate.SUM:
            added = steps_of(row[column or 0], measure)
        else:
            added = int(column is None or row[column] is not None)
        units[row[0]][row[1]] = units[row[0]].get(row[1], 0) + added
    assert measure.bounds is not None
    most = measure.bounds.high
    return {unit: {key: min(most, own) for key, own in groups.items()} for unit, groups in units.items()}


def weighed(rows: list[Row], measure: Measure, column: int | None) -> dict[tuple[object, ...], tuple[int, ...]]:
    """Return sums and weights: c / R of 1 / sqrt(t) for a unit in t groups, in whole steps and rounded down."""
    found = defaultdict[object, list[int]](lambda: [0, 0])
    for groups in contributions(rows, measure, column).values():
        whole = math.isqrt(2**40 // len(groups))
        for key, own in groups.items():
            found[key][0] += own
            found[key][1] += own * whole // measure.width
    return {(key,): tuple(values) for key, values in found.items() if values[1] > 0}


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(RANKED), ROWS, st.sampled_from([None, ENOUGH]))
def test_the_weights_of_sums_are_those_of_the_reference(
    form: tuple[str, int | None], rows: list[Row], groups: int | None
) -> None:
    name, column = form
    sql = weighing(name)
    (measure,) = measures_of(sql, groups)
    for order in (rows, rows[::-1]):
        fill(order)
        assert read(sql, groups) == weighed(rows, measure, column)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(RANKED), ROWS, st.sampled_from(UNITS[1:]), st.sampled_from(GROUPS))
def test_dropping_a_unit_moves_weights_by_no_more_than_one(
    form: tuple[str, int | None], rows: list[Row], unit: int, groups: int | None
) -> None:
    """The squares of what a unit adds stay within 1, in its kept groups, and what it adds is what it has alone."""
    sql = weighing(form[0])
    found = []
    for kept in (rows, drop_unit(rows, unit), keep_unit(rows, unit)):
        fill(kept)
        found.append({key: values[1] for key, values in read(sql, groups).items()})
    together, without, alone = found
    moved = find_moves(together, without)
    assert {key: change for key, change in moved.items() if change} == alone
    assert len(alone) <= (groups or len(KEYS))
    assert sum(change * change for change in alone.values()) <= 2**40
    assert min(alone.values(), default=1) > 0


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(RANKED), ROWS, st.sampled_from(UNITS[1:]), st.sampled_from(GROUPS), st.sampled_from(["set", "per"])
)
def test_dropping_a_unit_moves_sets_and_partitions_by_no_more_than_r(
    form: tuple[str, int | None], rows: list[Row], unit: int, groups: int | None, shape: str
) -> None:
    name, _ = form
    if shape == "set":
        sql = f"SELECT k, {name} AS m FROM orders GROUP BY k TOP 9 PRIVATE WITH (mechanism = top_stable)"
    else:
        sql = f"SELECT k, n, {name} AS m FROM orders GROUP BY k, n TOP 9 PRIVATE PER k WITH (partitions = ['a', 'b'])"
    (measure,) = measures_of(sql, groups)
    plan = SESSIONS[groups].explain(sql)
    found = []
    for kept in (rows, drop_unit(rows, unit), keep_unit(rows, unit)):
        fill(kept)
        counting = plan.counting
        answer = CON.execute(counting.sql, list(counting.parameters)).fetchall()
        if shape == "set":
            assert answer == sorted(answer, key=lambda row: (row[0] is None, row[0] or ""))
        else:
            assert all(row[-1] == ["a", "b"].index(row[plan.query.partitions.key]) for row in answer)  # type: ignore[union-attr]
        keys = len(plan.query.keys)
        found.append({row[:keys]: row[keys] for row in answer})
    together, without, alone = found
    moved = find_moves(together, without)
    assert {key: change for key, change in moved.items() if change} == alone
    assert all(0 < change <= measure.width for change in alone.values())
    assert len(alone) <= (groups or 9 * len(KEYS))


CLAMP = "system.main.least(system.main.greatest(system.main.sum(dpsql_row_1), 0), {most})"
SUM = "COALESCE(CAST(system.main.sum(dpsql_part_1) AS BIGINT), 0)"
POSITIVE_ALONE = "WHERE dpsql_weight > 0"
EDITS: dict[str, tuple[str, int | None, list[tuple[str, str]]]] = {
    "the clamp of a group's total, not of a unit's": (
        "SUM(n)",
        2,
        [(CLAMP, "system.main.sum(dpsql_row_1)"), (SUM, f"system.main.least({SUM}, {{most}})")],
    ),
    "no clamp": ("SUM(x)", 4, [(CLAMP, "system.main.sum(dpsql_row_1)")]),
    "steps of a row rounded up": ("SUM(x)", 4, [("system.main.floor", "system.main.ceil")]),
    "a NULL that counts": ("COUNT(n)", 2, [('(NOT (t1."n" IS NULL))', "TRUE")]),
    "rows without a unit": ("COUNT(*)", None, [('WHERE (t1."unit" IS NOT NULL)', "")]),
    "weights rounded up": ("SUM(x)", 4, [("dpsql_part_1) // {most}", "dpsql_part_1 + {most} - 1) // {most}")]),
    "weights without R": ("SUM(n)", 2, [("dpsql_part_1) // {most}", "dpsql_part_1)")]),
    "weights of 1 in every group": ("COUNT(*)", None, [("system.main.least(dpsql_groups, 9)", "1")]),
    "groups of score 0 kept": ("SUM(n)", 2, [(POSITIVE_ALONE, "")]),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", EDITS)
def test_mistakes_in_the_sql_are_told_from_it(mistake: str) -> None:
    """The SQL is that of the reference on these rows, and each edit of it is not."""
    name, column, edits = EDITS[mistake]
    rows: list[Row] = [
        *[(1, "a", 4, None, 7.3, None)] * 4,
        *[(2, key, 3, None, 0.1, None) for key in "aabc"],
        (3, "a", None, None, None, None),
        (3, "b", 0, None, -1.0, None),
        (3, "z", 0, None, 0.0, None),
        (None, "a", 1, None, 1.0, None),
    ]
    sql = weighing(name)
    (measure,) = measures_of(sql, ENOUGH)
    fill(rows)
    expected, counting = weighed(rows, measure, column), SESSIONS[ENOUGH].explain(sql).counting
    assert read(sql, ENOUGH) == expected
    edited = counting.sql
    most = f"{measure.width:d}"
    for old, new in ((old.replace("{most}", most), new.replace("{most}", most)) for old, new in edits):
        assert old in edited
        edited = edited.replace(old, new)
    answer = CON.execute(
        edited, {str(at + 1): value for at, value in enumerate(counting.parameters) if f"${at + 1}" in edited}
    ).fetchall()
    assert {row[:1]: row[1:] for row in answer} != expected


@pytest.mark.mutant
def test_a_clamp_of_the_group_gives_one_unit_more_than_r() -> None:
    """With the clamp after the sum of units, dropping one unit moves a group by more than R."""
    sql = "SELECT k, SUM(n) AS m FROM orders GROUP BY k TOP 9 PRIVATE WITH (mechanism = limited_domain)"
    (measure,) = measures_of(sql, None)
    counting = SESSIONS[None].explain(sql).counting
    clamp = CLAMP.replace("{most}", f"{measure.width:d}")
    assert clamp in counting.sql
    moved = []
    for text in (counting.sql, counting.sql.replace(clamp, "system.main.sum(dpsql_row_1)")):
        fill([(1, "a", 4, None, None, None)] * 9 + [(2, "a", 1, None, None, None)])
        ((_, total, *_),) = CON.execute(text, list(counting.parameters)).fetchall()
        fill([(2, "a", 1, None, None, None)])
        ((_, rest, *_),) = CON.execute(text, list(counting.parameters)).fetchall()
        moved.append(total - rest)
    assert moved == [measure.width, 36]


MUTANTS = {
    "a row more than the bound": ("COUNT(*)", None, lambda total, _: total),
    "the ceiling": ("SUM(x)", 4, lambda total, measure: min(measure.bounds.high, total + 1) if total else 0),
    "a NULL that counts": ("COUNT(n)", None, lambda total, _: min(3, total)),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_reference_kills_known_mistakes(mutant: str) -> None:
    """What a mistake gives differs from what the SQL gives, on rows that have one of each."""
    name, column, mistake = MUTANTS[mutant]
    rows: list[Row] = [
        *[(1, "a", 1, None, 0.3, None)] * 5,
        (2, "a", None, None, 7.3, None),
        (3, "a", None, None, None, None),
    ]
    sql = f"SELECT k, {name} AS m FROM orders GROUP BY k ALL PRIVATE WITH (domain = ['a'])"
    (measure,) = measures_of(sql, None)
    units = defaultdict[object, int](int)
    for row in rows:
        units[row[0]] += 1 if column is None else steps_of(row[column], measure)
    fill(rows)
    ((found,),) = read(sql, None).values()
    assert measure.aggregate in {Aggregate.ROWS, Aggregate.SUM}
    assert found != sum(mistake(total, measure) for total in units.values())
