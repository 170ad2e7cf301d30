"""The exact samplers, proved choice by choice: every way through them is gone, and its probability added up."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import product
from typing import Any, cast

import pytest
from support.laws import ScriptedNoise, discrete_gaussian_law, discrete_laplace_law

from dpsql.mechanisms import discrete_gaussian, discrete_laplace
from dpsql.mechanisms.sampling.discrete_noise import bernoulli_exp, discrete_exponential
from dpsql.mechanisms.sampling.noise import BitReader

EXPONENTIAL = cast("Any", sys.modules["dpsql.mechanisms.sampling.discrete_noise"])
WORD, PLACES = 1 << 32, 32
FARTHEST = 45  # beyond it a unit exponential is with probability exp(-45)
RATIOS = [Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(10**30 - 1, 3 * 10**30), Fraction(6, 7), Fraction(1)]


class _AnotherAttempt(Exception):
    """What was drawn is rejected, and all begins again."""


class Ways:
    """A reader that goes every way in turn, as far as the first rejection; `path` has the choice taken at each fork."""

    def __init__(self) -> None:
        self.path: list[tuple[int, int]] = []
        self.begin()

    def begin(self) -> None:
        self.depth, self.weight, self.attempted = 0, 1.0, False

    def choose(self, weights: list[float]) -> int:
        if self.depth == len(self.path):
            self.path.append((0, len(weights)))
        taken, _ = self.path[self.depth]
        self.depth += 1
        self.weight *= weights[taken]
        return taken

    def below(self, bound: int) -> int:
        """Return each number below: with this every attempt of ours begins."""
        if self.attempted:
            raise _AnotherAttempt
        self.attempted = True
        return self.choose([1 / bound] * bound)

    def bits(self, number: int) -> int:
        return self.choose([0.5**number] * 2**number)

    def next(self) -> bool:
        """Turn to the next way, if there is one."""
        while self.path and self.path[-1][0] + 1 == self.path[-1][1]:
            self.path.pop()
        if self.path:
            taken, of = self.path.pop()
            self.path.append((taken + 1, of))
        return bool(self.path)


def ways(draw: Callable[[], Any], reader: Ways) -> Iterator[tuple[Any, float]]:
    """Yield what is drawn each way, with the probability of that way."""
    while True:
        reader.begin()
        with suppress(_AnotherAttempt):
            yield draw(), reader.weight
        if not reader.next():
            return


def law_of(draw: Callable[[], Any], reader: Ways) -> dict[Any, float]:
    """Return the law of what is drawn when nothing more is rejected."""
    masses = defaultdict[Any, float](float)
    for drawn, weight in ways(draw, reader):
        masses[drawn] += weight
    total = math.fsum(masses.values())
    return {drawn: mass / total for drawn, mass in masses.items()}


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Ways:
    """Return the reader, for samplers whose coins and unit exponentials, proved apart, are one choice each."""
    going = Ways()
    exponential = [math.exp(-n) - math.exp(-n - 1) for n in range(FARTHEST)]

    def coin(numerator: int, denominator: int, *, reader: Ways) -> bool:
        heads = math.exp(-numerator / denominator)
        return not reader.choose([heads, 1 - heads])

    monkeypatch.setattr(EXPONENTIAL, "_bernoulli_exp_unit", coin)
    monkeypatch.setattr(EXPONENTIAL, "_unit_exponential", lambda reader: reader.choose(exponential))
    monkeypatch.setattr(EXPONENTIAL, "BitReader", lambda _: going)
    return going


def agrees(found: dict[int, float], law: dict[int, float]) -> bool:
    return all(abs(found.get(n, 0.0) - law.get(n, 0.0)) < 1e-13 for n in found.keys() | law.keys())


@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(1), Fraction(7, 3), Fraction(16), Fraction(101, 2)])
def test_the_discrete_gaussian_has_its_law(variance: Fraction, reader: Ways) -> None:
    found = law_of(lambda: discrete_gaussian(variance, ScriptedNoise(), count=1)[0], reader)
    assert agrees(found, discrete_gaussian_law(variance))
    assert not agrees(found, discrete_gaussian_law(variance * Fraction(1001, 1000)))


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(30)])
def test_the_discrete_laplace_has_its_law(scale: Fraction, reader: Ways) -> None:
    found = law_of(lambda: discrete_laplace(scale, ScriptedNoise(), count=1)[0], reader)
    assert agrees(found, discrete_laplace_law(scale))
    assert not agrees(found, discrete_laplace_law(scale * Fraction(1001, 1000)))


@pytest.mark.parametrize("rate", [Fraction(1, 30), Fraction(3, 7), Fraction(1), Fraction(5, 2)])
def test_the_discrete_exponential_has_its_law(rate: Fraction, reader: Ways) -> None:
    found = law_of(lambda: discrete_exponential(*rate.as_integer_ratio(), reader=cast("BitReader", reader)), reader)
    decay = math.exp(-rate)
    assert agrees(found, {n: (1 - decay) * decay**n for n in range(math.ceil(36 / rate))})


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(5, 4), Fraction(7, 2)])
def test_a_coin_of_an_exponential_has_its_probability(exponent: Fraction, reader: Ways) -> None:
    found = law_of(lambda: bernoulli_exp(*exponent.as_integer_ratio(), reader=cast("BitReader", reader)), reader)
    assert found.get(True, 0.0) == pytest.approx(math.exp(-exponent), rel=1e-14)


class Asked:
    """A reader whose coin fails at the trial number `fails`; it keeps the probabilities asked for."""

    def __init__(self, fails: int) -> None:
        self.fails, self.asked = fails, list[Fraction]()

    def chance(self, numerator: int, denominator: int) -> bool:
        self.asked.append(Fraction(numerator, denominator))
        return len(self.asked) < self.fails


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_coin_of_an_exponential_of_at_most_1_sums_its_series(ratio: Fraction) -> None:
    heads = Fraction(0)
    for fails in range(1, 40):
        asked = Asked(fails)
        came = EXPONENTIAL._bernoulli_exp_unit(*ratio.as_integer_ratio(), reader=asked)
        assert len(asked.asked) == fails
        heads += came * math.prod(asked.asked[:-1]) * (1 - asked.asked[-1])
    assert heads == sum((-ratio) ** term / math.factorial(term) for term in range(40))


def blocks(*words: int) -> bytes:
    """Return a block of noise that begins with these words."""
    return b"".join(word.to_bytes(4) for word in words).ljust(256, b"\0")


def around(word: int) -> set[int]:
    """Return the words next to one, and the first and the last there are."""
    return {near for near in (0, word - 1, word, word + 1, WORD - 1) if 0 <= near < WORD}


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_chance_is_whether_a_uniform_number_is_less(ratio: Fraction) -> None:
    whole, rest = divmod(ratio * WORD, 1)
    for word, following in product(around(whole), around(math.floor(rest * WORD)) - {math.floor(rest * WORD)}):
        reader = BitReader(ScriptedNoise(blocks(word, following, 7)))
        uniform = Fraction(word, WORD) + Fraction(following, WORD**2)
        assert reader.chance(*ratio.as_integer_ratio()) == (uniform < ratio)
        undecided = word == whole and rest > 0
        assert reader.bits(32) == (7 if undecided else following)  # no word more is read than decides


@pytest.mark.parametrize(("last", "less"), [(-1, True), (1, False)])
def test_a_chance_that_no_word_decides_reads_on(last: int, less: bool) -> None:
    third = WORD // 3
    reader = BitReader(ScriptedNoise(blocks(third, third, third, third + last, 7)))
    assert reader.chance(1, 3) is less
    assert reader.bits(32) == 7


@pytest.mark.parametrize("power", range(1, 30))
@pytest.mark.parametrize("places", [32, 64, 96])
def test_a_power_of_exp_is_rounded_down(power: int, places: int) -> None:
    from mpmath.ctx_iv import MPIntervalContext

    context = MPIntervalContext()
    context.prec = 400
    value = EXPONENTIAL._power_of_exp(power, places)
    exact = context.exp(-power) * 2**places
    assert (value < exact) is True
    assert (exact < value + 1) is True


def test_a_power_of_exp_takes_more_terms_where_the_first_leave_it_open() -> None:
    assert [EXPONENTIAL._power_of_exp.__wrapped__(1, places) for places in (2, 4)] == [1, 5]


@pytest.mark.parametrize("number", [1, 2, 3, 5, 20])
def test_a_unit_exponential_is_at_least_n_below_the_power(number: int) -> None:
    first, second = divmod(EXPONENTIAL._power_of_exp(number, 2 * PLACES), WORD)

    def drawn(*words: int) -> int:
        return int(EXPONENTIAL._unit_exponential(BitReader(ScriptedNoise(blocks(*words)))))

    assert drawn(first + 1, 0) == number - 1
    assert drawn(first - 1, WORD - 1) >= number
    assert [drawn(first, second - 1), drawn(first, second + 1)] == [number, number - 1]
