"""Coins of probability exp(-x) and discrete exponentials, in whole numbers; nothing is ever rounded.

Source: Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Algorithms 1 and 2 (its lines 1 to 7).
The whole part of an exponential, for which they toss coins of probability exp(-1), is read off a uniform number here:
one word of noise decides it almost always, and how long it takes does not depend on what it is compared with.
"""

from __future__ import annotations

import math
from functools import cache

from dpsql.mechanisms.sampling.noise import WORD, BitReader


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
