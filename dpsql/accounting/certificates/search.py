"""Search for the point where a falling curve of deltas meets a level, from the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["crossing"]

_LEAST = 1e-300
_EDGE = 0.1


def crossing(curve: Callable[[float], float], level: float, *, low: float, high: float, within: float) -> float:
    """Return a point of [low, high] at which the falling `curve` was seen to be at most `level`, or `high`.

    It lies at most `within`, relatively, above the least such point. Secants of the logarithm, which is nearly a
    parabola; the value at an end that stays twice running is halved (the Illinois rule).
    """

    def excess(point: float) -> float:
        return math.log(max(curve(point), _LEAST) / level)

    at_low, at_high, side = excess(low), excess(high), 0
    if at_low <= 0.0:
        return low
    while high - low > within * high:
        share = at_low / (at_low - at_high) if at_high < 0.0 else 0.5
        middle = low + min(max(share, _EDGE * within), 1.0 - _EDGE * within) * (high - low)
        at_middle = excess(middle)
        if at_middle <= 0.0:
            at_low *= 0.5 if side < 0 else 1.0
            high, at_high, side = middle, at_middle, -1
        else:
            at_high *= 0.5 if side > 0 else 1.0
            low, at_low, side = middle, at_middle, 1
    return high
