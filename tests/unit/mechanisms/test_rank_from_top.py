"""The rank from the top: its exact law on all small histograms, what it finds and when it says nothing; mutants."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import product

import numpy as np
import pytest
from support.laws import SeededNoise, goodness, renyi

from dpsql.errors import UsageError
from dpsql.mechanisms.base import FALSE_ALARM
from dpsql.mechanisms.quantiles import FALSE_BIN, TILT, RankFromTop
from dpsql.quantities import Epsilon, Rho

Histogram = tuple[int, ...]
Scores = Callable[[RankFromTop, Sequence[int]], tuple[list[float], float]]
BINS, MOST = 3, 5
SMALL = [RankFromTop(Epsilon(20), 1, BINS), RankFromTop(Epsilon(20), 2, BINS), RankFromTop(Epsilon(8), 2, BINS)]


def true_scores(mechanism: RankFromTop, counts: Sequence[int]) -> tuple[list[float], float]:
    """Return the scores from the definition: units above a bin, and units in it or above."""
    above = [sum(counts[at + 1 :]) for at in range(len(counts))]
    inside = [sum(counts[at:]) for at in range(len(counts))]
    rank = mechanism.rank
    scores = [-max(0.0, a - rank, 3 * (rank - t)) for a, t in zip(above, inside, strict=True)]
    return scores, rank + mechanism.margin - sum(counts)


def log_law(
    mechanism: RankFromTop, counts: Sequence[int], *, scores: Scores = true_scores, spread: float = 4.0
) -> dict[Hashable, float]:
    bins, none = scores(mechanism, counts)
    weights = [float(mechanism.epsilon.value) / spread * each for each in (*bins, none)]
    largest = max(weights)
    total = largest + math.log(math.fsum(math.exp(each - largest) for each in weights))
    return {at if at < len(bins) else None: each - total for at, each in enumerate(weights)}


def neighbours() -> Iterator[tuple[Histogram, Histogram]]:
    """Yield every small histogram with every one that has one unit more."""
    for counts in product(range(MOST), repeat=BINS):
        for at in range(BINS):
            yield counts, tuple(each + (at == bin_) for bin_, each in enumerate(counts))


def widest_range(mechanism: RankFromTop, *, scores: Scores = true_scores, spread: float = 4.0) -> float:
    """Return the largest range of the logarithm of the ratio of two neighbours' laws."""
    ranges = []
    for one, two in neighbours():
        here, there = (log_law(mechanism, each, scores=scores, spread=spread) for each in (one, two))
        ratios = [here[event] - there[event] for event in here]
        ranges.append(max(ratios) - min(ratios))
    return max(ranges)


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
def test_one_unit_costs_at_most_epsilon_and_all_of_it(mechanism: RankFromTop) -> None:
    assert widest_range(mechanism) == pytest.approx(float(mechanism.epsilon), rel=1e-12)


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
def test_the_rho_that_is_charged_covers_all_orders_in_both_directions(mechanism: RankFromTop) -> None:
    assert mechanism.loss.rho == Rho(mechanism.epsilon.value**2 / 8)
    rho = float(mechanism.loss.rho.value)
    for one, two in neighbours():
        here, there = log_law(mechanism, one), log_law(mechanism, two)
        for alpha in (1.01, 1.5, 2.0, 8.0):
            assert max(renyi(here, there, alpha), renyi(there, here, alpha)) <= alpha * rho * (1 + 1e-9)


def test_the_scores_are_those_of_the_definition() -> None:
    for mechanism in SMALL:
        for counts in product(range(MOST), repeat=BINS):
            assert mechanism.score(counts) == true_scores(mechanism, counts)


def test_draws_have_the_law() -> None:
    """The noise is fixed, and so is the p-value: a wrong law is far below, a right one above."""
    mechanism, noise = RankFromTop(Epsilon(2), 13, BINS), SeededNoise(7)
    for counts in ((30, 11, 4), (0, 14, 0), (3, 2, 1), (20, 20, 20)):
        law = {event: math.exp(each) for event, each in log_law(mechanism, counts).items()}
        drawn = Counter[Hashable](mechanism.select(counts, noise) for _ in range(1_500))
        assert goodness(drawn, law) > 1e-6
        if counts == (30, 11, 4):
            wrong = {event: math.exp(each) for event, each in log_law(mechanism, counts, spread=2.0).items()}
            assert goodness(drawn, wrong) < 1e-6


def test_of_at_least_rank_units_a_bin_above_all_is_drawn_once_in_a_thousand() -> None:
    for epsilon, bins in ((Epsilon(1), 128), (Epsilon("0.2"), 16)):
        mechanism = RankFromTop(epsilon, RankFromTop.find_least_rank(epsilon, bins), bins)
        for units in (mechanism.rank, 2 * mechanism.rank, 50 * mechanism.rank):
            law = log_law(mechanism, (units, *[0] * (bins - 1)))
            assert math.fsum(math.exp(law[at]) for at in range(1, bins)) <= FALSE_BIN


def test_nothing_is_said_of_too_few_units_and_something_of_enough() -> None:
    for epsilon, bins in ((Epsilon(1), 128), (Epsilon("0.2"), 16)):
        mechanism = RankFromTop(epsilon, RankFromTop.find_least_rank(epsilon, bins) + 5, bins)
        for where in (0, bins // 2, bins - 1):
            for units, is_enough in ((0, False), (mechanism.rank, False), (mechanism.units_needed, True)):
                counts = [units if at == where else 0 for at in range(bins)]
                none = math.exp(log_law(mechanism, counts)[None])
                assert none <= FALSE_ALARM if is_enough else none >= 1 - FALSE_ALARM


def best_and_found(totals: np.ndarray, *, epsilon: float, choose: Callable[[np.ndarray], float]) -> float:
    """Return the error of a sum with the chosen bound as a multiple of that with the best one."""

    def error(bound: float) -> float:
        return math.hypot(float(np.maximum(totals - bound, 0).sum()), 2 * bound / epsilon)

    candidates = np.sort(totals)[::-1][: len(totals) // 5 : max(1, len(totals) // 1000)]
    return error(choose(totals)) / min(map(error, candidates))


def test_the_rank_is_near_the_best_bound_where_no_quantile_is() -> None:
    """The mutant of a fixed quantile: right for one size of the data, and far off for another."""
    epsilon, random = 0.05, np.random.Generator(np.random.PCG64(3))
    laws = [lambda n: random.lognormal(2, 1.5, n), lambda n: 10 * (random.pareto(2.2, n) + 1)]
    tables = [law(n) for law in laws for n in (5_000, 100_000)]

    def at_rank(totals: np.ndarray) -> float:
        rank = RankFromTop.for_sums(Epsilon("0.2"), bins=128, item=Epsilon("0.05")).rank
        return float(np.sort(totals)[-rank])

    assert max(best_and_found(each, epsilon=epsilon, choose=at_rank) for each in tables) < 1.25
    for quantile in (0.9, 0.95, 0.99, 0.995):
        errors = [
            best_and_found(each, epsilon=epsilon, choose=lambda totals, q=quantile: float(np.quantile(totals, q)))
            for each in tables
        ]
        assert max(errors) > 1.5


def _exact_none(mechanism: RankFromTop, counts: Sequence[int]) -> tuple[list[float], float]:
    scores, _ = true_scores(mechanism, counts)
    return scores, 1e3 if sum(counts) < mechanism.rank else -1e3


def _steep_none(mechanism: RankFromTop, counts: Sequence[int]) -> tuple[list[float], float]:
    scores, none = true_scores(mechanism, counts)
    return scores, none - sum(counts)


def _two_bins_of_a_unit(mechanism: RankFromTop, counts: Sequence[int]) -> tuple[list[float], float]:
    return true_scores(mechanism, [2 * each for each in counts])


MUTANTS: dict[str, tuple[Scores, float]] = {
    "epsilon over the change of one score": (true_scores, 3.0),
    "epsilon over 2, as without the tilt": (true_scores, 2.0),
    "nothing is said by the exact number of units": (_exact_none, 4.0),
    "None falls twice as fast": (_steep_none, 4.0),
    "a unit with two values": (_two_bins_of_a_unit, 4.0),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_lose_more_than_epsilon(name: str) -> None:
    scores, spread = MUTANTS[name]
    assert widest_range(SMALL[1], scores=scores, spread=spread) > 1.1 * float(SMALL[1].epsilon)


@pytest.mark.mutant
def test_a_rank_below_the_least_is_drawn_from_above_the_data() -> None:
    epsilon, bins = Epsilon("0.2"), 128
    least = RankFromTop.find_least_rank(epsilon, bins)
    assert least == math.ceil((1 + TILT) / TILT * math.log(128 * 1000) / 0.2)
    with pytest.raises(UsageError, match="A rank below"):
        RankFromTop(epsilon, least - 1, bins)
    low = RankFromTop(epsilon, least, bins)
    object.__setattr__(low, "rank", least // 2)
    law = log_law(low, (10_000, *[0] * (bins - 1)))
    assert math.fsum(math.exp(law[at]) for at in range(1, bins)) > 20 * FALSE_BIN


def test_histograms_of_another_shape_are_refused() -> None:
    for counts in ((1, 2), (1, 2, -1), (1, 2, 2**52)):
        with pytest.raises(UsageError):
            SMALL[0].select(counts, SeededNoise(1))
    for bad in (0, -1):
        with pytest.raises(UsageError):
            RankFromTop(Epsilon(1), 5, bad)


def test_more_groups_have_a_rank_of_their_own_units_each() -> None:
    one, ten = (RankFromTop.for_sums(Epsilon("0.2"), bins=128, item=Epsilon("0.05"), groups=m) for m in (1, 10))
    assert (one.rank, ten.rank) == (79, 600)
