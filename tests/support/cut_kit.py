"""What an engine returns behind a lower cut, from the values of all groups in the order of their labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.base import Places, ReadPlaces

Values = npt.NDArray[np.int64]


def returned(values: Values, places: Places) -> tuple[Values, ReadPlaces]:
    """Return the rows that come back, and what the mechanism is told of them."""
    numbers = np.arange(1, len(values) + 1)
    kept = (values >= places.cut) | np.isin(numbers, places.drawn) | (numbers > places.last) | (numbers == 1)
    rows = np.flatnonzero(kept)
    return rows, ReadPlaces(places, numbers[rows])
