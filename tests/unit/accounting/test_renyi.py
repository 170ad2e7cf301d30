"""Renyi bounds that no rho covers: their sum, and their conversion at the best order."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from dpsql.accounting import ZCDP, RenyiCurve, delta_of_zcdp, epsilon_of_zcdp
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon, Rho


def least_over_orders(curve: RenyiCurve, delta: float) -> float:
    """Return the conversion of Canonne, Kamath and Steinke of the curve at the best of many orders."""
    best = math.inf
    for n in range(1, 6000):
        order = math.exp(-6 + n / 400)
        alpha = 1 + order
        rest = math.log(1 / delta) + order * math.log1p(-1 / alpha) - math.log(alpha)
        best = min(best, curve.at(alpha) + rest / order)
    return max(0.0, best)


@pytest.mark.parametrize("candidates", [1, 2, 40, 10**9])
@pytest.mark.parametrize("rho", ["0.001", "0.2", "3"])
def test_the_conversion_is_the_best_over_all_orders(rho: str, candidates: int) -> None:
    curve = RenyiCurve(Rho(rho), candidates, Delta(0))
    for delta in (1e-3, 1e-6, 1e-9):
        best = least_over_orders(curve, delta)
        assert curve.epsilon(Delta(delta)) == pytest.approx(best, rel=1e-5)
        mironov = min(curve.at(1 + math.exp(n / 50)) + math.log(1 / delta) / math.exp(n / 50) for n in range(-300, 500))
        assert curve.epsilon(Delta(delta)) < mironov


def over_gaps(variance: Fraction, candidates: int) -> RenyiCurve:
    """Return the curve of Zhu and Wang 2022, Theorem 8: Gaussian noisy max over scores that move either way."""
    return RenyiCurve(Rho(2 / variance), candidates, Delta(0))


def test_a_curve_of_one_candidate_is_zero_concentrated() -> None:
    curve = RenyiCurve(Rho("0.05"), 1, Delta("1e-7"))
    assert curve.concentrated() == ZCDP(Rho("0.05"), Delta("1e-7"))
    assert curve.epsilon(Delta("1e-6")) == epsilon_of_zcdp(Rho("0.05"), Delta("1e-6"))
    level = Epsilon("0.9")
    assert curve.delta_at(level) == pytest.approx(delta_of_zcdp(Rho("0.05"), level) + 1e-7, rel=1e-12)


def test_curves_add_at_every_order() -> None:
    """Lemma 16: the same order, epsilons and deltas added."""
    one, two = over_gaps(Fraction(9), 7), RenyiCurve(Rho("0.1"), 1, Delta("1e-8"))
    both = one + two + one
    assert both.delta == Delta("1e-8")
    for alpha in (1.001, 1.7, 4.0, 90.0):
        assert both.at(alpha) == pytest.approx(2 * one.at(alpha) + two.at(alpha), rel=1e-13)


@pytest.mark.parametrize("alpha", [1.0000001, 1.5, 2.0, 64.0])
def test_the_curve_of_noisy_max_is_that_of_the_paper_rounded_up(alpha: float) -> None:
    curve = over_gaps(Fraction(16), 12)
    with mpmath.workdps(50):
        true = 2 * mpmath.mpf(alpha) / 16 + mpmath.log(12) / (mpmath.mpf(alpha) - 1)
        assert true <= curve.at(alpha) <= true * (1 + mpmath.mpf("1e-13"))


def test_there_and_back() -> None:
    curve = RenyiCurve(Rho("0.3"), 30, Delta(0))
    assert curve.delta_at(Epsilon(curve.epsilon(Delta("1e-6")))) == pytest.approx(1e-6, rel=1e-5)


def test_without_divergence_the_candidates_remain() -> None:
    assert RenyiCurve(Rho(0), 1, Delta("1e-9")).delta_at(Epsilon(1)) == pytest.approx(1e-9)
    assert RenyiCurve(Rho(0), 2, Delta(0)).delta_at(Epsilon(1)) == 1.0


def test_what_is_out_of_range_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\[items-range\]"):
        RenyiCurve(Rho(1), 0, Delta(0))
    for alpha in (1.0, math.nan):
        with pytest.raises(UsageError, match=r"\[alpha-range\]"):
            RenyiCurve(Rho(1), 1, Delta(0)).at(alpha)
