"""Law of the limited domain over sums, of which one unit adds up to R to a group."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from properties.mechanisms.laws.record import over_cases
from support.laws import Counts, Steps, excess, named, peeling_law

from dpsql.mechanisms import Histogram, LimitedDomain
from dpsql.quantities import Delta, Epsilon

UNIVERSE = "abcd"


def offset_of(mechanism: LimitedDomain) -> float:
    return float(mechanism.threshold_offset)


@dataclass(frozen=True)
class Variant:
    """A way to build the mechanism; the defaults are the production code's."""

    offset: Callable[[LimitedDomain], float] = offset_of
    per_step: Callable[[LimitedDomain], float] = lambda mechanism: float(mechanism.epsilon) / mechanism.sensitivity
    keeps_zeros: bool = False


PRODUCTION = Variant()


def law(mechanism: LimitedDomain, scores: Counts, variant: Variant = PRODUCTION) -> dict[Steps, float]:
    """Return the law of the released labels; labels of score 0 do not exist."""
    present = [label for label in scores if scores[label] > 0 or variant.keeps_zeros]
    labels = sorted(present, key=lambda label: (-scores[label], label))
    leaders = tuple(scores[label] for label in labels[: mechanism.k_bar + 1])
    histogram = Histogram.of_leaders(leaders, mechanism.k_bar)
    bottom = histogram.following + variant.offset(mechanism)
    return named(peeling_law(histogram.leaders, bottom, variant.per_step(mechanism), mechanism.k), labels)


def one_unit_more(mechanism: LimitedDomain, scores: Counts) -> Iterator[dict[str, int]]:
    """Yield the scores with one unit more, which adds 0 to R to each of at most `max_groups_contributed` labels."""
    for size in range(1, (mechanism.max_groups_contributed or len(UNIVERSE)) + 1):
        for labels in combinations(UNIVERSE, size):
            for added in product(range(mechanism.sensitivity + 1), repeat=size):
                more = dict(zip(labels, added, strict=True))
                yield {label: scores.get(label, 0) + more.get(label, 0) for label in {*scores, *labels}}


def worst_excess(cases: Sequence[tuple[LimitedDomain, Counts]], variant: Variant = PRODUCTION) -> float:
    """Return the worst excess over all neighbours of all cases, in both orders."""
    worst = 0.0
    for mechanism, scores in cases:
        here = law(mechanism, scores, variant)
        for more in one_unit_more(mechanism, scores):
            there = law(mechanism, more, variant)
            worst = max(worst, excess(mechanism, here, there), excess(mechanism, there, here))
    return worst


def domain(epsilon: str, delta: str, k: int, k_bar: int, *, bound: int | None, most: int) -> LimitedDomain:
    return LimitedDomain(Epsilon(epsilon), Delta(delta), k, k_bar, bound, sensitivity=most)


def random_cases(number: int, seed: int) -> list[tuple[LimitedDomain, Counts]]:
    draw = random.Random(seed)
    cases = []
    for _ in range(number):
        k_bar, most = draw.randint(1, 3), draw.choice([2, 2, 3])
        mechanism = domain(
            draw.choice(["0.5", "1", "2"]),
            draw.choice(["1e-6", "0.01", "0.2"]),
            draw.randint(1, min(2, k_bar)),
            k_bar,
            bound=draw.choice([1, 2, 3]),
            most=most,
        )
        present = draw.sample(UNIVERSE, draw.randint(0, 4))
        cases.append((mechanism, {label: draw.randint(1, 2 * most) for label in present}))
    return cases


EDGES: list[tuple[LimitedDomain, Counts]] = [
    (domain("1", "1e-6", 2, 2, bound=3, most=3), {}),
    (domain("1", "1e-6", 1, 1, bound=1, most=3), {"a": 1, "b": 1}),
    (domain("2", "1e-6", 1, 1, bound=None, most=2), {"b": 2, "a": 1, "c": 1, "d": 1}),
    (domain("0.5", "1e-3", 2, 3, bound=2, most=3), {"a": 3}),
    (domain("1", "0.1", 2, 2, bound=2, most=2), dict.fromkeys("abcd", 2)),
    (domain("1", "1e-3", 1, 2, bound=1, most=3), {"a": 80, "b": 80}),  # far above BOTTOM
]


MISTAKES = {
    "R left out of the threshold": (
        50.0,
        Variant(offset=lambda m: float(replace(m, sensitivity=1).threshold_offset)),
    ),
    "R left out of the race": (1.5, Variant(per_step=lambda m: float(m.epsilon))),
    "R left out of the logarithm's part of the threshold": (
        50.0,
        Variant(
            offset=lambda m: m.sensitivity - 1 + float(replace(m, sensitivity=1).threshold_offset),
        ),
    ),
    "1 in place of R before the logarithm": (
        1.5,
        Variant(offset=lambda m: 1 - m.sensitivity + float(m.threshold_offset)),
    ),
}


LAW = over_cases(worst_excess, MISTAKES, edges=EDGES, attained=0.9, random_cases=random_cases, sizes=[120] * 3)
