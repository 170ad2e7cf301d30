"""Renyi curves of draws and of noise: the largest of their class, above every law, and their sums converted."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from properties.mechanisms.laws.gap_choice import UNIVERSE, log_law, random_cases
from support.laws import discrete_laplace_law, hockey_stick, one_unit_more, renyi

from dpsql.accounting import (
    BoundedRange,
    BoundedRangeCurve,
    CurveSum,
    LaplaceCurve,
    RenyiCurve,
    epsilon_of_zcdp,
    noisy_max_curve,
)
from dpsql.errors import UsageError
from dpsql.mechanisms import GapChoice, StableTopK
from dpsql.quantities import Delta, Epsilon, Rho

ALPHAS = (1.0001, 1.01, 1.5, 2.0, 4.0, 16.0, 64.0, 1000.0)
EPSILONS = ("0.001", "0.1", "1", "2", "8")


def drawn(epsilon: str | Fraction, items: int = 1) -> BoundedRangeCurve:
    return BoundedRangeCurve(BoundedRange(Epsilon(epsilon)), items)


def of_two_outcomes(epsilon: float, upper: float, alpha: float) -> float:
    """Return the divergence of two outcomes whose log-ratios are `upper` and `upper` - epsilon."""
    p = (math.exp(epsilon) - math.exp(upper)) / math.expm1(epsilon)
    rest = (1 - p) * math.exp((alpha - 1) * (upper - epsilon))
    return math.log(p * math.exp((alpha - 1) * upper) + rest) / (alpha - 1)


@pytest.mark.parametrize("epsilon", ["0.1", "1", "3"])
@pytest.mark.parametrize("alpha", [1.5, 2.0, 16.0, 64.0])
def test_the_curve_is_the_largest_of_its_range(epsilon: str, alpha: float) -> None:
    found = max(of_two_outcomes(float(epsilon), n / 4000 * float(epsilon), alpha) for n in range(4000))
    assert found <= drawn(epsilon).at(alpha) <= found * (1 + 1e-5)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_curve_is_at_most_either_of_the_paper(epsilon: str) -> None:
    """Proposition 7: alpha epsilon**2 / 8, and the curve of epsilon-differential privacy."""
    strict = 0
    for alpha in ALPHAS:
        with mpmath.workdps(60):
            a, e = mpmath.mpf(alpha), mpmath.mpf(Fraction(epsilon).numerator) / Fraction(epsilon).denominator
            pure = mpmath.log((mpmath.sinh(a * e) - mpmath.sinh((a - 1) * e)) / mpmath.sinh(e)) / (a - 1)
            paper = min(a * e * e / 8, pure)
        assert drawn(epsilon).at(alpha) <= paper * (1 + mpmath.mpf("1e-9"))
        strict += drawn(epsilon).at(alpha) < 0.99 * paper
    assert strict >= (float(epsilon) >= 0.1)  # at large orders, if not at one where doubles cancel


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_curve_is_rounded_up(epsilon: str) -> None:
    for alpha in ALPHAS:
        with mpmath.workdps(60):
            a, big = mpmath.mpf(alpha), mpmath.exp(mpmath.mpf(epsilon))
            worst = (a - 1) * (big - big ** (1 - a)) / (a * (1 - big ** (1 - a)))
            true = mpmath.log(worst) + mpmath.log((big - big ** (1 - a)) / (a * (big - 1))) / (a - 1)
            assert true <= drawn(epsilon).at(alpha)


def worst_share(of: Fraction) -> float:
    """Return which share of the curve of `of` * epsilon the choices of a gap take up, for all neighbours."""
    worst = 0.0
    for mechanism, counts in random_cases(60, 2):
        curve = drawn(mechanism.epsilon.value * of)
        assert of != 1 or curve == mechanism.curve
        here = log_law(mechanism, [*counts.values()])
        for more in one_unit_more(counts, UNIVERSE, None):
            there = log_law(mechanism, [*more.values()])
            for pair in ((here, there), (there, here)):
                worst = max(worst, *(renyi(*pair, alpha) / curve.at(alpha) for alpha in (1.01, 2.0, 16.0)))
    return worst


def test_choices_of_a_gap_keep_to_the_curve() -> None:
    assert 0.7 < worst_share(Fraction(1)) <= 1.0 + 1e-9


@pytest.mark.mutant
def test_the_curve_of_half_the_range_is_caught() -> None:
    assert worst_share(Fraction(1, 2)) > 1.8


def composed(epsilon: float, upper: float, items: int) -> tuple[dict[int, float], dict[int, float]]:
    """Return the laws of how often the first of two outcomes comes in so many draws; see `of_two_outcomes`."""
    p = (math.exp(epsilon) - math.exp(upper)) / math.expm1(epsilon)
    chances = p, p * math.exp(-upper)
    one, two = (
        {n: math.comb(items, n) * chance**n * (1 - chance) ** (items - n) for n in range(items + 1)}
        for chance in chances
    )
    return one, two


@pytest.mark.parametrize(("epsilon", "items"), [("0.1", 50), ("1", 5), ("2", 1), ("4", 12)])
def test_a_total_covers_the_worst_of_its_range_and_is_below_that_of_rho(epsilon: str, items: int) -> None:
    total, delta = CurveSum((drawn(epsilon, items),)), Delta("1e-6")
    level = total.epsilon(delta)
    pairs = [composed(float(epsilon), n / 200 * float(epsilon), items) for n in range(1, 200)]
    assert max(hockey_stick(*pair, level) for pair in pairs) <= 1e-6
    assert max(hockey_stick(*pair, 0.9 * level) for pair in pairs) > 1e-6
    assert level < 0.99 * epsilon_of_zcdp(BoundedRange(Epsilon(epsilon)).rho * items, delta)


def test_several_choices_keep_to_what_their_curve_converts_to() -> None:
    mechanism = GapChoice(Epsilon(2), 3)
    logs = [log_law(mechanism, counts) for counts in ((3, 2, 1, 1), (3, 3, 1, 1))]
    once = [{event: math.exp(mass) for event, mass in law.items()} for law in logs]
    thrice = [{(a, b, c): law[a] * law[b] * law[c] for a in law for b in law for c in law} for law in once]
    total = CurveSum((mechanism.curve,), times=3)
    for level in (0.1, 0.7, 1.5, 3.0):
        promised = total.delta_at(Epsilon(level))
        assert max(hockey_stick(*thrice, level), hockey_stick(*reversed(thrice), level)) <= promised


def test_a_sum_of_concentrated_curves_converts_as_their_rho() -> None:
    parts = RenyiCurve(Rho("0.05"), 7, Delta("1e-8")), RenyiCurve(Rho("0.2"), 1, Delta(0))
    together, total = CurveSum(parts, times=3), RenyiCurve(Rho("0.75"), 343, Delta("3e-8"))
    assert together.delta == total.delta
    for alpha in ALPHAS:
        assert together.at(alpha) == pytest.approx(total.at(alpha), rel=1e-12)
    assert together.epsilon(Delta("1e-6")) == pytest.approx(total.epsilon(Delta("1e-6")), rel=1e-6)
    assert together.delta_at(Epsilon(9)) == pytest.approx(total.delta_at(Epsilon(9)), rel=1e-6)


def test_a_sum_says_its_failures() -> None:
    total = StableTopK(Epsilon("0.1"), Delta("1e-9"), 5).curve
    assert CurveSum((total,), times=600).delta == Delta("6e-7")
    assert CurveSum((total,), times=600).delta_at(Epsilon(40)) >= 6e-7


@pytest.mark.parametrize("distance", [1, 2, 3])
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 2)])
def test_the_curve_of_laplace_noise_is_its_divergence(scale: Fraction, distance: int) -> None:
    noise = discrete_laplace_law(scale)
    here = {n: math.log(mass) for n, mass in noise.items() if n - distance in noise}
    there = {n: math.log(noise[n - distance]) for n in here}
    for alpha in (1.1, 2.0, 9.0):
        assert LaplaceCurve(scale, distance).at(alpha) == pytest.approx(renyi(here, there, alpha), rel=1e-9)
        assert LaplaceCurve(scale, distance).at(alpha) < LaplaceCurve(scale, distance + 1).at(alpha)
    assert LaplaceCurve(scale, distance).at(1e7) == pytest.approx(distance / float(scale), rel=1e-5)


def winners(scores: tuple[int, ...], scale: Fraction) -> dict[int, float]:
    """Return the logarithms of the law of the highest of three scores with Laplace noise, equal ones at random."""
    noise = discrete_laplace_law(scale, reach=20.0)
    values = range(min(noise) + min(scores), max(noise) + max(scores) + 1)
    below = [[math.fsum(m for n, m in noise.items() if n < value - score) for value in values] for score in scores]
    here = [[noise.get(value - score, 0.0) for value in values] for score in scores]
    found = {}
    for one, (two, three) in ((0, (1, 2)), (1, (0, 2)), (2, (0, 1))):
        mass = [
            h * (bt * bh + (ht * bh + bt * hh) / 2 + ht * hh / 3)
            for h, bt, ht, bh, hh in zip(here[one], below[two], here[two], below[three], here[three], strict=True)
        ]
        found[one] = math.log(math.fsum(mass))
    return found


def test_noisy_max_with_laplace_noise_keeps_to_theorem_8() -> None:
    scale = Fraction(1)
    curve, close = (noisy_max_curve(LaplaceCurve(scale, distance), 3) for distance in (2, 1))
    assert curve.at(2.0) == pytest.approx(LaplaceCurve(scale, 2).at(2.0) + math.log(3), rel=1e-12)
    for scores, moved in (((0, 0, 0), (1, -1, -1)), ((2, 0, 1), (1, 1, 2)), ((3, 0, 0), (2, 1, 1))):
        pair = winners(scores, scale), winners(moved, scale)
        for alpha in (1.1, 2.0, 8.0, 60.0):
            assert max(renyi(*pair, alpha), renyi(*reversed(pair), alpha)) <= curve.at(alpha)
    far = winners((11, 1, 1), scale), winners((12, 0, 0), scale)
    assert close.at(60.0) < renyi(*far, 60.0) <= curve.at(60.0)  # a distance of 1 fails


def test_what_is_out_of_range_is_refused() -> None:
    for curve in (drawn("1"), LaplaceCurve(Fraction(1)), CurveSum((drawn("1"),))):
        with pytest.raises(UsageError, match=r"\[alpha-range\]"):
            curve.at(1.0)
    with pytest.raises(UsageError, match=r"\[items-range\]"):
        drawn("1", -1)
    with pytest.raises(UsageError, match=r"\[scale-range\]"):
        LaplaceCurve(Fraction(0))
    with pytest.raises(UsageError, match=r"\[scale-range\]"):
        LaplaceCurve(Fraction(1), 0)
    with pytest.raises(UsageError, match=r"\[delta-range\]"):
        CurveSum((drawn("1"),)).epsilon(Delta(0))
    with pytest.raises(UsageError, match=r"\[items-range\]"):
        noisy_max_curve(drawn("1"), 0)
