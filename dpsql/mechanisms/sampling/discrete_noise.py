"""Exact samplers of discrete exponentials, Laplace and Gaussian noise, in whole numbers; nothing is ever rounded.

Source: Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Algorithms 1 to 3.
The whole part of an exponential, for which they toss coins of probability exp(-1), is read off a uniform number here:
one word of noise decides it almost always, and how long it takes does not depend on what it is compared with.
Where many Gaussians are wanted they are drawn by arrays, which takes a tenth of the time or less: `gaussian_arrays.py`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from dpsql.errors import UsageError
from dpsql.mechanisms.sampling.gaussian_arrays import many_gaussians
from dpsql.mechanisms.sampling.noise import WORD, BitReader, Noise

_MANY = 16  # draws that take as long one by one as by arrays


def bernoulli_exp(numerator: int, denominator: int, *, reader: BitReader) -> bool:
    """Return True with probability exp(-numerator / denominator), for a ratio of 0 or more."""
    whole, rest = divmod(numerator, denominator)
    return not (whole and _unit_exponential(reader) < whole) and _bernoulli_exp_unit(rest, denominator, reader=reader)


def discrete_exponential(numerator: int, denominator: int, *, reader: BitReader) -> int:
    """Return a whole number that is at least n with probability exp(-n * numerator / denominator), for a ratio above 0.

    Cut into pieces of length numerator / denominator, the line carries a unit exponential; the number is that of the
    piece it falls into, found from the part below the whole in steps of 1 / denominator.
    """
    while True:
        within = reader.below(denominator)
        if _bernoulli_exp_unit(within, denominator, reader=reader):
            return (within + denominator * _unit_exponential(reader)) // numerator


def _bernoulli_exp_unit(numerator: int, denominator: int, *, reader: BitReader) -> bool:
    """Return True with probability exp(-numerator / denominator), for a ratio in [0, 1]."""
    trial = 1
    while reader.chance(numerator, denominator * trial):
        trial += 1
    return trial % 2 == 1


def _unit_exponential(reader: BitReader) -> int:
    """Return a unit exponential, rounded down: the number n with exp(-n - 1) <= U < exp(-n), for a uniform U in (0, 1).

    Of the binary places of U so many are read as decide.
    """
    places, whole, prefix = WORD, 0, reader.word()
    while True:
        bound = _power_of_exp(whole + 1, places)
        if prefix > bound:
            return whole
        if prefix < bound:
            whole += 1
        else:
            prefix, places = (prefix << WORD) | reader.word(), places + WORD


@cache
def _power_of_exp(power: int, places: int) -> int:
    """Return exp(-power) to so many binary places, rounded down; it has no last one, so U is on one side of it.

    An even number of terms of the series of exp(-1) is below it by less than the next term, one part of `parts`.
    """
    terms = places
    while True:
        parts = math.factorial(terms)
        low = sum((-1) ** at * (parts // math.factorial(at)) for at in range(terms))
        below, above = (int((least**power << places) // parts**power) for least in (low, low + 1))
        if below == above:
            return below
        terms *= 2


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
