"""Release of noisy values over two kinds of names: known ones, which all take part, and others above a threshold.

A name is known if the caller knows it without the data, or from earlier releases. Every known name gets noise, also one
that no unit is in: to leave those out would tell, with certainty, that some unit is in the others (`maths.md` 9.4.1).
Noise alone brings the largest of many names far. So known names may have to reach an evidence line, which is
post-processing: the largest noise of all of them reaches it in 1 of 20 releases (`maths.md` 9.4.2).
"""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dpsql.accounting import delta_of_each, discrete_gaussian_offset
from dpsql.errors import UsageError
from dpsql.mechanisms.base import COUNT_LIMIT, FullHistogram, LabelPosition, NoisyRelease
from dpsql.mechanisms.sampling.above import noisy_above
from dpsql.mechanisms.sampling.discrete_noise import discrete_gaussian
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.quantities import Delta

FALSE_ALARM = Fraction(1, 20)  # probability that a known name is returned where no row has any of them
MANY = 4_096  # known names from which most noise is drawn only in part
KnownValues = npt.NDArray[np.int64]
NONE_KNOWN: KnownValues = np.empty(0, np.int64)


def release_beside_known(
    known: KnownValues, histogram: FullHistogram, *, k: int, threshold: int, variance: Fraction, noise: Noise
) -> NoisyRelease:
    """Add discrete Gaussian noise to all values and release the first k of the known names and those that pass.

    `known` has the exact values of the known names in an order that does not depend on data, 0 for those that no unit
    is in; the histogram has the values of all other names. Positions count the known names first.
    """
    _check_known(known)
    passed = noisy_above(histogram, threshold, variance=variance, noise=noise)
    shifted = ((LabelPosition(len(known) + position), noisy) for position, noisy in passed)
    return NoisyRelease.leading([*_lead_known(known, k, variance=variance, noise=noise), *shifted], k)


def share_false_alarm(names: int) -> float:
    """Return with what probability the noise of each of so many names may reach the line, rounded down."""
    return delta_of_each(Delta(FALSE_ALARM), names)


def find_line(variance: Fraction, names: int) -> int:
    """Return the least integer that the largest noise of so many names reaches with probability 0.05 at most.

    The names are all that are known, whether a unit is in them or not.
    """
    return discrete_gaussian_offset(variance, share_false_alarm(names))


def keep_evident(release: NoisyRelease, known: int, *, variance: Fraction) -> NoisyRelease:
    """Return a release without those of its known names, which are the first `known` positions, below their line."""
    if not known:
        return release
    line = find_line(variance, known)
    pairs = zip(release.positions, release.counts, strict=True)
    kept = [(position, noisy) for position, noisy in pairs if position >= known or noisy >= line]
    return NoisyRelease(tuple(position for position, _ in kept), tuple(noisy for _, noisy in kept))


def _check_known(known: KnownValues) -> None:
    """Raise UsageError for values that are too large; a sum may be below 0."""
    if len(known) and not -COUNT_LIMIT < int(known.min()) <= int(known.max()) < COUNT_LIMIT:
        raise UsageError("histogram-counts", "The values of known names must be integers of less than 2**53.")


def _lead_known(known: KnownValues, k: int, *, variance: Fraction, noise: Noise) -> list[tuple[LabelPosition, int]]:
    """Return the first k of the noisy values, and all that tie with the last of them; noise is drawn for each."""
    if len(known) >= MANY and known.min() >= 0:
        return _lead_many(known, k, variance=variance, noise=noise)
    return _lead(known + _draw(variance, noise, count=len(known)), k)


def _lead(noisy: KnownValues, k: int) -> list[tuple[LabelPosition, int]]:
    """Return the first k of noisy values, and all that tie with the last of them."""
    kept = np.arange(len(noisy))
    if k < len(noisy):
        kept = np.flatnonzero(noisy >= np.partition(noisy, len(noisy) - k)[len(noisy) - k])
    return [(LabelPosition(at), value) for at, value in zip(kept.tolist(), noisy[kept].tolist(), strict=True)]


def _lead_many(known: KnownValues, k: int, *, variance: Fraction, noise: Noise) -> list[tuple[LabelPosition, int]]:
    """Return the same by drawing most of the noise only in part: whether it lifts a value to a cut.

    The cut is public, and about 2 k of names without units are above it. Where k values reach it, the others are not
    among the first k. Otherwise those get their noise by the law of noise that does not reach it: a draw that does is
    repeated.
    """
    above = min(0.5, (2 * k + 10) / len(known))
    cut = max(1, math.floor(math.sqrt(variance) * NormalDist().inv_cdf(1 - above)))
    passed = noisy_above(FullHistogram(known + 1), cut + 1, variance=variance, noise=noise)
    passed = [(position, noisy - 1) for position, noisy in passed]
    if len(passed) >= k:
        return passed
    noisy, is_open = known.copy(), np.ones(len(known), np.bool_)
    for position, value in passed:
        noisy[position], is_open[position] = value, False
    pending = np.flatnonzero(is_open)
    while len(pending):
        noisy[pending] = known[pending] + _draw(variance, noise, count=len(pending))
        pending = pending[noisy[pending] >= cut]
    return _lead(noisy, k)


def _draw(variance: Fraction, noise: Noise, *, count: int) -> KnownValues:
    return np.array(discrete_gaussian(variance, noise, count=count), np.int64)
