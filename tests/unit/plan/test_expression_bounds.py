"""Bounds of expressions: never cut what keeps to the policy, in DuckDB itself, and as narrow as the table of bounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache

import duckdb
import pytest

from dpsql import Budget, Policy, PrivateTable
from dpsql.errors import Refusal
from dpsql.plan.measures import expression_bounds
from dpsql.plan.measures.bounds import bound_measures
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.measures import Measure
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import Type, parse_type
from dpsql.terms import Terms

ROWS, UNITS, EXPRESSIONS = 4, 1_500, 160
TYPES = {"u": "INTEGER", "k": "INTEGER", "x": "INTEGER", "y": "DOUBLE", "q": "INTEGER", "m": "DECIMAL(9,2)"}
BOUNDS: dict[str, object] = {
    "rows": ROWS,
    "x": {"min": -3, "max": 7},
    "y": {"max": 20},
    "q": {"each": {"min": 1, "max": 3}},
    "m": {"min": -2, "max": 12, "each": {"min": -1, "max": 5}},
}
TERMS = Terms.of_total(Policy(Budget(1, "1e-6"), {"t": PrivateTable("u", bounds=BOUNDS)}))  # type: ignore[arg-type]
CATALOG = Catalog((Table("t", ("t",), tuple((name, parse_type(type_)) for name, type_ in TYPES.items()), "u"),))


def find_measure(expression: str, after: str = "", *, source: str = "t") -> Measure:
    """Return the sum of an expression with its bounds."""
    text = f"SELECT SUM({expression}) {after} AS s FROM {source} PRIVATE"
    query = analyze(text, CATALOG, accepts_pattern=lambda _: False)
    assert isinstance(query, PrivateQuery)
    return bound_measures(query, TERMS).measures[0]


def find_bounds(expression: str, after: str = "") -> tuple[Fraction, Fraction]:
    """Return the least and the most that one unit adds to a sum, but for less than a step."""
    bounds = find_measure(expression, after).bounds
    assert bounds is not None
    return bounds.low * bounds.step, bounds.high * bounds.step


EXACT = {  # of what each gives
    "x": (-3, 7),
    "CAST(x AS BIGINT)": (-3, 7),
    "q": (0, 12),
    "m": (-2, 12),
    "-x": (-7, 3),
    "x * 1000": (-3_000, 7_000),
    "x * -2": (-14, 6),
    "x / 2": (Fraction(-3, 2), Fraction(7, 2)),
    "x - 5": (-23, 7),
    "x - 60": (-3 - 4 * 60, 0),
    "x + q": (-3, 19),
    "x - q": (-15, 7),
    "x * q": (-9, 21),
    "x * x": (0, 58),
    "x / q": (-3, 7),
    "x // q": (-3, 7),
    "ABS(x)": (0, 10),
    "CASE WHEN k = 1 THEN x ELSE 2 * x END": (-6, 14),
    "CASE WHEN k = 1 THEN x ELSE q END": (-3, 19),
    "CASE WHEN k = 1 THEN x END": (-3, 7),
    "IF(k = 1, q, 0)": (0, 12),
    "CASE WHEN k = 1 THEN 1 ELSE 0 END": (0, 4),
    "CAST(k = 1 AS INTEGER)": (0, 4),
    "COALESCE(x, 1)": (-3, 11),
    "NULLIF(x, 0)": (-3, 7),
    "LEAST(x, 1)": (-3, 4),
    "LEAST(q, 2)": (0, 8),
    "GREATEST(x, 0)": (0, 7),
    "GREATEST(x, -1)": (-4, 7),
    "ROUND(m)": (-4, 14),
    "ROUND(m, 1)": (Fraction(-22, 10), Fraction(122, 10)),
    "ROUND(x)": (-3, 7),
    "CAST(m AS INTEGER)": (-4, 14),
    "FLOOR(m)": (-4, 12),
    "CEIL(m)": (-2, 16),
    "TRUNC(m)": (-2, 12),
    "5": (0, 20),
    "-2": (-8, 0),
    "GREATEST(LEAST(k, 6), 0)": (0, 24),
}


@pytest.mark.parametrize("expression", EXACT)
def test_bounds_follow_the_expression(expression: str) -> None:
    found = find_measure(expression)
    assert found.bounds is not None
    low, high = find_bounds(expression)
    assert (round(low, 3), round(high, 3)) == tuple(round(Fraction(end), 3) for end in EXACT[expression])


def test_a_filter_says_that_a_value_is_not_null() -> None:
    assert find_bounds("LEAST(x, 4)") == (-3, 16)
    assert find_bounds("LEAST(x, 4)", "FILTER (WHERE x IS NOT NULL)") == (-3, 7)
    assert find_bounds("LEAST(x, 4)", "FILTER (WHERE x > 0)") == (-3, 7)
    assert find_bounds("LEAST(y, 4)", "FILTER (WHERE y IS NOT NULL)") == (0, 16)  # NaN is greater than 4


def test_a_bare_column_has_its_own_bounds_and_no_range_of_rows() -> None:
    for expression in ("x", "y", "NULLIF(x, 2)"):
        assert find_measure(expression).row_range is None
    assert find_measure("x - 60").row_range == (-63, -53)
    assert find_measure("q").row_range == (1, 3)
    assert find_measure("m").row_range == (-1, 5)


def test_numbers_stay_short_however_often_they_are_multiplied() -> None:
    squares = "x"
    for _ in range(8):
        squares = f"({squares}) / 7 * 0.3e0"
    low, high = find_bounds(squares)
    assert 0 < high < 1e-9 > -low > 0
    source, column = "t", "y / 1e3"
    for number in range(12):  # to the power of 4,096
        source = f"(SELECT u, {column} AS c FROM {source}) AS s{number}"
        column = "c * c * 1.0001e0"
    with pytest.raises(Refusal, match="out of range"):
        find_measure(column, source=source)
    nested = "y"
    for _ in range(20):
        nested = f"COALESCE({nested}, 0)"
    assert find_bounds(nested) == (0, 20)


@cache
def open_units() -> duckdb.DuckDBPyConnection:
    """Return a table of random units that keep to the policy, each in one group."""
    connection, draw = duckdb.connect(), random.Random(37)
    connection.execute(f"CREATE TABLE t ({', '.join(f'{name} {type_}' for name, type_ in TYPES.items())})")
    rows = [row for unit in range(UNITS) for row in _draw_rows(draw, unit)]
    connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(TYPES))})", rows)
    return connection


def _draw_rows(draw: random.Random, unit: int) -> Iterator[tuple[object, ...]]:
    count = draw.randint(1, ROWS)
    x = _share(draw, count, low=-3, high=7)
    y = [each / 4 for each in _share(draw, count, low=0, high=80)]
    m = _share(draw, count, low=-200, high=1200, each=(-100, 500))
    for at in range(count):
        values = (x[at], y[at], draw.randint(1, 3), m[at] / 100)
        empty = draw.choice([0.0, 0.0, 0.3])
        yield (unit, draw.randint(0, 2), *(None if draw.random() < empty else value for value in values))


def _share(draw: random.Random, count: int, *, low: int, high: int, each: tuple[int, int] | None = None) -> list[int]:
    """Return values whose positive and negative ones add up to no more than their bounds, often to all of them."""
    least, most = each or (low, high)
    positive, negative, values = high, -low, []
    for _ in range(count):
        if draw.random() < 0.3 and low < 0:
            value = -draw.choice([min(negative, -least), draw.randint(0, min(negative, -least))])
            negative += value
        else:
            value = draw.choice([min(positive, most), draw.randint(0, min(positive, most)), -(-positive // count)])
            value = min(value, positive, most)
            positive -= value
        values.append(value)
    draw.shuffle(values)
    return values


def draw_expression(draw: random.Random, depth: int) -> str:
    """Return a random expression of what bounds are known of."""
    if not depth:
        return draw.choice(["x", "y", "q", "m", "x", "y", str(draw.randint(-4, 6)), "0.5", "1.25"])
    one, other = (draw_expression(draw, depth - 1) for _ in range(2))
    number, positive = draw.randint(-3, 4), draw.choice(["q", "2", "-3", "(q + 1)"])
    one, other = f"CAST({one} AS DOUBLE)", f"CAST({other} AS DOUBLE)"
    return draw.choice(
        [
            f"(-{one})",
            f"({one} * {number})",
            f"({one} / {positive})",
            f"({one} + {other})",
            f"({one} - {other})",
            f"({one} * {other})",
            f"({one} * {one})",
            f"(CASE WHEN k = 1 THEN {one} WHEN k = 2 THEN {other} ELSE {number} END)",
            f"(CASE WHEN x > 1 THEN {one} END)",
            f"IF(k = 0, {one}, {other})",
            f"COALESCE({one}, {other})",
            f"NULLIF({one}, {other})",
            f"LEAST({one}, {number})",
            f"LEAST({one}, {other})",
            f"GREATEST({one}, {other})",
            f"GREATEST({one}, {number}, {other})",
            f"ABS({one})",
            f"ROUND({one})",
            f"ROUND({one}, 1)",
            f"FLOOR({one})",
            f"CEIL({one})",
            f"TRUNC({one})",
            f"CAST({one} AS INTEGER)",
        ]
    )


@cache
def list_expressions() -> tuple[str, ...]:
    draw = random.Random(5)
    return tuple(dict.fromkeys(draw_expression(draw, draw.choice([1, 1, 2, 2, 3])) for _ in range(EXPRESSIONS)))


@cache
def find_extremes(expression: str) -> tuple[float, float]:
    """Return the least and the largest sum of one unit."""
    sums = f"SELECT SUM({expression}) AS s FROM t GROUP BY u"
    found = open_units().execute(f"SELECT MIN(s), MAX(s) FROM ({sums})").fetchone()
    assert found is not None
    return (0.0 if found[0] is None else float(found[0]), 0.0 if found[1] is None else float(found[1]))


def list_cut(expressions: tuple[str, ...]) -> list[str]:
    """Return the expressions of which the sum of some unit is cut."""
    found = []
    for expression in expressions:
        (low, high), (least, most) = find_bounds(expression), find_extremes(expression)
        slack = 1e-5 * (1 + float(high - low))
        if least < float(low) - slack or most > float(high) + slack:
            found.append(expression)
    return found


def test_units_that_keep_to_the_policy_are_never_cut() -> None:
    assert list_cut((*list_expressions(), *(each for each in EXACT if "k, 6" not in each))) == []


def test_bounds_are_often_reached() -> None:
    reached = 0
    for expression in list_expressions():
        (low, high), (least, most) = find_bounds(expression), find_extremes(expression)
        reached += (low == 0 or least <= 0.9 * float(low)) and (high == 0 or most >= 0.9 * float(high))
    assert reached >= len(list_expressions()) / 4


Forms = dict[tuple[int, str, bool], Fraction] | None


def _take_first(forms: object) -> object:
    """Return the form with the largest coefficients together, in place of the largest of each part."""
    known = list(forms)  # type: ignore[call-overload]
    if any(each is None for each in known):
        return None
    return max(known, key=lambda form: sum(form.values()), default={})


def _ignore_null(level: expression_bounds._Level, known: Sequence[expression_bounds._Bound]) -> object:
    known = [replace(each, is_present=True) for each in known]
    up = min((each.up for each in known), key=level.total)
    return replace(expression_bounds._either(known), high=min(each.high for each in known), up=up)  # type: ignore[type-var]


def _take_up_alone(function: str, one: expression_bounds._Bound, *, type_: Type) -> object:
    if function != "abs":
        return FIND_OF_ONE(function, one, type_=type_)
    return replace(one, low=Fraction(0), high=max(one.high, -one.low), down={})


def _multiply_ups(
    level: expression_bounds._Level, one: expression_bounds._Bound, other: expression_bounds._Bound
) -> object:
    up = expression_bounds._scale(one.up, max(other.high, Fraction(0)))
    down = expression_bounds._scale(one.down, max(other.high, Fraction(0)))
    return replace(MULTIPLY(level, one, other), up=up, down=down)


FIND_OF_ONE, MULTIPLY = expression_bounds._find_of_one, expression_bounds._Level._multiply
MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "larger total in CASE": lambda patch: patch.setattr(expression_bounds, "_larger", _take_first),
    "no swap in minus": lambda patch: patch.setattr(
        expression_bounds, "_negate", lambda bound: replace(bound, low=-bound.high, high=-bound.low)
    ),
    "no NULL in LEAST": lambda patch: patch.setattr(expression_bounds._Level, "_least", _ignore_null),
    "ROUND adds 0": lambda patch: patch.setattr(expression_bounds, "_round", lambda found, step: found),  # noqa: ARG005
    "ABS takes up alone": lambda patch: patch.setattr(expression_bounds, "_find_of_one", _take_up_alone),
    "product of ups": lambda patch: patch.setattr(expression_bounds._Level, "_multiply", _multiply_ups),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_forms_cut_some_unit(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    assert list_cut((*(each for each in EXACT if "k, 6" not in each), *list_expressions()))
