"""Law of TopStable: distances, their noise and the threshold."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from dataclasses import replace
from fractions import Fraction

from properties.mechanisms.laws.record import over_cases
from support.laws import (
    Counts,
    cks,
    hockey_stick,
    one_unit_more,
)
from support.top_stable_kit import PRODUCTION, Variant, law_of_positions, stable

from dpsql.mechanisms import TopStable
from dpsql.quantities import Delta, Epsilon

UNIVERSE = "abcd"


THIRD = Fraction(1, 3)


def law(mechanism: TopStable, counts: Counts, variant: Variant = PRODUCTION) -> dict[Hashable, float]:
    """Return the law of the labels that are released."""
    labels = sorted(counts, key=lambda label: (-counts[label], label))
    selections = law_of_positions(mechanism, tuple(counts[label] for label in labels), variant)
    return {
        (each.rank, frozenset(labels[at] for at in each.members), tuple(labels[at] for at in each.ranked)): mass
        for each, mass in selections.items()
    }


def worst_excess(cases: Sequence[tuple[TopStable, Counts]], variant: Variant = PRODUCTION) -> float:
    worst = 0.0
    for mechanism, counts in cases:
        delta, rho, pure = float(mechanism.delta), mechanism.worst_case.rho.value, float(mechanism.guarantee.epsilon)
        here = law(mechanism, counts, variant)
        for more in one_unit_more(counts, UNIVERSE, None):
            there = law(mechanism, more, variant)
            for p, q in ((here, there), (there, here)):
                worst = max(worst, hockey_stick(p, q, pure) / delta)
                for part in (0.1, 0.5, 1.0, 2.0):
                    worst = max(worst, hockey_stick(p, q, part * pure) / (delta + cks(rho, part * pure)))
    return worst


def random_cases(number: int, seed: int) -> list[tuple[TopStable, Counts]]:
    draw = random.Random(seed)
    cases = []
    for _ in range(number):
        k_bar = draw.randint(1, 4)
        mechanism = TopStable(
            Epsilon(draw.choice(["1", "2", "4"])),
            Delta(draw.choice(["1e-6", "0.001", "0.05", "0.3"])),
            draw.randint(1, min(2, k_bar)),
            k_bar,
            draw.choice([Fraction(37, 100), THIRD, Fraction(3, 4)]),
            draw.choice([None, Epsilon("0.5")]),
        )
        highest = draw.choice([1, 2, 3, 20])
        present = draw.sample(UNIVERSE, draw.randint(0, 4))
        cases.append((mechanism, {label: draw.randint(1, highest) for label in present}))
    return cases


EDGES: list[tuple[TopStable, Counts]] = [
    (stable("1", "1e-6", 1, 1), {}),
    (stable("1", "1e-6", 1, 1), {"a": 40, "b": 40}),
    (stable("2", "0.0404", 1, 1), {"a": 1}),
    (stable("2", "0.05", 1, 4), dict.fromkeys("abcd", 3)),
    (stable("2", "1e-6", 1, 4), dict.fromkeys("abcd", 1)),
    (stable("2", "0.01", 2, 3, "1"), dict.fromkeys("abc", 15)),
    (stable("2", "1e-6", 2, 4, "0.5"), {"a": 30, "b": 20, "c": 2}),
    (stable("1", "0.0404", 1, 2), {"a": 9, "b": 8}),
    (stable("2", "1e-6", 1, 1), {"a": 15}),
    (TopStable(Epsilon(4), Delta("1e-12"), 1, 4, Fraction(1, 4)), {"a": 97, "b": 69, "c": 37, "d": 32}),
]


MISTAKES = {
    "the gap after the next rank, as in the published code": (1e3, Variant(later=1)),
    "a distance of the gap itself": (1.3, Variant(less=1)),
    "an offset less by 1": (1.3, Variant(offset=lambda mechanism: mechanism.offset - 1)),
    "an offset for one rank": (1.3, Variant(offset=lambda m: replace(m, k=1, k_bar=1).offset)),
    "distances with half their noise": (1e6, Variant(distance_factor=2)),
    "a threshold without noise": (1e6, Variant(threshold_factor=Fraction(1, 1000))),
}


LAW = over_cases(worst_excess, MISTAKES, edges=EDGES, attained=0.99, random_cases=random_cases, sizes=[12] * 3)
