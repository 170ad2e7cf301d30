"""The certified bound on the best adaptive analyst: above every strategy on a grid, and hardly."""

from __future__ import annotations

import math
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from support.benchmarks_kit import read_benchmark

from dpsql.accounting import BoundedRange, adaptive_delta, adaptive_epsilon, adaptive_items, delta_of_zcdp
from dpsql.accounting.optimal import MOST_ITEMS, _cells, _curves, _step
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

DELTA = Delta("1e-6")
fixed_delta = read_benchmark("fixed_compositions").fixed_delta
fixed_epsilon = read_benchmark("fixed_compositions").fixed_epsilon
GRID = 60


def best_on_grid(k: int, epsilon: float, total: float) -> float:
    """Return the hockey stick of the best adaptive strategy that takes every t from a grid of 61: all are tried."""
    unit = epsilon / GRID
    levels = total + np.arange(-k * GRID, k * GRID + 1) * unit
    values = np.maximum(0.0, -np.expm1(levels))
    heavy = [math.expm1((n - GRID) * unit) / math.expm1(-epsilon) for n in range(GRID + 1)]
    for done in range(k):
        size = 2 * (k - done - 1) * GRID + 1
        tries = [
            heavy[n] * values[GRID - n : GRID - n + size] + (1 - heavy[n]) * values[2 * GRID - n : 2 * GRID - n + size]
            for n in range(GRID + 1)
        ]
        values = np.max(tries, axis=0)
    return float(values[0])


def by_hand(k: int, epsilon: float, level: float) -> float:
    """Return the same by recursion over transcripts, one strategy after another."""
    if k == 0:
        return max(0.0, -math.expm1(level))
    best = 0.0
    for n in range(7):
        t = epsilon * n / 6
        p = math.expm1(t - epsilon) / math.expm1(-epsilon)
        light = by_hand(k - 1, epsilon, level - t + epsilon) if p < 1.0 else 0.0
        best = max(best, p * by_hand(k - 1, epsilon, level - t) + (1.0 - p) * light)
    return best


@pytest.mark.parametrize(("k", "epsilon"), [(1, 0.5), (2, 0.01), (2, 3.0), (3, 0.4), (4, 1.0), (4, 0.05), (4, 7.5)])
def test_every_strategy_on_a_grid_stays_below_and_the_best_comes_near(k: int, epsilon: float) -> None:
    for share, room in ((0.02, 1.0025), (0.15, 1.0025), (0.4, 1.0025), (0.7, 1.0025), (0.9, 1.007)):
        total = share * k * epsilon
        certified = adaptive_delta(k, Epsilon(epsilon), total=Epsilon(total))
        lower = best_on_grid(k, epsilon, total)
        assert by_hand(min(k, 3), epsilon, total) <= certified
        assert lower <= certified
        assert certified <= best_on_grid(k, epsilon * room, total)
        assert certified > best_on_grid(k, epsilon * 0.99, total)


@pytest.mark.parametrize(("k", "epsilon"), [(20, 0.3), (60, 0.1), (40, 1.0)])
def test_longer_compositions_stay_above_the_grid_and_the_fixed_optimum(k: int, epsilon: float) -> None:
    for delta in (1e-3, 1e-6, 1e-12):
        total = adaptive_epsilon(k, Epsilon(epsilon), delta=Delta(delta))
        assert best_on_grid(k, epsilon, total) <= delta
        assert best_on_grid(k, epsilon, total * 0.9975) > delta
        assert fixed_delta(k, Epsilon(epsilon), total=total) <= delta * (1 + 1e-8)


def test_one_step_in_fifty_digits() -> None:
    """The bound of one step is above the exact maximum for the exact curve, and hardly; roundings included."""
    draw = random.Random(4)
    for epsilon in ("0.001", "0.2", "2", "8"):
        cells = _cells(Epsilon(epsilon))
        curves = _curves(cells, first=-80, last=200)
        before = [next(curves) for _ in range(draw.randint(4, 9))][-1]
        after = _step(before, cells)
        with mpmath.workdps(50):
            whole, width = mpmath.mpf(cells.epsilon), mpmath.mpf(cells.width)

            def curve(log: mpmath.mpf, points: np.ndarray = before, width: mpmath.mpf = width) -> mpmath.mpf:
                place = int(mpmath.floor(log / width))
                here = min(max(place + 80, 0), len(points) - 1)
                there = min(here + 1, len(points) - 1)
                share = mpmath.expm1(log - place * width) / mpmath.expm1(width)
                return (1 - share) * mpmath.mpf(float(points[here])) + share * mpmath.mpf(float(points[there]))

            for node in (draw.randint(33, 240), draw.randint(33, 240), 33, 279):
                at, best = (node - 80) * width, mpmath.mpf(0)
                for n in range(1 + 32 * 6):
                    t = whole * n / (32 * 6)
                    p = mpmath.expm1(t - whole) / mpmath.expm1(-whole)
                    best = max(best, p * curve(at - t) + (1 - p) * curve(at - t + whole))
                assert best <= after[node]
                assert after[node] <= best * mpmath.mpf("1.01") + mpmath.mpf("1e-10")


def test_the_grid_is_exact_and_above_epsilon() -> None:
    for epsilon in ("0.0003", "0.1", "1", "7.99"):
        cells = _cells(Epsilon(epsilon))
        assert Fraction(cells.epsilon) == 32 * Fraction(cells.width) >= Fraction(epsilon)
        assert cells.epsilon <= float(epsilon) * (1 + 1e-8)
        assert cells.p + cells.q == pytest.approx(np.ones(32), abs=1e-15)


@pytest.mark.parametrize("epsilon", ["0.05", "0.5", "3"])
def test_it_is_never_above_zero_concentration_or_the_plain_sum(epsilon: str) -> None:
    for k in (1, 3, 30):
        total = adaptive_epsilon(k, Epsilon(epsilon), delta=DELTA)
        assert total <= k * float(epsilon) * (1 + 1e-12)
        for share in ("0.01", "0.5", "0.9"):
            level = Epsilon(Fraction(share) * k * Fraction(epsilon))
            worst = delta_of_zcdp(BoundedRange(Epsilon(epsilon)).rho * k, level)
            assert 0.0 < adaptive_delta(k, Epsilon(epsilon), total=level) <= worst


def test_beyond_the_plain_sum_nothing_fails() -> None:
    assert adaptive_delta(3, Epsilon("0.1"), total=Epsilon("0.3")) == 0.0
    assert adaptive_delta(3, Epsilon("0.1"), total=Epsilon("0.299")) > 0.0


def test_it_is_monotone() -> None:
    totals = [adaptive_epsilon(25, Epsilon(each), delta=DELTA) for each in ("0.05", "0.06", "0.3", "0.301")]
    assert all(one < two for one, two in pairwise(totals))
    deltas = [adaptive_delta(25, Epsilon("0.1"), total=Epsilon(each)) for each in ("0.2", "0.21", "1", "2")]
    assert all(one > two for one, two in pairwise(deltas))


def test_there_and_back() -> None:
    for k, epsilon in ((5, "0.2"), (40, "0.05")):
        total = adaptive_epsilon(k, Epsilon(epsilon), delta=DELTA)
        assert adaptive_delta(k, Epsilon(epsilon), total=Epsilon(Fraction(total))) == pytest.approx(1e-6, rel=1e-4)
        above = Epsilon(Fraction(total) * Fraction("1.0001"))
        assert adaptive_items(Epsilon(epsilon), total=above, delta=DELTA) == k


@pytest.mark.parametrize(("epsilon", "items", "ceiling"), [("0.02", 559, 560), ("0.05", 89, 90), ("0.1", 22, 22)])
def test_items_bought_come_near_the_fixed_optimum(epsilon: str, items: int, ceiling: int) -> None:
    assert adaptive_items(Epsilon(epsilon), total=Epsilon(1), delta=DELTA) == items
    assert fixed_epsilon(ceiling, Epsilon(epsilon), delta=DELTA) <= 1.0
    assert fixed_epsilon(ceiling + 1, Epsilon(epsilon), delta=DELTA) > 1.0


@pytest.mark.parametrize(("k", "epsilon"), [(0, "1"), (MOST_ITEMS + 1, "1"), (1, "8.01")])
def test_what_is_not_computed_is_refused(k: int, epsilon: str) -> None:
    with pytest.raises(UsageError, match=r"\[composition-range\]"):
        adaptive_epsilon(k, Epsilon(epsilon), delta=DELTA)
    with pytest.raises(UsageError, match=r"\[composition-range\]"):
        adaptive_delta(k, Epsilon(epsilon), total=Epsilon(1))


def test_a_delta_near_the_end_of_the_doubles_is_not_called_nothing() -> None:
    assert 0.0 < adaptive_delta(150, Epsilon(3), total=Epsilon("449.99")) < 1e-200
    tiny = Delta("1e-290")
    assert adaptive_epsilon(20, Epsilon(1), delta=tiny) == pytest.approx(20.0)
    assert adaptive_items(Epsilon(1), total=Epsilon(20), delta=tiny) == 20


def test_threads_that_compute_side_by_side_keep_their_precision() -> None:
    epsilons = [Epsilon(f"0.{number}") for number in range(11, 99)]
    alone = [_cells(epsilon) for epsilon in epsilons]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            together = list(threads.map(_cells, epsilons))
    finally:
        sys.setswitchinterval(before)
    assert mpmath.mp.prec == 53
    for one, other in zip(alone, together, strict=True):
        assert (one.reach, one.share, one.dent) == (other.reach, other.share, other.dent)
        assert np.array_equal(one.p, other.p)
        assert np.array_equal(one.tilt, other.tilt)
