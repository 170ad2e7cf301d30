"""Integer tails of the discrete Gaussian, against sums in fifty digits."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from importlib import import_module
from types import ModuleType

import mpmath
import pytest

from dpsql.accounting import delta_of_each, discrete_gaussian_offset, discrete_gaussian_tail
from dpsql.errors import UsageError
from dpsql.quantities import Delta

MODULE: ModuleType = import_module("dpsql.accounting.tails")
VARIANCES = [Fraction(1, 50), Fraction(1, 4), Fraction(1), Fraction(7, 3), Fraction(50), Fraction(10**4)]
PROBABILITIES = [0.9, 0.5, 0.3, 0.05, 1e-3, 1e-6, 1e-9, 1e-30, 1e-200]


@cache
def masses(variance: Fraction) -> list[mpmath.mpf]:
    """Return the masses of 0, 1, ... but for a factor, as far as 1e-60 of their sum is left out."""
    with mpmath.workdps(80):
        twice = 2 * mpmath.mpf(variance.numerator) / variance.denominator
        reach = 38 * int(mpmath.ceil(mpmath.sqrt(twice))) + 6
        return [mpmath.exp(-(mpmath.mpf(n) ** 2) / twice) for n in range(reach)]


def true_tail(variance: Fraction, at_least: int) -> mpmath.mpf:
    """Return P[N >= at_least]."""
    each = masses(variance)
    total = 2 * mpmath.fsum(each) - each[0]
    first = abs(at_least) if at_least >= 0 else 1 - at_least
    above = mpmath.fsum(each[first:])
    return above / total if at_least >= 0 else 1 - above / total


@pytest.mark.parametrize(
    ("sigma", "delta", "offset", "tail"),
    [
        ("7.0710678", 1e-7, 38, 5.5506e-8),
        ("3.1622777", 1e-6, 16, 4.2893e-7),
        ("5", 1e-7, 27, 5.5180e-8),
    ],
)
def test_vectors(sigma: str, delta: float, offset: int, tail: float) -> None:
    variance = Fraction(sigma) ** 2
    assert discrete_gaussian_offset(variance, delta) == offset
    assert discrete_gaussian_tail(variance, offset) == pytest.approx(tail, rel=1e-4)


@pytest.mark.parametrize("variance", VARIANCES)
def test_tails_are_rounded_up_and_hardly(variance: Fraction) -> None:
    far = int(20 * float(variance) ** 0.5) + 2
    for at_least in {-far, -far // 2, -3, -1, 0, 1, 2, far // 4, far // 2, far}:
        with mpmath.workdps(80):
            true = true_tail(variance, at_least)
            tail = mpmath.mpf(discrete_gaussian_tail(variance, at_least))
            assert min(true, mpmath.mpf(1)) <= tail <= min(1, true * mpmath.mpf("1.00000001")) + mpmath.mpf("1e-307")


@pytest.mark.properties
@pytest.mark.parametrize("probability", PROBABILITIES)
@pytest.mark.parametrize("variance", VARIANCES)
def test_the_offset_is_the_least_integer_that_is_sound(variance: Fraction, probability: float) -> None:
    offset = discrete_gaussian_offset(variance, probability)
    with mpmath.workdps(80):
        level = mpmath.mpf(probability)
        assert true_tail(variance, offset) <= level
        assert offset == 0 or true_tail(variance, offset - 1) > level * mpmath.mpf("0.99999999")


def test_a_continuous_quantile_would_be_too_small() -> None:
    """The reason for integer tails: 1 + sigma * 5.2 rounds to 27 for sigma 5, and its tail exceeds 1e-7."""
    assert discrete_gaussian_tail(Fraction(25), 26) > 1e-7 >= discrete_gaussian_tail(Fraction(25), 27)


def test_a_tail_below_the_doubles_is_not_called_nothing() -> None:
    assert 0.0 < discrete_gaussian_tail(Fraction(1), 100) < 1e-300


def test_wide_noise_is_computed() -> None:
    assert discrete_gaussian_offset(Fraction(10**9), 1e-6) == pytest.approx(150_317, abs=2)


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(10**21 + 1)])
def test_a_variance_out_of_range_is_refused(variance: Fraction) -> None:
    with pytest.raises(UsageError, match=r"\[variance-range\]"):
        discrete_gaussian_tail(variance, 1)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, 1e-301, float("nan")])
def test_a_probability_out_of_range_is_refused(probability: float) -> None:
    with pytest.raises(UsageError, match=r"\[probability-range\]"):
        discrete_gaussian_offset(Fraction(1), probability)


@pytest.mark.properties
@pytest.mark.parametrize("variance", [Fraction(10**4), Fraction(10**5 + 1, 3)])
@pytest.mark.parametrize("deviations", ["-3", "-0.01", "0", "0.5", "1", "2", "5", "9"])
def test_the_bound_of_wide_noise_is_above_the_sum_and_hardly(variance: Fraction, deviations: str) -> None:
    """The same formula where the sum can still be taken; its excess falls with sigma."""
    sigma = float(variance) ** 0.5
    at_least = round(sigma * float(deviations))
    with mpmath.workdps(60):
        true = true_tail(variance, at_least)
        bound = mpmath.mpf(MODULE._wide_tail(sigma, at_least))
        assert true <= bound <= true * (1 + mpmath.mpf(2) / sigma)
        if float(deviations) >= 2:  # where thresholds are
            assert bound <= true * (1 + mpmath.mpf(10) / float(variance))


def test_the_sum_and_the_bound_of_wide_noise_meet() -> None:
    for probability in (1e-3, 1e-9):
        summed, wide = (discrete_gaussian_offset(Fraction(10**9 + more), probability) for more in (0, 1))
        assert abs(wide - summed) <= 1


def test_the_noise_of_weights_is_computed() -> None:
    assert discrete_gaussian_offset(Fraction(10**21), 1e-6) == pytest.approx(4.753424 * 10**10.5, rel=1e-6)


@pytest.mark.parametrize("parts", [1, 2, 100, 2**16])
@pytest.mark.parametrize("delta", ["1e-12", "1e-6", "0.3", "0.999999999999999999999"])
def test_a_share_of_delta_is_rounded_down_and_hardly(delta: str, parts: int) -> None:
    with mpmath.workdps(60):
        true = 1 - (1 - mpmath.mpf(delta)) ** (mpmath.mpf(1) / parts)
        share = mpmath.mpf(delta_of_each(Delta(delta), parts))
        assert share <= true
        assert share >= true * (1 - mpmath.mpf("1e-8")) or delta.startswith("0.99")


@pytest.mark.parametrize("delta", ["0", "1", "2"])
def test_a_delta_that_is_no_probability_is_not_shared(delta: str) -> None:
    with pytest.raises(UsageError, match=r"\[delta-range\]"):
        delta_of_each(Delta(delta), 2)
