"""Gaussian threshold mechanisms: noise on every group, and release of the first k that reach a public threshold.

Names, order and values come in one release, at a price that k does not enter. `GaussianHistogram` adds noise to counts.
`WeightedGaussian` adds it to weights: every unit spreads one weight over its groups.

**Known names.** A name is known if the caller knows it without the data, or from earlier releases. Every known name
gets noise, also one that no unit is in: to leave those out would tell, with certainty, that some unit is in the others
(`maths.md` 9.4.1). Noise alone brings the largest of many names far. So known names may have to reach an evidence line,
which is post-processing: the largest noise of all of them reaches it in 1 of 20 releases (`maths.md` 9.4.2).

**The lower cut.** A group whose value is below a cut reaches the threshold only if its noise is far above 0. Which
places of the order of labels have such noise is drawn before any group is read, without knowing how many groups there
are: the engine returns the groups at these places, all groups from the cut on, and all beyond the last of the drawn
places. The law of the release is that of noise on every group (`maths.md` 11.5); a cut that dropped the other groups
would have another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.accounting import ZCDP, delta_of_each, discrete_gaussian_offset, discrete_gaussian_tail
from dpsql.errors import UsageError
from dpsql.mechanisms.base import (
    COUNT_LIMIT,
    FALSE_ALARM,
    FullHistogram,
    LabelPosition,
    NoisyRelease,
    Places,
    check_delta,
    check_k,
    check_sensitivity,
)
from dpsql.mechanisms.sampling.above import Tail, draw_chosen, noisy_above
from dpsql.mechanisms.sampling.discrete_noise import discrete_exponential, discrete_gaussian
from dpsql.mechanisms.sampling.noise import BitReader, Noise
from dpsql.quantities import Delta, Rho

WEIGHT_STEPS = 2**20  # of fixed point in a weight of 1
_MOST_GROUPS = 2**16  # and least rho: they keep variances within what integer tails are computed for
_LEAST_RHO, _MOST_RHO = Fraction(1, 10**9), 100
_MOST_VARIANCE = 10**21  # the widest noise whose tails are bounded
MANY = 4_096  # known names from which most noise is drawn only in part
KnownValues = npt.NDArray[np.int64]
NONE_KNOWN: KnownValues = np.empty(0, np.int64)
PLACES = 64  # that are drawn, and are bound in the statement
_REACH = (2**30, 2**27, 2**24, 2**20)  # about how many groups they are drawn among: the cut is higher among fewer
_LEAST_RATE = Fraction(1, 2**40)  # by which places are drawn: so that all of them are 64-bit integers
_LEAST_SHARE = 8  # a cut below an eighth of the threshold leaves too many groups


def check_sparse(rho: Rho, delta: Delta, *, k: int, max_groups_contributed: int) -> None:
    """Raise UsageError for parameters of a release of all noisy counts above a threshold that mean nothing."""
    if not _LEAST_RHO <= rho.value <= _MOST_RHO:
        raise UsageError("rho-range", "The rho of noise on every count must lie between 1e-9 and 100.")
    check_delta(delta)
    check_k(k)
    if not 1 <= max_groups_contributed <= _MOST_GROUPS:
        raise UsageError("bound-range", "max_groups_contributed must lie between 1 and 2**16.")


@dataclass(frozen=True, slots=True)
class GaussianHistogram:
    """Add discrete Gaussian noise to the count of every group and release the first k that reach a public threshold.

    Given: rho sets the noise; delta in (0, 1) is this query's; no privacy unit is in more than
    `max_groups_contributed` groups, enforced by the caller. One unit changes each count by at most R = `sensitivity`,
    all in one direction (1 where units are counted). The histogram holds the counts of all groups that exist,
    in an order of labels that does not depend on data: it breaks ties, the exact counts never do. Groups whose labels
    are `known` without the data, or from earlier releases, need not reach the threshold: all of them take part with
    their noisy counts, those that do not exist with 0, and the histogram holds the others.
    Returns: a `NoisyRelease` of at most k positions with their noisy counts, the highest first. The counts are
    unbiased before the threshold, so those next to it are too high as released.
    Loss: rho = R**2 * max_groups_contributed / (2 sigma**2) and delta, however many groups are released.
    Utility: a group of threshold + sigma * sqrt(2 ln(1 / beta)) passes with probability at least 1 - beta.
    Cost: one pass over the counts, and a draw of noise for each that is near the threshold or above it.
    Source: `maths.md` 9.4; the stability histogram of Bun, Nissim and Stemmer 2016, arXiv:1511.08631, with Gaussian
    noise, as OpenDP's make_gaussian_threshold and Google's differential privacy libraries have it. There the threshold
    is 1 + sigma * PhiInv((1 - delta)**(1 / Delta)) of continuous noise; integer noise exceeds that too often, so the
    threshold is R + the least integer that the noise itself reaches with probability at most
    1 - (1 - delta)**(1 / Delta); Delta = max_groups_contributed. R is not in these sources (`maths.md` 10.2).

    >>> mechanism = GaussianHistogram(Rho("0.02"), Delta("1e-7"), k=10, max_groups_contributed=1)
    >>> mechanism.variance, mechanism.threshold
    (Fraction(25, 1), 28)
    """

    name: ClassVar[str] = "gaussian_histogram"  # in SQL
    rho: Rho
    delta: Delta
    k: int
    max_groups_contributed: int
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check_sparse(self.rho, self.delta, k=self.k, max_groups_contributed=self.max_groups_contributed)
        check_sensitivity(self.sensitivity)
        if self.variance > _MOST_VARIANCE:
            raise UsageError("rho-range", "The rho of noise on every count is too small for its sensitivity.")

    @property
    def loss(self) -> ZCDP:
        """Return what a release costs, also an empty one."""
        return ZCDP(self.rho, self.delta)

    @property
    def variance(self) -> Fraction:
        """Return sigma squared."""
        return self.sensitivity**2 * self.max_groups_contributed / (2 * self.rho.value)

    @property
    def threshold(self) -> int:
        """Return the noisy count that a group needs: one unit alone reaches it, in any group, but for delta."""
        share = delta_of_each(self.delta, self.max_groups_contributed)
        return self.sensitivity + discrete_gaussian_offset(self.variance, share)

    @property
    def cut(self) -> LowerCut | None:
        """Return the cut below which few groups need be read, if there is one; the loss is the same."""
        return find_cut(((self.threshold, self.variance),))

    def release(self, histogram: FullHistogram, noise: Noise, *, known: KnownValues = NONE_KNOWN) -> NoisyRelease:
        """Draw the release; positions count the known groups first."""
        return release_beside_known(
            known, histogram, k=self.k, threshold=self.threshold, variance=self.variance, noise=noise
        )


def unit_weight(groups: int, *, steps: int = WEIGHT_STEPS) -> int:
    """Return what a unit in so many groups adds to each of them: 1 / sqrt(groups) in `steps`, rounded down.

    Rounded down, so that the squares of a unit's weights never add up to more than steps**2.

    >>> [unit_weight(groups) for groups in (1, 2, 3, 4, 100)]
    [1048576, 741455, 605395, 524288, 104857]
    """
    return math.isqrt(steps * steps // groups)


def list_weights(most: int) -> list[int]:
    """Return what a unit adds to each of its groups if it is in 1, 2, ... of them, up to so many: `unit_weight`.

    >>> list_weights(4) == [unit_weight(groups) for groups in (1, 2, 3, 4)]
    True
    """
    square = WEIGHT_STEPS * WEIGHT_STEPS
    return [math.isqrt(square // groups) for groups in range(1, most + 1)]


@dataclass(frozen=True, slots=True)
class WeightedGaussian:
    """Add discrete Gaussian noise to the weight of every group and release the first k that reach a public threshold.

    A unit that is in t groups adds `unit_weight(t)` to each, so the noise need not grow with the groups of a unit.
    Of a measure that a unit raises by c of at most R, it adds c * unit_weight(t) / R, rounded down (`maths.md` 10.2).
    Given: rho sets the noise; delta in (0, 1) is this query's; no privacy unit is in more than
    `max_groups_contributed` groups, enforced by the caller, best a cap that hardly any unit reaches. The histogram
    holds the weights of all groups that exist, in steps of 1 / WEIGHT_STEPS and in an order of labels that does not
    depend on data: it breaks ties, the exact weights never do. Groups whose labels are `known` without the data, or
    from earlier releases, need not reach the threshold: all of them take part with their noisy weights, those that do
    not exist with 0, and the histogram holds the others.
    Returns: a `NoisyRelease` of at most k positions with their noisy weights in steps, the highest first. A weight is
    no number of units: it is that divided by the root of the groups that these units are in.
    Loss: rho = 1 / (2 sigma**2) and delta, sigma in weights of 1, however many groups are released.
    Utility: a group of weight threshold + sigma * sqrt(2 ln(1 / beta)) passes with probability at least 1 - beta.
    Cost: one pass over the weights, and a draw of noise for each that is near the threshold or above it.
    Source: Raman, Dick and Joseph 2026, arXiv:2603.14016, the weighted Gaussian mechanism; Delta_0 =
    max_groups_contributed, W_u = a unit's groups. They pass the names alone on to a second stage; here their order by
    noisy weight is the answer, which is post-processing (`maths.md` 9.3). Noise and weights are integers, and the
    threshold is the largest over all t of the weight in t groups plus the least integer that the noise itself reaches
    with probability at most 1 - (1 - delta)**(1 / t).

    >>> mechanism = WeightedGaussian(Rho("0.01"), Delta("1e-7"), k=10, max_groups_contributed=100)
    >>> mechanism.variance == 50 * WEIGHT_STEPS**2, round(mechanism.threshold / WEIGHT_STEPS, 4)
    (True, 42.5109)
    """

    name: ClassVar[str] = "weighted_gaussian"  # in SQL
    rho: Rho
    delta: Delta
    k: int
    max_groups_contributed: int

    def __post_init__(self) -> None:
        check_sparse(self.rho, self.delta, k=self.k, max_groups_contributed=self.max_groups_contributed)

    @property
    def loss(self) -> ZCDP:
        """Return what a release costs, also an empty one."""
        return ZCDP(self.rho, self.delta)

    @property
    def variance(self) -> Fraction:
        """Return sigma squared, in squared steps."""
        return WEIGHT_STEPS**2 / (2 * self.rho.value)

    @property
    def threshold(self) -> int:
        """Return the noisy weight in steps that a group needs: one unit alone reaches it, anywhere, but for delta."""
        return weighted_threshold(self.variance, self.delta, most=self.max_groups_contributed, steps=WEIGHT_STEPS)

    @property
    def least_threshold(self) -> int:
        """Return a number that the threshold is not below: what a unit in as many groups as the bound allows needs."""
        failure = delta_of_each(self.delta, self.max_groups_contributed)
        weight = unit_weight(self.max_groups_contributed)
        return weight + discrete_gaussian_offset(self.variance, failure)

    @property
    def cut(self) -> LowerCut | None:
        """Return the cut below which few groups need be read, if there is one; the loss is the same."""
        return find_cut(((self.threshold, self.variance),))

    def passed(self, histogram: FullHistogram, noise: Noise) -> list[tuple[LabelPosition, int]]:
        """Draw all groups that pass, with their noisy weights, in no order."""
        return draw_passing(histogram, self.threshold, variance=self.variance, noise=noise)

    def release(self, histogram: FullHistogram, noise: Noise, *, known: KnownValues = NONE_KNOWN) -> NoisyRelease:
        """Draw the release; positions count the known groups first."""
        return release_beside_known(
            known, histogram, k=self.k, threshold=self.threshold, variance=self.variance, noise=noise
        )


@lru_cache(maxsize=256)
def weighted_threshold(variance: Fraction, delta: Delta, *, most: int, steps: int) -> int:
    """Return the largest of unit_weight(t) + offset(t) over t = 1..most; which t attains it moves with sigma and delta.

    offset(t) is the least n >= 0 that the noise reaches with probability at most 1 - (1 - delta)**(1 / t).
    """
    threshold = -1
    for groups in (1, *range(most, 1, -1)):  # the ends first: most others then need no search
        weight, failure = unit_weight(groups, steps=steps), delta_of_each(delta, groups)
        # A group of one unit in t groups must pass with probability `failure` at most; where the threshold so far does
        # that, no search is needed. It starts at -1, below any weight, so that the first t is always searched.
        if threshold < weight or discrete_gaussian_tail(variance, threshold - weight) > failure:
            threshold = weight + discrete_gaussian_offset(variance, failure)
    return threshold


def release_beside_known(
    known: KnownValues, histogram: FullHistogram, *, k: int, threshold: int, variance: Fraction, noise: Noise
) -> NoisyRelease:
    """Add discrete Gaussian noise to all values and release the first k of the known names and those that pass.

    `known` has the exact values of the known names in an order that does not depend on data, 0 for those that no unit
    is in; the histogram has the values of all other names. Positions count the known names first.
    """
    _check_known(known)
    passed = draw_passing(histogram, threshold, variance=variance, noise=noise)
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
    # All that tie with the k-th stay: which of them is taken is decided by position, in `NoisyRelease.leading`.
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
    # At 0.5 the cut is 1, the lowest that there is.
    above = min(0.5, (2 * k + 10) / len(known))
    cut = max(1, math.floor(math.sqrt(variance) * NormalDist().inv_cdf(1 - above)))
    passed = noisy_above(known, cut, variance=variance, noise=noise)
    if len(passed) >= k:
        return [(LabelPosition(position), value) for position, value in passed]
    noisy, is_open = known.copy(), np.ones(len(known), np.bool_)
    for position, value in passed:
        noisy[position], is_open[position] = value, False
    pending = np.flatnonzero(is_open)
    # The law of noise given that it stays below the cut: what reaches the cut is drawn again, the rest is final.
    while len(pending):
        noisy[pending] = known[pending] + _draw(variance, noise, count=len(pending))
        pending = pending[noisy[pending] >= cut]
    return _lead(noisy, k)


def _draw(variance: Fraction, noise: Noise, *, count: int) -> KnownValues:
    return np.array(discrete_gaussian(variance, noise, count=count), np.int64)


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
        # A group below the cut has `value - 1` at most, and needs noise of `threshold - value + 1` or more.
        rates = (Tail(variance, threshold - self.value + 1).rate for threshold, variance in self.releases)
        return max(_LEAST_RATE, *rates)

    def draw(self, noise: Noise) -> Places:
        """Draw the places."""
        rate, reader, drawn, at = self.rate, BitReader(noise), list[int](), 0
        for _ in range(PLACES):
            # P[the gap exceeds n] = exp(-rate * n): each place is drawn with probability 1 - exp(-rate), independently.
            at += 1 + discrete_exponential(rate.numerator, rate.denominator, reader=reader)
            drawn.append(at)
        return Places(self.value, rate, tuple(drawn))


@lru_cache(maxsize=256)
def find_cut(releases: tuple[tuple[int, Fraction], ...]) -> LowerCut | None:
    """Return the cut for releases of (threshold, variance); None where it would leave out next to nothing."""
    for groups in _REACH:
        # The widest reach first: its cut is the lowest. A cut below an eighth of the threshold leaves too many groups.
        value = min(_find_value(releases, PLACES / groups))
        if value > 1 and _LEAST_SHARE * value >= min(threshold for threshold, _ in releases):
            return LowerCut(value, releases)
    return None


def _find_value(releases: Sequence[tuple[int, Fraction]], probability: float) -> list[int]:
    """Return below which value noise lifts a group to each of the thresholds with at most this probability."""
    return [threshold + 1 - discrete_gaussian_offset(variance, probability) for threshold, variance in releases]


def draw_passing(
    histogram: FullHistogram, threshold: int, *, variance: Fraction, noise: Noise
) -> list[tuple[LabelPosition, int]]:
    """Return position and noisy value of every group that reaches the threshold, in no order; noise is on each.

    Given: behind a cut, `Tail(variance, threshold - cut + 1)` has at most the rate of the drawn places. Then groups
    above the cut, and those beyond the last drawn place, have noise of their own. The others draw from the tail if
    their place was drawn, else nothing (`maths.md` 11.5).
    """
    counts, read = histogram.counts, histogram.read
    if read is None:
        passed = noisy_above(counts, threshold, variance=variance, noise=noise)
        return [(LabelPosition(at), noisy) for at, noisy in passed]
    fresh = np.flatnonzero(read.is_fresh(counts))
    lifted = noisy_above(counts[fresh], threshold, variance=variance, noise=noise)
    passed = [(int(fresh[at]), noisy) for at, noisy in lifted]
    tail, rate, reader = Tail(variance, threshold - read.drawn.cut + 1), read.drawn.rate, BitReader(noise)
    chosen = np.flatnonzero(read.is_drawn(counts)).tolist()
    if chosen:
        first = tail.confirmed(rate)
        for at in chosen:
            draw = draw_chosen(tail, rate, first=first, reader=reader)
            # The tail is what a group just below the cut needs; one further below may miss the threshold all the same.
            if draw is not None and int(counts[at]) + draw >= threshold:
                passed.append((at, int(counts[at]) + draw))
    return [(LabelPosition(at), noisy) for at, noisy in passed]
