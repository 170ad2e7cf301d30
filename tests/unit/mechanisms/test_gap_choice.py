"""The choice of k at a gap: its exact guarantee, its sampler against its law, its regulariser."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction

import pytest
from support.laws import ROUNDING, Counts, fits, goodness, one_unit_more, rejects, renyi

from dpsql.accounting import ZCDP
from dpsql.errors import UsageError
from dpsql.mechanisms import GapChoice, Histogram, OperatingSystemNoise, distance_regulariser
from dpsql.quantities import Delta, Epsilon, Rho

UNIVERSE = "abcde"
NOISE = OperatingSystemNoise()


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


def test_no_neighbour_exceeds_the_claim() -> None:
    assert all(0.7 < part <= 1.0 + ROUNDING for part in worst())


@pytest.mark.mutant
def test_a_choice_without_the_half_is_caught() -> None:
    assert worst(share=1.0)[1] > 1.9


@pytest.mark.mutant
def test_a_gap_that_counts_twice_is_caught() -> None:
    assert worst(width=lambda gap: 2 * gap)[1] > 1.9


SAMPLED = {
    "gaps of many sizes": (GapChoice(Epsilon("0.6"), 4), (19, 16, 15, 9, 8)),
    "a regulariser": (GapChoice(Epsilon(1), 3, (-2, 0, 3)), (9, 6, 3, 3)),
    "no gap": (GapChoice(Epsilon(1), 3), (7, 7, 7, 7)),
    "fewer groups than k_bar": (GapChoice(Epsilon("0.5"), 5), (6, 3)),
    "no group": (GapChoice(Epsilon("0.5"), 3), ()),
}


def p_value(case: str, factor: Fraction = Fraction(1)) -> float:
    mechanism, counts = SAMPLED[case]
    law = {k: math.exp(each) for k, each in log_law(mechanism, counts, share=float(factor) / 2).items()}
    histogram = Histogram.of_leaders(counts, mechanism.k_bar)
    return goodness(Counter[Hashable](mechanism.choose(histogram, NOISE) for _ in range(6_000)), law)


@pytest.mark.properties
@pytest.mark.parametrize("case", SAMPLED)
def test_choices_follow_the_law(case: str) -> None:
    assert fits(lambda: p_value(case))


@pytest.mark.mutant
@pytest.mark.parametrize("factor", [Fraction(7, 10), Fraction(13, 10)])
def test_noise_of_another_scale_is_noticed(factor: Fraction) -> None:
    assert rejects(lambda: p_value("gaps of many sizes", factor))


def test_the_loss_is_one_item() -> None:
    assert GapChoice(Epsilon("0.2"), 5).loss == ZCDP(Rho("0.005"), Delta(0))


def test_the_regulariser_falls_with_the_distance_from_k() -> None:
    assert distance_regulariser(3, 6, penalty=Fraction(3, 2)) == (-3, -1, 0, -1, -3, -4)
    assert distance_regulariser(2, 3, penalty=Fraction(0)) == (0, 0, 0)


@pytest.mark.parametrize("regulariser", [(1,), (1, 2, 3), (0.5, 1), (True, 1), (2**53, 0)])
def test_a_regulariser_that_is_not_one_integer_for_each_k_is_refused(regulariser: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"\[regulariser\]"):
        GapChoice(Epsilon(1), 2, regulariser)


@pytest.mark.parametrize(("code", "epsilon", "k_bar"), [("epsilon-range", "9e-10", 1), ("k-range", "1", 0)])
def test_parameters_that_mean_nothing_are_refused(code: str, epsilon: str, k_bar: int) -> None:
    with pytest.raises(UsageError, match=rf"\[{code}\]"):
        GapChoice(Epsilon(epsilon), k_bar)


def test_a_histogram_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\[histogram-size\]"):
        GapChoice(Epsilon(1), 1).choose(Histogram((2, 1), 0), NOISE)
    with pytest.raises(UsageError, match=r"\[histogram-cut\]"):
        GapChoice(Epsilon(1), 3).choose(Histogram((2, 1), 1), NOISE)


def test_huge_gaps_are_told_apart() -> None:
    mechanism = GapChoice(Epsilon(1), 3)
    assert mechanism.choose(Histogram((2**53 - 1, 2**52 + 400, 2**52), 2**52), NOISE) == 1
