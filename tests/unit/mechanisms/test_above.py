"""Noise in bulk has the law of one draw for every count: by chi-square, by enclosures in fifty digits, bit by bit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from importlib import import_module
from types import ModuleType

import mpmath
import numpy as np
import pytest
from support.laws import SeededNoise, agree, discrete_gaussian_law, fits, goodness, rejects

from dpsql.mechanisms import OperatingSystemNoise, discrete_gaussian
from dpsql.mechanisms.sampling.above import noisy_above
from dpsql.mechanisms.sampling.noise import BitReader

MODULE: ModuleType = import_module("dpsql.mechanisms.sampling.above")
NOISE = OperatingSystemNoise()
VARIANCES = [Fraction(1, 50), Fraction(1, 2), Fraction(1), Fraction(9, 4), Fraction(25), Fraction(10**4, 3)]
BELOW = "below"
# variance, threshold, counts: all near, all far, one of each, a tail of many bands, a variance of long numbers
CASES: dict[str, tuple[Fraction, int, tuple[int, ...]]] = {
    "far, in one band": (Fraction(4), 10, (6,)),
    "the edge of near": (Fraction(4), 10, (6, 7)),
    "far, in two bands": (Fraction(4), 10, (6, 4)),
    "above the threshold": (Fraction(4), 3, (3, 9)),
    "noise below 1": (Fraction(1, 3), 2, (1, 2)),
    "wide": (Fraction(10**12 + 7, 10**10), 25, (1, 7)),
}


def released(counts: Sequence[int], threshold: int, variance: Fraction) -> tuple[int | str, ...]:
    """Return what happened to every count."""
    passed = noisy_above(np.array(counts, np.int64), threshold, variance=variance, noise=NOISE)
    assert len(dict(passed)) == len(passed)
    return tuple(dict(passed).get(at, BELOW) for at in range(len(counts)))


def one_law(count: int, threshold: int, variance: Fraction) -> dict[int | str, float]:
    """Return the law of one count: a noisy count from the threshold on, or nothing."""
    noisy = {count + n: mass for n, mass in discrete_gaussian_law(variance, 20.0).items() if count + n >= threshold}
    return {BELOW: 1.0 - math.fsum(noisy.values()), **noisy}


def bulk_p_value(variance: Fraction, *, gap: int, size: int = 30_000) -> float:
    """Return the p-value of very many equal counts, which chance treats as one sample."""
    counts = np.full(size, 10**6, dtype=np.int64)
    passed = noisy_above(counts, 10**6 + gap, variance=variance, noise=NOISE)
    seen = Counter[Hashable](value - 10**6 for _, value in passed)
    seen[BELOW] = size - len(passed)
    return goodness(seen, one_law(0, gap, variance))


@pytest.mark.properties
@pytest.mark.parametrize("case", CASES)
def test_every_count_has_the_law_of_its_own_noise_and_no_other_part_in_it(case: str) -> None:
    variance, threshold, counts = CASES[case]
    joint: dict[Hashable, float] = {(): 1.0}
    for count in counts:
        own = one_law(count, threshold, variance)
        joint = {(*events, event): p * q for events, p in joint.items() for event, q in own.items()}  # type: ignore[misc]
    assert fits(lambda: goodness(Counter(released(counts, threshold, variance) for _ in range(3_000)), joint))


@pytest.mark.parametrize(
    ("variance", "gap"),
    [(Fraction(4), 4), (Fraction(4), 5), (Fraction(100), 16), (Fraction(7, 3), 3), (Fraction(1, 2), 2)],
)
def test_very_many_equal_counts_follow_the_tail(variance: Fraction, gap: int) -> None:
    assert fits(lambda: bulk_p_value(variance, gap=gap))


def test_bulk_and_single_draws_agree() -> None:
    counts, threshold, variance = (1, 1, 1, 2, 3, 3, 8, 12), 9, Fraction(9)

    def direct() -> tuple[int | str, ...]:
        draws = discrete_gaussian(variance, NOISE, count=len(counts))
        noisy = [count + draw for count, draw in zip(counts, draws, strict=True)]
        return tuple(value if value >= threshold else BELOW for value in noisy)

    def summary(events: tuple[int | str, ...]) -> Hashable:
        return tuple(event == BELOW for event in events), sum(event for event in events if isinstance(event, int)) // 8

    def p_value() -> float:
        bulk = Counter[Hashable](summary(released(counts, threshold, variance)) for _ in range(1_500))
        return agree(bulk, Counter[Hashable](summary(direct()) for _ in range(1_500)))

    assert fits(p_value)


@pytest.mark.parametrize("size", [1, 2, 50])
def test_every_place_is_chosen_as_often_as_every_other(size: int) -> None:
    def p_value() -> float:
        seen: Counter[Hashable] = Counter()
        for _ in range(4_000 // size + 500):
            counts = np.array([3] * size, np.int64)
            seen.update(at for at, _ in noisy_above(counts, 7, variance=Fraction(4), noise=NOISE))
        return goodness(seen, dict.fromkeys(range(size), 1 / size))

    assert fits(p_value)


def true_mass(variance: Fraction, n: int) -> mpmath.mpf:
    twice = 2 * mpmath.mpf(variance.numerator) / variance.denominator
    reach = 20 * int(mpmath.ceil(mpmath.sqrt(twice))) + 5
    return mpmath.exp(-(n**2) / twice) / mpmath.fsum(mpmath.exp(-(k**2) / twice) for k in range(-reach, reach + 1))


@pytest.mark.parametrize("digits", [28, 48, 88])
@pytest.mark.parametrize("variance", VARIANCES)
def test_enclosures_hold_the_probability_and_little_else(variance: Fraction, digits: int) -> None:
    for start in {math.isqrt(9 * math.ceil(variance) // 4) + 1, 6 * math.isqrt(math.ceil(variance)) + 1}:
        tail = MODULE.Tail(variance, start)
        with mpmath.workdps(150):
            decay = mpmath.exp(-mpmath.mpf(start) * variance.denominator / variance.numerator)
            chosen = true_mass(variance, start) / (1 - decay)  # so that E * (1 - r) is the mass at `start`
            rate = mpmath.mpf(tail.rate.numerator) / tail.rate.denominator
            for truth, (low, high) in (
                (chosen, tail.chosen(digits)),
                (chosen / -mpmath.expm1(-rate), tail.confirmed(tail.rate, digits)),
            ):
                assert mpmath.mpf(low.numerator) / low.denominator <= truth
                assert truth <= mpmath.mpf(high.numerator) / high.denominator
                assert (high - low) / low < Fraction(5, 10**digits)
            assert 0.5 < chosen / -mpmath.expm1(-rate) <= 1.0


@pytest.mark.parametrize("variance", [Fraction(25), Fraction(9, 4)])
def test_the_parts_multiply_to_the_mass_of_the_discrete_gaussian(variance: Fraction) -> None:
    """E * (1 - r) * r**m * exp(-m**2 / (2 variance)) is P[N = start + m]."""
    tail, law = MODULE.Tail(variance, 8), discrete_gaussian_law(variance)
    decay = math.exp(-8 / variance)
    for m in range(6):
        product = float(tail.chosen(28)[0]) * (1 - decay) * decay**m * math.exp(-m * m / (2 * variance))
        assert product == pytest.approx(law[8 + m], rel=1e-12)


def test_pi_is_right_to_the_last_digits_but_few() -> None:
    with mpmath.workdps(300):
        for digits in (10, 50, 200):
            assert abs(MODULE._pi(digits) - int(mpmath.floor(mpmath.pi * mpmath.mpf(10) ** digits))) <= 1


class Dictated:
    """A reader that hands out prepared words."""

    def __init__(self, number: int, words: int) -> None:
        self._words = [number >> (64 * (words - at - 1)) & (2**64 - 1) for at in range(words)]
        self.read = 0

    def bits(self, count: int) -> int:
        assert count == 64
        self.read += 1
        return self._words.pop(0)


@pytest.mark.parametrize("words", [1, 2, 3])
@pytest.mark.parametrize("side", [-1, 1])
def test_a_uniform_next_to_the_probability_is_read_on_until_it_parts(words: int, side: int) -> None:
    tail = MODULE.Tail(Fraction(25), 8)
    rate = tail.rate
    low, high = tail.confirmed(rate, 150)
    scale = 2 ** (64 * words + 64)
    near = math.floor(low * scale) if side < 0 else math.ceil(high * scale)  # agrees to all but the last word
    reader = Dictated(near + side * 2**40, words + 1)
    first = tail.confirmed(rate, MODULE._DIGITS)
    assert MODULE._below(tail, rate, first=first, reader=reader) is (side < 0)
    assert reader.read == words + 1


@pytest.mark.mutant
def test_a_choice_that_is_not_confirmed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_below", lambda *_, **__: True)
    size, gap, variance = 400_000, 151, Fraction(10**4)
    passed = len(noisy_above(np.array([1] * size, np.int64), 1 + gap, variance=variance, noise=NOISE))
    below = one_law(0, gap, variance)[BELOW]
    assert goodness(Counter({True: passed, False: size - passed}), {True: 1 - below, False: below}) < 1e-6


@pytest.mark.mutant
def test_an_exponential_in_place_of_the_tail_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "bernoulli_exp", lambda *_, **__: True)
    assert rejects(lambda: bulk_p_value(Fraction(4), gap=4))


@pytest.mark.mutant
@pytest.mark.parametrize("shift", [-1, 1])
def test_jumps_that_are_off_by_one_are_noticed(monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    jump: Callable[..., int] = MODULE.discrete_exponential
    monkeypatch.setattr(MODULE, "discrete_exponential", lambda *at, reader: max(0, jump(*at, reader=reader) + shift))
    assert rejects(lambda: bulk_p_value(Fraction(4), gap=4))


def test_nothing_in_is_nothing_out() -> None:
    assert noisy_above(np.array([], np.int64), 5, variance=Fraction(4), noise=NOISE) == []


def test_noise_wider_than_the_threshold_leaves_every_count_near() -> None:
    assert MODULE._starts(Fraction(10**4), 19) == [151]
    passed = noisy_above(np.array([1] * 3000, np.int64), 20, variance=Fraction(10**4), noise=NOISE)
    assert 900 <= len(passed) < 1700


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("widest", [-5, 0, 2, 3, 28, 400])
def test_the_bands_begin_beyond_sigma(variance: Fraction, widest: int) -> None:
    starts = MODULE._starts(variance, widest)
    assert starts == sorted(set(starts))
    assert starts[0] ** 2 > variance * 9 / 4
    assert all(start <= widest for start in starts[1:])


def test_a_giant_is_released_and_a_million_small_counts_cost_few_draws() -> None:
    class Counted(SeededNoise):
        drawn = 0

        def draw(self, count: int) -> bytes:
            self.drawn += count
            return super().draw(count)

    noise, counts = Counted(1), np.ones(10**6, dtype=np.int64)
    counts[123_456] = 2**53 - 1
    passed = noisy_above(counts, 28, variance=Fraction(25), noise=noise)
    assert 123_456 in dict(passed)
    assert len(passed) < 10
    assert noise.drawn < 20_000


@pytest.mark.parametrize("deep", [12, 30, 37])
def test_the_deep_tail_is_reached(deep: int) -> None:
    """A count 37 standard deviations below the threshold can still pass: no float has to hold its probability."""
    variance = Fraction(25)
    low, high = MODULE.Tail(variance, 5 * deep).chosen(28)
    assert 0 < low < high < Fraction(1, 10 ** (deep * deep // 5))
    draws = [MODULE.Tail(variance, 5 * deep).draw(BitReader(NOISE)) for _ in range(200)]
    assert all(5 * deep <= draw < 5 * deep + 20 for draw in draws if draw is not None)
    assert sum(draw is not None for draw in draws) > 150
