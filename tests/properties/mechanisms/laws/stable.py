"""Law of StableTopK: the k that is chosen, and the set that is released if its gap holds."""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from properties.mechanisms.laws.record import over_cases
from support.laws import cks, discrete_gaussian_law, hockey_stick

from dpsql.mechanisms import Histogram, StableSelection, StableTopK, distance_regulariser
from dpsql.quantities import Delta, Epsilon

Counts = Mapping[str, int]


UNIVERSE = "abcde"


@dataclass(frozen=True)
class Variant:
    """A way to build the mechanism; the defaults are the production code's."""

    share: float = 0.5  # of epsilon * gap in the exponent of the choice
    unstable: int = 1  # the widest gap that must not pass


PRODUCTION = Variant()


def tail(variance: Fraction, at_least: int) -> float:
    law = discrete_gaussian_law(variance)
    return math.fsum(mass for draw, mass in law.items() if draw >= at_least)


def positional_law(
    mechanism: StableTopK, histogram: Histogram, variant: Variant = PRODUCTION
) -> dict[StableSelection, float]:
    gaps = mechanism.gaps(histogram)
    regulariser = mechanism.regulariser or (0,) * len(gaps)
    scores = [gap + more for gap, more in zip(gaps, regulariser, strict=True)]
    weights = [math.exp(float(mechanism.epsilon) * variant.share * (score - max(scores))) for score in scores]
    law: dict[StableSelection, float] = {}
    for k, (gap, weight) in enumerate(zip(gaps, weights, strict=True), start=1):
        chosen = weight / math.fsum(weights)
        held = tail(mechanism.variance, mechanism.offset + variant.unstable - gap)
        positions = frozenset(range(min(k, len(histogram.leaders))))
        law[StableSelection(k, positions)] = chosen * held
        law[StableSelection(k, None)] = chosen * (1.0 - held)
    return law


def law(mechanism: StableTopK, counts: Counts, variant: Variant = PRODUCTION) -> dict[Hashable, float]:
    """Return the law of the k that is chosen and the set of labels that is released."""
    labels = sorted(counts, key=lambda label: (-counts[label], label))
    leaders = tuple(counts[label] for label in labels[: mechanism.k_bar + 1])
    histogram = Histogram.of_leaders(leaders, mechanism.k_bar)
    return {
        (chosen.k, chosen.positions and frozenset(labels[at] for at in chosen.positions)): mass
        for chosen, mass in positional_law(mechanism, histogram, variant).items()
    }


def neighbours(counts: Counts) -> Iterator[dict[str, int]]:
    for size in range(1, len(UNIVERSE) + 1):
        for added in combinations(UNIVERSE, size):
            yield {label: counts.get(label, 0) + (label in added) for label in {*counts, *added}}


def worst_excess(cases: Sequence[tuple[StableTopK, Counts]], variant: Variant = PRODUCTION) -> float:
    """Return the worst factor by which any neighbours, in either order, exceed the claimed loss."""
    worst = 0.0
    for mechanism, counts in cases:
        delta, rho = float(mechanism.loss.delta), mechanism.loss.rho.value
        here = law(mechanism, counts, variant)
        for more in neighbours(counts):
            there = law(mechanism, more, variant)
            for level in (0.05, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 40.0):
                claimed = delta + cks(rho, level)
                worst = max(
                    worst, hockey_stick(here, there, level) / claimed, hockey_stick(there, here, level) / claimed
                )
    return worst


def random_cases(number: int, seed: int) -> list[tuple[StableTopK, Counts]]:
    draw = random.Random(seed)
    cases = []
    for _ in range(number):
        epsilon, delta = draw.choice(["0.3", "0.5", "1", "2"]), draw.choice(["1e-6", "0.001", "0.05", "0.3"])
        k_bar = draw.randint(1, 4)
        regulariser = draw.choice([(), distance_regulariser(draw.randint(1, k_bar), k_bar, penalty=Fraction(3, 2))])
        mechanism = StableTopK(Epsilon(epsilon), Delta(delta), k_bar, regulariser)
        highest = draw.choice([1, 2, 3, 12])
        present = draw.sample(UNIVERSE, draw.randint(0, 5))
        cases.append((mechanism, {label: draw.randint(1, highest) for label in present}))
    return cases


EDGES: list[tuple[StableTopK, Counts]] = [
    (StableTopK(Epsilon("1"), Delta("1e-6"), 1), {}),
    (StableTopK(Epsilon("4"), Delta("1e-6"), 1), {"b": 2, "a": 1}),
    (StableTopK(Epsilon("2"), Delta("1e-6"), 2), {"b": 1}),
    (StableTopK(Epsilon("0.5"), Delta("1e-6"), 3), {"b": 4, "a": 3, "c": 3, "d": 3}),
    (StableTopK(Epsilon("2"), Delta("1e-6"), 4), dict.fromkeys("abcde", 3)),
    (StableTopK(Epsilon("2"), Delta("1e-6"), 4), {"a": 5, "b": 3, "c": 3}),
    (StableTopK(Epsilon("2"), Delta("1e-6"), 2), {"a": 8, "b": 4, "c": 1}),
]


MISTAKES = {
    "a choice without the half": (2.0, Variant(share=1.0)),
    "a threshold that takes a gap of one for stable": (100.0, Variant(unstable=0)),
}
LAW = over_cases(worst_excess, MISTAKES, edges=EDGES, attained=0.5, random_cases=random_cases, sizes=[150] * 3)
