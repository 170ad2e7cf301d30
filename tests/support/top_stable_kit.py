"""The law of TopStable over positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations

from support.laws import (
    discrete_laplace_law,
    peeling_law,
)

from dpsql.mechanisms import TopStable, TopStableSelection
from dpsql.quantities import Delta, Epsilon


@dataclass(frozen=True)
class Variant:
    """A way to build the mechanism; the defaults are the production code's."""

    less: int = 0  # than the gap that a distance is
    later: int = 0  # ranks after the one that is released
    offset: Callable[[TopStable], int] = lambda mechanism: mechanism.offset
    distance_factor: int = 1
    in_race: bool = True  # R is in the exponents
    threshold_factor: Fraction = Fraction(1)


PRODUCTION = Variant()


@cache
def tails(scale: Fraction) -> Callable[[int], float]:
    decay = math.exp(-1 / scale)
    return lambda n: decay**n / (1 + decay) if n >= 0 else 1 - decay ** (1 - n) / (1 + decay)


def ranks(mechanism: TopStable, counts: tuple[int, ...], variant: Variant = PRODUCTION) -> dict[int, float]:
    """Return the law of the rank, over the counts of all groups in descending order."""
    ranked = [*counts, *[0] * (mechanism.k_bar + 2)]
    distances = [
        max(0, ranked[at] - ranked[at + 1] - mechanism.sensitivity + variant.less)
        for at in range(variant.later, mechanism.k_bar + variant.later)
    ]
    tail = tails(mechanism.distance_scale / variant.distance_factor)
    found = dict.fromkeys(range(mechanism.k_bar + 1), 0.0)
    for shift, mass in discrete_laplace_law(mechanism.threshold_scale * variant.threshold_factor).items():
        left = mass
        for rank in range(mechanism.k_bar, 0, -1):
            held = tail(variant.offset(mechanism) + shift - distances[rank - 1])
            found[rank] += left * held
            left *= 1.0 - held
        found[0] += left
    return found


def law_of_positions(
    mechanism: TopStable, counts: tuple[int, ...], variant: Variant = PRODUCTION
) -> dict[TopStableSelection, float]:
    found: dict[TopStableSelection, float] = {}
    for rank, mass in ranks(mechanism, counts, variant).items():
        stable = range(min(rank, len(counts)))
        if rank <= mechanism.k or len(stable) <= mechanism.k:
            found[TopStableSelection(rank, frozenset(stable), ())] = mass
        elif mechanism.within is None:
            subsets = [*combinations(stable, mechanism.k)]
            found |= {TopStableSelection(rank, frozenset(each), ()): mass / len(subsets) for each in subsets}
        else:
            raced = float(mechanism.within) / (mechanism.sensitivity if variant.in_race else 1)
            drawn = peeling_law(counts[: len(stable)], None, raced, mechanism.k)
            found |= {TopStableSelection(rank, frozenset(), steps): mass * part for steps, part in drawn.items()}
    return found


def stable(epsilon: str, delta: str, k: int, k_bar: int, within: str | None = None, most: int = 1) -> TopStable:
    return TopStable(Epsilon(epsilon), Delta(delta), k, k_bar, within=within and Epsilon(within), sensitivity=most)
