"""Shared parts of the mechanisms: histograms, which are all that they see, selections, and checks of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import lt
from typing import NewType

import numpy as np
import numpy.typing as npt

from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

LEAST_EPSILON = Fraction(1, 10**9)  # of a draw: keeps a threshold within the integers that the race can hold
FALSE_ALARM = Fraction(1, 20)  # probability that something is returned where no row has it
COUNT_LIMIT = 2**53  # beyond it a double is not every integer
LabelPosition = NewType("LabelPosition", int)  # in the order of labels: it may decide between equal noisy counts


@dataclass(frozen=True, slots=True, repr=False)
class Places:
    """Places, from 1 on, at which noise may lift a group below `cut` to the threshold; at the others it does not.

    Each place is drawn with probability 1 - exp(-rate), independently. `drawn` has the first of them in ascending
    order; nothing is drawn yet of the places after the last of them. It has no `repr` of the places: they are noise.
    """

    cut: int
    rate: Fraction
    drawn: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        """The last place of which it is known whether it is drawn."""
        return self.drawn[-1] if self.drawn else 0

    def __repr__(self) -> str:
        return f"Places(cut={self.cut})"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ReadPlaces:
    """The drawn places, and the place of each group that was read, 0 for a group whose name is known."""

    drawn: Places
    rows: npt.NDArray[np.int64]

    def take(self, rows: npt.NDArray[np.int64]) -> ReadPlaces:
        """Return the same of some of the groups."""
        return ReadPlaces(self.drawn, self.rows[rows])

    @property
    def is_named(self) -> npt.NDArray[np.bool_]:
        """Whether the name of each group is known, as the engine compares it."""
        return np.equal(self.rows, 0)

    def is_fresh(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which groups of these values draw noise of their own: by their value, or beyond the last place."""
        return (values >= self.drawn.cut) | (self.rows > self.drawn.last)

    def is_drawn(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of the other groups are at a drawn place."""
        return ~self.is_fresh(values) & np.isin(self.rows, np.array(self.drawn.drawn, np.int64))


@dataclass(frozen=True, slots=True, repr=False)
class Histogram:
    """The counts of the first k_bar groups, in descending order, and of the group after them (0 if there is none).

    Given: `leaders` holds the counts of the k_bar first groups of the order (count descending, then a fixed order of
    the labels that does not depend on data); when fewer groups exist, all of them. A mechanism returns positions in
    `leaders`; the labels stay with the caller. Exact counts make these positions, so they may not decide between equal
    noisy counts: a random order does. It has no `repr` of its values: they are exact.
    """

    leaders: tuple[int, ...]
    following: int

    def __post_init__(self) -> None:
        counts = (*self.leaders, self.following)
        # True is an int, and an int64 of numpy overflows in silence: only Python's own integers pass.
        if set(map(type, counts)) != {int} or not 0 <= min(counts) <= max(counts) < COUNT_LIMIT:
            raise UsageError("histogram-counts", "The counts of a histogram must be integers between 0 and 2**53.")
        if any(map(lt, counts, counts[1:])):
            raise UsageError("histogram-order", "The counts of a histogram must come in descending order.")

    @classmethod
    def of_leaders(cls, counts: tuple[int, ...], k_bar: int) -> Histogram:
        """Split the counts of the first k_bar + 1 groups (of all, if fewer) into leaders and the one after them."""
        return cls(counts[:k_bar], counts[k_bar] if len(counts) > k_bar else 0)

    def first(self, k_bar: int) -> Histogram:
        """Return the histogram of the k_bar first groups alone, and of the count after them."""
        return self if k_bar >= len(self.leaders) else Histogram(self.leaders[:k_bar], self.leaders[k_bar])

    def padded(self, length: int) -> tuple[int, ...]:
        """Return the `length` highest counts, going on with zeros where groups are missing."""
        counts = (*self.leaders, self.following)
        # Zeros may follow only where no group exists: a count after the leaders says that other groups were cut off.
        if self.following and length > len(counts):
            raise UsageError("histogram-cut", "The histogram must hold every group up to the last requested one.")
        return (counts + (0,) * (length - len(counts)))[:length]

    def __repr__(self) -> str:
        return "Histogram(sealed)"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FullHistogram:
    """The counts of all groups that exist, in the order of their labels, or of those that a cut left.

    Given: a 64-bit integer for every group that some privacy unit is in, and for no other; the order of the labels is
    fixed and does not depend on data, since positions break ties. Counts may be weights, in whole steps. A mechanism
    returns positions, of type `LabelPosition`; the labels stay with the caller. With `read`, groups that are below its
    cut and not at one of its drawn places may be missing (`LowerCut`). It has no `repr` of its values: they are
    exact.
    """

    counts: npt.NDArray[np.int64]
    read: ReadPlaces | None = None

    def __post_init__(self) -> None:
        fit = isinstance(self.counts, np.ndarray) and self.counts.dtype == np.int64 and self.counts.ndim == 1
        if not fit or (len(self.counts) and not 1 <= self.counts.min() <= self.counts.max() < COUNT_LIMIT):
            raise UsageError("histogram-counts", "The counts of all groups must be integers between 1 and 2**53.")
        if self.read is not None and self.read.rows.shape != self.counts.shape:
            raise UsageError("histogram-size", "There must be one place for each group that was read.")

    @classmethod
    def of(cls, counts: Sequence[int]) -> FullHistogram:
        """Return the histogram of plain integers."""
        return cls(np.array(counts, dtype=np.int64))

    def __repr__(self) -> str:
        return "FullHistogram(sealed)"


@dataclass(frozen=True, slots=True)
class Selection:
    """A private choice: positions in the histogram's leaders, in released order, and whether BOTTOM ended it."""

    positions: tuple[int, ...]
    stopped_at_bottom: bool

    @property
    def steps(self) -> int:
        """Return how many draws were made and are paid for; BOTTOM is one of them."""
        return len(self.positions) + self.stopped_at_bottom


@dataclass(frozen=True, slots=True)
class NoisyRelease:
    """Names, order and counts at once: positions in the order of the noisy counts, and these."""

    positions: tuple[LabelPosition, ...]
    counts: tuple[int, ...]

    @classmethod
    def leading(cls, noisy: Iterable[tuple[LabelPosition, int]], k: int) -> NoisyRelease:
        """Return the first k of positions with noisy counts; the position alone decides between equal noisy counts.

        Hence it takes positions in the order of labels alone: in one of exact counts they would betray these.
        """
        # Counts are negated and positions are not, so that equal counts come by ascending position.
        first = sorted((-count, position) for position, count in noisy)[:k]
        return cls(tuple(position for _, position in first), tuple(-negated for negated, _ in first))


def check_epsilon(epsilon: Epsilon, sensitivity: int = 1) -> None:
    """Raise UsageError for an epsilon, per unit of a count of this sensitivity, below that of any draw."""
    if epsilon.value < LEAST_EPSILON * sensitivity:
        raise UsageError("epsilon-range", "The epsilon of a draw must be at least 1e-9.")


def check_delta(delta: Delta) -> None:
    """Raise UsageError for a delta that an unknown domain cannot have."""
    if not 0 < delta.value < 1:
        raise UsageError("delta-range", "The delta of an unknown domain must lie strictly between 0 and 1.")


def check_k(k: int, k_bar: int | None = None) -> None:
    """Raise UsageError unless 1 <= k <= k_bar (None: whatever k)."""
    if k_bar is None and k < 1:
        raise UsageError("k-range", "k must be at least 1.")
    if k_bar is not None and not 1 <= k <= k_bar:
        raise UsageError("k-range", "k must be at least 1 and at most k_bar.")


def check_bound(max_groups_contributed: int | None) -> None:
    """Raise UsageError for a bound below 1; None is no bound."""
    if max_groups_contributed is not None and max_groups_contributed < 1:
        raise UsageError("bound-range", "max_groups_contributed must be at least 1.")


def check_sensitivity(sensitivity: int) -> None:
    """Raise UsageError for a gap that moves by less than 1 between neighbours."""
    if sensitivity < 1:
        raise UsageError("sensitivity-range", "The sensitivity of a gap must be at least 1.")


def check_leaders(histogram: Histogram, k_bar: int) -> None:
    """Raise UsageError for a histogram of more than k_bar leaders."""
    if len(histogram.leaders) > k_bar:
        raise UsageError("histogram-size", "The histogram holds more leaders than k_bar.")


def known_candidates(histogram: Histogram) -> tuple[int, ...]:
    """Return the counts of all candidates of a known domain; raise UsageError if some were left out."""
    if histogram.following:
        raise UsageError("histogram-cut", "The histogram must hold every candidate of a known domain.")
    return histogram.leaders
