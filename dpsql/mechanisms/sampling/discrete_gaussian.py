"""Exact sampler of the discrete Gaussian.

Source: Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Algorithm 3, in integer arithmetic; nothing is ever rounded.
Where many are wanted they are drawn by arrays, which takes a tenth of the time or less: `gaussian_arrays.py`.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.errors import UsageError
from dpsql.mechanisms.sampling.discrete_laplace import laplace_draw
from dpsql.mechanisms.sampling.exponential import bernoulli_exp
from dpsql.mechanisms.sampling.gaussian_arrays import many_gaussians
from dpsql.mechanisms.sampling.noise import BitReader, Noise

_MANY = 16  # draws that take as long one by one as by arrays


def discrete_gaussian(variance: Fraction, noise: Noise, *, count: int) -> list[int]:
    """Return `count` independent draws of N_Z(0, variance); `variance` is sigma squared and positive."""
    if variance <= 0:
        raise UsageError("variance-range", "The variance of a discrete Gaussian must be positive.")
    draws = many_gaussians(variance, noise, count=count) if count >= _MANY else None
    if draws is not None:
        return draws
    reader = BitReader(noise)
    return [_gaussian(variance.numerator, variance.denominator, reader=reader) for _ in range(count)]


def _gaussian(p: int, q: int, *, reader: BitReader) -> int:
    """Return a draw of N_Z(0, p / q), by rejection from a discrete Laplace of scale s, its root rounded down, plus 1.

    x is kept with probability exp(-e), e = (|x| - p/(q s))**2 / (2 p/q) = (|x| q s - p)**2 / (2 p q s**2).
    """
    scale = math.isqrt(p // q) + 1
    step, spread = q * scale, 2 * p * q * scale * scale
    while True:
        candidate = laplace_draw(scale, 1, reader=reader)
        excess = abs(candidate) * step - p
        if bernoulli_exp(excess * excess, spread, reader=reader):
            return candidate
