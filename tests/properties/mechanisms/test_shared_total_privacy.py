"""The loss of counts with one shared total, computed exactly: what is released moves by what a unit adds.

What is released is N = n + Z_0 and Y_j = 2 f_j - C n + Z_j, in another form: Renyi divergences of independent
coordinates add up, and each is that of a discrete Gaussian and the same one moved.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from support.laws import discrete_gaussian_law, fits, goodness

from dpsql.intervals import SharedNoise, find_offset
from dpsql.mechanisms import NoisyCounts, OperatingSystemNoise, SharedTotal
from dpsql.quantities import Epsilon

Move = tuple[tuple[int, ...], int]  # what a unit adds to each count, and to n
ORDERS = (1.01, 2.0, 8.0)
WIDTHS = [(0, 1), (0, 2), (0, 3), (-1, 2), (-1, 3), (-3, 1), (-2, 0)]


def divergence(variance: Fraction, by: int, order: float) -> float:
    """Return the Renyi divergence of a discrete Gaussian and the same one moved, summed up over integers."""
    sigma = math.sqrt(float(variance))
    reach = math.ceil(40 * sigma + order * abs(by) + 1)
    points = np.arange(-reach, reach + 1, dtype=np.float64)
    here, there = points**2 / (-2 * float(variance)), (points - by) ** 2 / (-2 * float(variance))
    mixed, whole = order * here + (1 - order) * there, np.exp(here).sum()
    top = mixed.max()
    return float((top + math.log(np.exp(mixed - top).sum()) - math.log(whole)) / (order - 1))


def worst(shared: SharedTotal, moves: Iterable[Move]) -> float:
    """Return the worst ratio of a divergence to what is charged for it, over moves, orders and both directions."""
    charged, found = float(NoisyCounts(shared.epsilon).loss(1).value) * shared.items, 0.0
    each = {
        (variance, by, order): divergence(variance, by, order)
        for variance in {shared.own_variance, shared.total_variance}
        for by in range(-8, 9)
        for order in ORDERS
    }
    for added, of_n in moves:
        for sign, order in product((1, -1), ORDERS):
            moved = [sign * (2 * one - shared.centre * of_n) for one in added]
            loss = sum(each[shared.own_variance, by, order] for by in moved)
            loss += each[shared.total_variance, sign * of_n, order]
            found = max(found, loss / (order * charged))
    return found


def moves_of(shared: SharedTotal, low: int, high: int) -> Iterator[Move]:
    """Yield what one unit may do: add to some groups and raise n by 1; or nothing at all."""
    steps, most = range(low, high + 1), shared.max_groups_contributed or shared.labels
    for added in product(steps, repeat=shared.labels):
        if sum(one != 0 for one in added) <= most:
            yield added * shared.measures, 1
    yield (0,) * shared.labels * shared.measures, 0


@pytest.mark.parametrize(("low", "high"), WIDTHS)
@pytest.mark.parametrize(("labels", "bound"), [(1, None), (2, None), (3, None), (3, 2), (4, 3)])
def test_no_unit_costs_more_than_its_items(low: int, high: int, labels: int, bound: int | None) -> None:
    shared = SharedTotal(Epsilon("0.9"), labels, bound, low, high)
    found = worst(shared, moves_of(shared, low, high))
    assert found <= 1.0 + 1e-9
    assert found > 0.97 or (bound is not None and low and high), "a group without the unit moves Y by |C| < R then"


@pytest.mark.parametrize("labels", range(1, 11))
@pytest.mark.parametrize("measures", [1, 2])
def test_the_charge_holds_for_ten_labels_and_two_measures(labels: int, measures: int) -> None:
    """All moves of a count by the whole width cost alike, so two of them stand for all."""
    shared = SharedTotal(Epsilon("0.5"), labels, None, measures=measures)
    count = labels * measures
    assert worst(shared, [((1,) * count, 1), ((0,) * count, 1)]) <= 1.0 + 1e-9
    spent = Fraction(count, 1) / (2 * shared.own_variance) + 1 / (2 * shared.total_variance)
    assert Fraction(999999, 1000000) * shared.rho.value < spent <= shared.rho.value


@pytest.mark.parametrize(("low", "high"), WIDTHS)
@pytest.mark.parametrize("bound", [None, 1, 2, 5, 50])
def test_a_total_is_shared_where_each_count_has_less_noise_and_never_elsewhere(
    low: int, high: int, bound: int | None
) -> None:
    """Of one measure in these cases alone; of several it always has less where it does of one of them."""
    alone = NoisyCounts(Epsilon("0.1"), bound, max(high, -low)).variance
    for labels in (*range(1, 13), 100):
        shared = SharedTotal(Epsilon("0.1"), labels, bound, low, high)
        assert shared.pays == (shared.variance < alone)
        for measures in range(2, 6) if (low, high) == (0, 1) else ():
            several = SharedTotal(Epsilon("0.1"), labels, bound, measures=measures)
            assert several.pays == shared.pays
            assert several.variance < shared.variance


@pytest.mark.mutant
def test_a_choice_of_a_total_that_forgets_the_bound_is_caught() -> None:
    """What pays without a bound does not under one, where the price is that of fewer counts."""
    forgetful, bounded = SharedTotal(Epsilon("0.1"), 10).pays, SharedTotal(Epsilon("0.1"), 10, 1)
    has_less_noise = bounded.variance < NoisyCounts(Epsilon("0.1"), 1).variance
    assert (forgetful, bounded.pays, has_less_noise) == (True, False, False)


@pytest.mark.mutant
def test_a_wrong_width_is_caught() -> None:
    """Noise for units that add 1, where they add up to 2."""
    shared = SharedTotal(Epsilon(1), 3, None, 0, 1)
    assert worst(shared, moves_of(shared, 0, 2)) > 1.5
    signed = SharedTotal(Epsilon(1), 3, None, -1, 2)
    narrow = SharedTotal(Epsilon(1), 3, None, -1, 1 + 1)
    assert signed == narrow
    assert worst(SharedTotal(Epsilon(1), 3, None, 0, 2), [((-1,) * 3, 1)]) > 1.5  # what a unit takes was forgotten


@pytest.mark.mutant
def test_exchanged_noises_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    own, total = SharedTotal.own_variance, SharedTotal.total_variance
    shared = SharedTotal(Epsilon(1), 4)
    assert worst(shared, moves_of(shared, 0, 1)) <= 1.0 + 1e-9
    monkeypatch.setattr(SharedTotal, "own_variance", total)
    monkeypatch.setattr(SharedTotal, "total_variance", own)
    assert worst(shared, moves_of(shared, 0, 1)) > 1.4


@pytest.mark.mutant
def test_a_rounding_down_of_the_root_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.mechanisms.noisy_counts._root", lambda number: Fraction(math.isqrt(number)))
    shared = SharedTotal(Epsilon(1), 3)
    assert worst(shared, [((1,) * 3, 1)]) > 1.1


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("what", "of_n", "least"), [("stale", 0, 2.5), ("of other groups", 0, 2.5), ("of both branches", 2, 1.7)]
)
def test_a_total_that_a_unit_does_not_raise_by_one_is_caught(what: str, of_n: int, least: float) -> None:
    """Of both branches of a UNION, a unit that adds nothing to the groups returned moves every Y twice as far."""
    shared = SharedTotal(Epsilon(1), 10)
    added = (0,) * 10 if of_n == 2 else (1,) * 10
    assert worst(shared, [(added, of_n)]) > least, what


def test_a_release_has_the_law_of_its_noises() -> None:
    """N, and what is left of a doubled count without it, are independent discrete Gaussians of their variances."""
    shared, noise = SharedTotal(Epsilon(2), 2, None, -1, 3), OperatingSystemNoise()

    def draw() -> tuple[Counter[int], Counter[int]]:
        totals, owns = Counter[int](), Counter[int]()
        for _ in range(2_000):
            drawn = shared.release([[5, 7]], 9, noise=noise)
            totals[drawn.total - 9] += 1
            owns[drawn.doubled[0][0] - 10 - shared.centre * (drawn.total - 9)] += 1
            owns[drawn.doubled[0][1] - 14 - shared.centre * (drawn.total - 9)] += 1
        return totals, owns

    def judge(at: int, variance: Fraction) -> float:
        return goodness(draw()[at], discrete_gaussian_law(variance))

    assert fits(lambda: judge(0, shared.total_variance))
    assert fits(lambda: judge(1, shared.own_variance))


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize(
    ("own", "shared", "factor"), [("5/2", "3/4", 1), ("30", "12", 1), ("9", "2", 3), ("40", "4", -2)]
)
def test_the_offset_is_the_least_of_the_exact_convolution(own: str, shared: str, factor: int, level: float) -> None:
    law = Counter[int]()
    for (z, p), (y, q) in product(
        discrete_gaussian_law(Fraction(own)).items(), discrete_gaussian_law(Fraction(shared)).items()
    ):
        law[int(z) + factor * int(y)] += p * q
    outside = (1 - level) / 2
    offset = find_offset(SharedNoise(Fraction(own), Fraction(shared), factor), outside)
    assert math.fsum(p for at, p in law.items() if at >= offset) <= outside
    assert math.fsum(p for at, p in law.items() if at >= offset - 1) > outside


@pytest.mark.parametrize("factor", [1, 5])
@pytest.mark.parametrize("own", [4, 400, 40_000])
def test_the_bound_of_wide_noise_is_above_the_exact_offset_and_near(
    own: int, factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = SharedNoise(Fraction(own * factor**2), Fraction(own, 2), factor)
    exact = find_offset(noise, 0.025)
    find_offset.cache_clear()
    monkeypatch.setattr("dpsql.intervals._CONVOLVED", 0)
    bound = find_offset(noise, 0.025)
    find_offset.cache_clear()
    assert exact <= bound <= exact + (1 + factor) / 2 + 1 + 0.02 * exact
