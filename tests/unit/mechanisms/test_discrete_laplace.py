"""The discrete Laplace and its tails against their closed forms, with power on both sides."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from fractions import Fraction

import pytest
from support.laws import discrete_laplace_law, fits, goodness, rejects

from dpsql.accounting import laplace_difference_offset, laplace_offset
from dpsql.errors import UsageError
from dpsql.mechanisms import OperatingSystemNoise, discrete_laplace

NOISE = OperatingSystemNoise()
DRAWS = 25_000
SCALES = [Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(30), Fraction(10**4, 37)]
PROBABILITIES = [Fraction(9, 10), Fraction(3, 10), Fraction(1, 20), Fraction(1, 1000), Fraction(1, 10**8)]


def p_value(sample: Callable[[], list[Hashable]], law: dict[int, float]) -> Callable[[], float]:
    return lambda: goodness(Counter(sample()), law)


@pytest.mark.parametrize("scale", SCALES)
def test_draws_follow_the_closed_form(scale: Fraction) -> None:
    assert fits(p_value(lambda: discrete_laplace(scale, NOISE, count=DRAWS), discrete_laplace_law(scale)))


@pytest.mark.mutant
@pytest.mark.parametrize("factor", [Fraction(7, 10), Fraction(13, 10)])
@pytest.mark.parametrize("scale", SCALES)
def test_noise_of_another_scale_is_noticed(scale: Fraction, factor: Fraction) -> None:
    assert rejects(p_value(lambda: discrete_laplace(scale * factor, NOISE, count=DRAWS), discrete_laplace_law(scale)))


@pytest.mark.parametrize("scale", [0, -1])
def test_a_scale_that_is_not_positive_is_refused(scale: int) -> None:
    with pytest.raises(UsageError, match=r"\[scale-range\]"):
        discrete_laplace(Fraction(scale), NOISE, count=1)
    with pytest.raises(UsageError, match=r"\[scale-range\]"):
        laplace_offset(Fraction(scale), Fraction(1, 2))


def test_no_draw_is_no_draw() -> None:
    assert discrete_laplace(Fraction(1), NOISE, count=0) == []


def tail(scale: Fraction, at_least: int) -> float:
    decay = math.exp(-1 / scale)
    return decay**at_least / (1 + decay) if at_least >= 0 else 1 - decay ** (1 - at_least) / (1 + decay)


def difference_tail(first: Fraction, second: Fraction, at_least: int) -> float:
    return math.fsum(mass * tail(first, at_least + y) for y, mass in discrete_laplace_law(second).items())


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("probability", PROBABILITIES)
def test_an_offset_is_the_least_that_suffices(scale: Fraction, probability: Fraction) -> None:
    offset = laplace_offset(scale, probability)
    assert tail(scale, offset) <= probability
    assert offset == 0 or tail(scale, offset - 1) > probability


@pytest.mark.properties
@pytest.mark.parametrize("first", SCALES)
@pytest.mark.parametrize("second", SCALES)
@pytest.mark.parametrize("probability", PROBABILITIES)
def test_an_offset_of_a_difference_is_the_least_that_suffices(
    first: Fraction, second: Fraction, probability: Fraction
) -> None:
    offset = laplace_difference_offset(first, second, probability=probability)
    assert difference_tail(first, second, offset) <= probability
    assert offset == 0 or difference_tail(first, second, offset - 1) > probability


def test_scales_that_hardly_differ_have_nearly_the_offset_of_equal_ones() -> None:
    for probability in PROBABILITIES:
        equal = laplace_difference_offset(Fraction(7), Fraction(7), probability=probability)
        nearly = laplace_difference_offset(Fraction(7), 7 + Fraction(1, 10**30), probability=probability)
        assert equal == nearly


def test_offsets_far_beyond_a_double_are_found() -> None:
    assert laplace_offset(Fraction(10**9), Fraction(1, 10**400)) == pytest.approx(1e9 * (400 * math.log(10)), rel=1e-2)
    assert laplace_offset(Fraction(1, 1000), Fraction(1, 10**6)) == 1


@pytest.mark.parametrize("probability", [0, 1, -1])
def test_a_probability_that_means_nothing_is_refused(probability: int) -> None:
    with pytest.raises(UsageError, match=r"\[probability-range\]"):
        laplace_difference_offset(Fraction(1), Fraction(1), probability=Fraction(probability))
