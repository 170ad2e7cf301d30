"""Noisy values of known names beside those of others: who takes part, in which order, and by which law."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from support.laws import SeededNoise, discrete_gaussian_law, goodness

from dpsql.errors import UsageError
from dpsql.mechanisms import FullHistogram, GaussianHistogram, WeightedGaussian
from dpsql.mechanisms.gaussian_threshold import release_beside_known
from dpsql.quantities import Delta, Rho

VARIANCE = Fraction(1)


def expected(known: list[int], others: list[int], *, k: int, threshold: int) -> dict[Hashable, float]:
    """Return the law of what is released: positions and noisy values, by decreasing value and then by position."""
    noise = discrete_gaussian_law(VARIANCE, 7.0)
    each = [{value + n: mass for n, mass in noise.items()} for value in (*known, *others)]
    found: dict[Hashable, float] = {}
    for row in product(*(law.items() for law in each)):
        taken = [(-value, at) for at, (value, _) in enumerate(row) if at < len(known) or value >= threshold]
        shown = tuple(sorted(taken)[:k])
        mass = 1.0
        for _, chance in row:
            mass *= chance
        found[shown] = found.get(shown, 0.0) + mass
    return found


@pytest.mark.parametrize(
    ("known", "others", "k", "threshold", "many"),
    [
        ([0, 3], [4], 2, 5, 1),
        ([0, 3], [4], 2, 5, 4096),
        ([0, 0, 0, 1], [], 1, 4, 1),
        ([-2], [1, 6], 3, 4, 4096),
        ([], [3, 5], 2, 4, 1),
    ],
)
def test_the_release_has_its_law(
    known: list[int], others: list[int], k: int, threshold: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.mechanisms.gaussian_threshold.MANY", many)
    noise, seen = SeededNoise(11), Counter[Hashable]()
    values, histogram = np.array(known, np.int64), FullHistogram.of(others)
    for _ in range(4_000):
        drawn = release_beside_known(values, histogram, k=k, threshold=threshold, variance=VARIANCE, noise=noise)
        seen[tuple((-count, at) for at, count in zip(drawn.positions, drawn.counts, strict=True))] += 1
    assert goodness(seen, expected(known, others, k=k, threshold=threshold)) > 1e-6


def test_a_known_name_without_units_is_drawn_like_any_other() -> None:
    """Its noise is drawn: one hundred absent names have one hundred different values, half of them below 0."""
    mechanism = GaussianHistogram(Rho("0.000001"), Delta("1e-6"), 100, 1)
    drawn = mechanism.release(FullHistogram.of([]), SeededNoise(5), known=np.zeros(100, np.int64))
    assert sorted(drawn.positions) == list(range(100))
    assert len(set(drawn.counts)) > 90
    assert 20 < sum(count < 0 for count in drawn.counts) < 80


def test_equal_noisy_values_come_in_the_order_of_the_names_and_known_ones_first() -> None:
    """Noise so small that all is as it is: the order of the list decides, and presence in the data does not."""
    mechanism = GaussianHistogram(Rho(100), Delta("0.5"), 4, 1)
    drawn = mechanism.release(FullHistogram.of([3, 3]), SeededNoise(1), known=np.array([3, 3], np.int64))
    assert drawn.positions == (0, 1, 2, 3)
    assert drawn.counts == (3, 3, 3, 3)


def test_others_reach_the_threshold_and_known_names_need_not() -> None:
    mechanism = WeightedGaussian(Rho("0.5"), Delta("1e-9"), 10, 5)
    drawn = mechanism.release(FullHistogram.of([2**20]), SeededNoise(2), known=np.array([2**20, 0], np.int64))
    assert sorted(drawn.positions) == [0, 1]


def test_values_that_a_double_does_not_hold_are_refused() -> None:
    mechanism = GaussianHistogram(Rho(1), Delta("1e-6"), 1, 1)
    with pytest.raises(UsageError, match="known names"):
        mechanism.release(FullHistogram.of([]), SeededNoise(1), known=np.array([2**53], np.int64))


def test_a_hundred_thousand_known_names_are_cut_to_the_first_k() -> None:
    known = np.zeros(100_000, np.int64)
    known[[5, 70_000]] = 10**6
    drawn = GaussianHistogram(Rho("0.1"), Delta("1e-6"), 3, 1).release(
        FullHistogram.of([]), SeededNoise(3), known=known
    )
    assert drawn.positions[:2] in {(5, 70_000), (70_000, 5)}
    assert len(drawn.positions) == 3
