"""Randomness, as an argument: one method, and uniform integers made from it.

Production draws from the operating system for every call, so that nothing is kept that a fork, a snapshot or a seed
could repeat. There is no seeded source in this package; the tests bring their own.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterator
from typing import Protocol


class Noise(Protocol):
    """A source of independent, uniformly distributed bytes."""

    def draw(self, count: int) -> bytes:
        """Return `count` fresh random bytes."""
        ...


class OperatingSystemNoise:
    """The operating system's cryptographic generator."""

    __slots__ = ()

    def draw(self, count: int) -> bytes:
        """Return `count` fresh random bytes from the operating system."""
        return secrets.token_bytes(count)


_BLOCK = 256  # bytes
WORD = 32  # bits


def _words(noise: Noise) -> Iterator[int]:
    """Yield uniform words, from one block of noise after another."""
    while True:
        yield from struct.unpack(f">{8 * _BLOCK // WORD}I", noise.draw(_BLOCK))


class BitReader:
    """Uniform integers for one release, from blocks of noise; made in the release and dropped with it."""

    __slots__ = ("_bits", "_pool", "word")

    def __init__(self, noise: Noise) -> None:
        self.word = _words(noise).__next__  # a uniform integer of WORD bits
        self._pool = 0
        self._bits = 0

    def bits(self, count: int) -> int:
        """Return an integer uniform on [0, 2**count)."""
        while self._bits < count:
            self._pool = (self._pool << WORD) | self.word()
            self._bits += WORD
        self._bits -= count
        value, self._pool = self._pool >> self._bits, self._pool & ((1 << self._bits) - 1)
        return value

    def chance(self, numerator: int, denominator: int) -> bool:
        """Return True with probability numerator / denominator, which is at most 1.

        A uniform number is compared with the ratio; of its binary places a word is read at a time, until they decide.
        """
        # left = ratio * 2**n - prefix, times the denominator, for the n places so far. U is in [prefix, prefix + 1] /
        # 2**n: at 0 or less U is above the ratio, from the denominator on below it.
        left = (numerator << WORD) - self.word() * denominator
        while 0 < left < denominator:
            left = (left << WORD) - self.word() * denominator
        return left > 0

    def below(self, bound: int) -> int:
        """Return an integer uniform on [0, bound), by rejection."""
        # bound = 1 reads no bit: 0 is the only number.
        width = (bound - 1).bit_length()
        while (value := self.bits(width)) >= bound:
            pass
        return value

    def shuffled(self, number: int) -> list[int]:
        """Return the integers below `number` in a uniformly random order."""
        order = list(range(number))
        for last in range(number - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order
