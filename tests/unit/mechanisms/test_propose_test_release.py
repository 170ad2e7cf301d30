"""Propose, test, release: the exact guarantee of one test, its sampler against its law, its offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from fractions import Fraction

import pytest
from properties.mechanisms.laws.propose_test_release import Test, law
from support.laws import (
    fits,
    goodness,
    rejects_early,
)

from dpsql.accounting import ZCDP, ApproximateDP
from dpsql.mechanisms import Histogram, OperatingSystemNoise, PTRGaussian, PTRLaplace
from dpsql.quantities import Delta, Epsilon, Rho

NOISE = OperatingSystemNoise()


SAMPLED: dict[str, tuple[Test, tuple[int, ...], int]] = {
    "Gaussian, a gap": (PTRGaussian(Fraction(9), Delta("0.01")), (20, 19, 11), 2),
    "Gaussian, fewer groups than k": (PTRGaussian(Fraction(9), Delta("0.3")), (20, 19), 4),
    "Laplace, a gap": (PTRLaplace(Epsilon("0.4"), Delta("0.05")), (20, 19, 12), 2),
    "Laplace, no group": (PTRLaplace(Epsilon("0.4"), Delta("0.3")), (), 1),
}


def p_value(case: str, *, less: int = 0, draws: int = 6_000) -> float:
    test, counts, k = SAMPLED[case]
    expected = law(test, dict(zip("abcd", counts, strict=False)), k, less=less)
    histogram = Histogram.of_leaders(counts, k)
    sets = Counter[Hashable](test.release(histogram, k, noise=NOISE) for _ in range(draws))
    named = Counter({positions and frozenset("abcd"[at] for at in positions): n for positions, n in sets.items()})
    return goodness(named, expected)


@pytest.mark.parametrize("case", SAMPLED)
def test_releases_follow_the_law(case: str) -> None:
    assert fits(lambda: p_value(case))


@pytest.mark.mutant
@pytest.mark.parametrize("less", [-1, 1])
@pytest.mark.parametrize("case", ["Gaussian, a gap", "Laplace, a gap"])
def test_another_offset_is_noticed(case: str, less: int) -> None:
    assert rejects_early(lambda draws: p_value(case, less=less, draws=draws), 6_000)


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
