"""Law of the limited domain: what it claims, and mistakes in its threshold, its ties and its BOTTOM."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from properties.mechanisms.laws.record import over_cases
from support.laws import Counts, Steps, named, peeling_law, worst_of

from dpsql.mechanisms import Histogram, LimitedDomain
from dpsql.quantities import Delta, Epsilon

UNIVERSE = "abcdef"


def _reach(mechanism: LimitedDomain, k_bar: int) -> int:
    bound = mechanism.max_groups_contributed
    return k_bar if bound is None else min(bound, k_bar)


def _logarithm(mechanism: LimitedDomain, k_bar: int) -> float:
    return math.log(_reach(mechanism, k_bar) / mechanism.delta.value)


def _production_offset(mechanism: LimitedDomain, k_bar: int) -> float:
    return float(replace(mechanism, k=1, k_bar=max(k_bar, 1)).threshold_offset)


@dataclass(frozen=True)
class Variant:
    """A way to build the mechanism; the defaults are the production code's."""

    offset: Callable[[LimitedDomain, int], float] = _production_offset
    tie: Callable[[Counts, str], Hashable] = lambda _, label: label
    keeps_bottom: Callable[[int, int], bool] = lambda _, __: True
    k_bar: Callable[[LimitedDomain, int], int] = lambda mechanism, _: mechanism.k_bar
    rank: int = 1  # of the count that BOTTOM stands upon, after k_bar


PRODUCTION = Variant()


def law(mechanism: LimitedDomain, counts: Counts, variant: Variant = PRODUCTION) -> dict[Steps, float]:
    """Return the law of the released labels."""
    labels = sorted(counts, key=lambda label: (-counts[label], variant.tie(counts, label)))
    k_bar = variant.k_bar(mechanism, len(labels))
    histogram = Histogram.of_leaders(tuple(counts[label] for label in labels[: k_bar + 1]), k_bar)
    ranked = dict(enumerate((*histogram.leaders, histogram.following), start=1))
    bottom = ranked.get(k_bar + variant.rank, 0) + variant.offset(mechanism, k_bar)
    if not variant.keeps_bottom(len(labels), k_bar):
        bottom = None
    return named(peeling_law(histogram.leaders, bottom, float(mechanism.epsilon), mechanism.k), labels)


def worst_excess(cases: Sequence[tuple[LimitedDomain, Counts]], variant: Variant = PRODUCTION) -> float:
    """Return the worst excess over all neighbours of all cases, in both orders."""
    return worst_of(cases, lambda mechanism, counts: law(mechanism, counts, variant), universe=UNIVERSE)


def domain(epsilon: str, delta: str, k: int, k_bar: int, bound: int | None) -> LimitedDomain:
    return LimitedDomain(Epsilon(epsilon), Delta(delta), k, k_bar, bound)


def random_cases(number: int, seed: int) -> list[tuple[LimitedDomain, Counts]]:
    draw = random.Random(seed)
    cases = []
    for _ in range(number):
        k_bar = draw.randint(1, 4)
        mechanism = domain(
            draw.choice(["0.1", "0.5", "1", "2"]),
            draw.choice(["1e-6", "1e-3", "0.01", "0.1", "0.3"]),
            draw.randint(1, min(3, k_bar)),
            k_bar,
            draw.choice([1, 1, 2, 2, 3, None]),
        )
        highest = draw.choice([1, 2, 2, 4])
        present = draw.sample(UNIVERSE, draw.randint(0, 5))
        cases.append((mechanism, {label: draw.randint(1, highest) for label in present}))
    return cases


EDGES: list[tuple[LimitedDomain, Counts]] = [
    (domain("1", "1e-6", 2, 2, 3), {}),  # the tightest pair of `maths.md` 3.3
    (domain("0.1", "0.01", 2, 4, None), {}),
    (domain("0.25", "1e-6", 1, 1, 1), {"a": 1, "b": 1}),
    (domain("1", "1e-6", 3, 4, 3), {"a": 3}),
    (domain("1", "1e-6", 1, 1, 1), {"a": 1}),
    (domain("2", "1e-6", 1, 1, None), {"b": 2, "a": 1, "c": 1, "d": 1}),
    (domain("0.5", "1e-6", 2, 2, 1), dict.fromkeys("abcde", 1)),
    (domain("0.5", "0.1", 1, 4, None), {"a": 6}),
    (domain("1", "1e-3", 2, 4, 4), {}),
]


MISTAKES = {
    "without the 1": (7.3, Variant(offset=lambda m, k_bar: _logarithm(m, k_bar) / float(m.epsilon))),
    "ln(1/delta) without M": (
        3.8,
        Variant(offset=lambda m, _: 1 + math.log(1 / m.delta.value) / float(m.epsilon)),
    ),
    "M of 1 where a unit is in more groups": (
        3.8,
        Variant(offset=lambda m, _: float(replace(m, max_groups_contributed=1).threshold_offset)),
    ),
    "M of at most the labels beyond k_bar": (
        3.8,
        Variant(
            offset=lambda m, k_bar: float(
                replace(m, max_groups_contributed=max(1, min(_reach(m, k_bar), 5 - k_bar))).threshold_offset
            )
        ),
    ),
    "decimal logarithm": (
        4500.0,
        Variant(offset=lambda m, k_bar: 1 + _logarithm(m, k_bar) / math.log(10) / float(m.epsilon)),
    ),
    "without 1/epsilon": (3e4, Variant(offset=lambda m, k_bar: 1 + _logarithm(m, k_bar))),
    "no BOTTOM with k_bar labels or fewer": (9.9e5, Variant(keeps_bottom=lambda present, k_bar: present > k_bar)),
    "ties broken by the data": (
        1.4,
        Variant(tie=lambda counts, label: ord(label) * (-1) ** sum(counts.values())),
    ),
    "k_bar as the number of labels": (2.5, Variant(k_bar=lambda _, present: present)),
}


LAW = over_cases(worst_excess, MISTAKES, edges=EDGES, attained=0.99999, random_cases=random_cases, sizes=[600] * 2)
