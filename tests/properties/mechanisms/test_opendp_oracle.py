"""OpenDP as an independent oracle: its samplers have our laws, its maps our losses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import opendp.prelude as dp
import pytest
from support.laws import BOTTOM, agree, fits, outcome, rejects

from dpsql.mechanisms import Histogram, LimitedDomain, NoisyCounts, OperatingSystemNoise
from dpsql.quantities import Delta, Epsilon

dp.enable_features("contrib")
NOISE = OperatingSystemNoise()
DRAWS = 15_000


def noisy_top_k(steps: int, epsilon: float) -> dp.Measurement:
    return dp.m.make_noisy_top_k(
        dp.vector_domain(dp.atom_domain(T=float, nan=False)),
        dp.linf_distance(T=float, monotonic=True),
        dp.zero_concentrated_divergence(),
        k=steps,
        scale=1 / epsilon,
    )


def gaussian(sigma: float) -> dp.Measurement:
    return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float), scale=sigma)


def cut(order: list[int], bottom: int) -> tuple[Hashable, ...]:
    return (*order[: order.index(bottom)], BOTTOM) if bottom in order else tuple(order)


@pytest.mark.parametrize(
    ("counts", "epsilon", "k"),
    [((30, 28, 27, 20, 19), "0.3", 3), ((9, 9, 9, 9), "0.5", 2), ((5, 4), "0.7", 2), ((60, 20, 10, 5, 3), "0.1", 4)],
)
def test_selections_have_the_law_of_noisy_top_k(counts: tuple[int, ...], epsilon: str, k: int) -> None:
    mechanism = LimitedDomain(Epsilon(epsilon), Delta("0.05"), k, max(k, len(counts) - 1), None)
    histogram = Histogram.of_leaders(counts, mechanism.k_bar)
    scores = [*map(float, histogram.leaders), float(histogram.following + mechanism.threshold_offset)]
    measurement = noisy_top_k(k, float(epsilon))
    bottom = len(histogram.leaders)

    def p_value() -> float:
        ours = Counter(outcome(mechanism.select(histogram, NOISE)) for _ in range(DRAWS))
        return agree(ours, Counter(cut(measurement(scores), bottom) for _ in range(DRAWS)))

    assert fits(p_value)
    assert measurement.map(1.0) == pytest.approx(float(mechanism.worst_case.rho), rel=1e-9)


@pytest.mark.parametrize("epsilon", ["2", "0.4", "0.7", "0.05"])
def test_count_noise_has_the_law_of_the_gaussian_on_integers(epsilon: str) -> None:
    counts = NoisyCounts(Epsilon(epsilon))
    measurement = gaussian(2 / float(epsilon))

    def p_value() -> float:
        ours = Counter[Hashable](counts.release([0] * DRAWS, NOISE))
        return agree(ours, Counter(measurement([0] * DRAWS)))

    assert fits(p_value)
    assert measurement.map(1.0) == pytest.approx(float(counts.loss(1)), rel=1e-9)


@pytest.mark.mutant
@pytest.mark.parametrize("scale", [0.7, 1.3])
def test_an_oracle_of_another_scale_is_noticed(scale: float) -> None:
    counts, measurement = NoisyCounts(Epsilon("0.4")), gaussian(5 * scale)
    assert rejects(lambda: agree(Counter(counts.release([0] * DRAWS, NOISE)), Counter(measurement([0] * DRAWS))))
