"""Report noisy max with four noises: exact guarantees, samplers against their laws, mistakes that must be caught."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, pairwise, permutations, product

import numpy as np
import pytest
from support.laws import (
    ROUNDING,
    discrete_gaussian_law,
    discrete_laplace_law,
    fits,
    goodness,
    hockey_stick,
    peeling_law,
    rejects_early,
    renyi,
)

from dpsql.accounting import ZCDP, ApproximateDP
from dpsql.errors import UsageError
from dpsql.mechanisms import Histogram, OperatingSystemNoise, Peeling
from dpsql.mechanisms.report_noisy_max import NoisyMaxGaussian, NoisyMaxGumbel, OneShotLaplace, PermuteAndFlip
from dpsql.quantities import Delta, Epsilon, Rho

NOISE = OperatingSystemNoise()
Counts = tuple[int, ...]
Law = dict[Hashable, float]
ALPHAS = (1.01, 1.5, 2.0, 8.0, 40.0)


def ordered(noise: dict[int, float], counts: Counts, k: int, *, ties: bool = True) -> Law:
    """Return the law of the k first by noisy count; without `ties` equal ones come in the order of exact counts."""
    low, high = min(noise) + min(counts), max(noise) + max(counts)
    masses, grids = np.ones([1] * len(counts)), np.ix_(*[np.arange(low, high + 1)] * len(counts))
    for at, count in enumerate(counts):
        line = np.array([noise.get(value - count, 0.0) for value in range(low, high + 1)])
        masses = masses * line.reshape([-1 if axis == at else 1 for axis in range(len(counts))])
    rank = sorted(range(len(counts)), key=lambda at: (-counts[at], at))
    fitting = {}
    for order in permutations(range(len(counts))):
        here = np.ones_like(masses, dtype=bool)
        for one, two in pairwise(order):
            even = ties or rank.index(one) < rank.index(two)
            here &= grids[one] >= grids[two] if even else grids[one] > grids[two]
        fitting[order] = here
    ways = sum(here.astype(np.float64) for here in fitting.values())
    found: Law = {}
    for order, here in fitting.items():
        found[order[:k]] = found.get(order[:k], 0.0) + float((masses * here / ways).sum())
    return found


@cache
def one_shot(mechanism: OneShotLaplace, counts: Counts) -> Law:
    return ordered(discrete_laplace_law(mechanism.scale, reach=26.0), counts, mechanism.k)


@cache
def gaussian(mechanism: NoisyMaxGaussian, counts: Counts) -> Law:
    return ordered(discrete_gaussian_law(mechanism.variance), counts, 1)


@cache
def permute_and_flip(mechanism: PermuteAndFlip, counts: Counts) -> Law:
    found: Law = dict.fromkeys(((at,) for at in range(len(counts))), 0.0)
    taken = [math.exp(float(mechanism.epsilon) * (count - max(counts))) for count in counts]
    for order in permutations(range(len(counts))):
        reached = 1.0 / math.factorial(len(counts))
        for at in order:
            found[at,] += reached * taken[at]
            reached *= 1.0 - taken[at]
    return found


def neighbours(candidates: int) -> Iterator[tuple[Counts, Counts]]:
    """Yield all neighbours with counts of at most 2 before, in one of the two orders."""
    for counts in combinations_with_replacement((2, 1, 0), candidates):
        for unit in product((0, 1), repeat=candidates):
            if any(unit):
                yield counts, tuple(count + more for count, more in zip(counts, unit, strict=True))


def widest_ratio(law: Callable[[Counts], Law], candidates: int = 3) -> float:
    """Return the largest log-likelihood ratio of any neighbours."""
    found = 0.0
    for counts, more in neighbours(candidates):
        here, there = law(counts), law(more)
        found = max(found, *(abs(math.log(here[event] / there[event])) for event in here))
    return found


@pytest.mark.parametrize(("epsilon", "k"), [("2", 1), ("2", 2), ("3", 2), ("4", 3)])
def test_the_one_shot_laplace_is_as_private_as_it_says(epsilon: str, k: int) -> None:
    mechanism = OneShotLaplace(Epsilon(epsilon), k)
    ratio = widest_ratio(lambda counts: one_shot(mechanism, counts)) / float(mechanism.epsilon)
    assert 0.3 < ratio <= 1.0 + ROUNDING


def share_of_loss(mechanism: OneShotLaplace) -> float:
    """Return which share of the mechanism's loss the divergences of any neighbours take up, at the worst order."""
    worst = 0.0
    for counts, more in neighbours(3):
        logs = [{event: math.log(mass) for event, mass in one_shot(mechanism, each).items()} for each in (counts, more)]
        for alpha in ALPHAS:
            found = max(renyi(logs[0], logs[1], alpha), renyi(logs[1], logs[0], alpha))
            worst = max(worst, found / (alpha * float(mechanism.loss.rho)))
    return worst


@pytest.mark.parametrize(("epsilon", "k"), [("2", 1), ("2", 2), ("3", 2)])
def test_the_loss_of_the_one_shot_laplace_covers_every_order(epsilon: str, k: int) -> None:
    assert 0.15 < share_of_loss(OneShotLaplace(Epsilon(epsilon), k)) <= 1.0


@pytest.mark.mutant
def test_the_loss_of_draws_of_range_one_over_the_scale_is_caught() -> None:
    assert share_of_loss(OneShotLaplace(Epsilon(1), 1)) > 1.05 / 4


def ratio_of_two_that_must_pass_two(scale: Fraction) -> float:
    noise = discrete_laplace_law(scale, reach=16.0)
    here, there = (ordered(noise, counts, 2) for counts in ((3, 3, 0, 0), (4, 4, 0, 0)))
    return max(abs(math.log(here[event] / there[event])) for event in here)


@pytest.mark.mutant
def test_a_scale_that_does_not_grow_with_k_is_caught() -> None:
    assert 0.7 * 4 < ratio_of_two_that_must_pass_two(OneShotLaplace(Epsilon(4), 2).scale) <= 4.0
    assert ratio_of_two_that_must_pass_two(Fraction(1, 2)) > 1.3 * 2


@pytest.mark.mutant
def test_ties_broken_by_exact_counts_are_caught() -> None:
    noise = discrete_laplace_law(Fraction(1, 2), reach=26.0)
    assert widest_ratio(lambda counts: ordered(noise, counts, 1, ties=False), 2) > 1.2 * 2


@pytest.mark.parametrize("epsilon", ["0.1", "1", "3"])
def test_permute_and_flip_is_as_private_as_it_says(epsilon: str) -> None:
    mechanism = PermuteAndFlip(Epsilon(epsilon))
    for candidates in (1, 2, 3, 4):
        ratio = widest_ratio(lambda counts: permute_and_flip(mechanism, counts), candidates)
        assert ratio <= float(epsilon) * (1.0 + ROUNDING)
    assert ratio >= 0.9 * float(epsilon)


def worst_order(mechanism: NoisyMaxGaussian, claimed: NoisyMaxGaussian) -> float:
    """Return the largest share of the curve of `claimed` that the divergences of `mechanism` take up."""
    worst = 0.0
    for candidates in (1, 2, 3):
        for counts, more in neighbours(candidates):
            logs = [
                {event: math.log(mass) for event, mass in gaussian(mechanism, each).items()} for each in (counts, more)
            ]
            for alpha in ALPHAS:
                found = max(renyi(logs[0], logs[1], alpha), renyi(logs[1], logs[0], alpha))
                worst = max(worst, found / claimed.curve(candidates).at(alpha))
    return worst


@pytest.mark.parametrize("variance", ["0.25", "1", "4"])
def test_the_gaussian_is_as_private_as_it_says(variance: str) -> None:
    mechanism = NoisyMaxGaussian(Fraction(variance))
    assert worst_order(mechanism, mechanism) <= 1.0


@pytest.mark.mutant
def test_the_curve_of_wider_noise_is_caught() -> None:
    assert worst_order(NoisyMaxGaussian(Fraction(1, 4)), NoisyMaxGaussian(Fraction(4))) > 1.0


@pytest.mark.parametrize("variance", ["0.25", "1", "4"])
def test_what_the_gaussians_curve_converts_to_holds(variance: str) -> None:
    mechanism = NoisyMaxGaussian(Fraction(variance))
    for counts, more in neighbours(3):
        laws = gaussian(mechanism, counts), gaussian(mechanism, more)
        for level in (0.1, 1.0, 3.0):
            promised = mechanism.curve(3).delta_at(Epsilon(level))
            assert max(hockey_stick(*laws, level), hockey_stick(*reversed(laws), level)) <= promised


def test_the_gaussian_has_no_loss_that_a_session_could_add_up() -> None:
    assert not hasattr(NoisyMaxGaussian(Fraction(1)), "loss")
    assert not hasattr(NoisyMaxGaussian(Fraction(1)), "worst_case")
    with pytest.raises(UsageError, match=r"\[not-concentrated\]"):
        NoisyMaxGaussian(Fraction(1)).curve(2).concentrated()


COUNTS = (4, 3, 3)
SAMPLED = {
    "Gumbel": (NoisyMaxGumbel(Epsilon("0.7")), lambda _: peeling_law(COUNTS, None, 0.7, 1)),
    "permute and flip": (PermuteAndFlip(Epsilon("0.7")), lambda mechanism: permute_and_flip(mechanism, COUNTS)),
    "Laplace": (OneShotLaplace(Epsilon("1.4")), lambda mechanism: one_shot(mechanism, COUNTS)),
    "Laplace, two of three": (OneShotLaplace(Epsilon(3), 2), lambda mechanism: one_shot(mechanism, COUNTS)),
    "Laplace, all": (OneShotLaplace(Epsilon(6), 5), lambda mechanism: one_shot(mechanism, COUNTS)),
    "Gaussian": (NoisyMaxGaussian(Fraction(2)), lambda mechanism: gaussian(mechanism, COUNTS)),
}


def p_value(case: str, claimed: str | None = None, draws: int = 8_000) -> float:
    mechanism, law = SAMPLED[case]
    expected = law(mechanism) if claimed is None else SAMPLED[claimed][1](SAMPLED[claimed][0])
    seen = Counter[Hashable](mechanism.select(Histogram(COUNTS, 0), NOISE).positions for _ in range(draws))
    return goodness(seen, expected)


@pytest.mark.properties
@pytest.mark.parametrize("case", SAMPLED)
def test_selections_follow_the_law(case: str) -> None:
    assert fits(lambda: p_value(case))


@pytest.mark.mutant
@pytest.mark.parametrize(("case", "claimed"), [("Gumbel", "permute and flip"), ("Laplace", "Gumbel")])
def test_the_law_of_another_noise_is_noticed(case: str, claimed: str) -> None:
    assert rejects_early(lambda draws: p_value(case, claimed, draws), 8_000)


@pytest.mark.parametrize("case", SAMPLED)
def test_edges_of_the_domain(case: str) -> None:
    mechanism, _ = SAMPLED[case]
    assert mechanism.select(Histogram((), 0), NOISE).positions == ()
    assert mechanism.select(Histogram((7,), 0), NOISE).positions == (0,)
    assert mechanism.select(Histogram((2**53 - 1, 0, 0), 0), NOISE).positions[0] == 0
    with pytest.raises(UsageError, match=r"\[histogram-cut\]"):
        mechanism.select(Histogram((3, 2), 1), NOISE)


def test_losses() -> None:
    assert NoisyMaxGumbel(Epsilon("0.2")).loss == Peeling(Epsilon("0.2"), 1).worst_case == ZCDP(Rho("0.005"), Delta(0))
    assert PermuteAndFlip(Epsilon("0.2")).loss == OneShotLaplace(Epsilon("0.2")).loss == ZCDP(Rho("0.02"), Delta(0))
    assert OneShotLaplace(Epsilon("0.2"), 4).loss == ZCDP(Rho("0.005"), Delta(0))
    for mechanism in (PermuteAndFlip(Epsilon("0.2")), OneShotLaplace(Epsilon("0.2"), 3)):
        assert mechanism.guarantee == ApproximateDP(Epsilon("0.2"), Delta(0))
