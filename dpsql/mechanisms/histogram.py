"""What a top-k mechanism may see: the leading exact counts and the next one, or the counts of all groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import lt
from typing import NewType

import numpy as np
import numpy.typing as npt

from dpsql.errors import UsageError
from dpsql.mechanisms.places import ReadPlaces

COUNT_LIMIT = 2**53  # beyond it a double is not every integer
LabelPosition = NewType("LabelPosition", int)  # in the order of labels: it may decide between equal noisy counts


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
    cut and not at one of its drawn places may be missing (`lower_cut.py`). It has no `repr` of its values: they are
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
