"""Noise only where it can matter: of many counts, those that exact discrete Gaussian noise lifts to a threshold.

The law is that of one draw of N_Z(0, variance) for every count, of which those below the threshold are forgotten;
the draws that would be forgotten are hardly ever made (`maths.md` 11.4).

**Near and far.** A count needs noise of at least gap = threshold - count. Where the gap is below 1.5 standard
deviations the noise is drawn as such. The others go into bands by their gap, each with a least gap `start`. In a band
every count reaches `start` with one probability P[N >= start], so the counts that do are found by jumping from one to
the next; each of them draws its noise from the law of N given N >= start, and is kept if that covers its own gap.

**Exactness.** For n = start + m

    P[N = n] = E * (1 - r) * r**m * exp(-m**2 / (2 variance)),   r = exp(-start / variance),
    E = exp(-start**2 / (2 variance)) / (Z * (1 - r)),            Z the sum of exp(-n**2 / (2 variance)) over all n.

So a count of the band is chosen with probability E, given a discrete exponential m, and kept with a probability that
is a coin of `discrete_noise.py`: whole numbers. E alone is no such coin. Jumps are discrete exponentials of a rational
rate c, thus choosing with probability 1 - exp(-c), a little above E, and what they choose is confirmed with probability
E / (1 - exp(-c)): a uniform binary fraction is read until an enclosure of that number lies wholly above or below it.
The enclosure is computed in `decimal`, whose operations, root and exponential are correctly rounded; its digits grow
with the fraction's. No probability is ever rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, getcontext, localcontext
from fractions import Fraction
from functools import cache, lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.sampling.discrete_noise import bernoulli_exp, discrete_exponential, discrete_gaussian
from dpsql.mechanisms.sampling.noise import BitReader, Noise

_WORD = 64  # bits of a uniform that are read at once
_DIGITS = 28  # of an enclosure, for the first word
_MORE_DIGITS = 20  # for each further one: more than 64 bits have
_GUARD = 8  # digits beyond those asked for: room for fifty roundings and for the margin
_RATE_BITS = 20  # of a rate, so that jumps are drawn from short numbers
_Enclosure = tuple[Fraction, Fraction]


def noisy_above(
    counts: npt.NDArray[np.int64], threshold: int, *, variance: Fraction, noise: Noise
) -> list[tuple[int, int]]:
    """Return position and noisy count of every count that independent N_Z(0, variance) noise lifts to `threshold`.

    Given: counts below 2**53, a threshold below 2**62, variance above 0. The order of the result means nothing.
    Cost: passes over the counts, and a draw for each count that is near the threshold or above it.
    """
    widest = threshold - int(counts.min(initial=threshold))
    starts = _starts(variance, widest)
    near = np.flatnonzero(counts > threshold - starts[0])
    draws = discrete_gaussian(variance, noise, count=len(near))
    lifted = zip(near.tolist(), counts[near].tolist(), draws, strict=True)
    passed = [(at, noisy) for at, count, draw in lifted if (noisy := count + draw) >= threshold]
    reader = BitReader(noise)
    # Counts whose gap is in [start, following) are a band; the last one ends at the widest gap.
    for start, following in pairwise((*starts, widest + 1)):
        band = (counts <= threshold - start) & (counts > threshold - following)
        hits = list(_hits(Tail(variance, start), int(np.count_nonzero(band)), reader=reader))
        if hits:
            places = np.flatnonzero(band)
            reaching = ((int(places[rank]), int(counts[places[rank]]) + draw) for rank, draw in hits)
            passed += [(at, noisy) for at, noisy in reaching if noisy >= threshold]
    return passed


def _starts(variance: Fraction, widest: int) -> list[int]:
    """Return the least gaps of the bands: 1.5, 2, 2.5 ... 40 standard deviations, roughly, the first at any rate."""
    p, q = variance.as_integer_ratio()
    first, *others = (math.isqrt(halves * halves * p // (4 * q)) + 1 for halves in range(3, 81))
    return sorted({first, *(start for start in others if start <= widest)})


def _hits(tail: Tail, size: int, *, reader: BitReader) -> Iterator[tuple[int, int]]:
    """Yield rank and noise of those of `size` counts whose noise is in the tail."""
    if not size:
        return
    rate, confirmed = _jumps(tail)
    rank = discrete_exponential(rate.numerator, rate.denominator, reader=reader)
    while rank < size:
        if (draw := draw_chosen(tail, rate, first=confirmed, reader=reader)) is not None:
            yield rank, draw
        rank += 1 + discrete_exponential(rate.numerator, rate.denominator, reader=reader)


@lru_cache(maxsize=1024)
def _jumps(tail: Tail) -> tuple[Fraction, _Enclosure]:
    """Return the rate of jumps in a tail and the first enclosure of the probability that confirms them."""
    rate = tail.rate
    return rate, tail.confirmed(rate)


def draw_chosen(tail: Tail, rate: Fraction, *, first: _Enclosure, reader: BitReader) -> int | None:
    """Return noise in the tail for what was chosen with probability 1 - exp(-rate), or None: not in the tail after all.

    `first` is `tail.confirmed(rate)`, which is the same for all of them.
    """
    return tail.draw(reader) if _below(tail, rate, first=first, reader=reader) else None


def _below(tail: Tail, rate: Fraction, *, first: _Enclosure, reader: BitReader) -> bool:
    """Return True with the probability that `tail.confirmed` encloses, `first` being its first enclosure."""
    (low, high), digits = first, _DIGITS
    value, length = reader.bits(_WORD), _WORD
    while True:  # the uniform lies in [value, value + 1] / 2**length
        # Neither branch is taken only if the uniform's interval meets the enclosure: then both get finer.
        if value + 1 <= low * (1 << length):
            return True
        if value >= high * (1 << length):
            return False
        value, length, digits = value << _WORD | reader.bits(_WORD), length + _WORD, digits + _MORE_DIGITS
        low, high = tail.confirmed(rate, digits)


@dataclass(frozen=True, slots=True)
class Tail:
    """The part of N_Z(0, variance) from `start` on, which is at least 1 and at least sigma: there E is below 1/2."""

    variance: Fraction
    start: int

    @property
    def rate(self) -> Fraction:
        """Return a rational c a little above E / (1 - E), of few bits: 1 - exp(-c) >= c / (1 + c) >= E."""
        _, chosen = self.chosen(_DIGITS)
        least = chosen / (1 - chosen)
        # Rounded up to about 20 bits: what is chosen too often is confirmed more seldom, so the law stays the same.
        scale = 1 << (least.denominator.bit_length() - least.numerator.bit_length() + _RATE_BITS)
        return Fraction(math.ceil(least * scale), scale)

    def draw(self, reader: BitReader) -> int | None:
        """Return start + m for a discrete exponential m that is kept with probability exp(-m**2 / (2 variance))."""
        p, q = self.variance.as_integer_ratio()
        beyond = discrete_exponential(self.start * q, p, reader=reader)
        kept = bernoulli_exp(beyond * beyond * q, 2 * p, reader=reader)
        return self.start + beyond if kept else None

    def chosen(self, digits: int) -> _Enclosure:
        """Return an enclosure of E, to about so many digits."""
        height, decay = self.start**2 / (2 * self.variance), self.start / self.variance
        # exp(-height) loses the digits before the point of `height`, and 1 - exp(-decay) as many as 1 / decay has.
        lost = _digits(height) + _digits(1 / decay)
        with localcontext(_context(digits + lost + _GUARD)):
            mass = _exp(-height) / (_total(self.variance) * (1 - _exp(-decay)))
            return _widened(mass, digits)

    def confirmed(self, rate: Fraction, digits: int = _DIGITS) -> _Enclosure:
        """Return an enclosure of E / (1 - exp(-rate))."""
        low, high = self.chosen(digits)
        with localcontext(_context(digits + _digits(1 / rate) + _GUARD)):
            least, most = _widened(1 - _exp(-rate), digits)
        return low / most, high / least


def _context(precision: int) -> Context:
    return Context(prec=precision, Emin=MIN_EMIN, Emax=MAX_EMAX)


def _digits(number: Fraction) -> int:
    """Return at least the decimal digits before the point."""
    return math.ceil(number).bit_length() // 3 + 1


def _exp(power: Fraction) -> Decimal:
    return (Decimal(power.numerator) / Decimal(power.denominator)).exp()


def _widened(value: Decimal, digits: int) -> _Enclosure:
    """Return the interval of relative radius 10**-digits about a value that is more precise than that."""
    return Fraction(value) * (1 - Fraction(1, 10**digits)), Fraction(value) * (1 + Fraction(1, 10**digits))


def _total(variance: Fraction) -> Decimal:
    """Return Z in the current context: the sum itself for a small variance, else its Poisson summation.

    Z = sqrt(2 pi variance) * (1 + 2 * sum of exp(-2 pi**2 variance k**2) over k >= 1).
    """
    precision = getcontext().prec
    if variance < 1:
        return _theta(_exp(-1 / (2 * variance)))
    pi = Decimal(_pi(precision + _GUARD)).scaleb(-precision - _GUARD)
    size = Decimal(variance.numerator) / Decimal(variance.denominator)
    return (2 * pi * size).sqrt() * _theta((-2 * pi * pi * size).exp())


def _theta(nome: Decimal) -> Decimal:
    """Return 1 + 2 * sum of nome**(k**2) over k >= 1, for a nome of at most exp(-1/2).

    Each term is at most exp(-3/2) of the one before, so those left out add up to less than a digit.
    """
    least = Decimal(10) ** (-getcontext().prec - 1)
    total, term, ratio = Decimal(1), nome, nome * nome * nome
    while term > least:
        total += 2 * term
        term, ratio = term * ratio, ratio * nome * nome
    return total


@cache
def _pi(digits: int) -> int:
    """Return pi in units of 10**-digits, to a few units: Machin's formula in whole numbers."""
    unit = 10 ** (digits + 5)

    def arctangent(inverse: int) -> int:
        total: int = unit // inverse
        term, divisor = total, 1
        while term:
            # Both divisions round down, by 1 in the last place at most: the five further digits hold all of that.
            term //= -inverse * inverse
            divisor += 2
            total += term // divisor
        return total

    return 4 * (4 * arctangent(5) - arctangent(239)) // 10**5
