"""Places of groups in the order of their labels, of which some are drawn before any group is read."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt


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
