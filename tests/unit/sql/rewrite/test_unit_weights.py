"""What a unit adds to coupled measures is what the formulas say, in whole numbers, whatever its rows are."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from random import Random

import duckdb
import pytest

from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure, Weight
from dpsql.sql.ir.tree import BIGINT, Literal
from dpsql.sql.render.duckdb import Writer
from dpsql.sql.rewrite.contributions import CoupledParts

Sums = tuple[int, ...]
ONE = Literal(1, BIGINT)
CON = duckdb.connect()
BOUNDS: list[tuple[tuple[int, int], ...]] = [
    ((0, 1), (0, 5)),
    ((0, 20), (0, 600)),
    ((0, 3), (-2, 10)),
    ((0, 1000), (-100, 0)),
    ((0, 5), (0, 2**20)),
    ((0, 20), (0, 600), (-7, 3)),
    ((0, 2), (0, 2)),
]


def list_measures(bounds: Sequence[tuple[int, int]]) -> list[Measure]:
    """Return coupled measures in their finest steps, the first a number of rows."""
    found = []
    for at, (low, high) in enumerate(bounds):
        range_ = ContributionRange(low, high)
        shift = (2**20 // range_.width).bit_length() - 1
        kind, argument = (Aggregate.SUM, ONE) if at else (Aggregate.ROWS, None)
        found.append(Measure(kind, argument, bounds=range_.refine(shift), weight=Weight(1, shift)))
    return found


def weigh(sums: Sums, bounds: Sequence[tuple[int, int]]) -> Sums:
    """Return the parts of a unit by the formulas of the manual."""
    within = [high if each > 0 else -low for each, (low, high) in zip(sums, bounds, strict=True)]
    parts = []
    for each, bound, (low, high) in zip(sums, within, bounds, strict=True):
        shift = max(at for at in range(21) if (high - low) << at <= 2**20)
        size = abs(each) << shift
        quotients = [size * limit // abs(other) for other, limit in zip(sums, within, strict=True) if other]
        parts.append((1 if each > 0 else -1) * min(size, *quotients, bound << shift) if each else 0)
    return tuple(parts)


def list_sums(bounds: Sequence[tuple[int, int]]) -> list[Sums]:
    """Return sums of rows, small, at the bounds, and far beyond them, of both signs where a measure has them."""
    values = []
    for low, high in bounds:
        own = {0, 1, 2, 3, high - 1, high, high + 1, 2 * high + 1, 7 * high, 1_000_003, 2**53 - 1}
        own |= {-each for each in (1, -low - 1, -low, 1 - low, -3 * low + 1, 999_983)} if low < 0 else set()
        values.append(sorted(each for each in own if (each >= 0 or low < 0) and (each <= 0 or high > 0)))
    random = Random(7)
    far = [
        tuple(
            random.choice([-1, 1] if low < 0 < high else [-1] if low < 0 else [1])
            * random.getrandbits(random.randint(1, 73))
            for low, high in bounds
        )
        for _ in range(300)
    ]
    return [*product(*values), *(each for each in far if max(map(abs, each)) < 2**73)]


def list_parts(bounds: Sequence[tuple[int, int]]) -> list[str]:
    columns = {at: f"c{at}" for at in range(len(bounds))}
    weights = CoupledParts(Writer(), list_measures(bounds), columns, {})
    return [weights.build_part(at) for at in columns]


def compute(parts: Sequence[str], sums: Sequence[Sums]) -> list[Sums]:
    """Return what DuckDB makes of sums."""
    width = len(sums[0])
    columns = ", ".join(f"c{at} HUGEINT" for at in range(width))
    CON.execute(f"CREATE OR REPLACE TEMP TABLE sums (number BIGINT, {columns})")
    listed = ", ".join(f"({at}, {', '.join(map(str, each))})" for at, each in enumerate(sums))
    CON.execute(f"INSERT INTO sums VALUES {listed}")
    return CON.execute(f"SELECT {', '.join(parts)} FROM sums ORDER BY number").fetchall()


@pytest.mark.parametrize("bounds", BOUNDS)
def test_the_parts_are_those_of_the_formulas(bounds: Sequence[tuple[int, int]]) -> None:
    sums = list_sums(bounds)
    assert compute(list_parts(bounds), sums) == [weigh(each, bounds) for each in sums]


@pytest.mark.parametrize("bounds", BOUNDS)
def test_no_part_is_beyond_its_bound(bounds: Sequence[tuple[int, int]]) -> None:
    measures = list_measures(bounds)
    for each in compute(list_parts(bounds), list_sums(bounds)):
        for part, measure in zip(each, measures, strict=True):
            assert measure.bounds is not None
            assert measure.bounds.low <= part <= measure.bounds.high
            assert measure.bounds.width <= 2**20 < 2 * measure.bounds.width


def test_a_unit_with_a_row_counts_as_one_row_at_least() -> None:
    bounds = ((0, 20), (-7, 600))
    for rows in (1, 2, 19, 20, 21, 1_000, 10**9):
        totals = [-7 * rows, -rows, 0, rows, 600 * rows]  # the rows are clamped before
        found = compute(list_parts(bounds), [(rows, total) for total in totals])
        assert all(part >= 2**15 for part, _ in found)


def edit(parts: Sequence[str], *edits: tuple[str, str]) -> list[str]:
    found = list(parts)
    for old, new in edits:
        assert any(old in each for each in found), old
        found = [each.replace(old, new) for each in found]
    return found


SIGNED = ((0, 20), (-100, 600))
MISTAKES: dict[str, list[tuple[str, str]]] = {
    "a quotient of doubles": [("//", "/")],
    "a quotient rounded up": [(" // system.main.greatest(c0, 1)", " + c0 - 1) // (system.main.greatest(c0, 1)")],
    "the upper bound of sums below 0": [("CASE WHEN c1 < 0 THEN 100 ELSE 600 END", "600")],
    "sums below 0 without their sign": [("CASE WHEN c1 < 0 THEN -1 ELSE 1 END", "1")],
    "a weight of rows alone": [("c0 >= 0 AND c0 <= 20 AND c1 >= -100 AND c1 <= 600", "c0 <= 20")],
    "a bound that is 1 too high": [("* 20)", "* 21)")],
    "no sum of 0": [(", 1)", ")")],
}


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_the_arithmetic_are_told_from_it(mistake: str) -> None:
    sums = list_sums(SIGNED)
    parts = list_parts(SIGNED)
    expected = compute(parts, sums)
    assert expected == [weigh(each, SIGNED) for each in sums]
    changed = edit(parts, *MISTAKES[mistake])
    try:
        found = compute(changed, sums)
    except duckdb.Error:
        return
    assert found != expected


def test_whole_steps_are_too_coarse() -> None:
    """Ratings from 1 to 5 with one row a user: whole steps make 2.7 of an average of 3."""
    bounds = ((0, 1), (0, 5))
    ratings = [(5, sum(rows)) for rows in product(range(1, 6), repeat=5)]
    fine = [Fraction(sum(column)) for column in zip(*compute(list_parts(bounds), ratings), strict=True)]
    assert abs(fine[1] / 2**17 / (fine[0] / 2**20) - 3) < Fraction(1, 10_000)
    coarse = [
        [min(each, total * high // rows) for each, high in zip((rows, total), (1, 5), strict=True)]
        for rows, total in ratings
    ]
    assert abs(Fraction(sum(total for _, total in coarse), sum(rows for rows, _ in coarse)) - 3) > Fraction(1, 10)
