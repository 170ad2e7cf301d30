"""What a guarantee costs: the price of an item, from both sides, and the published bounds it is compared with."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from dpsql.accounting import ZCDP, ApproximateDP, BoundedRange, epsilon_of_zcdp, rho_of_total
from dpsql.accounting.composition import durfee_rogers, kappa
from dpsql.accounting.conversions import bs16_epsilon
from dpsql.errors import UsageError
from dpsql.mechanisms import LimitedDomain, NoisyCounts
from dpsql.quantities import Delta, Epsilon, Rho

COMPOSITION = """
0.01  10      0.10000    0.16673    0.08361    0.08361    0.08324    0.06052
0.01  100     1.00000    0.53065    0.26783    0.26783    0.26408    0.20590
0.05  1000   50.00000    9.56103    5.40565    5.40565    4.46815    4.01028
0.1   10      1.00000    1.71222    0.88113    0.88113    0.84363    0.70021
0.1   500    50.00000   14.25186    8.37697    8.37697    6.50197    5.92682
0.5   10      5.00000    9.53588    5.40565    5.00000    4.46815    4.01028
1.0   50     50.00000   60.27508   43.58461   43.58461   24.83461   23.69729
1.0   1000 1000.00000  628.34297  583.11291  583.11291  208.11291  205.85679
"""
ITEMS = {"0.005": (5078, 7793), "0.01": (1269, 1948), "0.02": (317, 487), "0.05": (50, 77), "0.1": (12, 19)}


def price(epsilon: str) -> Fraction:
    """Return what production charges for one item, read off a mechanism."""
    return LimitedDomain(Epsilon(epsilon), Delta("1e-6"), 1, 1).worst_case.rho.value


@pytest.mark.parametrize("epsilon", ["0.01", "0.3", "1", "7"])
def test_an_item_costs_exactly_epsilon_squared_over_eight(epsilon: str) -> None:
    assert price(epsilon) == BoundedRange(Epsilon(epsilon)).rho.value == Fraction(epsilon) ** 2 / 8
    assert NoisyCounts(Epsilon(epsilon)).loss(3).value == 3 * Fraction(epsilon) ** 2 / 8


@pytest.mark.parametrize("epsilon", ITEMS)
def test_a_total_buys_the_published_number_of_items(epsilon: str) -> None:
    """A price of epsilon**2 / 4 or / 2 is sound as well; what tells it apart is that it buys too little."""
    rho = rho_of_total(ApproximateDP(Epsilon(1), Delta("1e-6"))).value
    before, bought = ITEMS[epsilon]
    assert rho // price(epsilon) == bought
    assert rho // (2 * price(epsilon)) < before
    assert rho // (4 * price(epsilon)) < before


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


@pytest.mark.parametrize("row", COMPOSITION.strip().splitlines())
def test_table_of_compositions(row: str) -> None:
    step, count, *entries = row.split()
    bounds = durfee_rogers(int(count), Epsilon(step), delta=Delta("1e-6"))
    rho = BoundedRange(Epsilon(step)).rho * int(count)
    ours = [bounds.basic, bounds.pure, bounds.bounded_range, bounds.best]
    ours += [bs16_epsilon(rho, Delta("1e-6")), epsilon_of_zcdp(rho, Delta("1e-6"))]
    assert ours == pytest.approx([float(entry) for entry in entries], abs=6e-6)


def test_composition_vector() -> None:
    bounds = durfee_rogers(100, Epsilon("0.1"), delta=Delta("1e-6"))
    assert bounds.basic == pytest.approx(10, rel=1e-14)
    assert bounds.pure == pytest.approx(5.756105519335732, rel=1e-13)
    assert bounds.bounded_range == pytest.approx(3.128260884878466, rel=1e-13)
    assert bounds.best == bounds.bounded_range


@pytest.mark.parametrize(("k", "delta"), [(0, "0.1"), (1, "0"), (1, "1")])
def test_a_composition_of_nothing_is_refused(k: int, delta: str) -> None:
    with pytest.raises(UsageError, match=r"\[composition-range\]"):
        durfee_rogers(k, Epsilon(1), delta=Delta(delta))


@pytest.mark.parametrize(("epsilon", "entry"), [("0.1", 0.0012498264274598), ("1", 0.12330156148224)])
def test_kappa_vectors(epsilon: str, entry: float) -> None:
    assert kappa(Epsilon(epsilon)) == pytest.approx(entry, rel=1e-11)


def test_kappa_is_below_the_price_and_keeps_its_digits() -> None:
    for epsilon in ("0.0001", "0.001", "0.03", "0.7", "3", "20"):
        with mpmath.workdps(60):
            ratio = mpmath.mpf(epsilon) / -mpmath.expm1(-mpmath.mpf(epsilon))
            true = ratio - 1 - mpmath.log(ratio)
        assert kappa(Epsilon(epsilon)) == pytest.approx(float(true), abs=1e-15)
        assert float(true) < float(price(epsilon))


def test_losses_add_up_exactly() -> None:
    third = ZCDP(Rho(Fraction(1, 3)), Delta(Fraction(1, 7)))
    assert third + third + third == ZCDP(Rho(1), Delta(Fraction(3, 7)))
    assert ZCDP.nothing() + third == third


def test_guarantees_read_as_words() -> None:
    assert str(ApproximateDP(Epsilon(1), Delta("1e-6"))) == "(1, 1e-06)-differential privacy"
    assert str(ZCDP(Rho("0.25"), Delta("1e-6"))) == "rho 0.25, delta 1e-06"
