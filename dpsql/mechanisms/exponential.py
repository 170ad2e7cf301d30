"""Coins of probability exp(-x) and discrete exponentials, in whole numbers; nothing is ever rounded.

Source: Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Algorithms 1 and 2 (its lines 1 to 7).
"""

from __future__ import annotations

from dpsql.mechanisms.noise import BitReader

__all__ = ["bernoulli_exp", "discrete_exponential"]


def bernoulli_exp(numerator: int, denominator: int, *, reader: BitReader) -> bool:
    """Return True with probability exp(-numerator / denominator), for a ratio of 0 or more."""
    whole, rest = divmod(numerator, denominator)
    for _ in range(whole):
        if not _bernoulli_exp_unit(1, 1, reader=reader):
            return False
    return _bernoulli_exp_unit(rest, denominator, reader=reader)


def discrete_exponential(numerator: int, denominator: int, *, reader: BitReader) -> int:
    """Return a whole number that is at least n with probability exp(-n * numerator / denominator), for a ratio above 0.

    Cut into pieces of length numerator / denominator, the line carries a unit exponential; the number is that of the
    piece it falls into, found from the part below the whole in steps of 1 / denominator.
    """
    while True:
        within = reader.below(denominator)
        if _bernoulli_exp_unit(within, denominator, reader=reader):
            break
    whole = 0
    while _bernoulli_exp_unit(1, 1, reader=reader):
        whole += 1
    return (within + denominator * whole) // numerator


def _bernoulli_exp_unit(numerator: int, denominator: int, *, reader: BitReader) -> bool:
    """Return True with probability exp(-numerator / denominator), for a ratio in [0, 1]."""
    trial = 1
    while reader.below(denominator * trial) < numerator:
        trial += 1
    return trial % 2 == 1
