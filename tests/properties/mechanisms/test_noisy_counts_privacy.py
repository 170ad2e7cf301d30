"""The guarantee of released counts, alone and after a selection, computed exactly on tiny universes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
import numpy.typing as npt
from support.laws import BOTTOM, Steps, cks, label_law

from dpsql.mechanisms import LimitedDomain, NoisyCounts
from dpsql.quantities import Delta, Epsilon

UNIVERSE = "abcd"


Counts = Mapping[str, int]


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
