"""What an engine returns behind a lower cut, from the values of all groups in the order of their labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.places import Places, ReadPlaces

Values = npt.NDArray[np.int64]


def returned(
    values: Values, places: Places, *, counts: Values | None = None, leaders: int = 0, heaviest: int = 0
) -> tuple[Values, ReadPlaces]:
    """Return the rows that come back, and what the mechanism is told of them."""
    numbers = np.arange(1, len(values) + 1)
    kept = (values >= places.cut) | np.isin(numbers, places.drawn) | (numbers > places.last) | (numbers == 1)
    for most, by in ((leaders, counts), (heaviest, values)):
        if most and by is not None:
            kept[np.argsort(-by, kind="stable")[:most]] = True
    rows = np.flatnonzero(kept)
    return rows, ReadPlaces(places, numbers[rows])
