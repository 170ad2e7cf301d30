"""Law of a gate and of the Gaussian noise behind it, on weights or on counts, for every neighbour of small data sets.

An outcome is the gate's noisy sum and, where it opens, all noisy values that pass. Where it stays closed, what it left
of rho is then spent on a Gaussian.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np
from properties.mechanisms.laws.record import over_cases
from properties.mechanisms.laws.two_looks import STEPS, Pair, Units, find_excess, merge, multiply, passing, spread

from dpsql.accounting import ZCDP
from dpsql.mechanisms import GaussianHistogram, unit_weight
from dpsql.mechanisms.gate import LOOK_SHARE, Gate, bound_weight_sum, find_open_probability
from dpsql.mechanisms.gaussian_threshold import weighted_threshold
from dpsql.quantities import Delta, Rho


@dataclass(frozen=True)
class Gated:
    """A gate and the noise behind it: on weights in fixed point, or on counts; a unit is in `bound` groups at most."""

    loss: ZCDP
    gate: Gate
    variance: Fraction
    threshold: int
    bound: int
    weighs: bool

    def tabulate(self, units: Units) -> dict[str, int]:
        found: dict[str, int] = {}
        for unit in units:
            for label in unit:
                added = unit_weight(len(unit), steps=STEPS) if self.weighs else 1
                found[label] = found.get(label, 0) + added
        return found


Case = tuple[Gated, Units, frozenset[str]]


def make(rho: str, delta: str, k: int, *, bound: int, weighs: bool) -> Gated:
    whole = Rho(rho)
    looked, left = Rho(whole.value * LOOK_SHARE), Rho(whole.value * (1 - LOOK_SHARE))
    if weighs:
        variance = STEPS**2 / (2 * left.value)
        threshold = weighted_threshold(variance, Delta(delta), most=bound, steps=STEPS)
        moved = bound_weight_sum(min(k, bound), steps=STEPS)
    else:
        histogram = GaussianHistogram(left, Delta(delta), k, bound)
        variance, threshold, moved = histogram.variance, histogram.threshold, min(k, bound)
    gate = Gate(looked, k, threshold, moved, find_open_probability(k, looks=1))
    return Gated(ZCDP(whole, Delta(delta)), gate, variance, threshold, bound, weighs)


@dataclass(frozen=True)
class Variant:
    """A way to build the gate; the defaults are the production code's."""

    gate: Callable[[Gated], Gate] = lambda gated: gated.gate
    add: Callable[[Gated, dict[str, int]], int] = lambda gated, values: gated.gate.add(
        np.array([*values.values()], int)
    )
    looks_always: bool = True  # also where there is no group
    threshold: Callable[[Gated], int] = lambda gated: gated.threshold


PRODUCTION = Variant()


def pieces(case: Case, variant: Variant) -> Iterator[tuple[Pair, float]]:
    """Yield the laws without and with the unit, in pieces of the same events, and how much rho each leaves."""
    gated, units, unit = case
    assert len(unit) <= gated.bound
    one, two = (gated.tabulate(each) for each in (units, [*units, unit]))
    gate = variant.gate(gated)
    silent = [not (values or variant.looks_always) for values in (one, two)]
    y, (p, q) = spread([variant.add(gated, values) for values in (one, two)], gate.look, silent=silent)
    opens = y >= int(gate.height * gate.look.whole)
    left = gated.loss.rho.value - gated.gate.rho.value
    yield merge((p[~opens], q[~opens])), float(left)
    law = merge((p[opens], q[opens]))
    for label in unit:
        own = passing((one.get(label), two[label]), variant.threshold(gated), gated.variance)
        law = multiply(law, merge(own))
    yield law, 0.0


def worst(cases: Sequence[Case], variant: Variant = PRODUCTION) -> float:
    """Return the worst factor by which a unit more or less exceeds the claim."""
    return max(find_excess(case[0].loss, list(pieces(case, variant))) for case in cases)


def random_cases(number: int, seed: int) -> list[Case]:
    draw = random.Random(seed)
    found: list[Case] = []
    while len(found) < number:
        bound = draw.choice([1, 2, 2, 3])
        gated = make(
            draw.choice(["0.1", "0.3", "1", "3"]),
            draw.choice(["1e-6", "1e-3", "0.05", "0.3"]),
            draw.choice([1, 2, 3, 6]),
            bound=bound,
            weighs=draw.random() < 0.5,
        )
        units = [
            frozenset(draw.sample("abc", draw.randint(1, bound))) for _ in range(draw.choice([0, 1, 2, 6, 15, 25]))
        ]
        found.append((gated, units, frozenset(draw.sample("abcd", draw.randint(1, bound)))))
    return found


CUT = Fraction(2, 3)  # of the threshold, where rows are cut by mistake


def edges() -> list[Case]:
    a, b = frozenset("a"), frozenset("b")
    cases: list[Case] = [
        (make(rho, delta, k, bound=bound, weighs=weighs), units, frozenset(chosen))
        for rho, delta, k, bound in [("0.5", "1e-6", 1, 1), ("1", "0.05", 2, 2), ("3", "0.3", 6, 3)]
        for weighs in (False, True)
        for units in ([], [a], [a] * 15, [a, b] * 30)
        for size in range(1, bound + 1)
        for chosen in combinations("acd", size)
    ]
    for weighs in (False, True):
        faint = make("0.03", "1e-6", 1, bound=1, weighs=weighs)
        below = math.ceil(CUT * faint.threshold / (STEPS if weighs else 1)) - 1  # units just below the cut
        cases.append((faint, [a] * below, a))
    return cases


def add_cut(gated: Gated, values: dict[str, int]) -> int:
    least = CUT * gated.threshold
    return PRODUCTION.add(gated, {label: value for label, value in values.items() if value >= least})


MISTAKES = {
    "no noise in the gate where there is no group": (1e4, Variant(looks_always=False)),
    "a gate before which values are cut by themselves": (1.5, Variant(add=add_cut)),
    "a sixth of the noise in the gate": (
        1.1,
        Variant(gate=lambda gated: replace(gated.gate, rho=gated.gate.rho * 36)),
    ),
    "a threshold that is lower as the gate is passed": (
        1.5,
        Variant(threshold=lambda gated: gated.threshold - math.isqrt(math.ceil(gated.variance)) // 2),
    ),
}


LAW = over_cases(
    worst,
    MISTAKES,
    edges=edges(),
    attained=0.8,
    random_cases=random_cases,
    sizes=[150] * 2,
)
