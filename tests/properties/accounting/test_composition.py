"""What the published theorems make of the same items: the whole table, vectors, and laws of composition."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import mpmath
import pytest
from support.benchmarks_kit import read_benchmark

from dpsql.accounting import BoundedRange, adaptive_epsilon, epsilon_of_zcdp
from dpsql.accounting.certificates import durfee_rogers
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

FIXED, OLDER = read_benchmark("fixed_compositions"), read_benchmark("older_bounds")
GeneralizedResponse, fixed_delta, fixed_epsilon = FIXED.GeneralizedResponse, FIXED.fixed_delta, FIXED.fixed_epsilon
pure_delta, pure_epsilon = FIXED.pure_delta, FIXED.pure_epsilon
bs16_epsilon, dong_durfee_rogers = OLDER.bs16_epsilon, OLDER.dong_durfee_rogers
kappa, lemma_4_4 = OLDER.kappa, OLDER.lemma_4_4
DELTA = Delta("1e-6")
TABLE = [row.split() for row in Path(__file__).with_name("composition.txt").read_text().splitlines()]
HALF = 5.1e-6  # of the last digit of the table


def test_the_table_is_whole() -> None:
    steps, counts = ("0.01", "0.05", "0.1", "0.5", "1.0"), ("10", "50", "100", "500", "1000")
    assert [tuple(row[:2]) for row in TABLE] == list(itertools.product(steps, counts))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: " ".join(row[:2]))
def test_table_of_compositions(row: list[str]) -> None:
    epsilon, k, entries = Epsilon(row[0]), int(row[1]), list(map(float, row[2:]))
    terms, rho = durfee_rogers(k, epsilon, delta=DELTA), BoundedRange(epsilon).rho * k
    ours = [terms.basic, terms.pure, terms.bounded_range, terms.best]
    ours += [bs16_epsilon(rho, DELTA), epsilon_of_zcdp(rho, DELTA)]
    assert ours == pytest.approx(entries[:6], abs=HALF)
    adaptive, fixed, general = entries[6:]
    assert fixed_delta(k, epsilon, total=fixed - HALF) > 1e-6 > fixed_delta(k, epsilon, total=fixed + HALF)
    assert pure_delta(k, epsilon, total=general - HALF) > 1e-6 > pure_delta(k, epsilon, total=general + HALF)
    certified = adaptive_epsilon(k, epsilon, delta=DELTA)
    assert max(fixed - HALF, adaptive * 0.999) <= certified <= adaptive * 1.0025
    assert certified < ours[5]
    assert dong_durfee_rogers(k, epsilon, delta=DELTA) <= terms.bounded_range


def test_composition_vector() -> None:
    bounds = durfee_rogers(100, Epsilon("0.1"), delta=DELTA)
    assert bounds.basic == pytest.approx(10, rel=1e-13)
    assert bounds.pure == pytest.approx(5.756105519335732, rel=1e-13)
    assert bounds.bounded_range == pytest.approx(3.128260884878466, rel=1e-13)
    assert bounds.best == bounds.bounded_range


@pytest.mark.parametrize("epsilon", ["0.003", "0.1", "2", "30"])
def test_the_terms_are_rounded_up(epsilon: str) -> None:
    for k, delta in ((1, "0.9"), (7, "1e-6"), (10**6, "1e-250")):
        bounds = durfee_rogers(k, Epsilon(epsilon), delta=Delta(delta))
        with mpmath.workdps(50):
            step, level = mpmath.mpf(epsilon), -mpmath.log(mpmath.mpf(delta))
            true = [k * step, k * step * mpmath.tanh(step / 2) + step * mpmath.sqrt(2 * k * level)]
            true.append(k * step**2 / 2 + step * mpmath.sqrt(k * level / 2))
            for ours, exact in zip((bounds.basic, bounds.pure, bounds.bounded_range), true, strict=True):
                assert exact <= ours <= exact * (1 + mpmath.mpf("1e-13"))


def test_the_lemma_of_different_epsilons_is_the_theorem_of_equal_ones() -> None:
    equal = lemma_4_4([Epsilon("0.1")] * 40, delta=DELTA)
    theorem = durfee_rogers(40, Epsilon("0.1"), delta=DELTA)
    assert (equal.basic, equal.pure, equal.bounded_range) == pytest.approx(
        (theorem.basic, theorem.pure, theorem.bounded_range), rel=1e-13
    )


def test_the_lemma_of_different_epsilons_by_hand() -> None:
    bounds = lemma_4_4([Epsilon("0.1"), Epsilon("0.3"), Epsilon(1)], delta=Delta("1e-3"))
    level = math.log(1000)
    assert bounds.basic == pytest.approx(1.4, rel=1e-13)
    drift = 0.1 * math.tanh(0.05) + 0.3 * math.tanh(0.15) + math.tanh(0.5)
    assert bounds.pure == pytest.approx(drift + math.sqrt(2 * 1.1 * level), rel=1e-13)
    assert bounds.bounded_range == pytest.approx(0.55 + math.sqrt(1.1 * level / 2), rel=1e-13)


@pytest.mark.parametrize(("k", "delta"), [(0, "0.1"), (1, "0"), (1, "1")])
def test_a_composition_of_nothing_is_refused(k: int, delta: str) -> None:
    with pytest.raises(UsageError, match=r"\[composition-range\]"):
        durfee_rogers(k, Epsilon(1), delta=Delta(delta))
    with pytest.raises(UsageError, match=r"\[composition-range\]"):
        lemma_4_4([Epsilon(1)] * k, delta=Delta(delta))
    with pytest.raises(UsageError, match=r"\[composition-range\]"):
        dong_durfee_rogers(k, Epsilon(1), delta=Delta(delta))
    with pytest.raises(UsageError, match=r"\[composition-range\]"):
        fixed_epsilon(k, Epsilon(1), delta=Delta(delta))


def test_a_generalised_response_vector() -> None:
    response = GeneralizedResponse(0.05, 0.1)
    assert (response.p, response.q) == pytest.approx((0.5124973965, 0.4875026035), abs=5e-11)


@pytest.mark.parametrize("t", [0.0, 0.2, 0.7, 1.0])
def test_a_generalised_response_has_its_two_ratios(t: float) -> None:
    response = GeneralizedResponse(t, 1.0)
    assert response.p == pytest.approx(response.q * math.exp(t))
    assert 1.0 - response.p == pytest.approx((1.0 - response.q) * math.exp(t - 1.0))


def test_no_response_diverges_more_than_kappa_and_the_worst_one_does() -> None:
    worst = 0.0
    for step in range(1, 2000):
        response = GeneralizedResponse(step / 2000, 1.0)
        worst = max(worst, response.p * response.t + (1.0 - response.p) * (response.t - 1.0))
    assert kappa(Epsilon(1)) * (1 - 1e-6) < worst <= kappa(Epsilon(1))


@pytest.mark.parametrize(("t", "width"), [(-0.1, 1.0), (1.1, 1.0), (0.0, 0.0)])
def test_no_response_beyond_its_width(t: float, width: float) -> None:
    with pytest.raises(UsageError, match=r"\[composition-range\]"):
        GeneralizedResponse(t, width)


@pytest.mark.parametrize(
    ("k", "epsilon", "total", "delta"),
    [(10, "0.1", 0.5, 3.997813e-5), (100, "0.1", 2.0, 9.084231e-6), (5, "1", 3.0, 5.140803e-3)],
)
def test_vectors_of_the_fixed_optimum(k: int, epsilon: str, total: float, delta: float) -> None:
    assert fixed_delta(k, Epsilon(epsilon), total=total) == pytest.approx(delta, rel=1e-6)


def test_vector_of_the_general_optimum() -> None:
    assert pure_delta(10, Epsilon("0.1"), total=0.5) == pytest.approx(9.929627e-3, rel=1e-6)


def true_stick(k: int, t: mpmath.mpf, width: mpmath.mpf, total: mpmath.mpf) -> mpmath.mpf:
    """Return the hockey stick of k generalised responses, in the working precision."""
    p = mpmath.expm1(t - width) / mpmath.expm1(-width)
    terms = (
        mpmath.binomial(k, i) * p ** (k - i) * (1 - p) ** i * max(0, -mpmath.expm1(total - (k * t - i * width)))
        for i in range(k + 1)
    )
    return mpmath.fsum(terms)


@pytest.mark.parametrize(("k", "epsilon"), [(1, "0.5"), (4, "1"), (30, "0.1"), (60, "8")])
def test_the_optima_are_rounded_up_and_hardly(k: int, epsilon: str) -> None:
    step = mpmath.mpf(epsilon)
    for share in (0.0, 0.1, 0.4, 0.8, 0.999):
        total = share * k * float(step)
        with mpmath.workdps(50):
            general = true_stick(k, step, 2 * step, mpmath.mpf(total))
            shifts = [(total + (place + 1) * step) / (k + 1) for place in range(k + 1)]
            fixed = max(true_stick(k, t, step, mpmath.mpf(total)) for t in shifts if t <= step)
            assert general <= pure_delta(k, Epsilon(epsilon), total=total) <= general * (1 + 1e-7) + 1e-300
            assert fixed <= fixed_delta(k, Epsilon(epsilon), total=total) <= fixed * (1 + 1e-7) + 1e-300


def test_the_fixed_optimum_is_no_smaller_than_any_response_on_a_grid() -> None:
    for k, step, total in ((3, 0.7, 0.4), (12, 0.3, 1.1), (30, 0.1, 0.9)):
        on_grid = max(
            float(true_stick(k, mpmath.mpf(step * n / 60), mpmath.mpf(step), mpmath.mpf(total))) for n in range(61)
        )
        assert on_grid <= fixed_delta(k, Epsilon(step), total=total) <= 1.1 * on_grid


def test_inverses_meet_their_delta_and_hardly_exceed() -> None:
    for inverse, curve in ((pure_epsilon, pure_delta), (fixed_epsilon, fixed_delta)):
        for k, epsilon, delta in ((1, "0.3", "0.01"), (20, "0.2", "1e-6"), (90, "1", "1e-9"), (5, "0.1", "0.9")):
            total = inverse(k, Epsilon(epsilon), delta=Delta(delta))
            assert curve(k, Epsilon(epsilon), total=total) <= float(delta)
            assert total == 0.0 or curve(k, Epsilon(epsilon), total=total * (1 - 1e-8)) > float(delta) * (1 - 1e-6)


def test_a_smaller_delta_and_more_items_cost_more() -> None:
    for total in (pure_epsilon, fixed_epsilon, adaptive_epsilon):
        costs = [total(k, Epsilon("0.2"), delta=DELTA) for k in (1, 2, 8, 30)]
        assert costs == sorted(costs)
        costs = [total(20, Epsilon("0.2"), delta=Delta(delta)) for delta in ("1e-2", "1e-5", "1e-9")]
        assert costs == sorted(costs)
