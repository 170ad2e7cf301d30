"""Exact samplers of discrete exponentials, Laplace and Gaussian noise, in whole numbers; nothing is ever rounded.

Source: Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Algorithms 1 to 3.
The whole part of an exponential, for which they toss coins of probability exp(-1), is read off a uniform number here:
one word of noise decides it almost always, and how long it takes does not depend on what it is compared with.

**Many Gaussians** are drawn by arrays, which takes a tenth of the time or less: the same rejection. A candidate is a
discrete Laplace x of an integer scale s, kept with probability exp(-e), where for the variance v

    |x| = rounded down s E,    E = -ln U,        e = (|x| - v/s)**2 / (2 v),    kept where  -ln V > e,

U and V uniform on (0, 1) and a sign: x = 0 counts with one sign alone. P[|x| >= n] = P[E >= n/s] = exp(-n/s).

**Exactness.** U and V are infinitely long random binary fractions of which 53 places have been read, so each lies in
an interval whose ends are doubles without rounding. -ln is enclosed by its values at the ends, widened by 2**-46 of
themselves: all C libraries and vector units in use stay within 4 units in the last place, and the product with s
rounds once more, which is 2**-49 together. With d = |x| - v/s and D = |x| + v/s, d is wrong by at most 2**-52 D, and
e = d**2 / (2 v) by 2**-50 D**2 / (2 v); it is widened by sixteen times that. Where both ends round down to one whole
number, and -ln V lies wholly on one side of e, the outcome is certainly that of the infinitely precise draw.
Otherwise 64 more places are appended to the *same* U and V, never a fresh draw, and their logarithms are enclosed in
`decimal`, whose own are correctly rounded, until they decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dpsql.errors import UsageError
from dpsql.mechanisms.sampling.noise import WORD, BitReader, Noise

_MANY = 16  # draws that take as long one by one as by arrays


def bernoulli_exp(numerator: int, denominator: int, *, reader: BitReader) -> bool:
    """Return True with probability exp(-numerator / denominator), for a ratio of 0 or more."""
    whole, rest = divmod(numerator, denominator)
    # exp(-whole - rest) is P[E >= whole] of a unit exponential E, times exp(-rest).
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
    # Trials of probability r, r / 2, r / 3, ...: the first failure has an odd number with probability 1 - r + r**2 / 2
    # - ... = exp(-r).
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
        low = 0
        for at in range(terms):
            low += (-1) ** at * (parts // math.factorial(at))
        # exp(-1) lies between low / parts and (low + 1) / parts; if both powers agree to `places`, these are the
        # digits.
        # exp(-1) lies between low / parts and (low + 1) / parts; if both powers agree to `places`, these are the
        # digits.
        below = int((low**power << places) // parts**power)
        above = int(((low + 1) ** power << places) // parts**power)
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
    """Return `count` independent draws of N_Z(0, variance); `variance` is sigma squared and positive.

    By rejection from a discrete Laplace of scale s, the root of the variance rounded down, plus 1.
    """
    if variance <= 0:
        raise UsageError("variance-range", "The variance of a discrete Gaussian must be positive.")
    draws = many_gaussians(variance, noise, count=count) if count >= _MANY else None
    if draws is not None:
        return draws
    p, q = variance.as_integer_ratio()
    scale = math.isqrt(p // q) + 1
    step, spread = q * scale, 2 * p * q * scale * scale
    reader, kept = BitReader(noise), list[int]()
    while len(kept) < count:
        candidate = laplace_draw(scale, 1, reader=reader)
        excess = abs(candidate) * step - p
        # x is kept with probability exp(-e), e = (|x| - p/(q s))**2 / (2 p/q) = (|x| q s - p)**2 / (2 p q s**2)
        if bernoulli_exp(excess * excess, spread, reader=reader):
            kept.append(candidate)
    return kept


MOST_VARIANCE = 2**72  # beyond it a double does not hold s E finely enough to decide most of them
_LEAST_VARIANCE = Fraction(1, 2**72)
_PLACES = 53
_WIDER = 2.0**-46
_MORE_PLACES = 64
_GUARD = 8  # digits beyond those that the places have: room for the roundings
_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]
_Found = TypeVar("_Found")


def many_gaussians(variance: Fraction, noise: Noise, *, count: int) -> list[int] | None:
    """Return `count` independent draws of N_Z(0, variance), or None where doubles would decide too few of them.

    Cost: about 24 random bytes and, of a hundred or more, half a microsecond a draw.
    """
    if not _LEAST_VARIANCE <= variance <= MOST_VARIANCE:
        return None
    law, reader, draws = _Law.of(variance), BitReader(noise), list[int]()
    # About three of four candidates are kept where the noise is wide, and a third where it is narrow.
    while len(draws) < count:
        missing = count - len(draws)
        draws += _accepted(law, missing + missing // 2 + 16, noise=noise, reader=reader)
    return draws[:count]


@dataclass(frozen=True, slots=True)
class _Law:
    """What decides about a candidate: the variance, exactly and as doubles, and the scale of the Laplace."""

    variance: Fraction
    scale: int
    centre: float
    doubled: float

    @classmethod
    def of(cls, variance: Fraction) -> _Law:
        scale = math.isqrt(variance.numerator // variance.denominator) + 1
        return cls(variance, scale, float(variance / scale), float(2 * variance))

    def excess(self, size: int) -> Fraction:
        """Return e exactly."""
        return (size - self.variance / self.scale) ** 2 / (2 * self.variance)


def _accepted(law: _Law, candidates: int, *, noise: Noise, reader: BitReader) -> list[int]:
    """Return those of so many candidates that are kept, in their order."""
    words = np.frombuffer(noise.draw(16 * candidates), dtype=np.uint64).reshape(2, candidates)
    prefixes = (words >> np.uint64(64 - _PLACES)).astype(np.int64)
    low, high = _sizes(law, prefixes[0])
    kept, dropped = _decided(law, low, prefixes=prefixes[1])
    # Few are left here: those whose 53 places decide neither |x| nor whether it is kept.
    for at in np.flatnonzero((low != high) | ~(kept | dropped)).tolist():
        low[at], kept[at] = _refined(law, prefixes[:, at].tolist(), reader=reader)
    negative = (words[0] & np.uint64(1)).astype(np.bool_)  # of the places that U did not take
    sizes = low.astype(np.int64)
    kept &= ~negative | (sizes != 0)
    draws: list[int] = np.where(negative, -sizes, sizes)[kept].tolist()
    return draws


def _exponentials(prefixes: _Integers) -> tuple[_Floats, _Floats]:
    """Return intervals that certainly contain -ln U, for U in [prefix, prefix + 1] / 2**53."""
    with np.errstate(divide="ignore"):  # U may reach 0
        low, high = -np.log(np.ldexp(prefixes + 1.0, -_PLACES)), -np.log(np.ldexp(prefixes, -_PLACES))
    return low * (1.0 - _WIDER), high * (1.0 + _WIDER)


def _sizes(law: _Law, prefixes: _Integers) -> tuple[_Floats, _Floats]:
    """Return the whole numbers between which |x| certainly lies."""
    low, high = _exponentials(prefixes)
    return np.floor(low * law.scale), np.floor(high * law.scale)


def _decided(law: _Law, sizes: _Floats, *, prefixes: _Integers) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which are certainly kept and which are certainly not, if |x| is what it is taken for."""
    low, high = _exponentials(prefixes)
    excess = (sizes - law.centre) ** 2 / law.doubled
    radius = (sizes + law.centre) ** 2 / law.doubled * _WIDER
    return low > excess + radius, high < excess - radius


def _refined(law: _Law, prefixes: list[int], *, reader: BitReader) -> tuple[int, bool]:
    """Return |x| and whether it is kept, of U and V whose first places are these."""
    first, second = prefixes

    def size(low: Fraction, high: Fraction) -> int | None:
        least, most = math.floor(low * law.scale), math.floor(high * law.scale)
        return least if least == most else None

    found = _read_on(first, size, reader=reader)
    excess = law.excess(found)

    def kept(low: Fraction, high: Fraction) -> bool | None:
        return low > excess if low > excess or high < excess else None

    return found, _read_on(second, kept, reader=reader)


def _read_on(prefix: int, decide: Callable[[Fraction, Fraction], _Found | None], *, reader: BitReader) -> _Found:
    """Return what `decide` finds in an enclosure of -ln U, of which places are read until it finds something."""
    places = _PLACES
    while True:
        prefix, places = (prefix << _MORE_PLACES) | reader.bits(_MORE_PLACES), places + _MORE_PLACES
        # Where all places so far are 0, U may be 0, and -ln U has no upper end.
        found = decide(*_enclosed(prefix, places)) if prefix else None
        if found is not None:
            return found


def _enclosed(prefix: int, places: int) -> tuple[Fraction, Fraction]:
    """Return an enclosure of -ln U for U in [prefix, prefix + 1] / 2**places, finer than U is known.

    Quotient and logarithm are each correctly rounded, at eight digits more than the margin has.
    """
    digits = places // 3 + _GUARD
    context = Context(prec=digits + _GUARD, Emin=MIN_EMIN, Emax=MAX_EMAX)
    whole, margin = Decimal(1 << places), Fraction(1, 10**digits)
    low, high = (-Fraction(context.ln(context.divide(Decimal(end), whole))) for end in (prefix + 1, prefix))
    return low - margin, high + margin
