"""Privacy of quantiles, by exact laws: all histograms and all units of a small universe, in both directions.

The law is computed here from the formulas of the docstring, not from the mechanism's own scores, to which it is then
compared, as draws are to the law.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from support.laws import ROUNDING, SeededNoise, fits, goodness, renyi

from dpsql.errors import UsageError
from dpsql.mechanisms.quantiles import ExponentialQuantile, find_shift
from dpsql.mechanisms.sampling.noise import OperatingSystemNoise
from dpsql.quantities import Epsilon

Weights = tuple[int, ...]
Score = Callable[[ExponentialQuantile, Weights], list[float]]
WANTED = [Fraction(1, 2), Fraction(1, 4), Fraction(3, 4), Fraction(9, 10)]
EPSILON = Epsilon("0.8")
NONE = -1


def score_as_stated(mechanism: ExponentialQuantile, weights: Weights) -> list[float]:
    """Return the scores of the docstring, in rows of whole steps, with that of None last."""
    p, d = mechanism.wanted.numerator, mechanism.wanted.denominator
    found = []
    for at in range(len(weights)):
        below, above, total = sum(weights[:at]), sum(weights[at + 1 :]), sum(weights)
        found.append(-float(max(0, (d - p) * below - p * (total - below), p * above - (d - p) * (total - above))))
    spread = 2 * max(p, d - p) * mechanism.rows * 2**mechanism.shift
    none = spread * math.log(len(weights) / 0.05) / float(mechanism.epsilon.value) - min(p, d - p) * sum(weights)
    return [*found, none]


def log_law(mechanism: ExponentialQuantile, weights: Weights, score: Score = score_as_stated) -> dict[int, float]:
    """Return the logarithms of the probabilities of the bins, and of None."""
    p, d = mechanism.wanted.numerator, mechanism.wanted.denominator
    rate = float(mechanism.epsilon.value) / (2 * max(p, d - p) * mechanism.rows * 2**mechanism.shift)
    exponents = [rate * each for each in score(mechanism, weights)]
    most = max(exponents)
    total = most + math.log(math.fsum(math.exp(each - most) for each in exponents))
    return {at if at < len(weights) else NONE: each - total for at, each in enumerate(exponents)}


def list_units(bins: int, rows: int, shift: int, *, cap: int | None = None, most: int = 3) -> Iterator[Weights]:
    """Yield what one unit of up to `most` rows weighs in the bins."""
    cap = rows if cap is None else cap
    for own in product(range(most + 1), repeat=bins):
        if 0 < (number := sum(own)) <= most:
            yield tuple(n << shift if number <= cap else (n * cap << shift) // number for n in own)


def list_pairs(
    bins: int, *, rows: int = 1, shift: int = 0, cap: int | None = None
) -> Iterator[tuple[Weights, Weights]]:
    """Yield all histograms with few steps, or many units, in each bin, with all that have one unit more."""
    units = sorted(set(list_units(bins, rows, shift, cap=cap)))
    for weights in product((0, 1, 2, 3, 9 * rows << shift), repeat=bins):
        for unit in units:
            yield weights, tuple(a + b for a, b in zip(weights, unit, strict=True))


def find_range(
    mechanism: ExponentialQuantile, pairs: Iterator[tuple[Weights, Weights]], score: Score = score_as_stated
) -> float:
    """Return the largest range of the log-likelihood ratios of neighbours, in parts of epsilon."""
    worst = 0.0
    for one, other in pairs:
        first, second = log_law(mechanism, one, score), log_law(mechanism, other, score)
        ratios = [first[event] - second[event] for event in first]
        worst = max(worst, max(ratios) - min(ratios))
    return worst / float(mechanism.epsilon.value)


def make(wanted: Fraction, bins: int, rows: int = 1, shift: int = 0) -> ExponentialQuantile:
    return ExponentialQuantile(EPSILON, wanted, bins, rows, shift)


@pytest.mark.parametrize("wanted", WANTED, ids=str)
@pytest.mark.parametrize(("bins", "rows", "shift"), [(3, 1, 0), (3, 2, 1), (4, 1, 1)])
def test_the_range_is_that_of_the_loss_and_is_attained(wanted: Fraction, bins: int, rows: int, shift: int) -> None:
    mechanism = make(wanted, bins, rows, shift)
    found = find_range(mechanism, list_pairs(bins, rows=rows, shift=shift))
    assert 0.95 <= found <= 1 + ROUNDING


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_renyi_divergences_are_below_the_rho_that_is_charged(wanted: Fraction) -> None:
    mechanism = make(wanted, 3, rows=2)
    rho = float(mechanism.loss.rho.value)
    for one, other in list_pairs(3, rows=2):
        first, second = log_law(mechanism, one), log_law(mechanism, other)
        for alpha in (1.1, 2.0, 8.0, 64.0):
            assert max(renyi(first, second, alpha), renyi(second, first, alpha)) <= alpha * rho * (1 + ROUNDING)


def test_the_scores_are_those_of_the_docstring() -> None:
    for wanted, weights in product([*WANTED, Fraction(999, 1000)], product(range(4), repeat=4)):
        mechanism = make(wanted, 4, rows=3, shift=2)
        *bins, none = score_as_stated(mechanism, weights)
        assert mechanism.score(np.array(weights, np.int64)).tolist() == bins
        assert float(mechanism.score_of_none(sum(weights))) == pytest.approx(none, rel=1e-5)


@pytest.mark.parametrize("weights", [(0, 0, 0), (5, 35, 0, 60, 0), (9, 1, 7)])
def test_draws_have_the_law(weights: Weights) -> None:
    mechanism = ExponentialQuantile(Epsilon("0.3"), Fraction(3, 4), len(weights), 1, 0)
    law = {event: math.exp(mass) for event, mass in log_law(mechanism, weights).items()}
    noise, exact = OperatingSystemNoise(), np.array(weights, np.int64)

    def sample() -> float:
        drawn = (mechanism.select(exact, noise) for _ in range(4_000))
        return goodness(Counter(NONE if each is None else each for each in drawn), law)

    assert fits(sample)


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_an_answer_is_outside_the_rows_in_one_of_twenty_at_most(wanted: Fraction) -> None:
    for weights in product(range(0, 40, 13), repeat=4):
        law = log_law(make(wanted, 4), weights)
        inside = [at for at, each in enumerate(weights) if each]
        outside = [at for at in range(4) if not inside or not min(inside) <= at <= max(inside)]
        assert math.fsum(math.exp(law[at]) for at in outside) <= 0.05


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_the_rank_error_holds(wanted: Fraction) -> None:
    mechanism = make(wanted, 4)
    for weights in product(range(0, 90, 29), repeat=4):
        law = log_law(mechanism, weights)
        limit = -mechanism.rank_error(0.2) * wanted.denominator
        scores = score_as_stated(mechanism, weights)[:-1]
        assert math.fsum(math.exp(law[at]) for at, each in enumerate(scores) if each < limit) <= 0.2


def test_half_of_the_answers_are_null_at_the_fewest_rows() -> None:
    mechanism = ExponentialQuantile(Epsilon("0.25"), Fraction(1, 2), 1024, 1, 0)
    assert mechanism.fewest_rows == pytest.approx(79, abs=1)
    at_it = [0] * 512 + [round(mechanism.fewest_rows)] + [0] * 511
    assert 0.4 <= math.exp(log_law(mechanism, tuple(at_it))[NONE]) <= 0.6
    of_last = ExponentialQuantile(Epsilon("0.25"), Fraction(19, 20), 1024, 1, 0)
    assert of_last.fewest_rows == pytest.approx(1509, abs=1)


def test_scores_of_very_many_rows_are_drawn_exactly() -> None:
    mechanism = ExponentialQuantile(Epsilon("0.2"), Fraction(999, 1000), 8, 8, 10)
    weights = np.full(8, 2**33 * mechanism.most_weight // 8, np.int64)
    assert mechanism.score(weights).min() < -(2**52)
    assert mechanism.select(weights, SeededNoise(1)) == 7


def test_equal_values_are_one_bin_that_holds_the_median() -> None:
    weights = (5, 35, 0, 60, 0)
    assert make(Fraction(1, 2), 5).score(np.array(weights, np.int64)).tolist().index(0) == 3
    assert max(range(5), key=lambda at: _score_without_ties(make(Fraction(1, 2), 5), weights)[at]) == 2


def _score_without_ties(mechanism: ExponentialQuantile, weights: Weights) -> list[float]:
    q = float(mechanism.wanted)
    bins = [-abs((1 - q) * sum(weights[:at]) - q * sum(weights[at + 1 :])) for at in range(len(weights))]
    return [*bins, score_as_stated(mechanism, weights)[-1]]


def _fixed_null(mechanism: ExponentialQuantile, weights: Weights) -> list[float]:
    """NULL exactly where the weight is below a threshold."""
    return [*score_as_stated(mechanism, weights)[:-1], 1e6 if sum(weights) < 4 else -1e6]


def _null_of_all_rows(mechanism: ExponentialQuantile, weights: Weights) -> list[float]:
    """Take N from rows that are not weighed: three of a unit that weighs one."""
    *bins, none = score_as_stated(mechanism, weights)
    return [*bins, none - 3 * sum(weights)]


def _rate_of_rows(mechanism: ExponentialQuantile, weights: Weights) -> list[float]:
    """Draw at epsilon / rows and not at epsilon / R."""
    p, d = mechanism.wanted.numerator, mechanism.wanted.denominator
    return [each * 2 * max(p, d - p) / d for each in score_as_stated(mechanism, weights)]


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("score", "wanted"), [(_fixed_null, "9/10"), (_null_of_all_rows, "1/2"), (_rate_of_rows, "9/10")]
)
def test_every_known_mistake_is_caught(score: Score, wanted: str) -> None:
    assert find_range(make(Fraction(wanted), 3), list_pairs(3), score) > 1.05


@pytest.mark.mutant
def test_rows_that_are_not_capped() -> None:
    assert find_range(make(Fraction(1, 2), 3), list_pairs(3, cap=2)) > 1.5


@pytest.mark.mutant
def test_a_wanted_quantile_rounded_down() -> None:
    rounded = make(Fraction(8, 10), 3)

    def score(mechanism: ExponentialQuantile, weights: Weights) -> list[float]:  # of 0.9, at the price of 0.8
        exact = score_as_stated(make(Fraction(9, 10), 3), weights)
        return [each / 10 * mechanism.wanted.denominator for each in exact]

    assert find_range(rounded, list_pairs(3), score) > 1.05


def test_parameters_out_of_range_are_refused() -> None:
    for wanted in (Fraction(0), Fraction(1), Fraction(1, 1001)):
        with pytest.raises(UsageError):
            make(wanted, 4)
    assert find_shift(Fraction(999, 1000), 2**20, epsilon=EPSILON) is None
    assert find_shift(Fraction(1, 2), 20, epsilon=EPSILON) == 10
    shift = find_shift(Fraction(1, 2), 1, epsilon=Epsilon("0.000001"))
    assert shift is not None
    assert shift < 10
