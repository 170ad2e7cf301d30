"""What a guarantee costs: the price of an item, from both sides, and the published bounds it is compared with."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from support.benchmarks_kit import read_benchmark

from dpsql.accounting import ZCDP, ApproximateDP, BoundedRange
from dpsql.mechanisms import LimitedDomain, NoisyCounts
from dpsql.quantities import Delta, Epsilon, Rho

kappa = read_benchmark("older_bounds").kappa


def price(epsilon: str) -> Fraction:
    """Return what production charges for one item, read off a mechanism."""
    return LimitedDomain(Epsilon(epsilon), Delta("1e-6"), 1, 1).worst_case.rho.value


@pytest.mark.parametrize("epsilon", ["0.01", "0.3", "1", "7"])
def test_an_item_costs_exactly_epsilon_squared_over_eight(epsilon: str) -> None:
    assert price(epsilon) == BoundedRange(Epsilon(epsilon)).rho.value == Fraction(epsilon) ** 2 / 8
    assert NoisyCounts(Epsilon(epsilon)).loss(3).value == 3 * Fraction(epsilon) ** 2 / 8


def worst_range(epsilon: float, price: float) -> float:
    """Return the worst Renyi divergence of the extremal bounded-range pairs, over alpha times the price."""
    worst = 0.0
    for step in range(1, 60):
        shift = epsilon * step / 60
        heavy = -math.expm1(shift - epsilon) / -math.expm1(-epsilon)
        light = heavy * math.exp(-shift)
        for alpha in (1.001, 1.1, 2.0, 5.0, 30.0):
            exponents = (
                math.log(heavy) * alpha + math.log(light) * (1 - alpha),
                math.log1p(-heavy) * alpha + math.log1p(-light) * (1 - alpha),
            )
            divergence = math.log(math.fsum(map(math.exp, exponents))) / (alpha - 1)
            worst = max(worst, divergence / (alpha * price))
    return worst


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
def test_the_price_of_a_bounded_range_is_sound_and_tight(epsilon: float) -> None:
    rho = float(BoundedRange(Epsilon(epsilon)).rho)
    assert 0.9 < worst_range(epsilon, rho) <= 1.0 + 1e-9
    assert worst_range(epsilon, rho / 2) > 1.8


@pytest.mark.parametrize(("epsilon", "entry"), [("0.1", 0.0012498264274598), ("1", 0.12330156148224)])
def test_kappa_vectors(epsilon: str, entry: float) -> None:
    assert kappa(Epsilon(epsilon)) == pytest.approx(entry, rel=1e-11)


def test_kappa_is_rounded_up_and_keeps_its_digits_and_is_below_the_price() -> None:
    for epsilon in ("0.0001", "0.001", "0.03", "0.7", "3", "20"):
        with mpmath.workdps(60):
            ratio = mpmath.mpf(epsilon) / -mpmath.expm1(-mpmath.mpf(epsilon))
            true = ratio - 1 - mpmath.log(ratio)
            assert true <= kappa(Epsilon(epsilon)) <= true + mpmath.mpf(epsilon) * 2**-47
        assert float(true) < float(price(epsilon))


def test_losses_add_up_exactly() -> None:
    third = ZCDP(Rho(Fraction(1, 3)), Delta(Fraction(1, 7)))
    assert third + third + third == ZCDP(Rho(1), Delta(Fraction(3, 7)))
    assert ZCDP.nothing() + third == third


def test_guarantees_read_as_words() -> None:
    assert str(ApproximateDP(Epsilon(1), Delta("1e-6"))) == "(1, 1e-06)-differential privacy"
    assert str(ZCDP(Rho("0.25"), Delta("1e-6"))) == "rho 0.25, delta 1e-06"
