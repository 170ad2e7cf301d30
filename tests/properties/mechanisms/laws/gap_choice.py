"""Law of the choice of k at a gap: its ratio, its range and its Renyi divergence."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Sequence

from properties.mechanisms.laws.record import MechanismLaw
from support.laws import Counts, one_unit_more, renyi

from dpsql.mechanisms import GapChoice
from dpsql.quantities import Epsilon

UNIVERSE = "abcde"


def log_law(
    mechanism: GapChoice, counts: Sequence[int], share: float = 0.5, width: Callable[[int], int] = lambda gap: gap
) -> dict[Hashable, float]:
    """Return the logarithms of the probabilities of 1..k_bar, over the counts of all groups."""
    ranked = [*sorted(counts, reverse=True), *[0] * (mechanism.k_bar + 1)]
    regulariser = mechanism.regulariser or (0,) * mechanism.k_bar
    scores = [width(ranked[at] - ranked[at + 1]) + regulariser[at] for at in range(mechanism.k_bar)]
    exponents = [float(mechanism.epsilon) * share * (score - max(scores)) for score in scores]
    total = math.log(math.fsum(math.exp(each) for each in exponents))
    return {k: each - total for k, each in enumerate(exponents, start=1)}


def random_cases(number: int, seed: int) -> list[tuple[GapChoice, Counts]]:
    draw = random.Random(seed)
    cases = []
    for _ in range(number):
        k_bar = draw.randint(1, 5)
        regulariser = draw.choice([(), tuple(draw.randint(-9, 9) for _ in range(k_bar))])
        mechanism = GapChoice(Epsilon(draw.choice(["0.1", "1", "3"])), k_bar, regulariser)
        highest = draw.choice([1, 2, 3, 12])
        cases.append(
            (mechanism, {label: draw.randint(1, highest) for label in draw.sample(UNIVERSE, draw.randint(0, 5))})
        )
    return cases


def worst(share: float = 0.5, width: Callable[[int], int] = lambda gap: gap) -> tuple[float, float, float]:
    """Return the worst ratio, range and Renyi divergence of any neighbours, as parts of what is claimed."""
    found = (0.0, 0.0, 0.0)
    for mechanism, counts in random_cases(150, 1):
        epsilon, rho = float(mechanism.epsilon), float(mechanism.loss.rho)
        here = log_law(mechanism, [*counts.values()], share, width)
        for more in one_unit_more(counts, UNIVERSE, None):
            there = log_law(mechanism, [*more.values()], share, width)
            ratios = [here[k] - there[k] for k in here]
            orders = [
                renyi(*pair, order) / (order * rho)
                for pair in ((here, there), (there, here))
                for order in (1.01, 2.0, 16.0)
            ]
            this = (max(map(abs, ratios)) / epsilon, (max(ratios) - min(ratios)) / epsilon, max(orders))
            found = tuple(map(max, found, this))  # type: ignore[assignment]
    return found


LAW = MechanismLaw(
    claims={
        "ratio": (0.7, lambda: worst()[0]),
        "range": (0.7, lambda: worst()[1]),
        "Renyi": (0.7, lambda: worst()[2]),
    },
    mistakes={
        "a choice without the half": (1.9, lambda: worst(share=1.0)[1]),
        "a gap that counts twice": (1.9, lambda: worst(width=lambda gap: 2 * gap)[1]),
    },
)
