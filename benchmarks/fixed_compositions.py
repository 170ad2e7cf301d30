"""Optimal compositions of mechanisms that are fixed beforehand: yardsticks, and no session's certificate.

`pure_delta` is what k items of epsilon-differential privacy cost at best, `fixed_delta` what k items of
epsilon-bounded range cost if no mechanism is chosen after an answer was seen. An analyst who does choose can do worse
than the second (`maths.md` 6.1); `dpsql.accounting.optimal` bounds that.

Every delta is rounded up: the level is lowered by more than the error of the losses, and the sum is raised by `_SLACK`,
far above the error of the logarithms of binomials (below 2e-10 for k up to 10,000).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.accounting.certificates import crossing
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

__all__ = ["GeneralizedResponse", "fixed_delta", "fixed_epsilon", "pure_delta", "pure_epsilon"]

_SLACK = 1e-9
_ULPS = 2.0**-49
_MOST = 10_000
_BLOCK = 2**18  # cells of the matrix in memory at a time
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GeneralizedResponse:
    """GRR(t, width): one bit, whose log-likelihood ratio is t or t - width.

    No pair of distributions whose ratio keeps to an interval of that width is told apart more easily than the worst of
    these, t between 0 and width. At t = width / 2 it is Warner's randomised response of width / 2.
    Source: Dong, Durfee and Rogers 2020, arXiv:1909.13830 (generalised randomised response).
    """

    t: float
    width: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.t <= self.width or not self.width > 0.0:
            raise UsageError("composition-range", "A generalised response needs 0 <= t <= width and a positive width.")

    @property
    def p(self) -> float:
        """Return the probability of ratio t under the first distribution."""
        return math.expm1(self.t - self.width) / math.expm1(-self.width)

    @property
    def q(self) -> float:
        """Return the probability of ratio t under the second distribution."""
        return math.exp(-self.t) * self.p


@lru_cache(maxsize=64)
def _log_binomials(k: int) -> Floats:
    factorials = np.array([math.lgamma(n + 1.0) for n in range(k + 1)])
    return np.asarray(factorials[-1] - factorials - factorials[::-1])


def _sticks(k: int, width: float, *, shifts: Floats, level: float) -> Floats:
    """Return for each shift t the hockey stick of k answers of GRR(t, width) at `level`, rounded up."""
    lowered = level - _ULPS * (abs(level) + 2.0 * k * width)
    below = np.arange(k + 1.0)
    heavy = np.log(np.expm1(shifts - width) / math.expm1(-width))[:, None]
    light = (shifts - width + np.log(np.expm1(-shifts) / math.expm1(-width)))[:, None]
    room = lowered - (k * shifts[:, None] - below * width)
    weight = _log_binomials(k) + (k - below) * heavy + below * light
    found = np.sum(np.exp(weight) * -np.expm1(np.minimum(room, 0.0)), axis=1) * (1.0 + _SLACK)
    return np.asarray(found + (k + 1) * sys.float_info.min)  # what underflows is not nothing


def _check(k: int) -> None:
    if not 1 <= k <= _MOST:
        raise UsageError("composition-range", "An optimal composition is computed for 1 to 10,000 items.")


def pure_delta(k: int, epsilon: Epsilon, *, total: float) -> float:
    """Return the least delta with which k items of epsilon-differential privacy are (total, delta)-private, rounded up.

    Source: Kairouz, Oh and Viswanath 2015 (Durfee and Rogers 2019, Lemma 4.5), for every total and not only the
    (k - 2i) epsilon of the lemma: the hockey stick of k randomised responses.
    """
    _check(k)
    step = float(epsilon)
    return min(1.0, float(_sticks(k, 2.0 * step, shifts=np.array([step]), level=total)[0]))


def fixed_delta(k: int, epsilon: Epsilon, *, total: float) -> float:
    """Return the least delta with which k items of epsilon-bounded range, fixed beforehand, are (total, delta)-private.

    Source: Dong, Durfee and Rogers 2020, arXiv:1909.13830: the worst of GRR(t, epsilon) over the k + 1 values
    t = (total + (l + 1) epsilon) / (k + 1). Rounded up. Not sound for an analyst who adapts.
    """
    _check(k)
    step = float(epsilon)
    shifts = (total + np.arange(1.0, k + 2.0) * step) / (k + 1)
    shifts = shifts[(shifts > 0.0) & (shifts < step)]
    rows = max(1, _BLOCK // (k + 1))
    blocks = (shifts[first : first + rows] for first in range(0, len(shifts), rows))
    worst = max((float(_sticks(k, step, shifts=block, level=total).max()) for block in blocks), default=0.0)
    return min(1.0, max(worst, -math.expm1(min(0.0, total))))


def pure_epsilon(k: int, epsilon: Epsilon, *, delta: Delta) -> float:
    """Return the inverse of `pure_delta`, rounded up by at most 1e-9 of its size."""
    return _inverse(lambda total: pure_delta(k, epsilon, total=total), k * float(epsilon), delta=delta)


def fixed_epsilon(k: int, epsilon: Epsilon, *, delta: Delta) -> float:
    """Return the inverse of `fixed_delta`, rounded up by at most 1e-9 of its size."""
    return _inverse(lambda total: fixed_delta(k, epsilon, total=total), k * float(epsilon), delta=delta)


def _inverse(curve: Callable[[float], float], last: float, *, delta: Delta) -> float:
    if not 0 < delta.value < 1:
        raise UsageError("composition-range", "Composition needs k of at least 1 and delta strictly between 0 and 1.")
    return crossing(curve, float(delta) * (1.0 - _ULPS), low=0.0, high=last * (1.0 + _ULPS), within=1e-9)
