"""Drop one privacy unit under variances and covariances: exact laws of all units of up to three rows, through SQL.

What a unit adds is read from the engine, one unit in each group. Groups are sums of what their units add, so these are
the differences of all neighbours, in both directions. The released sums have independent discrete Gaussian noise, whose
Renyi divergence of order a between two centres c apart, of variance v, is a c^2 / (2 v) at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement

import duckdb
import pytest
from support.laws import renyi
from support.session_kit import session_on

import dpsql
from dpsql.session import Session
from dpsql.sql.ir.measures import Measure
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import rewrite_all

ROWS = [(x, z) for x in (None, math.nan, -9.0, 0.0, 2.5, 3.3, 10.0, math.inf) for z in (None, 1, 4, 9)]
UNITS = [rows for count in (1, 2) for rows in combinations_with_replacement(ROWS, count)]
UNITS += [(first, second, second) for first in ROWS[::3] for second in ROWS[::5]]
UNITS += [(first,) * 7 for first in ROWS]
MOST_ROWS = 2
CON = duckdb.connect()
CON.execute("CREATE TABLE seen (unit BIGINT, k INTEGER, x DOUBLE, z INTEGER)")
CON.execute("INSERT INTO seen SELECT -1, -1, NULL, NULL")
for number, rows in enumerate(UNITS):
    CON.executemany("INSERT INTO seen VALUES (?, ?, ?, ?)", [(number, number, *row) for row in rows])
SPREADS = {
    "VAR_POP(x)": (0, 10),
    "STDDEV(z)": (1, 4),
    "VAR_SAMP(x) FILTER (WHERE z > 1)": (0, 10),
    "COVAR_POP(x, z)": (0, 10),
    "COVAR_SAMP(x, z) FILTER (WHERE x > 0)": (0, 10),
}


@cache
def session() -> Session:
    bounds = {"rows": MOST_ROWS, "x": {"each": {"min": 0, "max": 10}}, "z": {"each": {"min": 1, "max": 4}}}
    table = dpsql.PrivateTable("unit", bounds=bounds)
    return session_on(CON, dpsql.Policy(dpsql.Budget(100, "1e-6"), {"seen": table}, limits=dpsql.Limits(max_epsilon=4)))


def plan_of(spread: str) -> PrivateQuery:
    """Return the query of a total, as it is planned, for each k."""
    ranked = session().explain("SELECT k FROM seen GROUP BY k TOP 5 PRIVATE").query
    return replace(session().explain(f"SELECT {spread} AS v FROM seen PRIVATE").query, keys=ranked.keys)


def read(query: PrivateQuery) -> list[tuple[int, ...]]:
    """Return what each unit adds to each measure, in steps, in the order of the units."""
    counting = rewrite_all(query, every=True)
    rows = CON.execute(counting.sql, list(counting.parameters)).fetchall()
    found = {row[0]: row[1 : 1 + len(query.measures)] for row in rows}
    return [found[at] for at in range(len(UNITS))]


def clip(value: float, ends: tuple[Fraction, Fraction]) -> float:
    return min(max(value, float(ends[0])), float(ends[1]))


def add_up(measure: Measure, spread: str, unit: Sequence[tuple[float | None, int | None]]) -> float:
    """Return what a unit adds, as a value, by the formulas of the manual."""
    is_pair, condition = spread.startswith("COVAR"), spread.partition("WHERE ")[2]
    present = [
        (x, z)
        for x, z in unit
        if (z is not None or not (is_pair or spread.startswith("STDDEV")))
        and ((x is not None and not math.isnan(x)) or spread.startswith("STDDEV"))
        and (not condition.startswith("z") or (z is not None and z > 1))
        and (not condition.startswith("x") or (x is not None and x > 0))
    ]
    weight = min(1.0, MOST_ROWS / max(1, len(present)))
    if measure.argument is None:
        return weight * len(present)

    def distance(name: str, ends: tuple[Fraction, Fraction], row: tuple[float | None, int | None]) -> float:
        return clip(float(row[0 if name == "x" else 1] or 0), ends) - float(sum(ends)) / 2

    assert measure.row_range is not None
    ((_, name),) = measure.columns
    values = [distance(name, measure.row_range, row) for row in present]
    if measure.factor is not None:
        assert measure.factor.row_range is not None
        ((_, other),) = measure.factor.columns
        values = [y * distance(other, measure.factor.row_range, row) for y, row in zip(values, present, strict=True)]
        if not is_pair:
            half = float(measure.row_range[1] - measure.row_range[0]) / 2
            values = [y - half * half / 2 for y in values]
    return weight * sum(values)


def check(query: PrivateQuery, spread: str, *, noise_of: Callable[[Measure], int] | None = None) -> None:
    """Assert the bounds, the values, and the loss of everything that one unit can add; one item is epsilon 1."""
    added, variances = read(query), list[Fraction]()
    for at, measure in enumerate(query.measures):
        assert measure.bounds is not None
        steps = [unit[at] for unit in added]
        assert measure.bounds.low <= min(steps)
        assert max(steps) <= measure.bounds.high
        assert max(map(abs, steps)) == measure.bounds.sensitivity  # no smaller bound holds: the extremes are there
        for step, unit in zip(steps, UNITS, strict=True):
            expected = add_up(measure, spread, unit)
            assert abs(step * float(measure.bounds.step) - expected) <= 3.01 * float(measure.bounds.step)
        variances.append(Fraction((2 * (noise_of or (lambda each: each.sensitivity))(measure)) ** 2))
    losses = [sum(Fraction(c * c) / (2 * v) for c, v in zip(unit, variances, strict=True)) for unit in added]
    assert max(losses) == Fraction(len(variances), 8)  # the rows of one unit are all at an end


@pytest.mark.parametrize("spread", list(SPREADS))
def test_all_small_units_are_within_the_loss_of_the_items(spread: str) -> None:
    check(plan_of(spread), spread)


@pytest.mark.parametrize("spread", ["VAR_POP(x)", "COVAR_POP(x, z)"])
def test_the_noise_of_a_plan_is_that_of_its_sensitivities(spread: str) -> None:
    plan = session().explain(f"SELECT {spread} AS v FROM seen PRIVATE WITH (epsilon = 1)")
    price = plan.mechanism_plan.price
    assert price.counts is not None
    releases = [price.counts, *price.others]
    assert len(releases) == plan.worst_items == (4 if spread.startswith("COVAR") else 3)
    for release, measure in zip(releases, plan.query.measures, strict=True):
        assert release.variance == (2 * measure.sensitivity) ** 2


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", ["the noise of h^2", "half of the noise", "the bound of h^2", "h^2 subtracted"])
def test_every_known_mistake_is_caught(mistake: str) -> None:
    """Of h^2 in place of h^2 / 2 in one of three places, and of less noise than a unit moves the sum by."""
    query = plan_of("VAR_POP(x)")
    (at,) = [at for at, each in enumerate(query.measures) if each.factor is not None]
    squares = query.measures[at]
    assert squares.bounds is not None
    assert squares.weight is not None
    wrong, noise_of = squares, None
    match mistake:
        case "the noise of h^2":

            def noise_of(measure: Measure) -> int:
                return measure.sensitivity * (2 if measure.factor is not None else 1)
        case "half of the noise":

            def noise_of(measure: Measure) -> int:
                return measure.sensitivity // (2 if measure.factor is not None else 1)
        case "the bound of h^2":  # twice the steps, of the same size
            bounds = replace(squares.bounds, low=2 * squares.bounds.low, high=2 * squares.bounds.high)
            wrong = replace(squares, bounds=bounds)
        case "h^2 subtracted":  # in steps of half the size, half of those that were
            bounds = replace(squares.bounds, step=squares.bounds.step * 2)
            wrong = replace(squares, bounds=bounds)
    measures = tuple(wrong if each is squares else each for each in query.measures)
    with pytest.raises(AssertionError):
        check(replace(query, measures=measures), "VAR_POP(x)", noise_of=noise_of)


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
def test_the_law_of_the_released_sums_is_within_three_items(order: float) -> None:
    """Exact, on a coarse grid of the same bounds: N 0 to 2, S and Q -2 to 2 steps, at epsilon 2."""
    variances = [Fraction((2 * bound) ** 2, 4) for bound in (2, 2, 2)]
    worst = 0.0
    for moved in ((2, 2, 2), (2, -2, 2), (1, 0, -2), (2, 0, -2)):
        divergence = 0.0
        for by, variance in zip(moved, variances, strict=True):
            points = range(-80, 81)
            masses = [{n: -((n - centre) ** 2) / (2 * float(variance)) for n in points} for centre in (0, by)]
            whole = [math.log(math.fsum(map(math.exp, law.values()))) for law in masses]
            one, other = ({n: mass - by for n, mass in law.items()} for law, by in zip(masses, whole, strict=True))
            divergence += max(renyi(one, other, order), renyi(other, one, order))
        worst = max(worst, divergence)
    assert worst <= 3 * order * 4 / 8 + 1e-6
    assert worst >= 0.9 * 3 * order * 4 / 8
