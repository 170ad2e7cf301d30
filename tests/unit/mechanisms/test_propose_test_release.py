"""Propose, test, release: the exact guarantee of one test, its sampler against its law, its offsets."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Iterator
from fractions import Fraction

import pytest
from support.laws import (
    ROUNDING,
    Counts,
    cks,
    discrete_gaussian_law,
    discrete_laplace_law,
    fits,
    goodness,
    hockey_stick,
    one_unit_more,
    rejects,
)

from dpsql.accounting import ZCDP, ApproximateDP
from dpsql.errors import UsageError
from dpsql.mechanisms import Histogram, OperatingSystemNoise, PTRGaussian, PTRLaplace
from dpsql.quantities import Delta, Epsilon, Rho

UNIVERSE = "abcd"
NOISE = OperatingSystemNoise()
Test = PTRGaussian | PTRLaplace


def noise_of(test: Test) -> dict[int, float]:
    return discrete_gaussian_law(test.variance) if isinstance(test, PTRGaussian) else discrete_laplace_law(test.scale)


def law(test: Test, counts: Counts, k: int, *, unstable: int = 1, less: int = 0) -> dict[Hashable, float]:
    """Return the law of the set of labels, None where the gap does not hold."""
    labels = sorted(counts, key=lambda label: (-counts[label], label))
    ranked = [*(counts[label] for label in labels), *[0] * (k + 1)]
    needed = test.offset - less + unstable - (ranked[k - 1] - ranked[k])
    held = math.fsum(mass for draw, mass in noise_of(test).items() if draw >= needed)
    return {frozenset(labels[:k]): held, None: 1.0 - held}


def cases(test: type[Test]) -> Iterator[tuple[Test, Counts, int]]:
    draw = random.Random(4)
    for _ in range(250):
        delta = Delta(draw.choice(["1e-6", "0.001", "0.0119", "0.119", "0.3", "0.7"]))
        made = (
            PTRGaussian(Fraction(draw.choice(["0.25", "1", "20"])), delta)
            if test is PTRGaussian
            else PTRLaplace(Epsilon(draw.choice(["0.3", "1", "2", "4"])), delta)
        )
        highest = draw.choice([1, 2, 3, 12])
        counts = {label: draw.randint(1, highest) for label in draw.sample(UNIVERSE, draw.randint(0, 4))}
        yield made, counts, draw.randint(1, 4)


def worst_excess(kind: type[Test], *, unstable: int = 1, less: int = 0) -> float:
    worst = 0.0
    for test, counts, k in cases(kind):
        delta, rho = float(test.delta), test.loss.rho.value
        here = law(test, counts, k, unstable=unstable, less=less)
        for more in one_unit_more(counts, UNIVERSE, None):
            there = law(test, more, k, unstable=unstable, less=less)
            for p, q in ((here, there), (there, here)):
                parts = [hockey_stick(p, q, level) / (delta + cks(rho, level)) for level in (0.1, 0.5, 1.0, 3.0)]
                if isinstance(test, PTRLaplace):
                    parts.append(hockey_stick(p, q, float(test.epsilon)) / delta)
                worst = max(worst, *parts)
    return worst


@pytest.mark.parametrize("kind", [PTRGaussian, PTRLaplace])
def test_no_neighbour_exceeds_the_claim(kind: type[Test]) -> None:
    assert 0.9 < worst_excess(kind) <= 1.0 + ROUNDING


@pytest.mark.mutant
@pytest.mark.parametrize("kind", [PTRGaussian, PTRLaplace])
def test_a_threshold_that_takes_a_gap_of_one_for_stable_is_caught(kind: type[Test]) -> None:
    assert worst_excess(kind, unstable=0) > 1.3


@pytest.mark.mutant
@pytest.mark.parametrize("kind", [PTRGaussian, PTRLaplace])
def test_an_offset_less_by_one_is_caught(kind: type[Test]) -> None:
    assert worst_excess(kind, less=1) > 1.3


SAMPLED: dict[str, tuple[Test, tuple[int, ...], int]] = {
    "Gaussian, a gap": (PTRGaussian(Fraction(9), Delta("0.01")), (20, 19, 11), 2),
    "Gaussian, fewer groups than k": (PTRGaussian(Fraction(9), Delta("0.3")), (20, 19), 4),
    "Laplace, a gap": (PTRLaplace(Epsilon("0.4"), Delta("0.05")), (20, 19, 12), 2),
    "Laplace, no group": (PTRLaplace(Epsilon("0.4"), Delta("0.3")), (), 1),
}


def p_value(case: str, *, less: int = 0) -> float:
    test, counts, k = SAMPLED[case]
    expected = law(test, dict(zip("abcd", counts, strict=False)), k, less=less)
    histogram = Histogram.of_leaders(counts, k)
    sets = Counter[Hashable](test.release(histogram, k, noise=NOISE) for _ in range(6_000))
    named = Counter({positions and frozenset("abcd"[at] for at in positions): n for positions, n in sets.items()})
    return goodness(named, expected)


@pytest.mark.parametrize("case", SAMPLED)
def test_releases_follow_the_law(case: str) -> None:
    assert fits(lambda: p_value(case))


@pytest.mark.mutant
@pytest.mark.parametrize("less", [-1, 1])
@pytest.mark.parametrize("case", ["Gaussian, a gap", "Laplace, a gap"])
def test_another_offset_is_noticed(case: str, less: int) -> None:
    assert rejects(lambda: p_value(case, less=less))


@pytest.mark.parametrize(("variance", "delta", "offset"), [(50, "1e-7", 38), (10, "1e-6", 16), (25, "1e-7", 27)])
def test_offsets_of_the_gaussian(variance: int, delta: str, offset: int) -> None:
    assert PTRGaussian(Fraction(variance), Delta(delta)).offset == offset


@pytest.mark.parametrize(("epsilon", "delta", "offset"), [(1, "1e-6", 14), ("0.1", "1e-6", 132), (1, "0.5", 1)])
def test_offsets_of_the_laplace(epsilon: str, delta: str, offset: int) -> None:
    assert PTRLaplace(Epsilon(epsilon), Delta(delta)).offset == offset


def test_losses() -> None:
    assert PTRGaussian(Fraction(25), Delta("1e-6")).loss == ZCDP(Rho("0.02"), Delta("1e-6"))
    assert PTRLaplace(Epsilon("0.2"), Delta("1e-6")).loss == ZCDP(Rho("0.02"), Delta("1e-6"))
    assert PTRLaplace(Epsilon("0.2"), Delta("1e-6")).guarantee == ApproximateDP(Epsilon("0.2"), Delta("1e-6"))


@pytest.mark.parametrize("variance", [0, -1, 10**9 + 1])
def test_a_variance_outside_its_range_is_refused(variance: int) -> None:
    with pytest.raises(UsageError, match=r"\[variance-range\]"):
        PTRGaussian(Fraction(variance), Delta("0.1"))


@pytest.mark.parametrize("delta", [0, 1])
def test_a_delta_that_means_nothing_is_refused(delta: int) -> None:
    with pytest.raises(UsageError, match=r"\[delta-range\]"):
        PTRGaussian(Fraction(1), Delta(delta))
    with pytest.raises(UsageError, match=r"\[delta-range\]"):
        PTRLaplace(Epsilon(1), Delta(delta))


def test_an_epsilon_too_small_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\[epsilon-range\]"):
        PTRLaplace(Epsilon("9e-10"), Delta("0.1"))


def test_a_k_that_cannot_be_tested_is_refused() -> None:
    test = PTRLaplace(Epsilon(1), Delta("0.1"))
    with pytest.raises(UsageError, match=r"\[k-range\]"):
        test.release(Histogram((2, 1), 0), 0, noise=NOISE)
    with pytest.raises(UsageError, match=r"\[histogram-cut\]"):
        test.release(Histogram((2, 1), 1), 3, noise=NOISE)
