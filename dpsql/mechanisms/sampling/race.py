"""The exponential race: the exact order of exponential-mechanism draws without replacement, drawn all at once.

Give candidate j an exponential clock E_j of rate exp(epsilon * score_j); the clocks ring in the order in which
repeated exponential mechanisms would choose, which is also the order of score + Gumbel(1/epsilon) noise (Durfee and
Rogers 2019, arXiv:1905.04273, Lemma 4.2). Only the order is released, so only the order must be exact.

**Exactness.** With U_j uniform on (0, 1), E_j = -ln(1 - U_j) / rate, and the order is that of
key_j = ln(-ln(1 - U_j)) - epsilon * (score_j - reference), ascending, the reference being an
integer next to the best score. Each U_j is an infinitely long random binary
fraction of which a prefix has been read, so it lies in an interval [a, b] whose ends are doubles without rounding (53
significant bits). key is increasing in U, so it lies in [key(a), key(b)], evaluated in double precision and widened
by

    radius = 2**-46 * (|ln E| + |epsilon * (score - reference)| + 1).

The evaluation takes four rounded steps: log1p (relative error r), log (r, plus the r inherited from its argument,
which moves ln E by at most r absolutely), the product with epsilon (two roundings and that of epsilon itself, 2**-51
relative) and the difference (2**-53 relative to the sum of both sizes). All C libraries and vector units in use stay
within 4 units in the last place for log and log1p, so r <= 2**-50 and the whole error is below
2**-50 * |ln E| + 2**-50 + 2**-51 * |product| + 2**-53 * (|ln E| + |product|), a tenth of the radius.
When the leading intervals are disjoint, the order is certainly that of the infinitely precise draw. Otherwise 64 more
bits are appended to the *same* U's of those that overlap, never a fresh draw, and their keys are enclosed by mpmath's
interval arithmetic, until they part. Time depends on the number of candidates, not on their scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.sampling.noise import BitReader, Noise

if TYPE_CHECKING:
    from mpmath.ctx_iv import MPIntervalContext


_RADIUS = 2.0**-46
_MORE_BITS = 64
_LONGEST = 1074  # binary places of a double; beyond them an end of U would be rounded
_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]
_Enclosure = Any  # mpmath carries no types


def race(
    counts: Sequence[int],
    bottom: Fraction | None,
    *,
    epsilon: Fraction,
    steps: int,
    noise: Noise,
    mantissa_bits: int = 52,
) -> list[int]:
    """Return the positions of the first `steps` winners, in order, with the exact law of peeling exp(epsilon * score).

    Given: the scores are the integers `counts`, whose differences are below 2**63, and then `bottom` if there is one,
    at position len(counts); 1 <= steps <= the number of scores. `mantissa_bits`, 1 to 52, changes how often the
    refinement runs, never the law.
    Cost: O(n log n) and 16 random bytes a candidate.
    """
    scores: list[int | Fraction] = [*counts] if bottom is None else [*counts, bottom]
    reference = max(counts if bottom is None else (*counts, math.ceil(bottom)))
    prefixes, lengths = _draw_uniforms(len(scores), noise, mantissa_bits=mantissa_bits)
    low, high = _enclose(prefixes, lengths, gaps=_gaps(counts, bottom, epsilon=epsilon, reference=reference))
    reader = BitReader(noise)
    winners: list[int] = []
    for group in _leading_groups(low, high, steps=steps):
        if len(group) == 1:
            winners += group
            continue
        tangle = [
            _Contender(at, int(prefixes[at]), int(lengths[at]), epsilon * (scores[at] - reference)) for at in group
        ]
        winners += _untangle(tangle, reader)
    return winners[:steps]


def _gaps(counts: Sequence[int], bottom: Fraction | None, *, epsilon: Fraction, reference: int) -> _Floats:
    """Return epsilon * (score - reference), each within 2**-51 relative of its exact value."""
    # 2**-51 is four roundings: of a difference above 2**53, of epsilon, of their product, and one to spare
    differences = np.array(counts, dtype=np.int64) - reference
    gaps = differences.astype(np.float64) * float(epsilon)
    return gaps if bottom is None else np.append(gaps, float(epsilon * (bottom - reference)))


def _draw_uniforms(number: int, noise: Noise, *, mantissa_bits: int) -> tuple[_Integers, _Integers]:
    """Return prefixes and lengths: each U lies in [prefix, prefix + 1] / 2**length.

    The zeros before the first one bit are drawn as such, so that U keeps its relative precision near 0, where the
    winners live.
    """
    # The first word of a candidate is the fraction's places after its first one bit, the second counts the zeros
    # before.
    words = np.frombuffer(noise.draw(16 * number), dtype=np.uint64).reshape(2, number)
    mantissas = (words[0] >> np.uint64(64 - mantissa_bits)) | np.uint64(1 << mantissa_bits)
    zeros = np.zeros(number, dtype=np.int64)
    coins, tossing = words[1].copy(), np.arange(number)
    while len(tossing):
        ones = coins & (~coins + np.uint64(1))  # the lowest one bit, a power of two that a double holds exactly
        zeros[tossing] += np.where(coins == 0, 64, np.frexp(ones.astype(np.float64))[1] - 1)
        tossing = tossing[coins == 0]
        coins = np.frombuffer(noise.draw(8 * len(tossing)), dtype=np.uint64)
    return mantissas.astype(np.int64), zeros + (mantissa_bits + 1)


def _enclose(prefixes: _Integers, lengths: _Integers, *, gaps: _Floats) -> tuple[_Floats, _Floats]:
    """Return intervals that certainly contain the keys (see the module's head for the radius)."""
    sizes = np.abs(gaps) + 1.0
    with np.errstate(divide="ignore", invalid="ignore"):  # U may reach 0 or 1: the key is infinite there
        lowest = np.log(-np.log1p(-np.ldexp(prefixes.astype(np.float64), -lengths)))
        highest = np.log(-np.log1p(-np.ldexp((prefixes + 1).astype(np.float64), -lengths)))
        low = lowest - gaps - _RADIUS * (np.abs(lowest) + sizes)
        high = highest - gaps + _RADIUS * (np.abs(highest) + sizes)
    held = lengths <= _LONGEST
    return np.where(held & np.isfinite(low), low, -np.inf), np.where(held & np.isfinite(high), high, np.inf)


def _leading_groups(low: _Floats, high: _Floats, *, steps: int) -> Iterator[list[int]]:
    """Yield, in order, groups of candidates that no other overlaps, until they hold `steps`; most hold one."""
    order = np.argsort(low, kind="stable")
    reach = np.maximum.accumulate(high[order])
    # In ascending order of `low` a group ends where the highest `high` so far is below the next `low`.
    ends = np.flatnonzero(reach[:-1] < low[order][1:]) + 1
    positions, start = order.tolist(), 0
    for end in (*ends.tolist(), len(positions)):
        yield positions[start:end]
        start = end
        if end >= steps:
            return


@dataclass(slots=True, repr=False)
class _Contender:
    """A candidate whose interval overlaps another's: its U lies in [prefix, prefix + 1] / 2**length."""

    position: int
    prefix: int
    length: int
    gap: Fraction

    def refine(self, reader: BitReader) -> None:
        """Read the next bits of the same U."""
        self.prefix = (self.prefix << _MORE_BITS) | reader.bits(_MORE_BITS)
        self.length += _MORE_BITS

    def key(self, context: MPIntervalContext) -> _Enclosure:
        """Return a certain enclosure of ln(-ln(1 - U)) - gap."""
        whole = 1 << self.length
        complement = context.mpf([whole - self.prefix - 1, whole - self.prefix]) / whole
        gap = context.mpf(self.gap.numerator) / self.gap.denominator
        return context.log(-context.log(complement)) - gap


def _untangle(contenders: list[_Contender], reader: BitReader) -> list[int]:
    """Return the positions in the order of their keys, reading more bits until all intervals are apart."""
    from mpmath.ctx_iv import MPIntervalContext  # only the rare refinement pays for the import

    context = MPIntervalContext()
    while True:
        for contender in contenders:
            contender.refine(reader)
        context.prec = 2 * max(contender.length for contender in contenders) + _MORE_BITS
        keyed = [(contender.key(context), contender) for contender in contenders]
        keyed.sort(key=lambda pair: pair[0].a)
        if all((first[0].b < second[0].a) is True for first, second in pairwise(keyed)):
            return [contender.position for _, contender in keyed]
