"""Randomness, as an argument: one method, and uniform integers made from it.

Production draws from the operating system for every call, so that nothing is kept that a fork, a snapshot or a seed
could repeat. There is no seeded source in this package; the tests bring their own.
"""

from __future__ import annotations

import secrets
from typing import Protocol

__all__ = ["BitReader", "Noise", "OperatingSystemNoise"]


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


class BitReader:
    """Uniform integers for one release, from blocks of noise; made in the release and dropped with it."""

    __slots__ = ("_bits", "_noise", "_pool")
    _BLOCK = 256

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self._pool = 0
        self._bits = 0

    def bits(self, count: int) -> int:
        """Return an integer uniform on [0, 2**count)."""
        while self._bits < count:
            self._pool = (self._pool << (8 * self._BLOCK)) | int.from_bytes(self._noise.draw(self._BLOCK))
            self._bits += 8 * self._BLOCK
        self._bits -= count
        value, self._pool = self._pool >> self._bits, self._pool & ((1 << self._bits) - 1)
        return value

    def below(self, bound: int) -> int:
        """Return an integer uniform on [0, bound), by rejection."""
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
