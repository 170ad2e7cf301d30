"""The discrete Gaussian and its parts against their closed forms, by chi-square with power on both sides."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from fractions import Fraction

import pytest
from support.laws import discrete_gaussian_law, fits, goodness, rejects

from dpsql.errors import UsageError
from dpsql.mechanisms import NoisyCounts, OperatingSystemNoise, discrete_gaussian
from dpsql.quantities import Epsilon

NOISE = OperatingSystemNoise()
DRAWS = 25_000
VARIANCES = [Fraction(1, 4), Fraction(1), Fraction(7, 3), Fraction(25), Fraction(400), Fraction(10**4, 3)]


def p_value(sample: Callable[[], list[Hashable]], law: dict[int, float]) -> Callable[[], float]:
    return lambda: goodness(Counter(sample()), law)


@pytest.mark.parametrize("variance", VARIANCES)
def test_draws_follow_the_closed_form(variance: Fraction) -> None:
    law = discrete_gaussian_law(variance)
    assert fits(p_value(lambda: discrete_gaussian(variance, NOISE, count=DRAWS), law))


@pytest.mark.mutant
@pytest.mark.parametrize("scale", [Fraction(7, 10), Fraction(13, 10)])
@pytest.mark.parametrize("variance", VARIANCES)
def test_noise_of_another_scale_is_noticed(variance: Fraction, scale: Fraction) -> None:
    law = discrete_gaussian_law(variance)
    assert rejects(p_value(lambda: discrete_gaussian(variance * scale**2, NOISE, count=DRAWS), law))


@pytest.mark.parametrize("variance", VARIANCES)
def test_mean_and_variance(variance: Fraction) -> None:
    law = discrete_gaussian_law(variance)
    second = math.fsum(n**2 * mass for n, mass in law.items())
    fourth = math.fsum(n**4 * mass for n, mass in law.items())

    def within_six_deviations() -> bool:
        draws = discrete_gaussian(variance, NOISE, count=DRAWS)
        mean = abs(sum(draws)) / math.sqrt(DRAWS * second)
        spread = abs(sum(draw**2 for draw in draws) - DRAWS * second) / math.sqrt(DRAWS * (fourth - second**2))
        return max(mean, spread) < 6

    assert within_six_deviations() or within_six_deviations()
    assert second <= float(variance) * (1 + 1e-12)


@pytest.mark.parametrize("variance", [0, -1])
def test_a_variance_that_is_not_positive_is_refused(variance: int) -> None:
    with pytest.raises(UsageError, match=r"\[variance-range\]"):
        discrete_gaussian(Fraction(variance), NOISE, count=1)


def test_no_draw_is_no_draw() -> None:
    assert discrete_gaussian(Fraction(1), NOISE, count=0) == []


def test_released_counts_follow_their_law() -> None:
    counts = NoisyCounts(Epsilon("0.7"))
    law = discrete_gaussian_law(Fraction(400, 49))

    def p() -> float:
        released = counts.release([1000] * DRAWS, NOISE)
        assert all(type(count) is int for count in released)
        return goodness(Counter(count - 1000 for count in released), law)

    assert fits(p)


def test_released_counts_may_be_negative_and_are_independent() -> None:
    released = NoisyCounts(Epsilon("0.01")).release([0] * 200, NOISE)
    assert min(released) < 0 < max(released)
    assert len(set(released)) > 50


@pytest.mark.parametrize(
    ("bound", "labels", "items"), [(None, 7, 7), (3, 7, 3), (3, 2, 2), (1, 50, 1), (3, 0, 0), (None, 0, 0)]
)
def test_a_count_release_costs_an_item_for_each_label_that_one_unit_can_be_in(
    bound: int | None, labels: int, items: int
) -> None:
    counts = NoisyCounts(Epsilon("0.2"), bound)
    assert counts.items(labels) == items
    assert counts.loss(labels).value == items * Fraction(4, 100) / 8
    assert counts.variance == 100


@pytest.mark.parametrize("bound", [0, -1])
def test_a_bound_below_one_is_refused(bound: int) -> None:
    with pytest.raises(UsageError, match=r"\[bound-range\]"):
        NoisyCounts(Epsilon(1), bound)
