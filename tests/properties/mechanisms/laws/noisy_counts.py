"""Law of released counts: the claimed rho holds, and is tight."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import product

from properties.mechanisms.laws.record import MechanismLaw
from support.laws import renyi

from dpsql.mechanisms import NoisyCounts
from dpsql.quantities import Epsilon

ORDERS = (1.01, 1.5, 2.0, 4.0, 16.0)


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


def claimed(epsilon: str, labels: int, bound: int | None) -> float:
    counts = NoisyCounts(Epsilon(epsilon), bound)
    return worst_order(counts, labels, charged=counts.loss(labels).value, variance=counts.variance)


def one_item_for_two_labels() -> float:
    counts = NoisyCounts(Epsilon(1), 2)
    return worst_order(counts, 2, charged=counts.loss(1).value, variance=counts.variance)


def noise_too_small() -> float:
    counts = NoisyCounts(Epsilon(1))
    return worst_order(counts, 1, charged=counts.loss(1).value, variance=counts.variance * Fraction(49, 100))


LAW = MechanismLaw(
    claims={", ".join(map(str, each)): (0.999, partial(claimed, *each)) for each in CLAIMS},
    mistakes={
        "one item for two labels of one unit": (1.9, one_item_for_two_labels),
        "noise that is too small": (1.9, noise_too_small),
    },
)
