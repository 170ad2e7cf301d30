"""The law of LaplaceLimitedDomain over labels, with their noisy counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, reduce
from itertools import combinations

import numpy as np
import numpy.typing as npt
from support.laws import Counts, discrete_laplace_law

from dpsql.mechanisms import Histogram, LaplaceLimitedDomain

Masses = npt.NDArray[np.float64]
Outcomes = dict[Hashable, Masses]  # of a set of labels: the masses of all their noisy counts, one axis a label


@dataclass(frozen=True)
class Variant:
    """A way to build the mechanism; the defaults are the production code's."""

    offset: Callable[[LaplaceLimitedDomain], int] = lambda mechanism: mechanism.offset
    above: int | None = None  # R
    following: bool = True  # BOTTOM stands upon the count after the leaders
    scale: Callable[[LaplaceLimitedDomain], Fraction] = lambda mechanism: mechanism.scale
    bottom_scale: Callable[[LaplaceLimitedDomain], Fraction] = lambda mechanism: mechanism.scale
    tie: Callable[[Counts, str], Hashable] = lambda _, label: label
    ranks_show: bool = False  # equal noisy counts come in the order of the exact ones


PRODUCTION = Variant()


@cache
def noise_on(scale: Fraction, reach: int) -> Masses:
    law = discrete_laplace_law(scale)
    return np.array([law.get(n, 0.0) for n in range(-reach, reach + 1)])


def outcomes(mechanism: LaplaceLimitedDomain, counts: Counts, variant: Variant = PRODUCTION) -> Outcomes:
    """Return the law of the released labels with their noisy counts, which run from -reach to reach."""
    scale, bottom_scale = variant.scale(mechanism), variant.bottom_scale(mechanism)
    reach = math.ceil(30 * max(scale, bottom_scale)) + 40
    labels = sorted(filter(counts.get, counts), key=lambda label: (-counts[label], variant.tie(counts, label)))
    histogram = Histogram.of_leaders(tuple(counts[label] for label in labels[: mechanism.k_bar + 1]), mechanism.k_bar)
    above = mechanism.sensitivity if variant.above is None else variant.above
    threshold = (histogram.following if variant.following else 0) + above + variant.offset(mechanism)
    bottom = np.roll(noise_on(bottom_scale, 2 * reach), threshold)[reach:-reach]  # on the same axis as the counts
    noisy = {
        label: np.roll(noise_on(scale, 2 * reach), counts[label])[reach:-reach] for label in labels[: mechanism.k_bar]
    }
    found: Outcomes = {}
    for size in range(len(noisy) + 1):
        for released in combinations(sorted(noisy), size):
            below = [np.cumsum(noisy[label]) - noisy[label] for label in noisy if label not in released]
            reached = np.cumsum(reduce(np.multiply, below, bottom))  # BOTTOM is at most this, the others below it
            if not released:
                found[released] = reached[-1:]
                continue
            grids = np.ix_(*[np.arange(len(bottom))] * size)
            masses = reduce(np.multiply, np.ix_(*[noisy[label] for label in released]), np.ones([1] * size))
            masses = masses * reached[reduce(np.minimum, grids)]
            if variant.ranks_show and size == 2:
                first = min(released, key=labels.index)
                found[released, first] = np.diagonal(masses).copy()
                np.fill_diagonal(masses, 0.0)
            found[released] = masses
    return found


def stick(p: Outcomes, q: Outcomes, epsilon: float) -> float:
    """Return the hockey stick of two laws."""
    factor = math.exp(epsilon)
    return math.fsum(
        float(np.maximum(0.0, masses - factor * q[event] if event in q else masses).sum())
        for event, masses in p.items()
    )
