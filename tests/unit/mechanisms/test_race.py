"""The exponential race at its edges: enclosures, refinement, deep tails, adversarial bits."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from importlib import import_module
from itertools import pairwise
from types import ModuleType

import mpmath
import numpy as np
import pytest
from support.laws import ScriptedNoise, SeededNoise, fits, goodness

from dpsql.mechanisms import OperatingSystemNoise
from dpsql.mechanisms.sampling.race import race

MODULE: ModuleType = import_module("dpsql.mechanisms.sampling.race")
RADIUS = MODULE._RADIUS
ONES, HALF = 2**53 - 1, 2**52
ZEROS = [0, 1, 2, 3, 10, 63, 64, 300, 700, 969, 970, 1000, 1021]


def words(*values: int) -> bytes:
    """Return 64-bit words as a source hands them out."""
    return struct.pack(f"={len(values)}Q", *values)


def blocks(values: Iterable[int]) -> bytes:
    """Return one block of a `BitReader` that reads as `values`, 64 bits each, and then as zeros."""
    return b"".join(value.to_bytes(8) for value in values).ljust(256, b"\0")


def true_key(numerator: int, length: int, gap: Fraction) -> mpmath.mpf:
    """Return ln(-ln(1 - U)) - gap for U = numerator / 2**length, far more precisely than a double."""
    with mpmath.workprec(2 * length + 256):
        complement = mpmath.mpf(2**length - numerator) / 2**length
        if not complement:
            return mpmath.inf
        return mpmath.log(-mpmath.log(complement)) - mpmath.mpf(gap.numerator) / gap.denominator


def uniforms() -> list[tuple[int, int]]:
    draw = random.Random(7)
    prefixes = [HALF, HALF + 1, ONES - 1, ONES, draw.randrange(HALF, ONES)]
    return [(prefix, zeros + 53) for zeros in ZEROS for prefix in prefixes]


EXTREMES: dict[str, tuple[tuple[int, ...], Fraction | None]] = {
    "equal": ((5, 5, 5), None),
    "one apart": ((8, 7, 6), None),
    "far apart": ((2**50, 2**50 - 1, 1, 0), None),
    "as large as can be": ((2**53 - 1, 2**53 - 2, 0), None),
    "fractional threshold": ((20, 3), 1 + Fraction(139.15510557964274)),
    "high threshold": ((20, 3), 10**12 + Fraction(1, 3)),
}


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**4), Fraction(1, 3), Fraction(1), Fraction(64)])
@pytest.mark.parametrize("scores", EXTREMES)
def test_the_enclosure_contains_the_true_keys_with_room_to_spare(scores: str, epsilon: Fraction) -> None:
    counts, bottom = EXTREMES[scores]
    exact = [*map(Fraction, counts), *([] if bottom is None else [bottom])]
    reference = max(-(-score.numerator // score.denominator) for score in exact)
    gaps = MODULE._gaps(counts, bottom, epsilon=epsilon, reference=reference)
    for at, score in enumerate(exact):
        gap = epsilon * (score - reference)
        cells = uniforms()
        low, high = MODULE._enclose(
            np.array([prefix for prefix, _ in cells]),
            np.array([length for _, length in cells]),
            gaps=np.full(len(cells), gaps[at]),
        )
        for cell, (prefix, length) in enumerate(cells):
            room = 0.75 * RADIUS * (1 + abs(float(gap)))
            assert true_key(prefix, length, gap) - low[cell] > room
            assert high[cell] - true_key(prefix + 1, length, gap) > room or high[cell] == np.inf
            assert np.isfinite(low[cell])
            assert np.isfinite(high[cell]) == (prefix + 1 < 2**length)


def test_the_rounding_error_is_a_small_part_of_the_radius() -> None:
    draw = random.Random(11)
    cells = [(draw.randrange(HALF, ONES), 53 + zeros) for zeros in range(40) for _ in range(20)]
    gaps = np.array([-draw.expovariate(1.0) * 10 ** draw.randint(-3, 6) for _ in cells])
    low, _ = MODULE._enclose(
        np.array([prefix for prefix, _ in cells]), np.array([size for _, size in cells]), gaps=gaps
    )
    for at, (prefix, length) in enumerate(cells):
        key = true_key(prefix, length, Fraction(float(gaps[at])))
        radius = RADIUS * (abs(key + gaps[at]) + abs(gaps[at]) + 1)
        assert abs(low[at] + radius - key) < radius / 8


def test_a_uniform_below_the_doubles_is_left_to_the_refinement() -> None:
    cells = np.array([HALF + 12_345, HALF, ONES, ONES])
    low, high = MODULE._enclose(cells, np.array([53 + 1030, 53 + 1100, 53 + 5000, 53 + 1022]), gaps=np.zeros(4))
    assert np.all(low == -np.inf)
    assert np.all(high == np.inf)


def test_short_prefixes_are_enclosed_too() -> None:
    for bits in (1, 2, 6):
        for prefix in (1 << bits, (2 << bits) - 1):
            low, high = MODULE._enclose(np.array([prefix]), np.array([bits + 5]), gaps=np.array([-0.25]))
            assert (
                low[0] < true_key(prefix, bits + 5, Fraction(-1, 4)) < true_key(prefix + 1, bits + 5, Fraction(-1, 4))
            )
            assert true_key(prefix + 1, bits + 5, Fraction(-1, 4)) < high[0]


@pytest.mark.parametrize("first_is_smaller", [True, False])
@pytest.mark.parametrize("equal_rounds", [0, 1, 5])
def test_identical_words_are_told_apart_by_further_bits(equal_rounds: int, first_is_smaller: bool) -> None:
    last = [17, 18] if first_is_smaller else [18, 17]
    more = [word for _ in range(equal_rounds) for word in (0xABCDEF, 0xABCDEF)] + last
    noise = ScriptedNoise(words(99 << 32, 99 << 32, 4, 4), blocks(more))
    assert race((6, 6), None, epsilon=Fraction(1, 10), steps=2, noise=noise) == ([0, 1] if first_is_smaller else [1, 0])
    assert noise.exhausted


class Dictated:
    """A reader that gives each contender its own bits in turn."""

    def __init__(self, *numbers: int, rounds: int) -> None:
        self._words = [number >> (64 * (rounds - at - 1)) & (2**64 - 1) for at in range(rounds) for number in numbers]
        self.read = 0

    def bits(self, count: int) -> int:
        assert count == 64
        self.read += 1
        return self._words.pop(0)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**4), Fraction(1, 3), Fraction(1)])
@pytest.mark.parametrize("zeros", [0, 1, 200])
@pytest.mark.parametrize("side", [-1, 1])
def test_keys_that_agree_far_beyond_a_double_are_ordered_truly(epsilon: Fraction, zeros: int, side: int) -> None:
    rounds, length = 5, 53 + zeros
    longest = length + 64 * rounds
    leader = (HALF + 1_000_003) << (64 * rounds)  # its further bits are all 0
    gap = -epsilon * 3
    with mpmath.workprec(3 * longest):  # the U at which the second key, 3 counts behind, equals the first
        rate = mpmath.exp(mpmath.mpf(gap.numerator) / gap.denominator)
        clock = -mpmath.log(1 - mpmath.mpf(leader) / 2**longest) * rate
        crossing = int(mpmath.floor(-mpmath.expm1(-clock) * 2**longest)) + side * 2**100
    shift = 64 * rounds
    contenders = [
        MODULE._Contender(0, leader >> shift, length, Fraction(0)),
        MODULE._Contender(1, crossing >> shift, length, gap),
    ]
    reader = Dictated(leader, crossing, rounds=rounds)
    assert MODULE._untangle(contenders, reader) == ([0, 1] if side > 0 else [1, 0])
    assert reader.read >= 2 * (rounds - 2)


def test_refinement_reads_on_in_the_same_uniforms_and_orders_them_truly(monkeypatch: pytest.MonkeyPatch) -> None:
    untangle, seen = MODULE._untangle, 0

    def checked(contenders: list[object], reader: object) -> list[int]:
        nonlocal seen
        before = [(contender.prefix, contender.length) for contender in contenders]
        order = list(untangle(contenders, reader))
        for (prefix, length), contender in zip(before, contenders, strict=True):
            assert contender.prefix >> (contender.length - length) == prefix
        by_position = {contender.position: contender for contender in contenders}
        ranked = [by_position[position] for position in order]
        for one, two in pairwise(ranked):
            assert true_key(one.prefix + 1, one.length, one.gap) < true_key(two.prefix, two.length, two.gap)
        seen += 1
        return order

    monkeypatch.setattr(MODULE, "_untangle", checked)
    for seed in range(150):
        race(
            (9, 8, 8, 7, 3), Fraction(21, 2), epsilon=Fraction(1, 2), steps=6, noise=SeededNoise(seed), mantissa_bits=2
        )
    assert seen > 100


def test_sixty_four_zero_bits_in_a_row_are_followed_by_more() -> None:
    noise = ScriptedNoise(words(0, 0, 0, 1, 0, 1 << 63), words(0), words(1 << 5))
    prefixes, lengths = MODULE._draw_uniforms(3, noise, mantissa_bits=52)
    assert list(prefixes) == [HALF] * 3
    assert list(lengths) == [53, 53 + 128 + 5, 53 + 63]
    assert noise.exhausted


def test_all_mantissa_bits_are_used_and_no_more() -> None:
    noise = ScriptedNoise(words(2**64 - 1, 2**64 - 1, 1, 2))
    prefixes, lengths = MODULE._draw_uniforms(2, noise, mantissa_bits=52)
    assert (list(prefixes), list(lengths)) == ([ONES, ONES], [53, 54])
    short, sizes = MODULE._draw_uniforms(1, ScriptedNoise(words(0b01 << 62, 8)), mantissa_bits=2)
    assert (list(short), list(sizes)) == ([0b101], [6])


def test_the_number_of_leading_zeros_is_geometric() -> None:
    def p_value() -> float:
        _, lengths = MODULE._draw_uniforms(100_000, OperatingSystemNoise(), mantissa_bits=52)
        return goodness(Counter((lengths - 53).tolist()), {zeros: 0.5 ** (zeros + 1) for zeros in range(200)})

    assert fits(p_value)


@pytest.mark.parametrize("behind", [100, 600, 2000])
def test_the_deep_tail_is_there(behind: int) -> None:
    """A candidate that is 100 or 2000 Gumbel scales behind still wins, if its uniform is small enough."""
    rows = 2 * behind // 64 + 1
    noise = ScriptedNoise(words(0, 0, 1, 0), *[words(0)] * rows, words(1), blocks([5, 6]))
    assert race((behind, 0), None, epsilon=Fraction(1), steps=2, noise=noise) == [1, 0]


def test_two_uniforms_below_the_doubles_are_ordered_truly() -> None:
    rows = [words(0, 0)] * 20
    smaller_last = ScriptedNoise(words(9 << 40, 8 << 40, 0, 0), *rows, words(1, 1), blocks([1, 1]))
    assert race((4, 4), None, epsilon=Fraction(1), steps=2, noise=smaller_last) == [1, 0]


def test_a_clear_order_takes_sixteen_bytes_a_candidate() -> None:
    noise = ScriptedNoise(words(3 << 60, 0, 0, 1, 1, 1 << 9))
    assert race((7, 7), Fraction(15, 2), epsilon=Fraction(1, 1000), steps=3, noise=noise) == [2, 1, 0]
    assert noise.exhausted


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_the_first_steps_are_a_prefix_of_the_whole_order(steps: int) -> None:
    for seed in range(50):
        whole = race((3, 2, 2), Fraction(5, 2), epsilon=Fraction(1), steps=4, noise=SeededNoise(seed))
        assert (
            race((3, 2, 2), Fraction(5, 2), epsilon=Fraction(1), steps=steps, noise=SeededNoise(seed)) == whole[:steps]
        )
        assert sorted(whole) == [0, 1, 2, 3]
