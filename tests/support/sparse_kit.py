"""Mechanisms over all counts on tiny data sets: their weights, thresholds and the law of one label."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from support.laws import discrete_gaussian_law

from dpsql.accounting import ZCDP
from dpsql.mechanisms import GaussianHistogram
from dpsql.mechanisms.gaussian_threshold import unit_weight, weighted_threshold
from dpsql.quantities import Delta, Rho

LEVELS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
STEPS = 4  # of fixed point in a weight, few enough to enumerate
Units = Sequence[frozenset[str]]
Weights = Mapping[str, int]


@dataclass(frozen=True)
class Sparse:
    """What a mechanism over all counts does, as far as its law goes."""

    loss: ZCDP
    variance: Fraction
    threshold: int
    bound: int
    weigh: Callable[[int], int]
    cut: int = 1  # labels of less are dropped before noise is drawn: at 1 those that do not exist


def histogram(rho: str, delta: str, bound: int) -> Sparse:
    mechanism = GaussianHistogram(Rho(rho), Delta(delta), 2, bound)
    return Sparse(mechanism.loss, mechanism.variance, mechanism.threshold, bound, lambda _: 1)


def weighted(rho: str, delta: str, bound: int) -> Sparse:
    """Return the weighted mechanism in fixed point of four steps."""
    variance = STEPS**2 / (2 * Rho(rho).value)
    threshold = weighted_threshold(variance, Delta(delta), most=bound, steps=STEPS)
    loss = ZCDP(Rho(rho), Delta(delta))
    return Sparse(loss, variance, threshold, bound, lambda groups: unit_weight(groups, steps=STEPS))


def weights(mechanism: Sparse, units: Units) -> dict[str, int]:
    found: dict[str, int] = {}
    for unit in units:
        for label in unit:
            found[label] = found.get(label, 0) + mechanism.weigh(len(unit))
    return found


def passing(mechanism: Sparse, weight: int) -> dict[int | None, float]:
    """Return the law of one label: its noisy weight, or None."""
    law = discrete_gaussian_law(mechanism.variance, 9.0)
    noisy: dict[int | None, float] = {weight + n: mass for n, mass in law.items() if weight + n >= mechanism.threshold}
    return {None: 1.0 - math.fsum(noisy.values()), **noisy}


def sets(universe: str, most: int) -> Iterator[frozenset[str]]:
    return (frozenset(chosen) for size in range(1, most + 1) for chosen in combinations(universe, size))


MAKES = {"histogram": histogram, "weighted": weighted}
