"""StableTopK: its constants, its sampler against its law, its exact guarantee, and two mistakes that must be caught."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import pytest
from properties.mechanisms.laws.stable import (
    UNIVERSE,
    Variant,
    gaps_of,
    one_more,
    positional_law,
    random_cases,
)
from scipy import stats
from support.laws import SeededNoise, fits, goodness, one_unit_exchanged, rejects_early

from dpsql.accounting import ZCDP
from dpsql.mechanisms import Histogram, OperatingSystemNoise, StableTopK
from dpsql.quantities import Delta, Epsilon, Rho

NOISE = OperatingSystemNoise()


SAMPLED = {
    "a wide gap": (StableTopK(Epsilon("0.5"), Delta("0.01"), 4), (60, 58, 57, 31, 30)),
    "no gap": (StableTopK(Epsilon("1"), Delta("0.2"), 3), (7, 7, 7, 7)),
    "fewer groups than k_bar": (StableTopK(Epsilon("1"), Delta("0.2"), 5), (6, 3)),
    "a regulariser": (StableTopK(Epsilon(1), Delta("0.1"), 3, (-2, 0, 3)), (9, 6, 3, 3)),
    "no group": (StableTopK(Epsilon("0.5"), Delta("0.3"), 3), ()),
    "a gap that moves by 2": (StableTopK(Epsilon(1), Delta("0.1"), 4, sensitivity=2), (12, 11, 4, 1)),
    "a regulariser, gaps that move by 2": (
        StableTopK(Epsilon(1), Delta("0.3"), 4, (0, 2, 0, 1), sensitivity=2),
        (9, 7, 7, 6),
    ),
}


def sampled_p_value(
    case: str, *, claimed: StableTopK | None = None, variant: Variant | None = None, draws: int = 8_000
) -> float:
    mechanism, counts = SAMPLED[case]
    histogram = Histogram.of_leaders(counts, mechanism.k_bar)
    selections = Counter(mechanism.select(histogram, NOISE) for _ in range(draws))
    return goodness(selections, positional_law(claimed or mechanism, counts, variant or Variant()))


@pytest.mark.properties
@pytest.mark.parametrize("case", SAMPLED)
def test_selections_follow_the_law(case: str) -> None:
    assert fits(lambda: sampled_p_value(case, draws=4_000))


@pytest.mark.mutant
@pytest.mark.properties
@pytest.mark.parametrize("scale", [Fraction(7, 10), Fraction(13, 10)])
@pytest.mark.parametrize("case", ["a wide gap", "fewer groups than k_bar"])
def test_noise_of_another_scale_is_noticed(case: str, scale: Fraction) -> None:
    mechanism, _ = SAMPLED[case]
    claimed = StableTopK(Epsilon(mechanism.epsilon.value * scale), mechanism.delta, mechanism.k_bar)
    assert rejects_early(lambda draws: sampled_p_value(case, claimed=claimed, draws=draws), 8_000)


@pytest.mark.mutant
@pytest.mark.properties
@pytest.mark.parametrize(
    "variant", [Variant(in_choice=1), Variant(in_choice=4), Variant(in_gap=1), Variant(in_gap=3)], ids=str
)
def test_other_constants_are_noticed(variant: Variant) -> None:
    assert rejects_early(lambda draws: sampled_p_value("a gap that moves by 2", variant=variant, draws=draws), 8_000)


def test_constants() -> None:
    mechanism = StableTopK(Epsilon("0.6324555320336759"), Delta("1e-6"), 10)  # rho of 0.1
    sigma = math.sqrt(mechanism.variance)
    assert float(mechanism.loss.rho) == pytest.approx(0.1, rel=1e-15)
    assert (2 / float(mechanism.epsilon), sigma) == pytest.approx((3.1622776602, 3.1622776602), rel=1e-10)
    assert sigma * stats.norm.isf(1e-6) == pytest.approx(15.0316475011, rel=1e-11)
    assert sigma * math.sqrt(2 * math.log(1e6)) == pytest.approx(16.6225813627, rel=1e-11)
    assert mechanism.offset == 16


def test_the_loss_is_exact_and_the_same_for_every_answer() -> None:
    mechanism = StableTopK(Epsilon("0.2"), Delta("1e-7"), 5)
    assert mechanism.loss == ZCDP(Rho("0.01"), Delta("1e-7")) == mechanism.choice.loss + mechanism.test.loss
    assert StableTopK(Epsilon("0.2"), Delta("1e-7"), 5, (0, 1, 2, 1, 0)).loss == mechanism.loss


@pytest.mark.parametrize(
    ("counts", "gaps"), [((), (0, 0, 0)), ((5,), (5, 0, 0)), ((5, 3, 3), (2, 0, 3)), ((5, 3, 3, 2, 1), (2, 0, 1))]
)
def test_gaps_go_on_with_zeros(counts: tuple[int, ...], gaps: tuple[int, ...]) -> None:
    mechanism = StableTopK(Epsilon(1), Delta("1e-6"), 3)
    assert mechanism.gaps(Histogram.of_leaders(counts, 3)) == gaps


@pytest.mark.parametrize(("exchange", "most"), [(False, 1), (True, 2)])
def test_a_unit_moves_every_gap_by_the_sensitivity_at_most(exchange: bool, most: int) -> None:
    moved = set()
    for mechanism, counts in random_cases(60, 9):
        near = one_unit_exchanged(counts, UNIVERSE) if exchange else one_more(mechanism, counts)
        for other in near:
            both = [gaps_of(sorted(each.values(), reverse=True), mechanism.k_bar) for each in (counts, other)]
            moved |= {abs(one - two) for one, two in zip(*both, strict=True)}
    assert moved == {*range(most + 1)}


def test_only_groups_that_exist_are_released() -> None:
    mechanism = StableTopK(Epsilon("0.5"), Delta("0.4"), 6)
    histogram = Histogram.of_leaders((3, 2), 6)
    selections = [mechanism.select(histogram, SeededNoise(seed)) for seed in range(500)]
    assert any(selection.k > 2 and selection.positions == {0, 1} for selection in selections)
    assert all(selection.positions is None or selection.positions <= {0, 1} for selection in selections)


def test_a_gap_that_moves_by_two_costs_the_same_at_twice_the_noise() -> None:
    one, two = (StableTopK(Epsilon("0.2"), Delta("1e-7"), 5, sensitivity=each) for each in (1, 2))
    assert one.loss == two.loss == ZCDP(Rho("0.01"), Delta("1e-7"))
    assert two.variance == 4 * one.variance == 400


def test_the_least_epsilon_works() -> None:
    mechanism = StableTopK(Epsilon("1e-4"), Delta("1e-6"), 3)
    assert mechanism.offset == pytest.approx(2e4 * stats.norm.isf(1e-6), rel=1e-4)
