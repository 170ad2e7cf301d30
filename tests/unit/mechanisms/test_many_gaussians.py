"""Draws by arrays: every decision against fifty digits, the refinement bit by bit, and the law whoever decides."""

from __future__ import annotations

import math
import random
import struct
from collections import Counter
from fractions import Fraction
from importlib import import_module
from types import ModuleType

import mpmath
import numpy as np
import pytest
from support.laws import ScriptedNoise, agree, discrete_gaussian_law, fits, goodness, rejects

from dpsql.mechanisms import OperatingSystemNoise, discrete_gaussian
from dpsql.mechanisms.sampling.discrete_noise import MOST_VARIANCE, many_gaussians

MODULE: ModuleType = import_module("dpsql.mechanisms.sampling.discrete_noise")
NOISE = OperatingSystemNoise()
VARIANCES = [Fraction(1, 2**72), Fraction(1, 4), Fraction(7, 3), Fraction(400), Fraction(10**12 + 7, 10**3), 2**42]
LAST = 2**53 - 1
EDGES = [0, 1, 2, 3, 2**30, 2**52 - 1, 2**52, LAST - 2**20, LAST - 1, LAST]


def prefixes() -> list[int]:
    draw = random.Random(3)
    return [*EDGES, *(draw.getrandbits(53) >> draw.randrange(40) for _ in range(300))]


def exponential(numerator: int, places: int = 53) -> mpmath.mpf:
    """Return -ln(numerator / 2**places), in the present precision."""
    return -mpmath.log(mpmath.mpf(numerator) / 2**places) if numerator else mpmath.inf


def words(*values: int) -> bytes:
    """Return 64-bit words as a source hands them out."""
    return struct.pack(f"={len(values)}Q", *values)


def block(*numbers: int) -> bytes:
    """Return one block of a `BitReader` that reads as these, 64 bits each, and then as zeros."""
    return b"".join(number.to_bytes(8) for number in numbers).ljust(256, b"\0")


def drawn(law: object, noise: ScriptedNoise) -> list[int]:
    """Return what one candidate comes to."""
    found = MODULE._accepted(law, 1, noise=noise, reader=MODULE.BitReader(noise))
    return [int(draw) for draw in found]


@pytest.mark.parametrize("variance", VARIANCES)
def test_what_arrays_decide_is_decided_truly(variance: Fraction) -> None:
    law, cells = MODULE._Law.of(Fraction(variance)), prefixes()
    low, high = MODULE._sizes(law, np.array(cells))
    with mpmath.workdps(50):
        for at, prefix in enumerate(cells):
            least, most = (mpmath.floor(law.scale * exponential(end)) for end in (prefix + 1, prefix))
            assert low[at] <= least <= most <= high[at]
            assert high[at] <= most + 1 + law.scale * 2.0**-40


@pytest.mark.parametrize("variance", VARIANCES)
def test_what_arrays_keep_is_kept_truly(variance: Fraction) -> None:
    law, cells = MODULE._Law.of(Fraction(variance)), prefixes()
    undecided = 0
    for size in (0, 1, law.scale // 2, law.scale, 3 * law.scale + 1, 12 * law.scale):
        excess = law.excess(size)
        kept, dropped = MODULE._decided(law, np.full(len(cells), float(size)), prefixes=np.array(cells))
        with mpmath.workdps(50):
            exact = mpmath.mpf(excess.numerator) / excess.denominator
            for at, prefix in enumerate(cells):
                least, most = exponential(prefix + 1), exponential(prefix)
                assert not kept[at] or least > exact
                assert not dropped[at] or most < exact
                undecided += not (kept[at] or dropped[at])
    assert undecided <= 2 * 6  # U in the lowest cell, or next to e


def test_rounding_errors_are_a_small_part_of_the_margins() -> None:
    cells = prefixes()[1:]
    low, _ = MODULE._exponentials(np.array(cells))
    law = MODULE._Law.of(Fraction(10**12 + 7, 10**3))
    with mpmath.workdps(50):
        for at, prefix in enumerate(cells):
            true = exponential(prefix + 1)
            assert abs(low[at] / (1.0 - MODULE._WIDER) - true) <= true * MODULE._WIDER / 8
        for size in range(0, 20 * law.scale, law.scale // 7):
            excess = law.excess(size)
            rounded = (np.float64(size) - law.centre) ** 2 / law.doubled
            margin = MODULE._WIDER * (size + law.centre) ** 2 / law.doubled
            assert abs(mpmath.mpf(float(rounded)) - mpmath.mpf(excess.numerator) / excess.denominator) < margin / 8


def test_a_coin_next_to_an_excess_that_rounding_could_move_is_left_to_the_refinement() -> None:
    law = MODULE._Law.of(Fraction(420))  # of scale 21, so that a size of 20 has no excess
    kept, dropped = MODULE._decided(law, np.array([20.0, 20.0]), prefixes=np.array([2**53 - 100, 2**53 - 1_000]))
    assert law.excess(20) == 0
    assert kept.tolist() == [False, True]
    assert not dropped.any()


@pytest.mark.parametrize("size", [1, 7, 40])
@pytest.mark.parametrize("rounds", [0, 1, 3])
@pytest.mark.parametrize("above", [False, True])
def test_a_size_that_no_double_decides_is_read_off_further_places(size: int, rounds: int, above: bool) -> None:
    law = MODULE._Law.of(Fraction(400))
    with mpmath.workdps(200):  # the U at which one size gives way to the next, and so many words that agree with it
        crossing = int(mpmath.exp(-mpmath.mpf(size) / law.scale) * 2 ** (53 + 64 * rounds))
    agreeing = [crossing >> 64 * at & (2**64 - 1) for at in reversed(range(rounds))]
    first = crossing >> 64 * rounds
    low, high = MODULE._sizes(law, np.array([first]))
    assert (low[0], high[0]) == (size - 1, size)
    noise = ScriptedNoise(words(first << 11, 1 << 11), block(*agreeing, 2**64 - 1 if above else 0))
    assert drawn(law, noise) == [size - above]
    assert noise.exhausted


@pytest.mark.parametrize("above", [False, True])
def test_a_coin_that_no_double_decides_is_read_off_further_places(above: bool) -> None:
    law, size = MODULE._Law.of(Fraction(400)), 30
    excess = law.excess(size)
    with mpmath.workdps(200):
        within = int(mpmath.exp(-(mpmath.mpf(size) + 0.5) / law.scale) * 2**53)
        crossing = int(mpmath.exp(-mpmath.mpf(excess.numerator) / excess.denominator) * 2**117)
    first, agreeing = crossing >> 64, crossing & (2**64 - 1)
    kept, dropped = MODULE._decided(law, np.array([float(size)]), prefixes=np.array([first]))
    assert not kept[0]
    assert not dropped[0]
    noise = ScriptedNoise(words(within << 11, first << 11), block(5, agreeing, 2**64 - 1 if above else 0))
    assert drawn(law, noise) == ([] if above else [size])
    assert noise.exhausted


def test_a_uniform_without_a_one_is_read_until_it_has_one() -> None:
    law = MODULE._Law.of(Fraction(1, 4))  # of scale 1
    reader = MODULE.BitReader(ScriptedNoise(block(0, 0, 1 << 40)))
    size, kept = MODULE._refined(law, [0, LAST], reader=reader)
    assert size == math.floor(math.log(2) * (53 + 64 * 3 - 40))
    assert not kept


@pytest.mark.parametrize(("sign", "draws"), [(0, [0]), (1, [])])
def test_zero_is_taken_with_one_sign_alone(sign: int, draws: list[int]) -> None:
    assert drawn(MODULE._Law.of(Fraction(1, 4)), ScriptedNoise(words(LAST << 11 | sign, 1 << 11))) == draws


@pytest.mark.properties
@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(7, 3), Fraction(400)])
def test_the_law_is_the_same_whether_arrays_or_further_places_decide(
    variance: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "_WIDER", 2.0**-4)
    law = discrete_gaussian_law(variance)
    assert fits(lambda: goodness(Counter(many_gaussians(variance, NOISE, count=4_000)), law))


@pytest.mark.parametrize("variance", [Fraction(2**42), Fraction(10**15, 7), Fraction(MOST_VARIANCE)])
def test_wide_draws_agree_with_those_drawn_one_by_one(variance: Fraction) -> None:
    step = math.isqrt(int(variance)) // 2

    def p(scale: Fraction = Fraction(1)) -> float:
        many = Counter(draw // step for draw in many_gaussians(variance * scale, NOISE, count=8_000) or ())
        one = Counter(discrete_gaussian(variance, NOISE, count=1)[0] // step for _ in range(8_000))
        return agree(many, one)  # both of them, in halves of a deviation

    assert fits(p)
    assert rejects(lambda: p(Fraction(100, 144)))


@pytest.mark.parametrize("count", [1, 16, 1_000])
def test_as_many_are_drawn_as_are_wanted(count: int) -> None:
    draws = many_gaussians(Fraction(9), NOISE, count=count)
    assert draws is not None
    assert len(draws) == count
    assert {type(draw) for draw in draws} == {int}


@pytest.mark.parametrize("variance", [Fraction(1, 2**72 + 1), Fraction(MOST_VARIANCE + 1)])
def test_a_variance_beyond_doubles_is_drawn_one_by_one(variance: Fraction) -> None:
    assert many_gaussians(variance, NOISE, count=20) is None
    assert len(discrete_gaussian(variance, NOISE, count=20)) == 20
