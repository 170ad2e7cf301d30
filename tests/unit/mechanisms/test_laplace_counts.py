"""Counts with discrete Laplace noise as items: their range, their pure loss and their composition, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import pytest
from support.laws import discrete_laplace_law

from dpsql.accounting import adaptive_delta
from dpsql.accounting.certificates import durfee_rogers
from dpsql.errors import UsageError
from dpsql.mechanisms import LaplaceCounts, OperatingSystemNoise
from dpsql.quantities import Delta, Epsilon

BOUNDED_RANGE, PURE = 2, 1
CLAIMS = [("0.1", 1, None), ("1", 2, None), ("0.5", 2, 1), ("2", 3, 2), ("0.3", 3, None), ("1", 1, 4)]


def log_ratios(scale: Fraction, move: int) -> list[float]:
    """Return the logarithm of the likelihood ratio of a count and of one that a unit moved, at every outcome."""
    points = range(-60, 61)
    return [float((abs(n - move) - abs(n)) / scale) for n in points]


def moves(labels: int, bound: int | None) -> list[tuple[int, ...]]:
    return [move for move in product((0, 1), repeat=labels) if sum(move) <= (bound or labels)]


@pytest.mark.parametrize(("epsilon", "labels", "bound"), CLAIMS)
def test_a_count_is_an_item_of_bounded_range_and_no_smaller_one(epsilon: str, labels: int, bound: int | None) -> None:
    counts = LaplaceCounts(Epsilon(epsilon), BOUNDED_RANGE, bound)
    ratios = log_ratios(counts.scale, 1)
    assert max(ratios) - min(ratios) == pytest.approx(float(epsilon), rel=1e-12)
    touched = max(sum(move) for move in moves(labels, bound))
    assert counts.items(labels) == touched  # the other counts are no steps at all: no outcome tells of the unit
    assert set(log_ratios(counts.scale, 0)) == {0.0}


@pytest.mark.parametrize(("epsilon", "labels", "bound"), CLAIMS)
def test_under_pure_a_release_costs_its_items_and_no_less(epsilon: str, labels: int, bound: int | None) -> None:
    counts = LaplaceCounts(Epsilon(epsilon), PURE, bound)
    worst = max(
        abs(math.fsum(max(log_ratios(counts.scale, by), key=abs) for by in move)) for move in moves(labels, bound)
    )
    assert worst == pytest.approx(counts.items(labels) * float(epsilon), rel=1e-12)


def test_the_noise_of_pure_has_twice_the_range_that_an_item_may_have() -> None:
    ratios = log_ratios(LaplaceCounts(Epsilon(1), PURE).scale, 1)
    assert max(ratios) - min(ratios) == pytest.approx(2.0)


def hockey_stick(scale: Fraction, counts: int, *, level: float) -> float:
    """Return it for so many counts, all moved by a unit; the ratio of each has two values, of one side of it each."""
    law = discrete_laplace_law(scale)
    up = math.fsum(mass for n, mass in law.items() if n <= 0)
    step = float(1 / scale)
    return math.fsum(
        math.comb(counts, less)
        * up ** (counts - less)
        * (1 - up) ** less
        * max(0.0, 1 - math.exp(level - (counts - 2 * less) * step))
        for less in range(counts + 1)
    )


CASES: Sequence[tuple[int, str, str]] = [(50, "0.1", "1e-3"), (20, "0.5", "1e-6"), (200, "0.05", "1e-6")]


@pytest.mark.parametrize(("number", "epsilon", "delta"), CASES)
def test_counts_compose_within_theorem_two_and_half_the_noise_does_not(number: int, epsilon: str, delta: str) -> None:
    each, allowed = Epsilon(epsilon), float(delta)
    level = durfee_rogers(number, each, delta=Delta(delta)).bounded_range
    assert hockey_stick(LaplaceCounts(each, BOUNDED_RANGE).scale, number, level=level) <= allowed
    assert hockey_stick(LaplaceCounts(each, PURE).scale, number, level=level) > 3 * allowed


@pytest.mark.parametrize(("number", "epsilon", "share"), [(5, "1", "0.4"), (50, "0.1", "0.3"), (20, "0.5", "0.35")])
def test_counts_compose_within_the_adaptive_optimum_and_half_the_noise_does_not(
    number: int, epsilon: str, share: str
) -> None:
    each, total = Epsilon(epsilon), Epsilon(Fraction(share) * number * Fraction(epsilon))
    allowed = adaptive_delta(number, each, total=total)
    reached = hockey_stick(LaplaceCounts(each, BOUNDED_RANGE).scale, number, level=float(total))
    assert 0.1 * allowed < reached <= allowed
    assert hockey_stick(LaplaceCounts(each, PURE).scale, number, level=float(total)) > 3 * allowed


def test_the_variance_is_a_bound_of_that_of_the_noise() -> None:
    for epsilon in ("0.1", "1", "4"):
        counts = LaplaceCounts(Epsilon(epsilon), BOUNDED_RANGE)
        exact = math.fsum(n * n * mass for n, mass in discrete_laplace_law(counts.scale).items())
        assert 0.3 * float(counts.variance) < exact <= float(counts.variance)


def test_no_count_takes_no_noise_and_parameters_are_checked() -> None:
    assert LaplaceCounts(Epsilon(1), PURE).release([], OperatingSystemNoise()) == []
    with pytest.raises(UsageError, match=r"\[bound-range\]"):
        LaplaceCounts(Epsilon(1), PURE, 0)
    with pytest.raises(UsageError, match=r"\[epsilon-range\]"):
        LaplaceCounts(Epsilon("1e-10"), PURE)
