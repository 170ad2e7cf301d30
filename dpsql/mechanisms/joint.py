"""The joint exponential mechanism: a whole sequence of k candidates of a public domain in one draw.

**The sampler** (`maths.md` 9.6). A sequence has the loss max_i (h_(i) - h_{s_i}), h_(i) being the i-th highest count.
Let N(t) be the number of sequences with a loss of at most t. Drawing an integer t >= 0 with weight
N(t) * exp(-epsilon * t / 2), and then any of these N(t) sequences alike, gives each sequence of loss l the weight
exp(-epsilon * l / 2) / (1 - exp(-epsilon / 2)): the exponential mechanism. N and the sequences of loss at most t
change only where t is the difference of two counts, so the stretch of all t between two such differences is one
choice, of a weight proportional to

    N(start) * (exp(-epsilon * start / 2) - exp(-epsilon * end / 2)),

and the last stretch has no end. Time depends on the number of candidates, not on their counts.

**Exactness.** Every stretch gets a whole number of shares, no fewer than its weight in units of exp(scale) / 2**30. A
stretch is drawn by its shares, in whole numbers, and kept with the probability weight / shares, else drawn again: the
law is that of the weights, whatever the shares. The coin of that probability is a lazily read binary fraction beside
an enclosure of the probability by mpmath's interval arithmetic, both refined until they part. So only the shares come
from doubles, and all they must be is enough. ln N is a sum of at most n positive terms, each within 2**-49 relative of
its exact value (libraries stay within 4 units in the last place); adding them up costs n * 2**-53 more. The decay is
within 2**-51 relative, and ln(1 - exp(-x)), whose derivative by ln x is at most 1, within 2**-48 * (1 + its size). All
of it is below

    radius = (n + 64) * 2**-52 * (ln N + decay + |ln(1 - exp(-x))| + 1) + 2**-40,

the last term being for the exponential, which is 0 below exp(-746), where one share is enough. Nearly every draw is
kept: the shares exceed the weights by a part of 2 * radius and by one for each stretch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.accounting import ZCDP, BoundedRange
from dpsql.mechanisms.base import Histogram, Selection, check_epsilon, check_k, check_sensitivity, known_candidates
from dpsql.mechanisms.sampling.noise import BitReader, Noise
from dpsql.quantities import Delta, Epsilon

if TYPE_CHECKING:
    from mpmath.ctx_iv import MPIntervalContext


_UNITS = 2**30  # the shares of the heaviest stretch; their sum fits 64 bits up to 2**33 stretches, or 300 GB of them
_MORE_BITS = 64
_GUARD_BITS = 128  # beyond what a difference or a decay of 2**53 loses
_Integers = npt.NDArray[np.int64]
_Enclosure = Any  # mpmath carries no types


@dataclass(frozen=True, slots=True)
class JointExponential:
    """Choose a sequence of k candidates of a public domain at once, by how far its worst member lies behind its rank.

    Given: epsilon of at least 1e-9; k >= 1. The domain is public or a function of earlier answers, never of the data;
    the histogram's leaders are the counts of all its candidates, 0 for those that no unit is in (`maths.md` 5.4).
    Nothing bounds how many groups a privacy unit is in. Neighbours differ by one unit more, not by one exchanged. One
    unit changes any two counts by amounts at most R = `sensitivity` apart, 0 included (1 where units are counted).
    Returns: a `Selection` of min(k, candidates) positions, s_1 for the first rank and so on; it never stops at BOTTOM.
    Loss: epsilon-DP and epsilon-bounded range for the whole sequence, hence rho = epsilon**2 / 8 whatever k is, and
    delta 0. The loss of a sequence moves by at most R, either way, so the half is needed.
    Utility: with probability 1 - beta every s_i of d candidates has a count of at least
    h_(i) - 2 R * ln(d! / (d - k)! / beta) / epsilon. At the same rho `Peeling` comes nearer where k is in the tens.
    Cost: O(d k log(d k)) time and O(d k) memory, whatever the counts.
    Source: Gillenwater, Joseph, Munoz Medina and Ribero 2022, arXiv:2201.12333, mechanism Joint. Theirs draws a loss
    among differences made distinct by a small perturbation, in floating point; here equal differences are one stretch
    and the draw is exact.

    >>> mechanism = JointExponential(Epsilon("0.2"), k=10)
    >>> mechanism.worst_case.rho, mechanism.worst_case.delta
    (Rho(0.005), Delta(0))
    """

    name: ClassVar[str] = "joint"  # in SQL
    epsilon: Epsilon
    k: int
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check_sensitivity(self.sensitivity)
        check_epsilon(self.epsilon, self.sensitivity)
        check_k(self.k)

    @property
    def worst_case(self) -> ZCDP:
        """The loss of the one draw."""
        return ZCDP(BoundedRange(self.epsilon).rho, Delta(0))

    def select(self, histogram: Histogram, noise: Noise) -> Selection:
        """Draw the selection with the exact law of the exponential mechanism over all sequences."""
        counts = known_candidates(histogram)
        length = min(self.k, len(counts))
        if not length:
            return Selection((), stopped_at_bottom=False)
        reader = BitReader(noise)
        within = _draw_bound(counts, length, rate=self.epsilon.value / (2 * self.sensitivity), reader=reader)
        eligible = _eligible(counts, length=length, within=within)
        return Selection(_draw_sequence(eligible, reader), stopped_at_bottom=False)

    def loss(self, selection: Selection) -> ZCDP:
        """Return the loss of the one draw; the empty sequence of an empty domain is no draw."""
        return self.worst_case if selection.positions else ZCDP.nothing()


def _draw_sequence(eligible: Sequence[int], reader: BitReader) -> tuple[int, ...]:
    """Return a sequence whose i-th member is among the first eligible[i] positions, each such sequence alike.

    The numbers ascend, so every earlier member is among them too: how many are left to choose from does not depend on
    which were chosen.
    """
    # A partial shuffle: places up to `rank` are final, and the next is any of the first eligible[rank] that are left.
    order = list(range(eligible[-1]))
    for rank, reach in enumerate(eligible):
        other = rank + reader.below(reach - rank)
        order[rank], order[other] = order[other], order[rank]
    return tuple(order[: len(eligible)])


def _eligible(counts: Sequence[int], *, length: int, within: int) -> list[int]:
    """Return, for each rank, how many candidates have at least its count less `within`."""
    falling = np.array(counts, dtype=np.int64)
    return [int(number) for number in np.searchsorted(-falling, within - falling[:length], side="right")]


def _sequences(eligible: Sequence[int]) -> int:
    """Return how many sequences `_draw_sequence` chooses from."""
    return math.prod(reach - rank for rank, reach in enumerate(eligible))


def _enclosed(value: Fraction, context: MPIntervalContext) -> _Enclosure:
    return context.mpf(value.numerator) / value.denominator


@dataclass(frozen=True, slots=True, repr=False)
class _Stretch:
    """One stretch, exactly: its weight is sequences * exp(-decay) * (1 - exp(-width)), its shares are of 2**-30.

    The decay holds the scale of all stretches; the last stretch has no width, and no factor for it.
    """

    sequences: int
    decay: Fraction
    width: Fraction | None
    shares: int

    def chance(self, context: MPIntervalContext) -> _Enclosure:
        """Return a certain enclosure of weight / shares, wider than any doubt about the last bits of mpmath's exp."""
        # [one - 1, one + 1] / one is 1 +- 2**-(prec - 64): far wider than an error of some last bits at `prec`.
        one = 1 << (context.prec - _GUARD_BITS // 2)
        chance = context.mpf([one - 1, one + 1]) / one * self.sequences * _UNITS / self.shares
        chance *= context.exp(-_enclosed(self.decay, context))
        return chance if self.width is None else chance * (1 - context.exp(-_enclosed(self.width, context)))


@dataclass(frozen=True, slots=True, repr=False)
class _Stretches:
    """All stretches of t, ascending: where each starts and what shares it has, in units of exp(scale) / 2**30."""

    starts: _Integers
    shares: _Integers
    scale: float

    def exact(self, at: int, *, sequences: int, rate: Fraction) -> _Stretch:
        """Return one stretch, given how many sequences its start allows."""
        start, *end = (int(each) for each in self.starts[at : at + 2])
        width = rate * (end[0] - start) if end else None
        return _Stretch(sequences, rate * start + Fraction(self.scale), width, int(self.shares[at]))


def _stretches(counts: Sequence[int], *, length: int, rate: float) -> _Stretches:
    """Return the stretches with shares that are certainly enough (see the module's head for the radius).

    With the candidates in descending order, the m-th after the i-th raises the i-th factor of N from m to m + 1 where
    t reaches the difference of the two.
    """
    falling = np.array(counts, dtype=np.int64)
    # ln((m + 1) / m) for m = 1, 2, ...: their sum up to m is ln of the factor m + 1.
    raises = np.log1p(1.0 / np.arange(1, len(falling)))
    differences = np.concatenate([[0], *(falling[rank] - falling[rank + 1 :] for rank in range(length))])
    steps = np.concatenate([[0.0], *(raises[: len(raises) - rank] for rank in range(length))])
    order = np.argsort(differences)
    differences = differences[order]
    # Equal differences are one stretch, whose ln N is the sum up to the last of them. A stretch always starts at t = 0.
    last = np.flatnonzero(np.append(differences[1:] != differences[:-1], True))
    starts, sequences = differences[last], np.cumsum(steps[order])[last]
    with np.errstate(over="ignore"):  # a decay without end is cut, which only adds shares
        decay = np.minimum(rate * starts, 1e300)
        # ln(1 - exp(-rate * width)); the last stretch has an infinite width, and ln 1 = 0.
        pieces = np.log(-np.expm1(-rate * np.append(np.diff(starts), np.inf)))
    radius = (len(steps) + 64) * 2.0**-52 * (sequences + decay + np.abs(pieces) + 1.0) + 2.0**-40
    highest = sequences - decay + pieces + radius
    scale = float(highest.max())
    return _Stretches(starts, np.floor(np.exp(highest - scale) * _UNITS).astype(np.int64) + 1, scale)


def _draw_bound(counts: Sequence[int], length: int, *, rate: Fraction, reader: BitReader) -> int:
    """Return the start of the stretch that holds t, drawn with weight N(t) * exp(-rate * t)."""
    stretches = _stretches(counts, length=length, rate=float(rate))
    cumulative = np.cumsum(stretches.shares)
    while True:
        at = int(np.searchsorted(cumulative, reader.below(int(cumulative[-1])), side="right"))
        start = int(stretches.starts[at])
        # N(start) again, as a whole number: the doubles above decide the shares, and never the law.
        sequences = _sequences(_eligible(counts, length=length, within=start))
        if _is_kept(stretches.exact(at, sequences=sequences, rate=rate), reader):
            return start


def _is_kept(stretch: _Stretch, reader: BitReader) -> bool:
    """Return True with the probability weight / shares, exactly."""
    from mpmath.ctx_iv import MPIntervalContext  # only this mechanism's draws pay for the import

    context = MPIntervalContext()
    prefix, length = 0, 0
    while True:
        prefix, length = (prefix << _MORE_BITS) | reader.bits(_MORE_BITS), length + _MORE_BITS
        context.prec = length + _GUARD_BITS
        uniform = context.mpf([prefix, prefix + 1]) / (1 << length)
        chance = stretch.chance(context)
        if (uniform.b < chance.a) is True:
            return True
        if (uniform.a > chance.b) is True:
            return False
