"""The guarantee of released counts, alone and after a selection, computed exactly on tiny universes."""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import numpy.typing as npt
import pytest
from support.laws import BOTTOM, Steps, cks, label_law, renyi

from dpsql.mechanisms import LimitedDomain, NoisyCounts
from dpsql.quantities import Delta, Epsilon

UNIVERSE = "abcd"
ORDERS = (1.01, 1.5, 2.0, 4.0, 16.0)
Counts = Mapping[str, int]


def log_mass(variance: Fraction, centre: int, points: range) -> dict[Hashable, float]:
    """Return the logarithm of the law of centre + N_Z(0, variance), which does not underflow far out."""
    exponents = {n: -((n - centre) ** 2) / (2.0 * float(variance)) for n in points}
    total = math.log(math.fsum(math.exp(-(n**2) / (2.0 * float(variance))) for n in range(-200, 201)))
    return {n: exponent - total for n, exponent in exponents.items()}


def joint(laws: Sequence[Mapping[Hashable, float]]) -> dict[Hashable, float]:
    """Return the logarithm of a product law."""
    return {
        tuple(event for event, _ in row): math.fsum(mass for _, mass in row)
        for row in product(*(law.items() for law in laws))
    }


def shifts(labels: int, bound: int | None) -> Iterator[tuple[int, ...]]:
    """Yield how one unit may move the counts of the chosen labels."""
    return (move for move in product((0, 1), repeat=labels) if sum(move) <= (bound or labels))


def worst_order(counts: NoisyCounts, labels: int, *, charged: Fraction, variance: Fraction) -> float:
    """Return the worst ratio of a Renyi divergence to alpha * rho, over all units and both orders."""
    points = range(-60, 61) if labels == 2 else range(-120, 121)
    worst = 0.0
    for move in shifts(labels, counts.max_groups_contributed):
        here = joint([log_mass(variance, 0, points)] * labels)
        there = joint([log_mass(variance, by, points) for by in move])
        for order in ORDERS:
            limit = order * float(charged)
            worst = max(worst, renyi(here, there, order) / limit, renyi(there, here, order) / limit)
    return worst


CLAIMS = [("1", 1, 1), ("1", 2, None), ("0.8", 2, 1), ("2", 2, 2), ("0.5", 1, None), ("2", 2, 5)]


@pytest.mark.parametrize(("epsilon", "labels", "bound"), CLAIMS)
def test_the_claimed_rho_holds_and_is_tight(epsilon: str, labels: int, bound: int | None) -> None:
    counts = NoisyCounts(Epsilon(epsilon), bound)
    worst = worst_order(counts, labels, charged=counts.loss(labels).value, variance=counts.variance)
    assert 0.999 < worst <= 1.0 + 1e-9


@pytest.mark.mutant
def test_one_item_for_two_labels_of_one_unit_is_caught() -> None:
    counts = NoisyCounts(Epsilon(1), 2)
    assert worst_order(counts, 2, charged=counts.loss(1).value, variance=counts.variance) > 1.9


@pytest.mark.mutant
def test_noise_that_is_too_small_is_caught() -> None:
    counts = NoisyCounts(Epsilon(1))
    assert worst_order(counts, 1, charged=counts.loss(1).value, variance=counts.variance * Fraction(49, 100)) > 1.9


def densities(variance: Fraction, centre: int) -> npt.NDArray[np.float64]:
    points = np.arange(-40, 42)
    masses = np.exp(-((points - centre) ** 2) / (2.0 * float(variance)))
    return masses / np.exp(-(points**2) / (2.0 * float(variance))).sum()


def hockey_stick_with_counts(
    counted: NoisyCounts, pair: tuple[Counts, Counts], laws: Sequence[Mapping[Steps, float]], level: float
) -> float:
    """Return the hockey stick of labels and noisy counts together."""
    (before, after), (p, q) = pair, laws
    total = 0.0
    for event, mass in p.items():
        if event not in q:
            total += mass
            continue
        moves = [after[label] - before[label] for label in event if label != BOTTOM and after[label] != before[label]]
        here = there = np.ones(())
        for move in moves:
            here = np.multiply.outer(here, densities(counted.variance, 0))
            there = np.multiply.outer(there, densities(counted.variance, move))
        total += float(np.maximum(0.0, mass * here - math.exp(level) * q[event] * there).sum())
    return total


def cases(number: int) -> Iterator[tuple[LimitedDomain, Counts, Counts]]:
    draw = random.Random(5)
    for _ in range(number):
        k = draw.randint(1, 2)
        delta = Delta(draw.choice(["1e-6", "0.01", "0.2"]))
        bound = draw.choice([1, 2, 3, None])
        mechanism = LimitedDomain(Epsilon(draw.choice(["0.5", "1", "2"])), delta, k, draw.randint(k, 3), bound)
        present = draw.sample(UNIVERSE, draw.randint(0, 4))
        counts = {label: draw.randint(1, draw.choice([2, 6])) for label in present}
        for size in range(1, (bound or len(UNIVERSE)) + 1):
            for added in combinations(UNIVERSE, size):
                yield mechanism, counts, {x: counts.get(x, 0) + (x in added) for x in {*counts, *added}}


def test_labels_and_their_counts_together_cost_two_items_each() -> None:
    worst = 0.0
    for mechanism, counts, more in cases(60):
        counted = NoisyCounts(mechanism.epsilon, mechanism.max_groups_contributed)
        rho = mechanism.worst_case.rho + counted.loss(mechanism.k)
        here, there = label_law(mechanism, counts), label_law(mechanism, more)
        for level in (0.3, 1.0, 2.0, 4.0):
            claimed = float(mechanism.delta) + cks(rho.value, level)
            forward = hockey_stick_with_counts(counted, (counts, more), (here, there), level)
            backward = hockey_stick_with_counts(counted, (more, counts), (there, here), level)
            worst = max(worst, forward / claimed, backward / claimed)
    assert 0.5 < worst <= 1.0 + 1e-9
