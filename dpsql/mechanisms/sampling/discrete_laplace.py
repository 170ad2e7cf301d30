"""The discrete Laplace, sampled exactly.

Source: Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Algorithm 2, in integer arithmetic; nothing is ever rounded.
"""

from __future__ import annotations

from fractions import Fraction

from dpsql.errors import UsageError
from dpsql.mechanisms.sampling.exponential import discrete_exponential
from dpsql.mechanisms.sampling.noise import BitReader, Noise


def discrete_laplace(scale: Fraction, noise: Noise, *, count: int) -> list[int]:
    """Return `count` independent integers x, each with probability proportional to exp(-|x| / scale)."""
    if scale <= 0:
        raise UsageError("scale-range", "The scale of a discrete Laplace must be positive.")
    reader = BitReader(noise)
    return [laplace_draw(scale.numerator, scale.denominator, reader=reader) for _ in range(count)]


def laplace_draw(p: int, q: int, *, reader: BitReader) -> int:
    """Return a discrete Laplace draw: P[x] proportional to exp(-|x| q / p)."""
    while True:
        size, negative = discrete_exponential(q, p, reader=reader), reader.bits(1)
        if not (negative and size == 0):
            return -size if negative else size
