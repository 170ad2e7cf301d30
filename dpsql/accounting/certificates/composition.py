"""The composition bounds of Durfee and Rogers in closed form, on which the certificate `theorem2` rests.

Every number is an upper bound: it is moved up by `_SLACK`, 16 times what the roundings of its formula can add up to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

__all__ = ["DurfeeRogers", "durfee_rogers"]

_SLACK = 2.0**-45


@dataclass(frozen=True, slots=True)
class DurfeeRogers:
    """The three bounds of Durfee and Rogers 2019, Theorem 1, on the total epsilon of k items.

    The first two alone are their Theorem 3, advanced composition of any pure guarantee; the third needs bounded range.
    """

    basic: float
    pure: float
    bounded_range: float

    @property
    def best(self) -> float:
        """Return the smallest, the theorem's epsilon'."""
        return min(self.basic, self.pure, self.bounded_range)


def durfee_rogers(k: int, epsilon: Epsilon, *, delta: Delta) -> DurfeeRogers:
    """Return the total epsilon of `k` items of `epsilon` each, with failure `delta` for the composition, rounded up.

    Source: Durfee and Rogers 2019, arXiv:1905.04273, Theorems 1 and 2; (e^x - 1) / (e^x + 1) = tanh(x / 2).
    """
    if k < 1 or not 0 < delta.value < 1:
        raise UsageError("composition-range", "Composition needs k of at least 1 and delta strictly between 0 and 1.")
    level = math.log(delta.value.denominator) - math.log(delta.value.numerator)
    step = float(epsilon)
    squares = k * step**2
    return DurfeeRogers(
        basic=_up(float(k * epsilon.value)),
        pure=_up(k * step * math.tanh(step / 2.0) + math.sqrt(2.0 * squares * level)),
        bounded_range=_up(squares / 2.0 + math.sqrt(squares * level / 2.0)),
    )


def _up(value: float) -> float:
    return value * (1.0 + _SLACK)
