"""Uniform bits and integers, and where they come from."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import permutations
from math import factorial

import pytest
from support.laws import ScriptedNoise, SeededNoise, fits, goodness, rejects

from dpsql.mechanisms import OperatingSystemNoise
from dpsql.mechanisms.sampling.noise import BitReader

NOISE = OperatingSystemNoise()


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 7, 10, 64, 100, 2**40 + 1])
def test_integers_are_uniform_below_any_bound(bound: int) -> None:
    reader, cells = BitReader(NOISE), min(bound, 100)

    def p_value() -> float:
        drawn = Counter(reader.below(bound) * cells // bound for _ in range(20_000))
        return goodness(drawn, dict.fromkeys(range(cells), 1 / cells))

    assert fits(p_value)


@pytest.mark.mutant
def test_a_remainder_in_place_of_a_rejection_is_noticed() -> None:
    reader = BitReader(NOISE)
    assert rejects(lambda: goodness(Counter(reader.bits(3) % 5 for _ in range(20_000)), dict.fromkeys(range(5), 0.2)))


def test_rejected_bits_are_not_used_again() -> None:
    reader = BitReader(ScriptedNoise(bytes([0b111_110_10, 0b1_0000000]) + bytes(254)))
    assert [reader.below(6), reader.bits(1)] == [0b101, 0]  # 7 and 6 are too large


def test_bits_are_read_once_and_in_order_across_blocks() -> None:
    stream = SeededNoise(3).draw(512)
    reader = BitReader(ScriptedNoise(stream[:256], stream[256:]))
    sizes = [1, 7, 64, 0, 13, 2000, 3, 900, 1108]
    assert sum(sizes) == 4096
    read = "".join(f"{reader.bits(size):0{size}b}" for size in sizes if size)
    assert read == "".join(f"{byte:08b}" for byte in stream)


def test_one_outcome_takes_no_bits() -> None:
    assert BitReader(ScriptedNoise()).below(1) == 0


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_every_order_is_as_likely(number: int) -> None:
    reader = BitReader(NOISE)
    orders = dict.fromkeys(permutations(range(number)), 1 / factorial(number))
    assert fits(lambda: goodness(Counter(tuple(reader.shuffled(number)) for _ in range(10_000)), orders))


def test_nothing_shuffled_is_nothing() -> None:
    assert BitReader(ScriptedNoise()).shuffled(0) == []


def test_every_draw_of_the_operating_system_is_fresh() -> None:
    draws = {NOISE.draw(16) for _ in range(1_000)}
    assert len(draws) == 1_000
    assert {len(draw) for draw in draws} == {16}
    assert not hasattr(NOISE, "__dict__")


FORKING = """
import os
from dpsql.mechanisms import OperatingSystemNoise
noise = OperatingSystemNoise()
drawn = [noise.draw(16)]
reading, writing = os.pipe()
for _ in range(250):  # a thousand passed as well, and took longer
    child = os.fork()
    if child == 0:
        os.write(writing, noise.draw(16))
        os._exit(0)
    os.waitpid(child, 0)
    drawn += [os.read(reading, 16), noise.draw(16)]
print(len(drawn), len(set(drawn)), set(map(len, drawn)))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="nothing forks there")
def test_forks_and_their_parent_draw_nothing_twice() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "501 501 {16}\n", done.stderr
