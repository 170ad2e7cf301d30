"""TopStable: its exact guarantee, known mistakes, its sampler against its law, its integer constant."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from fractions import Fraction

import pytest
from properties.mechanisms.laws.top_stable import THIRD
from support.laws import (
    discrete_laplace_law,
    fits,
    goodness,
    rejects_early,
)
from support.top_stable_kit import Variant, law_of_positions, stable, tails

from dpsql.accounting import ZCDP, ApproximateDP
from dpsql.mechanisms import Histogram, OperatingSystemNoise, TopStable, TopStableSelection
from dpsql.quantities import Delta, Epsilon, Rho

NOISE = OperatingSystemNoise()


SAMPLED = {
    "some gaps": (stable("2", "0.05", 2, 4), (60, 48, 47, 30, 29)),
    "a draw within": (stable("2", "0.05", 1, 3, "0.7"), (62, 61, 61, 30)),
    "no gap": (stable("3", "0.3", 2, 3), (7, 7, 7, 7)),
    "fewer groups than k": (stable("2", "0.4", 3, 5), (9, 4)),
    "fewer groups than the rank": (stable("2", "0.4", 1, 4, "1"), (9, 4)),
    "no group": (stable("2", "0.3", 1, 3, "1"), ()),
    "noises of one scale": (TopStable(Epsilon(2), Delta("0.1"), 1, 2, THIRD), (20, 11, 3)),
}


def p_value(case: str, factor: Fraction = Fraction(1), draws: int = 5_000) -> float:
    mechanism, counts = SAMPLED[case]
    histogram = Histogram.of_leaders(counts, mechanism.k_bar)
    law = law_of_positions(mechanism, counts, Variant(threshold_factor=factor))
    return goodness(Counter[Hashable](mechanism.select(histogram, NOISE) for _ in range(draws)), law)


@pytest.mark.properties
@pytest.mark.parametrize("case", SAMPLED)
def test_selections_follow_the_law(case: str) -> None:
    assert fits(lambda: p_value(case))


@pytest.mark.mutant
@pytest.mark.parametrize("factor", [Fraction(1, 2), Fraction(2)])
def test_noise_of_another_scale_is_noticed(factor: Fraction) -> None:
    assert rejects_early(lambda draws: p_value("noises of one scale", factor, draws), 5_000)


def on_the_reals(mechanism: TopStable) -> tuple[float, float]:
    """Return the thresholds of Lemma 3.1 and of the exact tail of the difference of two Laplace noises."""
    c, needed = float(mechanism.distance_scale / mechanism.threshold_scale), float(mechanism.delta) / mechanism.k_bar
    bounds = [
        lambda x: (2 * x**c + x - c * (x**c + 2 * x)) / (4 * (1 - c)),
        lambda x: (c**2 * x - x**c) / (2 * (c**2 - 1)),
    ]
    found = []
    for bound in bounds:
        low, high = 0.0, 0.9
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if bound(middle) <= needed else (low, middle)
        found.append(math.log(1 / low) * float(mechanism.distance_scale))
    return found[0], found[1]


@pytest.mark.parametrize(
    ("mechanism", "paper", "offset"),
    [
        (stable("1", "1e-6", 1, 1), 45.788612, 46),
        (stable("1", "1e-6", 1, 10), 53.152768, 54),
        (TopStable(Epsilon("0.4"), Delta(Fraction(1, 51406)), 1, 50), 122.026551, 122),
    ],
)
def test_the_threshold_of_integer_noise_beside_those_of_the_reals(
    mechanism: TopStable, paper: float, offset: int
) -> None:
    lemma, exact = on_the_reals(mechanism)
    assert lemma == pytest.approx(paper, abs=1e-5)
    assert mechanism.offset == offset
    assert exact - 1 < offset < lemma + 1.1


def chance(mechanism: TopStable, at_least: int) -> float:
    """Return how likely the distances of 0 of all ranks are to reach a threshold, by the sum over the ranks."""
    tail = tails(mechanism.distance_scale)
    law = discrete_laplace_law(mechanism.threshold_scale)
    return mechanism.k_bar * math.fsum(mass * tail(at_least + shift) for shift, mass in law.items())


@pytest.mark.parametrize("share", [Fraction(37, 100), THIRD, Fraction(1, 100), Fraction(9, 10)])
def test_the_offset_is_the_least_that_suffices(share: Fraction) -> None:
    for epsilon, delta, k_bar in [("1", "1e-6", 1), ("0.3", "0.01", 20), ("4", "1e-6", 7)]:
        mechanism = TopStable(Epsilon(epsilon), Delta(delta), 1, k_bar, share)
        assert chance(mechanism, mechanism.offset) <= float(mechanism.delta) < chance(mechanism, mechanism.offset - 1)


def test_the_exact_threshold_of_the_reals_rounded_up_is_too_low_for_integers() -> None:
    mechanism = stable("1", "1e-6", 1, 10)
    _, exact = on_the_reals(mechanism)
    assert chance(mechanism, math.ceil(exact)) > 1.001e-6


def test_the_loss_is_that_of_the_tests_and_of_the_draws_that_were_made() -> None:
    mechanism = stable("0.2", "1e-7", 2, 5, "0.4")
    tests, draws = Fraction("0.02"), 2 * Fraction("0.16") / 8
    assert mechanism.worst_case == ZCDP(Rho(tests + draws), Delta("1e-7"))
    assert mechanism.guarantee == ApproximateDP(Epsilon(1), Delta("1e-7"))
    answers = {
        0: TopStableSelection(0, frozenset(), ()),
        2: TopStableSelection(2, frozenset({0, 1}), ()),
        3: TopStableSelection(3, frozenset(), (1, 0)),
    }
    assert {rank: mechanism.loss(each).rho.value - tests for rank, each in answers.items()} == {0: 0, 2: 0, 3: draws}
    assert {mechanism.loss(each).delta for each in answers.values()} == {Delta("1e-7")}
    free = stable("0.2", "1e-7", 2, 5)
    assert free.worst_case == free.loss(answers[3]) == ZCDP(Rho(tests), Delta("1e-7"))
    assert stable("0.2", "1e-7", 5, 5, "0.4").worst_case.rho.value == tests  # no rank is above k


def test_one_giant_count_is_released() -> None:
    mechanism = stable("1", "1e-9", 1, 4)
    assert mechanism.select(Histogram((2**53 - 1,), 0), NOISE) == TopStableSelection(1, frozenset({0}), ())
