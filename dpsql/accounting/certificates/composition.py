"""Composition bounds in closed form: what the same items cost under the published theorems.

Of these the session's own zero-concentrated filter uses none; the certificate `theorem2` rests on `durfee_rogers`.
Every number is an upper bound: it is moved up by `_SLACK`, 16 times what the roundings of its formula can add up to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

__all__ = ["DurfeeRogers", "dong_durfee_rogers", "durfee_rogers", "kappa", "lemma_4_4"]

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
    _check(k, delta)
    step = float(epsilon)
    return _terms(k * epsilon.value, k * step * math.tanh(step / 2.0), squares=k * step**2, level=_level(delta))


def lemma_4_4(epsilons: Sequence[Epsilon], *, delta: Delta) -> DurfeeRogers:
    """Return the total epsilon of items of different, fixed epsilons, chosen adaptively otherwise, rounded up.

    Source: Durfee and Rogers 2019, arXiv:1905.04273, Lemma 4.4. Which epsilon comes when is fixed beforehand: the
    lemma says nothing about one that is chosen after seeing answers.
    """
    _check(len(epsilons), delta)
    steps = [float(each) for each in epsilons]
    drift = math.fsum(step * math.tanh(step / 2.0) for step in steps)
    squares = math.fsum(step**2 for step in steps)
    return _terms(sum(each.value for each in epsilons), drift, squares=squares, level=_level(delta))


def _check(k: int, delta: Delta) -> None:
    if k < 1 or not 0 < delta.value < 1:
        raise UsageError("composition-range", "Composition needs k of at least 1 and delta strictly between 0 and 1.")


def _level(delta: Delta) -> float:
    return math.log(delta.value.denominator) - math.log(delta.value.numerator)


def _terms(basic: Fraction | int, drift: float, *, squares: float, level: float) -> DurfeeRogers:
    return DurfeeRogers(
        basic=_up(float(basic)),
        pure=_up(drift + math.sqrt(2.0 * squares * level)),
        bounded_range=_up(squares / 2.0 + math.sqrt(squares * level / 2.0)),
    )


def _up(value: float) -> float:
    return value * (1.0 + _SLACK)


def dong_durfee_rogers(k: int, epsilon: Epsilon, *, delta: Delta) -> float:
    """Return k kappa(epsilon) + epsilon sqrt(k ln(1/delta) / 2), the sharper third term, rounded up.

    Source: Dong, Durfee and Rogers 2020, arXiv:1909.13830, adaptive composition of bounded range: the mean of a step's
    loss is at most kappa, and Hoeffding's inequality bounds the rest.
    """
    _check(k, delta)
    return _up(k * kappa(epsilon) + float(epsilon) * math.sqrt(k * _level(delta) / 2.0))


def kappa(epsilon: Epsilon) -> float:
    """Return the largest Kullback-Leibler divergence of an epsilon-bounded-range mechanism, at most epsilon**2 / 8.

    Source: Dong, Durfee and Rogers 2020, arXiv:1909.13830: x - 1 - ln x at x = epsilon / (1 - exp(-epsilon)), rounded
    up. With y = x - 1 an error in y enters times y / (1 + y), so all of them stay below 2**-49 y.
    """
    step = float(epsilon)
    excess = step / -math.expm1(-step) - 1.0
    return excess - math.log1p(excess) + 2.0**-49 * excess
