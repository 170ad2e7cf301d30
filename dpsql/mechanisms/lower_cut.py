"""Lower cut: an engine need not return groups far below a threshold, but for a few places that are drawn beforehand.

A group whose value is below the cut reaches the threshold only if its noise is far above 0. Which places of the order
of labels have such noise is drawn before any group is read, without knowing how many groups there are: the engine
returns the groups at these places, all groups from the cut on, and all beyond the last of the drawn places. The law of
the release is that of noise on every group (`maths.md` 11.5); a cut that dropped the other groups would have another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dpsql.accounting import discrete_gaussian_offset
from dpsql.mechanisms.base import Places
from dpsql.mechanisms.sampling.above import Tail
from dpsql.mechanisms.sampling.discrete_noise import discrete_exponential
from dpsql.mechanisms.sampling.noise import BitReader, Noise

PLACES = 64  # that are drawn, and are bound in the statement
_REACH = (2**30, 2**27, 2**24, 2**20)  # about how many groups they are drawn among: the cut is higher among fewer
_LEAST_RATE = Fraction(1, 2**40)  # by which places are drawn: so that all of them are 64-bit integers
_LEAST_SHARE = 8  # a cut below an eighth of the threshold leaves too many groups


@dataclass(frozen=True, slots=True)
class LowerCut:
    """Cut below one or several thresholds, of which one is used: each has the variance of its noise beside it."""

    value: int
    releases: tuple[tuple[int, Fraction], ...]

    def lower_to(self, value: int) -> LowerCut:
        """Return the cut at `value` if that is lower: the rate of its places is then lower too."""
        return LowerCut(value, self.releases) if value < self.value else self

    @property
    def open(self) -> Places:
        """Return places of which none is drawn: with these, all groups are read."""
        return Places(self.value, self.rate)

    @property
    def rate(self) -> Fraction:
        """Return a rate by which a place is drawn at least as often as noise lifts a group below the cut."""
        rates = (Tail(variance, threshold - self.value + 1).rate for threshold, variance in self.releases)
        return max(_LEAST_RATE, *rates)

    def draw(self, noise: Noise) -> Places:
        """Draw the places."""
        rate, reader, drawn, at = self.rate, BitReader(noise), list[int](), 0
        for _ in range(PLACES):
            at += 1 + discrete_exponential(rate.numerator, rate.denominator, reader=reader)
            drawn.append(at)
        return Places(self.value, rate, tuple(drawn))


@lru_cache(maxsize=256)
def find_cut(releases: tuple[tuple[int, Fraction], ...]) -> LowerCut | None:
    """Return the cut for releases of (threshold, variance); None where it would leave out next to nothing."""
    for groups in _REACH:
        value = min(_find_value(releases, PLACES / groups))
        if value > 1 and _LEAST_SHARE * value >= min(threshold for threshold, _ in releases):
            return LowerCut(value, releases)
    return None


def _find_value(releases: Sequence[tuple[int, Fraction]], probability: float) -> list[int]:
    """Return below which value noise lifts a group to each of the thresholds with at most this probability."""
    return [threshold + 1 - discrete_gaussian_offset(variance, probability) for threshold, variance in releases]
