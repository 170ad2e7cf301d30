"""Law of the Laplace limited domain with its counts, by the sets of labels that it releases."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction

from properties.mechanisms.laws.record import MechanismLaw, over_cases
from support.laplace_kit import PRODUCTION, Outcomes, Variant, outcomes, stick
from support.laws import Counts, cks, one_unit_more

from dpsql.mechanisms import LaplaceLimitedDomain
from dpsql.quantities import Delta, Epsilon

UNIVERSE = "abcd"


def domain(epsilon: str, delta: str, k: int, k_bar: int, bound: int) -> LaplaceLimitedDomain:
    return LaplaceLimitedDomain(Epsilon(epsilon), Delta(delta), k, k_bar, bound)


def excess(mechanism: LaplaceLimitedDomain, p: Outcomes, q: Outcomes) -> float:
    """Return the worst factor by which the pair exceeds what the mechanism claims."""
    epsilon, delta, rho = float(mechanism.epsilon), float(mechanism.delta), mechanism.worst_case.rho.value
    levels = [epsilon * part for part in (0.1, 0.5, 1.0, 2.0, 4.0)]
    pure = stick(p, q, float(mechanism.guarantee.epsilon)) / float(mechanism.guarantee.delta)
    return max(pure, *(stick(p, q, level) / (delta + cks(rho, level)) for level in levels))


def worst_excess(cases: Sequence[tuple[LaplaceLimitedDomain, Counts]], variant: Variant = PRODUCTION) -> float:
    worst = 0.0
    for mechanism, counts in cases:
        here = outcomes(mechanism, counts, variant)
        for more in one_unit_more(counts, UNIVERSE, mechanism.max_groups_contributed):
            there = outcomes(mechanism, more, variant)
            worst = max(worst, excess(mechanism, here, there), excess(mechanism, there, here))
    return worst


def random_cases(number: int, seed: int) -> list[tuple[LaplaceLimitedDomain, Counts]]:
    draw = random.Random(seed)
    cases = []
    for _ in range(number):
        epsilon, delta = draw.choice(["1", "2", "3"]), draw.choice(["1e-6", "0.01", "0.1", "0.4"])
        mechanism = domain(epsilon, delta, 1, draw.randint(1, 2), draw.randint(1, 2))
        highest = draw.choice([1, 2, 12])
        present = draw.sample(UNIVERSE, draw.randint(0, 4))
        cases.append((mechanism, {label: draw.randint(1, highest) for label in present}))
    return cases


EDGES: list[tuple[LaplaceLimitedDomain, Counts]] = [
    (domain("1", "1e-6", 1, 1, 1), {}),
    (domain("1", "0.08", 1, 1, 1), {}),
    (domain("2", "0.1", 2, 2, 2), {}),
    (domain("2", "1e-6", 2, 2, 2), {}),
    (domain("2", "0.05", 2, 2, 1), {"a": 3}),
    (domain("1", "0.01", 1, 1, 1), {"a": 1, "b": 1}),
    (domain("2", "0.2", 2, 2, 2), dict.fromkeys("abcd", 2)),
    (domain("2", "0.3", 2, 2, 1), dict.fromkeys("abcd", 2)),
    (domain("2", "0.1", 1, 2, 2), {"b": 9, "a": 1, "c": 1}),
    (domain("2", "0.1", 2, 2, 1), {"a": 2, "b": 2}),
    (domain("1", "0.0365", 1, 1, 1), {}),  # hardly more than P[X - Y >= 4]
    (domain("1", "0.03", 1, 1, 1), {}),
    (domain("1", "0.0365", 2, 2, 1), dict.fromkeys("abcd", 1)),
    (domain("2", "0.1", 2, 2, 1), {"a": 13, "b": 14}),
    (domain("2", "0.01", 2, 2, 2), {"a": 24, "b": 23}),
    (domain("2", "1e-6", 2, 2, 2), {"a": 24, "b": 23, "c": 23}),
    (domain("1", "1e-6", 1, 1, 1), {"a": 39}),
]


def continuous(mechanism: LaplaceLimitedDomain, reach: int) -> float:
    """Return the offset for noise on the reals: scale * x with reach * (2 + x) * exp(-x) / 4 = delta."""
    low, high = 0.0, 200.0
    for _ in range(200):
        x = (low + high) / 2
        low, high = (x, high) if reach * (2 + x) * math.exp(-x) / 4 > mechanism.delta.value else (low, x)
    return float(mechanism.scale) * high


def natural(mechanism: LaplaceLimitedDomain) -> int:
    bound = mechanism.max_groups_contributed
    return math.ceil(float(mechanism.scale) * math.log(bound / mechanism.delta.value))


def of_reach_one(mechanism: LaplaceLimitedDomain) -> int:
    return LaplaceLimitedDomain(
        Epsilon(mechanism.epsilon.value / mechanism.max_groups_contributed), mechanism.delta, 1, 1, 1
    ).offset


def narrow(mechanism: LaplaceLimitedDomain) -> Fraction:
    return 1 / mechanism.epsilon.value


MISTAKES: dict[str, tuple[float, Variant]] = {
    "without the 1": (2.0, Variant(above=0)),
    "an offset less by 1": (1.0001, Variant(offset=lambda mechanism: mechanism.offset - 1)),
    "an offset of scale * ln(Delta / delta)": (2.5, Variant(offset=natural)),
    "an offset without M": (1.3, Variant(offset=of_reach_one)),
    "a threshold without the count after the leaders": (5.0, Variant(following=False)),
    "noise for one group of a unit in more": (1.5, Variant(scale=narrow, bottom_scale=narrow)),
    "BOTTOM without noise": (1.2, Variant(bottom_scale=lambda _: Fraction(1, 1000))),
    "ties decided by data": (1.2, Variant(tie=lambda counts, label: ord(label) * (-1) ** sum(counts.values()))),
    "the continuous offset, rounded up": (
        1.07,
        Variant(offset=lambda m: math.ceil(continuous(m, min(m.max_groups_contributed, m.k_bar)))),
    ),
    "equal noisy counts in the order of the exact ones": (1.2, Variant(ranks_show=True)),
}


OVER_CASES = over_cases(worst_excess, MISTAKES, edges=EDGES, attained=0.999, random_cases=random_cases, sizes=[40] * 3)
THREE = (domain("4", "0.1", 2, 3, 2), {"a": 2, "b": 1})
LAW = MechanismLaw(
    claims={**OVER_CASES.claims, "three leaders": (-1.0, lambda: worst_excess([THREE]))}, mistakes=OVER_CASES.mistakes
)
