"""The choice of k at a gap: its exact guarantee, its sampler against its law, its regulariser."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from fractions import Fraction

import pytest
from properties.mechanisms.laws.gap_choice import log_law
from support.laws import fits, goodness, rejects_early

from dpsql.accounting import ZCDP
from dpsql.mechanisms import GapChoice, Histogram, OperatingSystemNoise, distance_regulariser
from dpsql.quantities import Delta, Epsilon, Rho

NOISE = OperatingSystemNoise()


SAMPLED = {
    "gaps of many sizes": (GapChoice(Epsilon("0.6"), 4), (19, 16, 15, 9, 8)),
    "a regulariser": (GapChoice(Epsilon(1), 3, (-2, 0, 3)), (9, 6, 3, 3)),
    "no gap": (GapChoice(Epsilon(1), 3), (7, 7, 7, 7)),
    "fewer groups than k_bar": (GapChoice(Epsilon("0.5"), 5), (6, 3)),
    "no group": (GapChoice(Epsilon("0.5"), 3), ()),
}


def p_value(case: str, factor: Fraction = Fraction(1), draws: int = 6_000) -> float:
    mechanism, counts = SAMPLED[case]
    law = {k: math.exp(each) for k, each in log_law(mechanism, counts, share=float(factor) / 2).items()}
    histogram = Histogram.of_leaders(counts, mechanism.k_bar)
    return goodness(Counter[Hashable](mechanism.choose(histogram, NOISE) for _ in range(draws)), law)


@pytest.mark.properties
@pytest.mark.parametrize("case", SAMPLED)
def test_choices_follow_the_law(case: str) -> None:
    assert fits(lambda: p_value(case))


@pytest.mark.mutant
@pytest.mark.parametrize("factor", [Fraction(7, 10), Fraction(13, 10)])
def test_noise_of_another_scale_is_noticed(factor: Fraction) -> None:
    assert rejects_early(lambda draws: p_value("gaps of many sizes", factor, draws), 6_000)


def test_the_loss_is_one_item() -> None:
    assert GapChoice(Epsilon("0.2"), 5).loss == ZCDP(Rho("0.005"), Delta(0))


def test_the_regulariser_falls_with_the_distance_from_k() -> None:
    assert distance_regulariser(3, 6, penalty=Fraction(3, 2)) == (-3, -1, 0, -1, -3, -4)
    assert distance_regulariser(2, 3, penalty=Fraction(0)) == (0, 0, 0)


def test_huge_gaps_are_told_apart() -> None:
    mechanism = GapChoice(Epsilon(1), 3)
    assert mechanism.choose(Histogram((2**53 - 1, 2**52 + 400, 2**52), 2**52), NOISE) == 1
