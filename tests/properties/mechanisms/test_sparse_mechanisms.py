"""The mechanisms over all counts: their constants, their samplers against their laws, their edges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from fractions import Fraction
from itertools import product

import opendp.prelude as dp
import pytest
from scipy import stats
from support.laws import SeededNoise, discrete_gaussian_law, fits, goodness, peeling_law, rejects

from dpsql.accounting import ZCDP, discrete_gaussian_tail
from dpsql.mechanisms import (
    WEIGHT_STEPS,
    Discovery,
    DomainDiscovery,
    FullHistogram,
    GaussianHistogram,
    NoisyRelease,
    OperatingSystemNoise,
    WeightedGaussian,
    unit_weight,
)
from dpsql.quantities import Delta, Epsilon, Rho

dp.enable_features("contrib")
NOISE = OperatingSystemNoise()
GIANT = 2**53 - 1


def histogram(rho: str, delta: str, k: int, bound: int) -> GaussianHistogram:
    return GaussianHistogram(Rho(rho), Delta(delta), k, bound)


def weighted(rho: str, delta: str, k: int, bound: int) -> WeightedGaussian:
    return WeightedGaussian(Rho(rho), Delta(delta), k, bound)


def discovery(k: int, epsilon: str = "1", rho: str = "0.5", delta: str = "0.2") -> DomainDiscovery:
    return DomainDiscovery(Rho(rho), Delta(delta), 3, Epsilon(epsilon), k)


@pytest.mark.parametrize(("bound", "threshold", "continuous"), [(1, 28, 26.9967), (5, 63, 62.3896), (20, 130, 129.143)])
def test_the_thresholds_of_the_histogram(bound: int, threshold: int, continuous: float) -> None:
    mechanism = histogram("0.02", "1e-7", 1, bound)
    share = -math.expm1(math.log1p(-1e-7) / bound)
    assert mechanism.variance == 25 * bound
    assert mechanism.threshold == threshold
    assert 1 + math.sqrt(mechanism.variance) * stats.norm.isf(share) == pytest.approx(continuous, abs=1e-3)
    assert discrete_gaussian_tail(mechanism.variance, threshold - 1) <= share
    assert discrete_gaussian_tail(mechanism.variance, threshold - 2) > share


def test_the_continuous_threshold_of_27_would_miss_delta() -> None:
    assert discrete_gaussian_tail(Fraction(25), 27 - 1) == pytest.approx(1.62e-7, rel=0.01)


def test_opendp_releases_a_unit_as_often_as_our_tail_says_and_claims_less() -> None:
    """On integers make_gaussian_threshold 0.16 claims the continuous tail, 2.6 times too little here."""
    space = (
        dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="i64")),
        dp.l02inf_distance(dp.absolute_distance(T="i64")),
    )
    theirs = dp.m.make_gaussian_threshold(*space, scale=1.0, threshold=3)
    tail = discrete_gaussian_tail(Fraction(1), 3 - 1)
    rho, delta = theirs.map((1, 1, 1))
    assert rho == pytest.approx(0.5, rel=1e-9)
    assert tail > 2.5 * delta

    def p_value() -> float:
        seen = Counter[Hashable]("a" in theirs({"a": 1}) for _ in range(10_000))
        return goodness(seen, {True: tail, False: 1 - tail})

    assert fits(p_value)


@pytest.mark.parametrize(("bound", "threshold"), [(1, 37.7649), (20, 40.7460), (100, 42.5109)])
def test_the_thresholds_of_the_weighted_mechanism(bound: int, threshold: float) -> None:
    assert weighted("0.01", "1e-7", 1, bound).threshold / WEIGHT_STEPS == pytest.approx(threshold, abs=1e-4)


@pytest.mark.parametrize(
    ("rho", "delta", "most"), [("0.01", "1e-7", 30), ("3", "0.3", 30), ("50", "1e-3", 30), ("0.5", "0.3", 9)]
)
def test_the_weighted_threshold_is_the_largest_over_all_numbers_of_groups(rho: str, delta: str, most: int) -> None:
    mechanism = weighted(rho, delta, 1, most)
    sigma = math.sqrt(mechanism.variance)
    each = [
        unit_weight(t) + sigma * stats.norm.isf(-math.expm1(math.log1p(-float(delta)) / t)) for t in range(1, most + 1)
    ]
    assert 0 <= mechanism.threshold - max(each) <= 2.0


def test_the_number_of_groups_that_sets_the_threshold_moves() -> None:
    largest = set()
    for rho in ("0.01", "2", "3", "50"):
        scale = 1 / math.sqrt(2 * float(rho))
        each = {t: 1 / math.sqrt(t) + scale * stats.norm.isf(-math.expm1(math.log1p(-0.3) / t)) for t in range(1, 50)}
        largest.add(max(each, key=each.__getitem__))
    assert {1, 49} <= largest


@pytest.mark.parametrize("make", [histogram, weighted])
def test_the_loss_does_not_depend_on_what_is_released(make: type) -> None:
    assert make("0.02", "1e-7", 1000, 5).loss == ZCDP(Rho("0.02"), Delta("1e-7"))


def law_of(mechanism: GaussianHistogram | WeightedGaussian, counts: tuple[int, ...]) -> dict[Hashable, float]:
    """Return the law of a release, from draws for every count."""
    noise, threshold = discrete_gaussian_law(mechanism.variance, 8.0), mechanism.threshold
    own = []
    for at, count in enumerate(counts):
        passed = {(at, count + n): mass for n, mass in noise.items() if count + n >= threshold}
        own.append([*passed.items(), (None, 1.0 - math.fsum(passed.values()))])
    law: dict[Hashable, float] = {}
    for row in product(*own):
        release = NoisyRelease.leading([event for event, _ in row if event is not None], mechanism.k)
        law[release] = law.get(release, 0.0) + math.prod(mass for _, mass in row)
    return law


SAMPLED = {
    "cut to k": (histogram("0.5", "0.1", 2, 1), (5, 4, 5)),
    "k of 1, ties everywhere": (histogram("2", "0.3", 1, 1), (2, 2, 2, 2)),
    "fewer groups than k": (histogram("0.5", "0.2", 9, 2), (3, 1)),
    "no group": (histogram("0.5", "0.2", 3, 2), ()),
}


def sampled(case: str, claimed: GaussianHistogram | None = None, draws: int = 6_000) -> float:
    mechanism, counts = SAMPLED[case]
    seen = Counter[Hashable](mechanism.release(FullHistogram.of(counts), NOISE) for _ in range(draws))
    return goodness(seen, law_of(claimed or mechanism, counts))


@pytest.mark.parametrize("case", SAMPLED)
def test_releases_follow_the_law(case: str) -> None:
    assert fits(lambda: sampled(case))


@pytest.mark.mutant
@pytest.mark.parametrize("scale", ["0.7", "1.3"])
def test_noise_of_another_scale_is_noticed(scale: str) -> None:
    mechanism, _ = SAMPLED["cut to k"]
    rho = mechanism.rho.value / Fraction(scale) ** 2
    assert rejects(lambda: sampled("cut to k", GaussianHistogram(Rho(rho), mechanism.delta, 2, 1)))


def test_the_weighted_release_passes_as_often_as_it_should() -> None:
    mechanism = weighted("0.5", "0.1", 2, 3)
    weights = FullHistogram.of([unit_weight(1), 2 * unit_weight(1), 4 * unit_weight(2) + unit_weight(3)])
    passing = [discrete_gaussian_tail(mechanism.variance, mechanism.threshold - int(each)) for each in weights.counts]
    law = {
        held: math.prod(p if shown else 1 - p for p, shown in zip(passing, held, strict=True))
        for held in product((False, True), repeat=3)
    }

    def p_value() -> float:
        seen: Counter[Hashable] = Counter()
        for _ in range(6_000):
            passed = dict(mechanism.passed(weights, NOISE))
            assert all(value >= mechanism.threshold for value in passed.values())
            seen[tuple(at in passed for at in range(3))] += 1
        return goodness(seen, law)

    assert fits(p_value)


def test_discovery_and_choice_follow_the_law() -> None:
    mechanism, counts = discovery(k=1), (9, 7, 8)
    weights = FullHistogram.of([3 * unit_weight(1), 2 * unit_weight(1), 2 * unit_weight(2)])
    first = mechanism.discovery
    passing = [discrete_gaussian_tail(first.variance, first.threshold - int(each)) for each in weights.counts]
    law: dict[Hashable, float] = {}
    for held in product((False, True), repeat=3):
        domain = tuple(at for at in range(3) if held[at])
        chance = math.prod(p if shown else 1 - p for p, shown in zip(passing, held, strict=True))
        if len(domain) < 2:
            law[Discovery(domain, domain)] = chance
            continue
        for steps, mass in peeling_law([counts[at] for at in domain], None, 1.0, 1).items():
            law[Discovery(domain, tuple(domain[int(at)] for at in steps))] = chance * mass

    def p_value() -> float:
        own = FullHistogram.of(counts)
        return goodness(Counter[Hashable](mechanism.select(weights, own, noise=NOISE) for _ in range(5_000)), law)

    assert fits(p_value)


def test_the_second_stage_is_charged_only_where_more_than_k_were_discovered() -> None:
    mechanism = discovery(k=2, epsilon="0.4", rho="0.01", delta="1e-6")
    assert mechanism.worst_case == ZCDP(Rho(Fraction(1, 100) + 2 * Fraction(2, 100)), Delta("1e-6"))
    for found in (Discovery((), ()), Discovery((4,), (4,)), Discovery((1, 4), (4, 1))):
        assert mechanism.loss(found) == ZCDP(Rho("0.01"), Delta("1e-6"))
    assert mechanism.loss(Discovery((1, 4, 5), (4, 1))) == mechanism.worst_case


def test_at_most_k_discovered_come_in_the_order_of_their_noisy_weights() -> None:
    mechanism = discovery(k=3, delta="1e-9")  # or the light one would be among them, once in sixty times
    weights, counts = FullHistogram.of([GIANT // 4, GIANT, 1, GIANT // 2]), FullHistogram.of([1, 2, 40, 30])
    for seed in range(30):
        found = mechanism.select(weights, counts, noise=SeededNoise(seed))
        assert found == Discovery((0, 1, 3), (1, 3, 0))


def test_discovery_shows_the_order_of_labels_and_never_that_of_counts() -> None:
    mechanism = discovery(k=3)
    weights, counts = FullHistogram.of([GIANT] * 4), FullHistogram.of([1, 30, 2, 20])
    for seed in range(30):
        found = mechanism.select(weights, counts, noise=SeededNoise(seed))
        assert found.domain == (0, 1, 2, 3)
        assert found.positions[:2] in {(1, 3), (3, 1)}
        assert len(found.positions) == 3


@pytest.mark.parametrize("make", [histogram, weighted])
def test_nothing_comes_of_nothing_and_a_giant_comes_first(make: type) -> None:
    mechanism = make("0.02", "1e-7", 2, 5)
    assert mechanism.release(FullHistogram.of([]), NOISE) == NoisyRelease((), ())
    release = mechanism.release(FullHistogram.of([1, 1, GIANT, 1]), NOISE)
    assert release.positions[0] == 2
    assert len(release.positions) == len(release.counts) <= 2


def test_equal_noisy_counts_come_in_the_order_of_their_labels() -> None:
    noisy = [(5, 9), (1, 9), (7, 11), (3, 9), (0, 4)]
    assert NoisyRelease.leading(noisy, 3) == NoisyRelease((7, 1, 3), (11, 9, 9))
    assert NoisyRelease.leading(noisy, 9).positions == (7, 1, 3, 5, 0)


def test_the_extremes_of_rho_and_of_groups_work() -> None:
    for make in (histogram, weighted):
        for rho in ("1e-9", "100"):
            mechanism = make(rho, "1e-9", 1, 2**16)
            assert 0 < mechanism.threshold < 2**53
            assert mechanism.release(FullHistogram.of([GIANT, 1, 1]), NOISE).positions in {(0,), ()}


def test_exact_counts_have_no_repr() -> None:
    assert "77" not in repr(FullHistogram.of([77]))
