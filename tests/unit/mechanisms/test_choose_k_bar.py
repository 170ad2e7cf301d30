"""The private choice of k_bar: its exact guarantee, alone and before a limited domain, its sampler, its sign."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import pytest
from support.laws import ROUNDING, Counts, cks, fits, goodness, hockey_stick, label_law, one_unit_more, rejects_early

from dpsql.accounting import ZCDP
from dpsql.mechanisms import ChooseKBar, Histogram, LimitedDomain, OperatingSystemNoise
from dpsql.quantities import Delta, Epsilon, Rho

UNIVERSE = "abcde"
NOISE = OperatingSystemNoise()
Rank = Callable[[int], int]


def law(mechanism: ChooseKBar, counts: Sequence[int], *, factor: float = 1.0, sign: int = -1) -> dict[int, float]:
    """Return the law of the chosen k_bar, over the counts of all groups."""
    ranked = [*sorted(counts, reverse=True), *[0] * (mechanism.candidates[-1] + 1)]
    epsilon, scores = float(mechanism.epsilon), []
    for k_bar in mechanism.candidates:
        reach = min(mechanism.max_groups_contributed or k_bar, k_bar)
        scores.append(sign * (ranked[k_bar] + math.ceil(1 + math.log(reach / mechanism.delta.value) / epsilon)))
    weights = [math.exp(factor * epsilon * (score - max(scores))) for score in scores]
    return dict(zip(mechanism.candidates, (weight / math.fsum(weights) for weight in weights), strict=True))


def random_cases(number: int, seed: int) -> list[tuple[ChooseKBar, Counts]]:
    draw = random.Random(seed)
    cases = []
    for _ in range(number):
        mechanism = ChooseKBar(
            Epsilon(draw.choice(["0.1", "1", "3"])),
            Delta(draw.choice(["1e-6", "0.05", "0.3"])),
            tuple(sorted(draw.sample(range(1, 5), draw.randint(1, 3)))),
            draw.choice([None, 1, 2]),
        )
        highest = draw.choice([1, 2, 3, 12])
        present = draw.sample(UNIVERSE, draw.randint(0, 5))
        cases.append((mechanism, {label: draw.randint(1, highest) for label in present}))
    return cases


def widest(factor: float = 1.0) -> float:
    """Return the widest range of the log-likelihood ratio of any neighbours, as a part of epsilon."""
    found = 0.0
    for mechanism, counts in random_cases(200, 2):
        here = law(mechanism, [*counts.values()], factor=factor)
        for more in one_unit_more(counts, UNIVERSE, mechanism.max_groups_contributed):
            there = law(mechanism, [*more.values()], factor=factor)
            ratios = [math.log(here[k_bar] / there[k_bar]) for k_bar in here]
            found = max(found, (max(ratios) - min(ratios)) / float(mechanism.epsilon))
    return found


def test_no_neighbour_exceeds_the_range() -> None:
    assert 0.999 < widest() <= 1.0 + ROUNDING


@pytest.mark.mutant
def test_noise_of_half_the_size_is_caught() -> None:
    assert widest(factor=2.0) > 1.99


def test_the_choice_and_the_limited_domain_after_it_keep_their_sum() -> None:
    for mechanism, counts in random_cases(60, 3):
        k = min(2, mechanism.candidates[0])

        def joint(some: Counts, mechanism: ChooseKBar = mechanism, k: int = k) -> dict[Hashable, float]:
            found: dict[Hashable, float] = {}
            for k_bar, mass in law(mechanism, [*some.values()]).items():
                domain = LimitedDomain(mechanism.epsilon, mechanism.delta, k, k_bar, mechanism.max_groups_contributed)
                found |= {(k_bar, steps): mass * part for steps, part in label_law(domain, some).items()}
            return found

        here, delta, epsilon = joint(counts), float(mechanism.delta), float(mechanism.epsilon)
        for more in one_unit_more(counts, UNIVERSE, mechanism.max_groups_contributed):
            there = joint(more)
            for p, q in ((here, there), (there, here)):
                assert hockey_stick(p, q, (k + 1) * epsilon) <= delta * (1 + ROUNDING)
                for level in (0.3 * epsilon, epsilon, 2 * epsilon):
                    rho = (k + 1) * mechanism.loss.rho.value
                    assert hockey_stick(p, q, level) <= (delta + cks(rho, level)) * (1 + ROUNDING)


SAMPLED = {
    "counts that fall": (ChooseKBar(Epsilon("0.4"), Delta("1e-6"), (1, 3, 5)), (30, 28, 27, 22, 21, 19, 3)),
    "fewer groups than the last": (ChooseKBar(Epsilon("0.4"), Delta("0.01"), (1, 2, 6), 2), (6, 3)),
    "no group": (ChooseKBar(Epsilon(1), Delta("0.01"), (2, 4)), ()),
    "one candidate": (ChooseKBar(Epsilon(1), Delta("0.01"), (3,)), (5, 4)),
}


def p_value(case: str, *, factor: float = 1.0, sign: int = -1, draws: int = 6_000) -> float:
    mechanism, counts = SAMPLED[case]
    histogram = Histogram.of_leaders(counts, mechanism.candidates[-1])
    chosen = Counter[Hashable](mechanism.choose(histogram, NOISE) for _ in range(draws))
    return goodness(chosen, law(mechanism, counts, factor=factor, sign=sign))


@pytest.mark.properties
@pytest.mark.parametrize("case", SAMPLED)
def test_choices_follow_the_law(case: str) -> None:
    assert fits(lambda: p_value(case, draws=3_000))


@pytest.mark.mutant
@pytest.mark.properties
@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_noise_of_another_scale_is_noticed(factor: float) -> None:
    assert rejects_early(lambda draws: p_value("counts that fall", factor=factor, draws=draws), 6_000)


@pytest.mark.mutant
def test_the_sign_of_the_published_code_is_noticed() -> None:
    assert rejects_early(lambda draws: p_value("counts that fall", sign=1, draws=draws), 6_000)


def test_the_lowest_threshold_is_preferred() -> None:
    mechanism = ChooseKBar(Epsilon(1), Delta("1e-6"), (2, 4, 6))
    assert mechanism.choose(Histogram.of_leaders((2000, 1900, 1800, 1700, 10, 9, 8), 6), NOISE) in {4, 6}
    assert mechanism.choose(Histogram.of_leaders((2**53 - 1, 2**53 - 2, 5, 5, 5, 5, 5), 6), NOISE) in {2, 4, 6}


def test_the_histogram_is_cut_to_the_choice() -> None:
    histogram = Histogram.of_leaders((9, 7, 4, 4, 2), 4)
    assert [(cut.leaders, cut.following) for cut in map(histogram.first, (1, 3, 4))] == [
        ((9,), 7),
        ((9, 7, 4), 4),
        ((9, 7, 4, 4), 2),
    ]
    short = Histogram.of_leaders((9, 7), 6)
    assert [(cut.leaders, cut.following) for cut in map(short.first, (1, 2, 5))] == [
        ((9,), 7),
        ((9, 7), 0),
        ((9, 7), 0),
    ]


def test_the_loss_is_one_item() -> None:
    assert ChooseKBar(Epsilon("0.2"), Delta("1e-6"), (5, 10)).loss == ZCDP(Rho("0.005"), Delta(0))
