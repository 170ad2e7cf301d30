"""Law of the limited domain with a floor under its threshold: its promise of few units, and its privacy."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

from properties.mechanisms.laws.record import Bar, MechanismLaw, over_cases
from support.laws import (
    Counts,
    Steps,
    named,
    peeling_law,
    worst_of,
)

from dpsql.mechanisms import Histogram, LimitedDomain
from dpsql.quantities import Delta, Epsilon

DELTAS = ("0.3", "0.05", "1e-6")


def floored(min_units: int, epsilon: str, delta: str, size: tuple[int, int], bound: int | None) -> LimitedDomain:
    """Return the mechanism with a floor; `size` is k and k_bar."""
    return LimitedDomain(Epsilon(epsilon), Delta(delta), *size, bound, min_units)


def usual(mechanism: LimitedDomain, following: int) -> float:
    """Return the threshold that does without a floor."""
    return float(following + mechanism.threshold_offset)


def floor(mechanism: LimitedDomain) -> float:
    return float(mechanism.least_threshold)


def production(mechanism: LimitedDomain, following: int) -> float:
    return max(usual(mechanism, following), floor(mechanism))


@dataclass(frozen=True)
class Variant:
    """A way to build the mechanism; the defaults are the production code's."""

    threshold: Callable[[LimitedDomain, int], float] = production
    least_count: Callable[[LimitedDomain], int] = lambda _: 1  # exact counts below it do not race


PRODUCTION = Variant()


def law(mechanism: LimitedDomain, counts: Counts, variant: Variant = PRODUCTION) -> dict[Steps, float]:
    """Return the law of the released labels."""
    held = {label: count for label, count in counts.items() if count >= variant.least_count(mechanism)}
    labels = sorted(held, key=lambda label: (-held[label], label))
    histogram = Histogram.of_leaders(tuple(held[label] for label in labels), mechanism.k_bar)
    bottom = variant.threshold(mechanism, histogram.following)
    return named(peeling_law(histogram.leaders, bottom, float(mechanism.epsilon), mechanism.k), labels)


def too_few(mechanism: LimitedDomain, counts: Counts, variant: Variant = PRODUCTION) -> float:
    """Return how likely a label of fewer than min_units units is returned."""
    small = {label for label, count in counts.items() if count < mechanism.min_units}
    return math.fsum(mass for steps, mass in law(mechanism, counts, variant).items() if small & {*steps})


SIZES = [(1, 1), (1, 2), (2, 2), (1, 3), (2, 3), (3, 3)]


FLOORED = [
    floored(*each) for each in product((2, 3, 5), ("0.5", "2"), DELTAS, SIZES, (1, None))
]  # the bound is below k_bar, or there is none


SMALL = [
    dict(zip("abcd", counts, strict=False))
    for labels in range(5)
    for counts in combinations_with_replacement((1, 2, 3, 4, 6), labels)
]


def worst_promise(mechanism: LimitedDomain, variant: Variant = PRODUCTION) -> float:
    """Return the largest probability of a label with too few units, as a part of delta."""
    return max(too_few(mechanism, counts, variant) for counts in SMALL) / float(mechanism.delta)


UNIVERSE = "abcde"


def every_case() -> Iterator[tuple[LimitedDomain, Counts]]:
    """Yield mechanisms and histograms on either side of the point where the floor gives way, and at it."""
    tables = [
        {label: count for label, count in zip("abc", counts, strict=True) if count}
        for counts in product((0, 1, 2, 3), repeat=3)
    ]
    for epsilon, delta, size, bound in product(("0.7", "2"), ("0.3", "1e-6"), [(1, 1), (1, 2), (2, 2)], (1, 2)):
        mechanism = floored(3, epsilon, delta, size, bound)
        yield from ((mechanism, table) for table in tables)


def random_cases(number: int, seed: int) -> Iterator[tuple[LimitedDomain, Counts]]:
    draw = random.Random(seed)
    for _ in range(number):
        k_bar = draw.randint(1, 4)
        size = (draw.randint(1, min(3, k_bar)), k_bar)
        bound = draw.choice([1, 1, 2, 3, None])
        epsilon, delta = draw.choice(["0.1", "0.5", "1", "2"]), draw.choice(["1e-6", "0.01", "0.05", "0.3"])
        lowest = draw.choice([1, 1, 4])
        present = draw.sample(UNIVERSE, draw.randint(0, 5))
        counts = {label: lowest + draw.randint(0, 2) for label in present}
        yield floored(draw.choice([2, 3, 4, 7]), epsilon, delta, size, bound), counts


EDGES: list[tuple[LimitedDomain, Counts]] = [
    (floored(2, "1", "1e-6", (2, 2), None), {}),  # the floor and the usual threshold are one
    (floored(2, "1", "0.3", (2, 3), 2), {"a": 1, "b": 1, "c": 1, "d": 1}),
    (floored(3, "2", "0.3", (1, 1), 1), {"a": 5, "b": 5}),
    (floored(3, "1", "1e-6", (2, 2), 1), dict.fromkeys("abcde", 9)),
    (floored(4, "2", "0.3", (1, 2), 1), {"a": 3}),
    (floored(9, "1", "0.05", (1, 2), 1), {"a": 8, "b": 8}),
    (floored(40, "1", "1e-6", (1, 1), 1), {"a": 39}),
]


def worst_excess(cases: Sequence[tuple[LimitedDomain, Counts]], variant: Variant = PRODUCTION) -> float:
    """Return the worst excess over all neighbours of all cases, in both orders."""
    return worst_of(cases, lambda mechanism, counts: law(mechanism, counts, variant), universe=UNIVERSE)


def surplus(mechanism: LimitedDomain, labels: int) -> float:
    return math.log(labels / mechanism.delta.value) / float(mechanism.epsilon)


def at_least(least: Callable[[LimitedDomain], float]) -> Variant:
    return Variant(threshold=lambda mechanism, following: max(usual(mechanism, following), least(mechanism)))


MISLED = {
    "no floor": (2.0, Variant(threshold=usual)),
    "the floor without its logarithm": (2.0, at_least(lambda m: float(m.min_units - 1))),
    "M in place of k_bar": (
        1.5,
        at_least(lambda m: m.min_units - 1 + surplus(m, min(m.max_groups_contributed or m.k_bar, m.k_bar))),
    ),
    "one unit too low": (1.2, at_least(lambda m: m.min_units - 2 + surplus(m, m.k_bar))),
    "without 1/epsilon": (2.0, at_least(lambda m: m.min_units - 1 + surplus(m, m.k_bar) * float(m.epsilon))),
    "the lower of the two": (2.0, Variant(threshold=lambda m, following: min(usual(m, following), floor(m)))),
}


UNSAFE = {
    "a test of exact counts": (1e5, Variant(threshold=usual, least_count=lambda m: m.min_units)),
    "a test of exact counts, and the floor": (2.7, Variant(least_count=lambda m: m.min_units)),
    "the floor alone": (1e3, Variant(threshold=lambda m, _: floor(m))),
    "the lower of the two": (1e3, Variant(threshold=lambda m, following: min(usual(m, following), floor(m)))),
    "the higher for many units, the lower for few": (
        1e3,
        Variant(threshold=lambda m, following: floor(m) if following >= m.min_units else usual(m, following)),
    ),
}


def breaks_promise(factor: float, variant: Variant) -> Bar:
    return factor, lambda: max(worst_promise(mechanism, variant) for mechanism in FLOORED)


PRIVACY = over_cases(worst_excess, UNSAFE, edges=EDGES, attained=0.99999)
LAW = MechanismLaw(
    claims={
        **PRIVACY.claims,
        "on either side of the floor": (0.99, lambda: worst_excess([*every_case()])),
        "seed 0": (0.5, lambda: worst_excess([*random_cases(400, 0)])),
        "seed 1": (0.5, lambda: worst_excess([*random_cases(400, 1)])),
    },
    mistakes={
        **{f"the promise: {name}": breaks_promise(*mistake) for name, mistake in MISLED.items()},
        **{f"privacy: {name}": bar for name, bar in PRIVACY.mistakes.items()},
    },
)
