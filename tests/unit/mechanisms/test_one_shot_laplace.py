"""One-shot Laplace noise whose scale grows as the root of k: the steps of its proof, and exact laws of crowds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import pairwise, product

import numpy as np
import pytest
from support.laws import ROUNDING, fits, goodness, hockey_stick, rejects_early, renyi

from dpsql.accounting import epsilon_of_zcdp
from dpsql.errors import UsageError
from dpsql.mechanisms import Histogram, OperatingSystemNoise
from dpsql.mechanisms.report_noisy_max import OneShotLaplace
from dpsql.quantities import Delta, Epsilon

NOISE = OperatingSystemNoise()
ALPHAS = (1.01, 2.0, 8.0, 40.0)
Law = dict[Hashable, float]


class Spread:
    """Discrete Laplace noise plus a uniform part of one step: equal integers come in a random order, without ties."""

    def __init__(self, scale: float) -> None:
        self.fall = math.exp(-1.0 / scale)
        self.most = (1.0 - self.fall) / (1.0 + self.fall)

    def mass(self, at: int) -> float:
        return self.most * self.fall ** abs(at)

    def below(self, at: int) -> float:
        return self.fall**-at / (1.0 + self.fall) * self.fall if at <= 0 else 1.0 - self.fall**at / (1.0 + self.fall)

    def log_hazard(self, at: int, part: float) -> float:
        """Return ln f/F at `at` + `part`, of the density f and the distribution function F."""
        return math.log(self.mass(at) / (self.below(at) + part * self.mass(at)))


def steps_of(noise: Spread, part: float, shift: float) -> Iterator[float]:
    """Yield by what the odds of one candidate change in a draw, for all places of its count and whether it moves."""
    cells, inside = divmod(part + shift, 1.0)
    for at in range(-40, 60):
        for moved in (0, 1):
            yield noise.log_hazard(at + int(cells) - moved, inside) - noise.log_hazard(at, part)


def widest_step(scale: float) -> float:
    """Return the widest range of one draw, in units of 1 / scale, for any clocks of the two neighbours."""
    noise, grid = Spread(scale), [n / 16 for n in range(16)]
    ranges = [[*steps_of(noise, part, shift)] for part in grid for shift in [*grid, 1.0 - 1e-12]]
    return scale * max(max(each) - min(each) for each in ranges)


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0, 40.0])
def test_each_draw_has_a_range_of_two_over_the_scale(scale: float) -> None:
    assert 1.99 < widest_step(scale) <= 2.0 + 1e-7


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0, 40.0])
def test_the_clocks_of_neighbours_stay_within_one_step(scale: float) -> None:
    """The hazard at a whole step further is never larger: the slower clock catches up."""
    noise = Spread(scale)
    for part in (0.0, 0.3, 0.9):
        falls = [noise.log_hazard(at, part) for at in range(-40, 60)]
        assert all(later <= earlier + 1e-9 for earlier, later in pairwise(falls))


NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)
PARTS, SHARES = (NODES + 1.0) / 2.0, WEIGHTS / 2.0
Crowd = tuple[int, int]  # how many candidates, and the count of each


def among_the_first(scale: float, k: int, ones: Crowd, others: Crowd) -> Law:
    """Return the law of how many of `ones` are among the k first, beside `others`.

    It integrates the density of the k-th highest, in each cell a polynomial of the uniform part.
    """
    noise, crowds = Spread(scale), (ones, others)
    values = range(min(ones[1], others[1]) - math.ceil(16 * scale), max(ones[1], others[1]) + math.ceil(28 * scale))
    mass = [np.array([[noise.mass(value - count)] for value in values]) for _, count in crowds]
    start = [np.array([[noise.below(value - count)] for value in values]) for _, count in crowds]
    below = [at + PARTS * each for at, each in zip(start, mass, strict=True)]
    found: Law = dict.fromkeys(range(max(0, k - others[0]), min(k, ones[0]) + 1), 0.0)
    for inside, last in product(tuple(found), (0, 1)):
        density = mass[last] * crowds[last][0] * SHARES
        first, left = [inside, k - inside], [ones[0], others[0]]
        first[last], left[last] = first[last] - 1, left[last] - 1
        if first[last] < 0:
            continue
        for under, above, many in zip(below, first, left, strict=True):
            density = density * (math.comb(many, above) * (1.0 - under) ** above * under ** (many - above))
        found[inside] += float(density.sum())
    return {inside: probability for inside, probability in found.items() if probability > 1e-300}


def crowds(k: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield crowds of candidates with equal or unlike counts, of which the first move by one."""
    for many, rest in ((k, k), (k, 3 * k), (3 * k, k)):
        for high in (-2, 0, 2):
            yield (many, high), (rest, 0)


def neighbours(scale: float, k: int) -> Iterator[tuple[Law, Law]]:
    """Yield the laws of neighbours, in both orders."""
    for (many, high), others in crowds(k):
        here, more = (among_the_first(scale, k, (many, count), others) for count in (high, high + 1))
        yield here, more
        yield more, here


def excess(scale: float, promised: OneShotLaplace) -> float:
    """Return which share of the promised delta noise of this scale takes up."""
    found = max(hockey_stick(*laws, float(promised.epsilon)) for laws in neighbours(scale, promised.k))
    return found / float(promised.delta)


PROMISED = {
    "k = 40": OneShotLaplace(Epsilon(1), 40, Delta("1e-3")),
    "k = 20": OneShotLaplace(Epsilon(3), 20, Delta("1e-2")),
}


def test_the_law_of_a_crowd_is_a_law() -> None:
    assert math.fsum(among_the_first(2.0, 3, (4, 1), (5, 0)).values()) == pytest.approx(1.0, abs=1e-6)
    even = among_the_first(2.0, 3, (4, 0), (4, 0))
    assert even[0] == pytest.approx(even[3], rel=1e-9)
    [alone] = among_the_first(2.0, 4, (4, 0), (0, 0)).items()
    assert alone == (4, pytest.approx(1.0, abs=1e-6))


@pytest.mark.parametrize("case", PROMISED)
def test_the_root_scale_keeps_its_promise(case: str) -> None:
    promised = PROMISED[case]
    assert float(promised.scale) < 0.75 * promised.k / float(promised.epsilon)  # or the pure scale would keep it alone
    assert excess(float(promised.scale), promised) <= 1.0 + ROUNDING


@pytest.mark.mutant
@pytest.mark.parametrize("case", PROMISED)
def test_a_range_of_one_over_the_scale_for_each_draw_is_caught(case: str) -> None:
    assert excess(float(PROMISED[case].scale) / 2, PROMISED[case]) > 1.5


@pytest.mark.mutant
@pytest.mark.parametrize("case", PROMISED)
def test_a_scale_without_the_root_of_k_is_caught(case: str) -> None:
    assert excess(float(PROMISED[case].scale) / PROMISED[case].k ** 0.5, PROMISED[case]) > 20.0


def share_of_rho(mechanism: OneShotLaplace, rho: float) -> float:
    """Return which share of alpha * rho the Renyi divergences of neighbours take up, at the worst order."""
    worst = 0.0
    for one, two in neighbours(float(mechanism.scale), mechanism.k):
        logs = [{inside: math.log(mass) for inside, mass in law.items()} for law in (one, two)]
        worst = max(worst, *(renyi(*logs, alpha) / (alpha * rho) for alpha in ALPHAS))
    return worst


@pytest.mark.parametrize("mechanism", [OneShotLaplace(Epsilon(8), 16), PROMISED["k = 20"]], ids=["pure", "root"])
def test_the_loss_covers_the_law(mechanism: OneShotLaplace) -> None:
    assert 0.3 < share_of_rho(mechanism, float(mechanism.loss.rho)) <= 1.0


@pytest.mark.mutant
def test_the_loss_of_draws_of_half_the_range_is_caught() -> None:
    mechanism = PROMISED["k = 20"]
    assert share_of_rho(mechanism, float(mechanism.loss.rho) / 4) > 1.3


@pytest.mark.parametrize("epsilon", ["0.05", "0.2", "2"])
@pytest.mark.parametrize("delta", ["1e-12", "1e-6", "0.05"])
def test_the_scale_is_the_smaller_of_two_and_what_it_costs_fits(epsilon: str, delta: str) -> None:
    for k in (1, 7, 60, 3000):
        mechanism = OneShotLaplace(Epsilon(epsilon), k, Delta(delta))
        pure, root = k / float(epsilon), math.sqrt(2 * k * math.log(1 / float(delta))) / float(epsilon)
        assert 0.1 * min(pure, root) < float(mechanism.scale) <= min(pure, root)
        assert mechanism.loss.rho.value == k / (2 * mechanism.scale**2)
        if mechanism.scale < k / mechanism.epsilon.value:
            assert epsilon_of_zcdp(mechanism.loss.rho, mechanism.delta) <= float(epsilon) + 1e-9  # rounded up twice
        if float(epsilon) <= 0.2:  # where the paper's theorem holds; more candidates only add to its scale
            assert 5 * float(mechanism.scale) < 8 * math.sqrt(k * math.log(k / float(delta))) / float(epsilon)


def test_few_keys_have_the_pure_scale_whatever_delta() -> None:
    assert OneShotLaplace(Epsilon(1), 10, Delta("1e-6")).scale == OneShotLaplace(Epsilon(1), 10).scale == 10
    assert OneShotLaplace(Epsilon(1), 10, Delta("1e-6")).guarantee.delta == Delta("1e-6")


def test_a_delta_of_one_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\[delta-range\]"):
        OneShotLaplace(Epsilon(1), 10, Delta(1))


SAMPLED = OneShotLaplace(Epsilon(2), 6, Delta("0.3"))


def p_value(scale: float, draws: int = 6_000) -> float:
    """Return how well draws of `SAMPLED` over three counts of 2 and nine of 0 fit noise of a scale."""
    histogram = Histogram((2,) * 3 + (0,) * 9, 0)
    drawn = (SAMPLED.select(histogram, NOISE).positions for _ in range(draws))
    seen = Counter[Hashable](sum(at < 3 for at in positions) for positions in drawn)
    return goodness(seen, among_the_first(scale, 6, (3, 2), (9, 0)))


@pytest.mark.properties
def test_selections_follow_the_law_of_the_root_scale() -> None:
    assert fits(lambda: p_value(float(SAMPLED.scale)))


@pytest.mark.mutant
def test_the_law_of_the_pure_scale_is_noticed() -> None:
    assert rejects_early(lambda draws: p_value(6 / 2, draws), 6_000)
