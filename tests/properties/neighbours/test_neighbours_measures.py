"""Drop one privacy unit under COUNT(*), SUM and AVG: what each group loses is within the bounds of one unit.

The generated SQL is run on random tables. Its sums equal those of a reference in Python, in any order of rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.session_kit import session_on

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
    "SUM(d)": "d",
    "SUM(big)": "big",
}
POSITIVE = [text for text, column in MEASURES.items() if column not in {"d", "big"}]
ROWS = st.lists(
    st.tuples(*map(st.sampled_from, (UNITS, KEYS, WHOLE, EXACT, REAL, [None, 0, 2_500_000, -9, 10**15]))), max_size=16
)
GROUPS = [None, 1, 2]


def session_over(groups: int | None) -> Session:
    table = dpsql.PrivateTable("unit", bounds=BOUNDS, max_groups_contributed=groups)
    return session_on(CON, dpsql.Policy(dpsql.Budget(50, "1e-6"), {"orders": table}))


SESSIONS = {groups: session_over(groups) for groups in GROUPS}


def fill(rows: list[Row]) -> None:
    CON.execute("DELETE FROM orders")
    if rows:
        places = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(rows))
        CON.execute(f"INSERT INTO orders VALUES {places}", [value for row in rows for value in row])


def read(sql: str, groups: int | None) -> dict[tuple[object, ...], tuple[int, ...]]:
    """Return the exact measures, in steps, that a mechanism is given for each group."""
    counting = SESSIONS[groups].explain(sql).counting
    rows = CON.execute(counting.sql, list(counting.parameters)).fetchall()
    keys = int("GROUP BY" in sql)
    return {row[:keys]: row[keys:] for row in rows}


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
        names = [name for name in names if name in POSITIVE] or ["COUNT(*)"]
    sql = forms(names, shape)
    measures = measures_of(sql, groups)
    fill(rows)
    before = read(sql, groups)
    fill([row for row in rows if row[0] != unit])
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


MUTANTS = {
    "a row more than the bound": ("COUNT(*)", None, lambda total, _: total),
    "the ceiling": ("SUM(x)", 4, lambda total, measure: min(measure.bounds.high, total + 1) if total else 0),
    "a NULL that counts": ("COUNT(n)", None, lambda total, _: min(3, total)),
}


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
