"""The table of refusals: each mechanism refuses parameters that mean nothing, and histograms that do not fit it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import UsageError
from dpsql.mechanisms import (
    ChooseKBar,
    DomainDiscovery,
    FixedStableTopK,
    FullHistogram,
    GapChoice,
    GaussianGapChoice,
    GaussianHistogram,
    GaussianStableTopK,
    Histogram,
    JointExponential,
    LaplaceCounts,
    LaplaceLimitedDomain,
    LimitedDomain,
    NoisyCounts,
    NoisyMaxGaussian,
    NoisyMaxGumbel,
    OneShotLaplace,
    OperatingSystemNoise,
    Peeling,
    PermuteAndFlip,
    PTRGaussian,
    PTRLaplace,
    StableTopK,
    TopStable,
    WeightedGaussian,
)
from dpsql.quantities import Delta, Epsilon, Rho

NOISE = OperatingSystemNoise()
E, D, ONE = Epsilon(1), Delta("0.1"), Fraction(1)
TINY, NONE, ALL = (
    Epsilon("9e-10"),
    Delta(0),
    Delta(1),
)  # an epsilon too small, deltas that are no probability of failure
OF_ALL = (GaussianHistogram, WeightedGaussian)  # which add noise to all counts
TWO = FullHistogram.of([1, 2])
LONG = Histogram((2, 1), 0)  # more leaders than one
CUT = Histogram((5, 4), 3)  # with a group left out

REFUSED: dict[str, list[Callable[[], object]]] = {
    "epsilon-range": [
        lambda: ChooseKBar(TINY, D, (1,)),
        lambda: GapChoice(TINY, 1),
        lambda: JointExponential(Epsilon("1e-10"), 1),
        lambda: LaplaceLimitedDomain(TINY, D, 1, 1, 1),
        lambda: LimitedDomain(Epsilon("1e-10"), D, 1, 3),
        lambda: NoisyMaxGumbel(TINY),
        lambda: OneShotLaplace(TINY),
        lambda: PTRLaplace(TINY, D),
        lambda: Peeling(Epsilon("1e-10"), 1),
        lambda: PermuteAndFlip(TINY),
        lambda: StableTopK(Epsilon("0.00009"), D, 1),
        lambda: TopStable(TINY, D, 1, 1),
        lambda: TopStable(E, D, 1, 1, within=TINY),
        lambda: DomainDiscovery(Rho(1), D, 3, TINY, 1),
        *(lambda make=make: make(Epsilon("1e-6"), 1, 2**20) for make in (Peeling, JointExponential)),
    ],
    "sensitivity-range": [
        lambda make=make, most=most: make(most)  # type: ignore[misc]
        for most in (0, -3)
        for make in (
            lambda most: ChooseKBar(E, D, (1,), sensitivity=most),
            lambda most: DomainDiscovery(Rho(1), D, 1, E, 1, most),
            lambda most: FixedStableTopK(Rho(1), D, 1, 1, Fraction(0), None, most),
            lambda most: GapChoice(E, 2, sensitivity=most),
            lambda most: GaussianHistogram(Rho(1), D, 1, 1, most),
            lambda most: JointExponential(E, 1, most),
            lambda most: LaplaceCounts(E, 1, None, most),
            lambda most: LaplaceLimitedDomain(E, D, 1, 1, 1, most),
            lambda most: LimitedDomain(E, D, 1, 1, 1, sensitivity=most),
            lambda most: NoisyCounts(E, None, most),
            lambda most: PTRGaussian(ONE, D, most),
            lambda most: Peeling(E, 1, most),
            lambda most: TopStable(E, D, 1, 1, sensitivity=most),
        )
    ],
    "min-units-range": [
        *(lambda least=least: LimitedDomain(E, D, 1, 1, min_units=least) for least in (0, -3, 2**53)),
        lambda: LimitedDomain(E, D, 1, 1, min_units=5, sensitivity=2),
    ],
    "histogram-counts": [
        lambda counts=counts: FullHistogram(counts)
        for counts in (
            *(np.array(each, dtype=np.int64) for each in ([0], [-1, 3], [2**53], [[1]])),
            np.array([1.0]),
            np.array([1], dtype=np.int32),
        )
    ],
    "rho-range": [
        lambda: FixedStableTopK(Rho("9e-9"), D, 1, 1, Fraction(0)),
        lambda: GaussianHistogram(Rho("1e-9"), D, 1, 2**16, 2**20),
        *(lambda make=make, rho=rho: make(Rho(rho), D, 1, 1) for make in OF_ALL for rho in ("0", "1e-10", "101")),
        lambda: DomainDiscovery(Rho(0), D, 3, E, 1),
    ],
    "delta-range": [
        *(lambda make=make, delta=delta: make(Rho(1), delta, 1, 1) for make in OF_ALL for delta in (NONE, ALL)),
        lambda: ChooseKBar(E, ALL, (1,)),
        lambda: FixedStableTopK(Rho(1), NONE, 1, 1, Fraction(0)),
        *(lambda delta=delta: LaplaceLimitedDomain(E, delta, 1, 1, 1) for delta in (NONE, ALL)),
        *(lambda delta=delta: LimitedDomain(E, delta, 1, 3) for delta in (NONE, ALL)),
        *(lambda delta=delta: PTRGaussian(ONE, delta) for delta in (NONE, ALL)),
        *(lambda delta=delta: PTRLaplace(E, delta) for delta in (NONE, ALL)),
        *(lambda delta=delta: StableTopK(E, delta, 1) for delta in (NONE, ALL)),
        *(lambda delta=delta: TopStable(E, delta, 1, 1) for delta in (NONE, ALL)),
    ],
    "k-range": [
        *(lambda make=make: make(Rho(1), D, 0, 1) for make in OF_ALL),
        lambda: DomainDiscovery(Rho("0.5"), D, 3, E, 0),
        lambda: ChooseKBar(E, D, (0, 1)),
        *(lambda k=k: FixedStableTopK(Rho(1), D, k, k_bar=max(1, k - 1), penalty=Fraction(0)) for k in (0, 3)),
        lambda: GapChoice(E, 0),
        lambda: GaussianGapChoice(ONE, 0),
        lambda: JointExponential(E, 0),
        *(lambda k=k: LaplaceLimitedDomain(E, D, k, max(1, k - 1), 1) for k in (0, 3)),
        *(lambda k=k: LimitedDomain(E, D, k, 3) for k in (0, 4)),
        lambda: OneShotLaplace(E, 0),
        lambda: PTRLaplace(E, D).release(LONG, 0, noise=NOISE),
        lambda: Peeling(E, 0),
        lambda: StableTopK(E, D, 0),
        *(lambda k=k: TopStable(E, D, k, max(1, k - 1)) for k in (0, 3)),
    ],
    "bound-range": [
        *(lambda make=make, most=most: make(Rho(1), D, 1, most) for make in OF_ALL for most in (0, 2**16 + 1)),
        lambda: ChooseKBar(E, D, (1,), 0),
        lambda: FixedStableTopK(Rho(1), D, 1, 1, Fraction(0), 0),
        lambda: LaplaceLimitedDomain(E, D, 1, 1, 0),
        lambda: LimitedDomain(E, D, 1, 3, 0),
    ],
    "variance-range": [
        lambda: GaussianGapChoice(Fraction(0), 3),
        lambda: GaussianStableTopK(ONE, Fraction(0), D, 3),
        lambda: NoisyMaxGaussian(Fraction(0)),
        *(lambda variance=variance: PTRGaussian(Fraction(variance), D) for variance in (0, -1, 10**9 + 1)),
    ],
    "candidates": [*(lambda given=given: ChooseKBar(E, D, given) for given in [(), (2, 2), (3, 1)])],
    "penalty-range": [
        lambda: FixedStableTopK(Rho(1), D, 1, 1, Fraction(-1)),
        lambda: FixedStableTopK(Rho(1), D, 1, 2, Fraction(10**16)),
    ],
    "regulariser": [
        *(lambda given=given: GapChoice(E, 2, given) for given in [(1,), (1, 2, 3), (0.5, 1), (True, 1), (2**53, 0)]),
        lambda: GaussianGapChoice(ONE, 2, (1,)),
    ],
    "share-range": [
        *(lambda share=share: TopStable(E, D, 1, 1, share) for share in (Fraction(0), ONE, Fraction(3, 2)))
    ],
    "items-range": [lambda: NoisyMaxGaussian(ONE).curve(0)],
    "histogram-size": [
        lambda: DomainDiscovery(Rho(1), D, 3, E, 1).select(
            FullHistogram.of([1, 2]), FullHistogram.of([1]), noise=NOISE
        ),
        lambda: ChooseKBar(E, D, (1,)).choose(LONG, NOISE),
        lambda: GapChoice(E, 1).choose(LONG, NOISE),
        lambda: GaussianGapChoice(ONE, 1).choose(LONG, NOISE),
        lambda: LaplaceLimitedDomain(E, D, 1, 1, 1).select(LONG, NOISE),
        lambda: LimitedDomain(E, D, 1, 1).select(LONG, NOISE),
        lambda: StableTopK(E, D, 1).select(LONG, NOISE),
        lambda: TopStable(E, D, 1, 1).select(LONG, NOISE),
    ],
    "histogram-cut": [
        lambda: GapChoice(E, 3).choose(Histogram((2, 1), 1), NOISE),
        lambda: JointExponential(E, 1).select(CUT, NOISE),
        lambda: PTRLaplace(E, D).release(Histogram((2, 1), 1), 3, noise=NOISE),
        lambda: Peeling(E, 1).select(CUT, NOISE),
    ],
}


@pytest.mark.parametrize(("code", "act"), [(code, act) for code, acts in REFUSED.items() for act in acts])
def test_what_means_nothing_is_refused(code: str, act: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match=rf"\[{code}\]"):
        act()
