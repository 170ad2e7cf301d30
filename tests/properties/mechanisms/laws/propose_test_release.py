"""Law of one test of propose, test, release, with either noise."""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterator
from fractions import Fraction
from functools import partial

from properties.mechanisms.laws.record import MechanismLaw
from support.laws import (
    Counts,
    cks,
    discrete_gaussian_law,
    discrete_laplace_law,
    hockey_stick,
    one_unit_more,
)

from dpsql.mechanisms import PTRGaussian, PTRLaplace
from dpsql.quantities import Delta, Epsilon

UNIVERSE = "abcd"


Test = PTRGaussian | PTRLaplace


def noise_of(test: Test) -> dict[int, float]:
    return discrete_gaussian_law(test.variance) if isinstance(test, PTRGaussian) else discrete_laplace_law(test.scale)


def law(test: Test, counts: Counts, k: int, *, unstable: int = 1, less: int = 0) -> dict[Hashable, float]:
    """Return the law of the set of labels, None where the gap does not hold."""
    labels = sorted(counts, key=lambda label: (-counts[label], label))
    ranked = [*(counts[label] for label in labels), *[0] * (k + 1)]
    needed = test.offset - less + unstable - (ranked[k - 1] - ranked[k])
    held = math.fsum(mass for draw, mass in noise_of(test).items() if draw >= needed)
    return {frozenset(labels[:k]): held, None: 1.0 - held}


def cases(test: type[Test]) -> Iterator[tuple[Test, Counts, int]]:
    draw = random.Random(4)
    for _ in range(250):
        delta = Delta(draw.choice(["1e-6", "0.001", "0.0119", "0.119", "0.3", "0.7"]))
        made = (
            PTRGaussian(Fraction(draw.choice(["0.25", "1", "20"])), delta)
            if test is PTRGaussian
            else PTRLaplace(Epsilon(draw.choice(["0.3", "1", "2", "4"])), delta)
        )
        highest = draw.choice([1, 2, 3, 12])
        counts = {label: draw.randint(1, highest) for label in draw.sample(UNIVERSE, draw.randint(0, 4))}
        yield made, counts, draw.randint(1, 4)


def worst_excess(kind: type[Test], *, unstable: int = 1, less: int = 0) -> float:
    worst = 0.0
    for test, counts, k in cases(kind):
        delta, rho = float(test.delta), test.loss.rho.value
        here = law(test, counts, k, unstable=unstable, less=less)
        for more in one_unit_more(counts, UNIVERSE, None):
            there = law(test, more, k, unstable=unstable, less=less)
            for p, q in ((here, there), (there, here)):
                parts = [hockey_stick(p, q, level) / (delta + cks(rho, level)) for level in (0.1, 0.5, 1.0, 3.0)]
                if isinstance(test, PTRLaplace):
                    parts.append(hockey_stick(p, q, float(test.epsilon)) / delta)
                worst = max(worst, *parts)
    return worst


KINDS: tuple[type[Test], ...] = (PTRGaussian, PTRLaplace)
LAW = MechanismLaw(
    claims={kind.__name__: (0.9, partial(worst_excess, kind)) for kind in KINDS},
    mistakes={
        f"{mistake}, {kind.__name__}": (1.3, partial(worst_excess, kind, **change))
        for mistake, change in (
            ("a threshold that takes a gap of one for stable", {"unstable": 0}),
            ("an offset less by one", {"less": 1}),
        )
        for kind in KINDS
    },
)
