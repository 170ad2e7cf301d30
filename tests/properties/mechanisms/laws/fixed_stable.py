"""Law of FixedStableTopK: the gap, the set that it holds, and what fills it up."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from fractions import Fraction

from properties.mechanisms.laws.record import over_cases
from support.fixed_stable_kit import PRODUCTION, Variant, law_of_positions
from support.laws import (
    Counts,
    cks,
    hockey_stick,
    one_unit_more,
)

from dpsql.mechanisms import FixedStableTopK
from dpsql.quantities import Delta, Rho

UNIVERSE = "abcd"


LEVELS = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0, 10.0)


def mechanism(rho: str, delta: str, k: int, k_bar: int, penalty: str, bound: int | None = None) -> FixedStableTopK:
    return FixedStableTopK(
        Rho(rho), Delta(delta), k, k_bar=k_bar, penalty=Fraction(penalty), max_groups_contributed=bound
    )


def law(m: FixedStableTopK, counts: Counts, variant: Variant = PRODUCTION) -> dict[Hashable, float]:
    """Return the law of the labels, by what is released of them."""
    labels = sorted(counts, key=lambda label: (-counts[label], label))
    return {
        (
            each.proposed,
            each.held,
            frozenset(labels[at] for at in each.stable),
            tuple(labels[at] for at in each.filled),
            each.stopped_at_bottom,
        ): mass
        for each, mass in law_of_positions(m, tuple(counts[label] for label in labels), variant).items()
    }


def worst_excess(cases: Sequence[tuple[FixedStableTopK, Counts]], variant: Variant = PRODUCTION) -> float:
    worst = 0.0
    for m, counts in cases:
        delta, rho = float(m.worst_case.delta), m.worst_case.rho.value
        here = law(m, counts, variant)
        for more in one_unit_more(counts, UNIVERSE, m.max_groups_contributed):
            there = law(m, more, variant)
            for level in LEVELS:
                found = max(hockey_stick(here, there, level), hockey_stick(there, here, level))
                worst = max(worst, found / (delta + cks(rho, level)))
    return worst


def random_cases(number: int, seed: int) -> list[tuple[FixedStableTopK, Counts]]:
    draw = random.Random(seed)
    cases = []
    for _ in range(number):
        k_bar = draw.randint(1, 4)
        m = mechanism(
            draw.choice(["0.05", "0.2", "1", "4"]),
            draw.choice(["1e-6", "0.001", "0.05", "0.3"]),
            draw.randint(1, min(2, k_bar)),
            k_bar,
            draw.choice(["0", "0.5", "1", "3"]),
            draw.choice([None, 1, 2]),
        )
        highest = draw.choice([1, 2, 3, 12])
        present = draw.sample(UNIVERSE, draw.randint(0, 4))
        cases.append((m, {label: draw.randint(1, highest) for label in present}))
    return cases


EDGES: list[tuple[FixedStableTopK, Counts]] = [
    (mechanism("1", "1e-6", 1, 1, "0"), {}),
    (mechanism("4", "1e-6", 1, 1, "0"), {"b": 2, "a": 1}),
    (mechanism("16", "1e-6", 1, 1, "0"), {"b": 2, "a": 1}),
    (mechanism("1", "1e-6", 1, 2, "0"), {"b": 1}),
    (mechanism("1", "1e-6", 2, 3, "1"), {"a": 12, "b": 1}),
    (mechanism("1", "1e-6", 2, 3, "0.5"), {"a": 12, "b": 3, "c": 3, "d": 3}),
    (mechanism("2", "0.02", 2, 2, "0", 1), {"a": 12, "b": 1, "c": 1}),
    (mechanism("1", "1e-6", 1, 4, "0"), dict.fromkeys("abcd", 12)),
    (mechanism("1", "0.01", 2, 3, "0"), dict.fromkeys("abc", 9)),
    (mechanism("1", "0.05", 2, 4, "0"), dict.fromkeys("abcd", 2)),
    (mechanism("0.5", "1e-6", 1, 2, "0"), {"a": 40}),
]


MISTAKES = {
    "a gap of one taken for stable": (1.8, Variant(unstable=0)),
    "filling up without BOTTOM": (1000.0, Variant(bottom_fills=False)),
    "BOTTOM without the 1": (1.05, Variant(above=0)),
    "M of a hundredth": (10.0, Variant(reach=lambda *_: 0.01)),
}


LAW = over_cases(worst_excess, MISTAKES, edges=EDGES, attained=0.6, random_cases=random_cases, sizes=[80] * 3)
