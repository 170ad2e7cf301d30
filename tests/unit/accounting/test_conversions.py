"""zCDP to (epsilon, delta) and back: the tables, order, and soundness checked in fifty digits."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import pairwise

import mpmath
import opendp.prelude as dp
import pytest
from support.benchmarks_kit import read_benchmark
from support.renyi_orders import best_alpha

from dpsql.accounting import ApproximateDP, delta_of_zcdp, epsilon_of_zcdp, rho_of_total
from dpsql.accounting.guarantees import _least_log_delta, _log_delta, find_minimum
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon, Rho

dp.enable_features("contrib")
bs16_epsilon, bs16_rho = read_benchmark("older_bounds").bs16_epsilon, read_benchmark("older_bounds").bs16_rho

EPSILONS = """
0.001      1e-6    0.182895    0.236079    0.167944
0.01       1e-6    0.621693    0.753384    0.575055
0.02435597 1e-6    1.000000    1.184511    0.927392
0.1        1e-6    2.141939    2.450788    1.994527
0.5        1e-6    5.221534    5.756522    4.886554
2.0        1e-6    11.688596   12.513044   10.997151
0.01       1e-9    0.810174    0.920456    0.768212
0.5        1e-9    6.474070    6.937898    6.173935
"""
DELTAS = ["1e-5", "1e-6", "5e-7", "1e-8", "1e-9"]
RHOS = """
0.1      0.0004329937  0.0003210477  0.0002974136  0.0002088164  0.0001771384
0.25     0.0023563615  0.0018015484  0.0016803961  0.0012121100  0.0010387825
0.5      0.0085055306  0.0066415244  0.0062248171  0.0045781810  0.0039531911
1        0.0305565952  0.0243559704  0.0229374467  0.0172053180  0.0149730577
2        0.1082563638  0.0881526884  0.0834417178  0.0639404457  0.0561305018
4        0.3731439828  0.3110649549  0.2961314233  0.2325943111  0.2063129092
8        1.2297145258  1.0523580046  1.0084529148  0.8156632555  0.7328332874
"""
EPSILON_ROWS = [row.split() for row in EPSILONS.strip().splitlines()]
RHO_ENTRIES = [
    (row.split()[0], delta, float(entry))
    for row in RHOS.strip().splitlines()
    for delta, entry in zip(DELTAS, row.split()[1:], strict=True)
]


def total(epsilon: str | float, delta: str | float) -> ApproximateDP:
    return ApproximateDP(Epsilon(epsilon), Delta(delta))


def exact(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


def true_delta(rho: Fraction, epsilon: mpmath.mpf, alpha: mpmath.mpf) -> mpmath.mpf:
    """Return CKS20's delta at one order, in the working precision."""
    order = alpha - 1
    return mpmath.exp(order * (alpha * exact(rho) - epsilon)) / order * (1 - 1 / alpha) ** alpha


def true_epsilon(rho: Fraction, delta: Fraction, alpha: mpmath.mpf) -> mpmath.mpf:
    """Return CKS20's epsilon at one order, in the working precision."""
    rest = -mpmath.log(exact(delta)) + (alpha - 1) * mpmath.log(1 - 1 / alpha) - mpmath.log(alpha)
    return alpha * exact(rho) + rest / (alpha - 1)


def order_for(rho: float, epsilon: float) -> mpmath.mpf:
    """Return the order at which the float search found the least delta; any order would be a true bound."""
    return 1 + mpmath.exp(mpmath.mpf(find_minimum(lambda x: _log_delta(lambda alpha: alpha * rho, epsilon, x=x))))


@pytest.mark.parametrize("row", EPSILON_ROWS, ids=" ".join)
def test_table_of_epsilons(row: list[str]) -> None:
    rho, delta = Rho(row[0]), Delta(row[1])
    ours, older, gaussian = (float(entry) for entry in row[2:])
    assert epsilon_of_zcdp(rho, delta) == pytest.approx(ours, abs=5.1e-7)
    assert bs16_epsilon(rho, delta) == pytest.approx(older, abs=5.1e-7)
    mu, level = math.sqrt(2 * float(rho)), float(delta)
    with mpmath.workdps(50):  # the Gaussian's own curve: no zCDP bound may lie below it
        curve = mpmath.ncdf(mu / 2 - gaussian / mu) - mpmath.exp(gaussian) * mpmath.ncdf(-mu / 2 - gaussian / mu)
    assert float(curve) == pytest.approx(level, rel=2e-4)
    assert gaussian < ours < older


@pytest.mark.parametrize(("epsilon", "delta", "entry"), RHO_ENTRIES)
def test_table_of_rhos(epsilon: str, delta: str, entry: float) -> None:
    assert float(rho_of_total(total(epsilon, delta))) == pytest.approx(entry, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta", "entry"), RHO_ENTRIES)
def test_the_rho_of_a_total_satisfies_it_in_fifty_digits_and_is_the_largest(
    epsilon: str, delta: str, entry: float
) -> None:
    rho, level = rho_of_total(total(epsilon, delta)).value, Delta(delta).value
    more = rho * (1 + Fraction(1, 10**9)) + Fraction(2, 10**12)
    with mpmath.workdps(50):
        wanted = mpmath.mpf(epsilon)
        assert true_delta(rho, wanted, order_for(entry, float(epsilon))) <= exact(level)
        assert true_delta(more, wanted, order_for(float(more), float(epsilon))) > exact(level)
    assert rho * 10**12 == int(rho * 10**12)


def random_triples(number: int) -> list[tuple[float, float, float]]:
    draw = random.Random(2)
    triples = [
        (10 ** draw.uniform(-8, 3), 10 ** draw.uniform(-3, 3), 10 ** draw.uniform(-290, 0)) for _ in range(number)
    ]
    return [*triples, *((rho, epsilon, 10 ** draw.uniform(-12, -0.01)) for rho, epsilon, _ in triples)]


def test_epsilon_and_delta_are_rounded_up_and_hardly() -> None:
    for rho_, epsilon_, delta_ in random_triples(60):
        rho, epsilon, delta = Rho(rho_), Epsilon(epsilon_), Delta(delta_)
        upper = epsilon_of_zcdp(rho, delta)
        bound = delta_of_zcdp(rho, epsilon)
        with mpmath.workdps(50):
            order = mpmath.mpf(best_alpha(rho, delta))
            true = max(mpmath.mpf(0), true_epsilon(rho.value, delta.value, order))
            slack = (true + order * exact(rho.value)) * mpmath.mpf("1e-9")
            assert true <= upper <= true + slack
            least = true_delta(rho.value, exact(epsilon.value), order_for(rho_, epsilon_))
            assert min(least, mpmath.mpf(1)) <= bound
            assert bound <= least * mpmath.mpf("1.000001") or bound < 1e-300


def test_the_rho_of_random_totals_satisfies_them_in_fifty_digits() -> None:
    for _, epsilon, delta in random_triples(40):
        rho = rho_of_total(total(epsilon, delta)).value
        if rho:
            with mpmath.workdps(50):
                alpha = order_for(float(rho), epsilon)
                assert true_delta(rho, exact(Epsilon(epsilon).value), alpha) <= exact(Delta(delta).value)


@pytest.mark.parametrize("rho", ["1e-6", "0.001", "0.3", "2"])
def test_an_epsilon_next_to_zero_is_rounded_up_too(rho: str) -> None:
    """Close to 0 two large terms cancel, and their error is larger than any share of the result."""
    crossing = math.exp(_least_log_delta(lambda alpha: alpha * float(rho), 1e-300))
    for step in range(-40, 40):
        delta = Delta(crossing * (1 + step * 2e-16))
        with mpmath.workdps(50):
            true = true_epsilon(Rho(rho).value, delta.value, mpmath.mpf(best_alpha(Rho(rho), delta)))
            assert epsilon_of_zcdp(Rho(rho), delta) >= true


def test_a_delta_below_the_doubles_is_not_called_nothing() -> None:
    assert 0.0 < delta_of_zcdp(Rho("1e-6"), Epsilon(10)) < 1e-300


def test_no_loss_needs_no_failure() -> None:
    assert delta_of_zcdp(Rho(0), Epsilon("0.1")) == 0.0
    assert epsilon_of_zcdp(Rho(0), Delta("1e-6")) == 0.0


def test_a_hopeless_conversion_promises_nothing() -> None:
    assert delta_of_zcdp(Rho(10**6), Epsilon("0.1")) == 1.0


def test_all_conversions_are_monotone() -> None:
    grid = [10.0**power for power in range(-7, 3)]
    deltas = [10.0**-power for power in range(1, 13)]
    for one, two in pairwise(grid):
        assert epsilon_of_zcdp(Rho(one), Delta("1e-6")) < epsilon_of_zcdp(Rho(two), Delta("1e-6"))
        assert delta_of_zcdp(Rho(one), Epsilon("0.1")) <= delta_of_zcdp(Rho(two), Epsilon("0.1"))
        assert delta_of_zcdp(Rho("0.1"), Epsilon(one)) >= delta_of_zcdp(Rho("0.1"), Epsilon(two))
        assert rho_of_total(total(one, "1e-6")) <= rho_of_total(total(two, "1e-6"))
    for one, two in pairwise(deltas):
        assert epsilon_of_zcdp(Rho("0.1"), Delta(one)) < epsilon_of_zcdp(Rho("0.1"), Delta(two))
        assert rho_of_total(total("0.7", one)) > rho_of_total(total("0.7", two))


def test_the_newer_bound_is_never_worse_than_the_older() -> None:
    for rho, epsilon, delta in random_triples(40):
        assert epsilon_of_zcdp(Rho(rho), Delta(delta)) <= bs16_epsilon(Rho(rho), Delta(delta)) * (1 + 1e-9)
        older = bs16_rho(Epsilon(epsilon), Delta(delta))
        if older > 1e-9:
            assert bs16_epsilon(Rho(older), Delta(delta)) == pytest.approx(epsilon, rel=1e-5)
            assert float(rho_of_total(total(epsilon, delta))) >= min(older, 1.0) * (1 - 1e-6) - 1e-12


def test_there_and_back_is_within_the_total() -> None:
    for epsilon, delta, _ in RHO_ENTRIES:
        back = epsilon_of_zcdp(rho_of_total(total(epsilon, delta)), Delta(delta))
        assert float(epsilon) * (1 - 1e-6) <= back <= float(epsilon) * (1 + 1e-9)


@pytest.mark.parametrize(("rho", "alpha"), [("0.02435597", 21.9845), ("0.5", 5.9070)])
def test_the_best_order(rho: str, alpha: float) -> None:
    assert best_alpha(Rho(rho), Delta("1e-6")) == pytest.approx(alpha, abs=1e-4)


@pytest.mark.parametrize("sigma", [0.7, 1.0, 5.0, 20.0])
def test_the_conversion_of_opendp_agrees(sigma: float) -> None:
    gaussian = dp.m.make_gaussian(dp.atom_domain(T=int), dp.absolute_distance(T=float), scale=sigma)
    curve = dp.c.make_zCDP_to_approxDP(gaussian).map(1.0)
    rho = Rho(1 / (2 * Fraction(sigma) ** 2))
    for delta in (1e-5, 1e-6, 1e-9):
        assert epsilon_of_zcdp(rho, Delta(delta)) == pytest.approx(curve.epsilon(delta), rel=1e-6)
    for epsilon in (0.5, 1.0, 4.0):
        assert delta_of_zcdp(rho, Epsilon(epsilon)) == pytest.approx(curve.delta(epsilon), rel=1e-5)


@pytest.mark.parametrize("delta", ["0", "1", "1.5"])
def test_a_delta_outside_the_open_interval_is_refused(delta: str) -> None:
    with pytest.raises(UsageError, match=r"\[delta-range\]"):
        epsilon_of_zcdp(Rho(1), Delta(delta))
    with pytest.raises(UsageError, match=r"\[delta-range\]"):
        rho_of_total(total("1", delta))
