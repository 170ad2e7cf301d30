"""The seam of the mechanism layer: what a top-k selection takes, gives and costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from dpsql.accounting import ZCDP
from dpsql.mechanisms.histogram import Histogram, LabelPosition
from dpsql.mechanisms.sampling.noise import Noise


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
        first = sorted((-count, position) for position, count in noisy)[:k]
        return cls(tuple(position for _, position in first), tuple(-negated for negated, _ in first))


class TopKMechanism(Protocol):
    """A selection of at most k of the leaders of a histogram."""

    @property
    def name(self) -> str:
        """The mechanism's name in SQL."""
        ...

    @property
    def worst_case(self) -> ZCDP:
        """The loss to reserve before the data is read; a public number."""
        ...

    def select(self, histogram: Histogram, noise: Noise) -> Selection:
        """Draw the selection."""
        ...

    def loss(self, selection: Selection) -> ZCDP:
        """Return what `selection` cost, at most `worst_case`."""
        ...
