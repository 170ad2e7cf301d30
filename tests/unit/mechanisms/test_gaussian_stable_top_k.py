"""Stable top-k with Gaussian noise on the gaps: exact guarantees for all neighbours, samplers against their laws."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement

import numpy as np
import pytest
from support.laws import (
    discrete_gaussian_law,
    fits,
    goodness,
    hockey_stick,
    one_unit_exchanged,
    one_unit_more,
    rejects_early,
    renyi,
)

from dpsql.accounting import ZCDP, RenyiCurve, delta_of_zcdp
from dpsql.mechanisms import GaussianGapChoice, GaussianStableTopK, Histogram, OperatingSystemNoise
from dpsql.quantities import Delta, Epsilon, Rho

NOISE = OperatingSystemNoise()
UNIVERSE = "abc"
LEVELS = (0.1, 0.5, 1.5, 4.0)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(4)
Counts = Mapping[str, int]
Law = dict[Hashable, float]


@cache
def winners(scores: tuple[int, ...], variance: Fraction) -> tuple[float, ...]:
    """Return the law of the highest of at most 8 scores with discrete Gaussian noise, equal ones at random.

    A uniform part of one step decides between equal ones; the law is a polynomial of it, of degree 7 at most.
    """
    noise = discrete_gaussian_law(variance)
    values = range(min(noise) + min(scores), max(noise) + max(scores) + 1)
    mass = np.array([[noise.get(value - score, 0.0) for value in values] for score in scores])
    below = mass.cumsum(axis=1) - mass
    parts = (NODES + 1) / 2
    under = below[:, :, None] + mass[:, :, None] * parts
    found = []
    for at in range(len(scores)):
        others = np.delete(under, at, axis=0).prod(axis=0)
        found.append(float((mass[at][:, None] * others * WEIGHTS / 2).sum()))
    return tuple(found)


def law(mechanism: GaussianStableTopK, counts: Counts) -> Law:
    """Return the law of k and of the labels that are released."""
    labels = sorted(counts, key=lambda label: (-counts[label], label))
    ranked = [*(counts[label] for label in labels), *[0] * (mechanism.k_bar + 1)]
    gaps = [ranked[at] - ranked[at + 1] for at in range(mechanism.k_bar)]
    regulariser = mechanism.regulariser or (0,) * mechanism.k_bar
    scores = tuple(gap + more for gap, more in zip(gaps, regulariser, strict=True))
    noise, needed = discrete_gaussian_law(mechanism.test_variance), mechanism.test.offset + mechanism.sensitivity
    found: Law = {}
    for k, (gap, chosen) in enumerate(zip(gaps, winners(scores, mechanism.choice_variance), strict=True), start=1):
        held = math.fsum(mass for draw, mass in noise.items() if gap + draw >= needed)
        found[k, frozenset(labels[:k])] = chosen * held
        found[k, None] = chosen * (1 - held)
    return found


def tables() -> Iterator[dict[str, int]]:
    """Yield tables of up to three labels."""
    for counts in combinations_with_replacement((4, 2, 1, 0), 3):
        yield {label: count for label, count in zip(UNIVERSE, counts, strict=True) if count}


MECHANISMS = [
    GaussianStableTopK(Fraction(1), Fraction(1), Delta("0.01"), 3),
    GaussianStableTopK(Fraction(9), Fraction(1, 2), Delta("1e-6"), 3),
    GaussianStableTopK(Fraction(1, 4), Fraction(4), Delta("0.05"), 2, (0, 2)),
]


def worst(mechanism: GaussianStableTopK, curve: RenyiCurve, loss: ZCDP) -> tuple[float, float]:
    """Return which shares of what a curve and a loss promise any neighbours take up."""
    by_curve = by_loss = 0.0
    for counts in tables():
        here = law(mechanism, counts)
        near = (
            one_unit_more(counts, UNIVERSE, None)
            if mechanism.sensitivity == 1
            else one_unit_exchanged(counts, UNIVERSE)
        )
        for other in near:
            there = law(mechanism, other)
            for level in LEVELS:
                found = max(hockey_stick(here, there, level), hockey_stick(there, here, level))
                promised = delta_of_zcdp(loss.rho, Epsilon(level)) + float(loss.delta)
                by_curve = max(by_curve, found / curve.delta_at(Epsilon(level)))
                by_loss = max(by_loss, found / promised)
    return by_curve, by_loss


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_curve_and_the_loss_hold_for_all_neighbours(mechanism: GaussianStableTopK) -> None:
    assert max(worst(mechanism, mechanism.curve, mechanism.loss)) <= 1.0


def test_they_hold_where_a_unit_is_exchanged() -> None:
    mechanism = GaussianStableTopK(Fraction(2), Fraction(2), Delta("0.01"), 3, sensitivity=2)
    assert max(worst(mechanism, mechanism.curve, mechanism.loss)) <= 1.0


@pytest.mark.mutant
def test_the_constants_of_one_unit_more_are_caught_where_one_is_exchanged() -> None:
    test = GaussianStableTopK(Fraction(2), Fraction(1, 2), Delta("1e-6"), 3, sensitivity=2)
    claimed = GaussianStableTopK(Fraction(2), Fraction(1, 2), Delta("1e-6"), 3)
    assert max(worst(test, claimed.curve, claimed.loss)) > 1.0


@pytest.mark.mutant
def test_a_choice_that_costs_nothing_is_caught() -> None:
    mechanism = MECHANISMS[2]
    of_test = RenyiCurve(mechanism.test.loss.rho, 1, mechanism.delta)
    assert min(worst(mechanism, of_test, mechanism.test.loss)) > 1.0


def share_of_choice(choice: GaussianGapChoice, rho: Fraction) -> float:
    """Return which share of alpha * rho the choice takes up, where one gap narrows and the next widens."""
    logs = [[math.log(mass) for mass in winners(scores, choice.variance)] for scores in ((3, 3), (2, 4))]
    pair = [dict(enumerate(each)) for each in logs]
    return max(renyi(*order, 1.01) / (1.01 * float(rho)) for order in (pair, pair[::-1]))


def test_the_loss_of_a_choice_is_that_of_all_gaps() -> None:
    choice = GaussianGapChoice(Fraction(25), 2)
    assert choice.loss.rho.value == Fraction(2, 50)
    assert 0.4 < share_of_choice(choice, choice.loss.rho.value) <= 1.0


@pytest.mark.mutant
def test_the_loss_of_one_gap_is_caught() -> None:
    choice = GaussianGapChoice(Fraction(25), 2)
    assert share_of_choice(choice, choice.loss.rho.value / 2) > 1.2


@pytest.mark.parametrize("alpha", [1.1, 2.0, 16.0])
def test_the_curve_of_a_choice_is_that_of_corollary_9(alpha: float) -> None:
    curve = GaussianGapChoice(Fraction(50**2), 40).curve
    assert curve.at(alpha) == pytest.approx(2 * alpha / 50**2 + math.log(40) / (alpha - 1), rel=1e-12)
    of_both = GaussianStableTopK(Fraction(50**2), Fraction(60**2), Delta("1e-9"), 40).curve
    assert of_both.at(alpha) == pytest.approx(curve.at(alpha) + alpha / (2 * 60**2), rel=1e-12)
    assert of_both.delta == Delta("1e-9")


SAMPLED = {
    "gaps": (GaussianStableTopK(Fraction(4), Fraction(2), Delta("0.05"), 3), {"a": 9, "b": 4, "c": 3}),
    "a regulariser": (GaussianStableTopK(Fraction(9), Fraction(1), Delta("0.1"), 3, (0, 2, -1)), {"a": 3, "b": 3}),
}


def p_value(case: str, factor: int = 1, draws: int = 5_000) -> float:
    mechanism, counts = SAMPLED[case]
    claimed = GaussianStableTopK(
        mechanism.choice_variance * factor,
        mechanism.test_variance,
        mechanism.delta,
        mechanism.k_bar,
        mechanism.regulariser,
    )
    histogram = Histogram.of_leaders(tuple(counts.values()), mechanism.k_bar)
    names, seen = list(counts), Counter[Hashable]()
    for _ in range(draws):
        drawn = mechanism.select(histogram, NOISE)
        labels = None if drawn.positions is None else frozenset(names[at] for at in drawn.positions)
        seen[drawn.k, labels] += 1
    return goodness(seen, law(claimed, counts))


@pytest.mark.properties
@pytest.mark.parametrize("case", SAMPLED)
def test_selections_follow_the_law(case: str) -> None:
    assert fits(lambda: p_value(case))


@pytest.mark.mutant
def test_noise_of_another_variance_is_noticed() -> None:
    assert rejects_early(lambda draws: p_value("gaps", 4, draws), 5_000)


def test_huge_gaps_are_told_apart() -> None:
    mechanism = GaussianStableTopK(Fraction(1), Fraction(1), Delta("1e-9"), 3)
    drawn = mechanism.select(Histogram((2**53 - 1, 2**52 + 400, 2**52), 2**52), NOISE)
    assert (drawn.k, drawn.positions) == (1, frozenset({0}))
    assert mechanism.loss.rho == Rho(2)
