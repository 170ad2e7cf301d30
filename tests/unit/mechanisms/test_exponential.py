"""Coins of probability exp(-x) and discrete exponentials against their closed forms, with power on both sides."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import pytest
from support.laws import fits, goodness, rejects

from dpsql.mechanisms import OperatingSystemNoise
from dpsql.mechanisms.sampling.discrete_noise import bernoulli_exp, discrete_exponential
from dpsql.mechanisms.sampling.noise import BitReader

NOISE = OperatingSystemNoise()
DRAWS = 25_000
RATES = [Fraction(1, 30), Fraction(3, 7), Fraction(1), Fraction(5, 2)]


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(5, 4), Fraction(7, 2)])
def test_bernoulli_of_an_exponential(exponent: Fraction) -> None:
    reader, success = BitReader(NOISE), math.exp(-exponent)
    law = {True: success, False: 1 - success}
    ratio = exponent.as_integer_ratio()
    assert fits(lambda: goodness(Counter(bernoulli_exp(*ratio, reader=reader) for _ in range(DRAWS)), law))


def against(rate: Fraction, *, drawn: Fraction) -> Callable[[], float]:
    reader, decay = BitReader(NOISE), math.exp(-rate)
    law = {n: (1 - decay) * decay**n for n in range(math.ceil(60 / rate))}
    ratio = drawn.as_integer_ratio()
    return lambda: goodness(Counter(discrete_exponential(*ratio, reader=reader) for _ in range(DRAWS)), law)


@pytest.mark.parametrize("rate", RATES)
def test_discrete_exponentials_follow_the_closed_form(rate: Fraction) -> None:
    assert fits(against(rate, drawn=rate))


@pytest.mark.mutant
@pytest.mark.parametrize("factor", [Fraction(7, 10), Fraction(13, 10)])
@pytest.mark.parametrize("rate", RATES)
def test_another_rate_is_noticed(rate: Fraction, factor: Fraction) -> None:
    assert rejects(against(rate, drawn=rate * factor))
