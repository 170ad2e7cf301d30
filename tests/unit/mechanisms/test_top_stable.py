"""TopStable: its exact guarantee, known mistakes, its sampler against its law, its integer constant."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from support.laws import (
    ROUNDING,
    Counts,
    cks,
    discrete_laplace_law,
    fits,
    goodness,
    hockey_stick,
    one_unit_more,
    rejects,
)
from support.top_stable_kit import PRODUCTION, Variant, law_of_positions, stable, tails

from dpsql.accounting import ZCDP, ApproximateDP
from dpsql.errors import UsageError
from dpsql.mechanisms import Histogram, OperatingSystemNoise, TopStable, TopStableSelection
from dpsql.quantities import Delta, Epsilon, Rho

UNIVERSE = "abcd"
NOISE = OperatingSystemNoise()
THIRD = Fraction(1, 3)


def law(mechanism: TopStable, counts: Counts, variant: Variant = PRODUCTION) -> dict[Hashable, float]:
    """Return the law of the labels that are released."""
    labels = sorted(counts, key=lambda label: (-counts[label], label))
    selections = law_of_positions(mechanism, tuple(counts[label] for label in labels), variant)
    return {
        (each.rank, frozenset(labels[at] for at in each.members), tuple(labels[at] for at in each.ranked)): mass
        for each, mass in selections.items()
    }


def worst_excess(cases: Sequence[tuple[TopStable, Counts]], variant: Variant = PRODUCTION) -> float:
    worst = 0.0
    for mechanism, counts in cases:
        delta, rho, pure = float(mechanism.delta), mechanism.worst_case.rho.value, float(mechanism.guarantee.epsilon)
        here = law(mechanism, counts, variant)
        for more in one_unit_more(counts, UNIVERSE, None):
            there = law(mechanism, more, variant)
            for p, q in ((here, there), (there, here)):
                worst = max(worst, hockey_stick(p, q, pure) / delta)
                for part in (0.1, 0.5, 1.0, 2.0):
                    worst = max(worst, hockey_stick(p, q, part * pure) / (delta + cks(rho, part * pure)))
    return worst


def random_cases(number: int, seed: int) -> list[tuple[TopStable, Counts]]:
    draw = random.Random(seed)
    cases = []
    for _ in range(number):
        k_bar = draw.randint(1, 4)
        mechanism = TopStable(
            Epsilon(draw.choice(["1", "2", "4"])),
            Delta(draw.choice(["1e-6", "0.001", "0.05", "0.3"])),
            draw.randint(1, min(2, k_bar)),
            k_bar,
            draw.choice([Fraction(37, 100), THIRD, Fraction(3, 4)]),
            draw.choice([None, Epsilon("0.5")]),
        )
        highest = draw.choice([1, 2, 3, 20])
        present = draw.sample(UNIVERSE, draw.randint(0, 4))
        cases.append((mechanism, {label: draw.randint(1, highest) for label in present}))
    return cases


EDGES: list[tuple[TopStable, Counts]] = [
    (stable("1", "1e-6", 1, 1), {}),
    (stable("1", "1e-6", 1, 1), {"a": 40, "b": 40}),
    (stable("2", "0.0404", 1, 1), {"a": 1}),
    (stable("2", "0.05", 1, 4), dict.fromkeys("abcd", 3)),
    (stable("2", "1e-6", 1, 4), dict.fromkeys("abcd", 1)),
    (stable("2", "0.01", 2, 3, "1"), dict.fromkeys("abc", 15)),
    (stable("2", "1e-6", 2, 4, "0.5"), {"a": 30, "b": 20, "c": 2}),
    (stable("1", "0.0404", 1, 2), {"a": 9, "b": 8}),
    (stable("2", "1e-6", 1, 1), {"a": 15}),
    (TopStable(Epsilon(4), Delta("1e-12"), 1, 4, Fraction(1, 4)), {"a": 97, "b": 69, "c": 37, "d": 32}),
]


@pytest.mark.properties
@pytest.mark.parametrize("seed", range(3))
def test_no_neighbour_exceeds_the_claim(seed: int) -> None:
    assert worst_excess(random_cases(12, seed)) <= 1.0 + ROUNDING


def test_no_neighbour_exceeds_the_claim_at_the_edges() -> None:
    assert 0.99 < worst_excess(EDGES) <= 1.0 + ROUNDING


MISTAKES = {
    "the gap after the next rank, as in the published code": (1e3, Variant(later=1)),
    "a distance of the gap itself": (1.3, Variant(less=1)),
    "an offset less by 1": (1.3, Variant(offset=lambda mechanism: mechanism.offset - 1)),
    "an offset for one rank": (1.3, Variant(offset=lambda m: replace(m, k=1, k_bar=1).offset)),
    "distances with half their noise": (1e6, Variant(distance_factor=2)),
    "a threshold without noise": (1e6, Variant(threshold_factor=Fraction(1, 1000))),
}


@pytest.mark.mutant
@pytest.mark.properties
@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_known_mistake_is_caught(mistake: str) -> None:
    factor, variant = MISTAKES[mistake]
    assert worst_excess(EDGES, variant) > factor


SAMPLED = {
    "some gaps": (stable("2", "0.05", 2, 4), (60, 48, 47, 30, 29)),
    "a draw within": (stable("2", "0.05", 1, 3, "0.7"), (62, 61, 61, 30)),
    "no gap": (stable("3", "0.3", 2, 3), (7, 7, 7, 7)),
    "fewer groups than k": (stable("2", "0.4", 3, 5), (9, 4)),
    "fewer groups than the rank": (stable("2", "0.4", 1, 4, "1"), (9, 4)),
    "no group": (stable("2", "0.3", 1, 3, "1"), ()),
    "noises of one scale": (TopStable(Epsilon(2), Delta("0.1"), 1, 2, THIRD), (20, 11, 3)),
}


def p_value(case: str, factor: Fraction = Fraction(1)) -> float:
    mechanism, counts = SAMPLED[case]
    histogram = Histogram.of_leaders(counts, mechanism.k_bar)
    law = law_of_positions(mechanism, counts, Variant(threshold_factor=factor))
    return goodness(Counter[Hashable](mechanism.select(histogram, NOISE) for _ in range(5_000)), law)


@pytest.mark.properties
@pytest.mark.parametrize("case", SAMPLED)
def test_selections_follow_the_law(case: str) -> None:
    assert fits(lambda: p_value(case))


@pytest.mark.mutant
@pytest.mark.parametrize("factor", [Fraction(1, 2), Fraction(2)])
def test_noise_of_another_scale_is_noticed(factor: Fraction) -> None:
    assert rejects(lambda: p_value("noises of one scale", factor))


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


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("epsilon-range", ("9e-10", "0.1", 1, 1)),
        ("epsilon-range", ("1", "0.1", 1, 1, "9e-10")),
        ("k-range", ("1", "0.1", 0, 1)),
        ("k-range", ("1", "0.1", 3, 2)),
        ("delta-range", ("1", "0", 1, 1)),
        ("delta-range", ("1", "1", 1, 1)),
    ],
)
def test_parameters_that_mean_nothing_are_refused(code: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError, match=rf"\[{code}\]"):
        stable(*arguments)


@pytest.mark.parametrize("share", [0, 1, Fraction(3, 2)])
def test_a_share_that_means_nothing_is_refused(share: Fraction) -> None:
    with pytest.raises(UsageError, match=r"\[share-range\]"):
        TopStable(Epsilon(1), Delta("0.1"), 1, 1, Fraction(share))


def test_more_leaders_than_k_bar_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\[histogram-size\]"):
        stable("1", "0.1", 1, 1).select(Histogram((2, 1), 0), NOISE)
