"""Renyi curves of draws, noise and report noisy max, and of many of them together (`maths.md` 7.5).

A curve bounds the Renyi divergence of every order between neighbours. Curves that are fixed beforehand add at each
order, and the sum converts to (epsilon, delta) at its best order. `RenyiCurve` has the form in which rho is exact; the
curves here have other forms.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from dpsql.accounting.guarantees import BoundedRange, RenyiCurve, find_minimum
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon, Rho

_UP = 1.0 + 2.0**-46
_SLACK = 2.0**-46  # absolute, above what the logarithms below lose where they cancel
_MARGIN = 1e-10
_NO_FAILURE = Delta(0)


class Curve(Protocol):
    """Bound on the Renyi divergences between neighbours, with a failure probability."""

    @property
    def delta(self) -> Delta:
        """Return the failure probability."""
        ...

    def at(self, alpha: float) -> float:
        """Return the bound on the divergence of order `alpha` > 1, rounded up."""
        ...


def _check_order(alpha: float) -> None:
    if not alpha > 1.0:
        raise UsageError("alpha-range", "The order of a Renyi divergence must exceed 1.")


def _log_of_rest(exponent: float) -> float:
    """Return ln(1 - exp(-exponent))."""
    return math.log(-math.expm1(-exponent))


@dataclass(frozen=True, slots=True)
class BoundedRangeCurve:
    """The Renyi curve of `items` draws of bounded range, as those of an exponential mechanism.

    At each order it is the largest divergence of any mechanism of that range, so it is never above alpha * rho, and
    below it where alpha * epsilon is large; it ends at epsilon.
    Source: Zhu and Wang 2022, Adaptive Private-K-Selection (AISTATS), Proposition 7, which has the smaller of
    alpha * epsilon**2 / 8 and the curve of epsilon-differential privacy of Bun and Steinke 2016, arXiv:1605.02065. The
    largest divergence under bounded range is below both (`maths.md` 7.5).

    >>> draw = BoundedRangeCurve(BoundedRange(Epsilon(2)))
    >>> [round(draw.at(alpha), 3) for alpha in (2, 8, 1000)]
    [0.868, 1.59, 1.992]
    """

    each: BoundedRange
    items: int = 1

    def __post_init__(self) -> None:
        if self.items < 0:
            raise UsageError("items-range", "A loss has no fewer than 0 items.")

    @property
    def delta(self) -> Delta:
        """Return 0: a draw cannot fail."""
        return _NO_FAILURE

    def at(self, alpha: float) -> float:
        """Return the bound on the divergence of order `alpha` > 1, rounded up."""
        _check_order(alpha)
        order, epsilon = alpha - 1.0, float(self.each.epsilon)
        rest = _log_of_rest(alpha * epsilon)
        # the log-ratio at which the divergence of two outcomes is largest
        worst = epsilon + math.log(order / alpha) + rest - _log_of_rest(order * epsilon)
        found = worst + (rest - math.log(alpha) - _log_of_rest(epsilon)) / order
        slack = _SLACK * (1.0 + epsilon) * (1.0 + abs(math.log(order)) + abs(math.log(epsilon))) * (1.0 + 1.0 / order)
        return self.items * min(alpha * float(self.each.rho), found + slack) * _UP


@dataclass(frozen=True, slots=True)
class LaplaceCurve:
    """The Renyi curve of one number with discrete Laplace noise, between neighbours at most `distance` apart.

    Source: Mironov 2017, arXiv:1702.07476, Proposition 6, for noise on the integers (`maths.md` 7.5).

    >>> round(LaplaceCurve(Fraction(2), distance=1).at(2.0), 4)
    0.2273
    """

    scale: Fraction
    distance: int = 1

    def __post_init__(self) -> None:
        if self.scale <= 0 or self.distance < 1:
            raise UsageError("scale-range", "The scale must be positive, and the distance at least 1.")

    @property
    def delta(self) -> Delta:
        """Return 0: noise cannot fail."""
        return _NO_FAILURE

    def at(self, alpha: float) -> float:
        """Return the bound on the divergence of order `alpha` > 1, rounded up."""
        _check_order(alpha)
        rate = 1.0 / float(self.scale)
        steps = (2.0 * alpha - 1.0) * rate
        between = math.fsum(math.exp(-steps * at) for at in range(1, self.distance))
        outer = (1.0 + math.exp(-steps * self.distance)) / -math.expm1(-rate)
        log_sum = math.log((outer + between) * math.tanh(rate / 2.0))
        slack = _SLACK * (self.distance + 1.0 / (alpha - 1.0))
        return (self.distance * rate + log_sum / (alpha - 1.0)) * _UP + slack


@dataclass(frozen=True, slots=True)
class CurveSum:
    """The curve of several mechanisms together, all of them `times` times over.

    Source: Zhu and Wang 2022, Lemma 16: orders keep, epsilons and deltas add. As for `RenyiCurve`, the curves must be
    fixed beforehand.

    >>> draw, test = BoundedRangeCurve(BoundedRange(Epsilon(1))), RenyiCurve(Rho("0.1"), 1, Delta("1e-9"))
    >>> draws = CurveSum((draw, test), times=9)
    >>> round(draws.epsilon(Delta("1e-6")), 2), draws.delta
    (11.29, Delta(9e-09))
    """

    parts: tuple[Curve, ...]
    times: int = 1

    @property
    def delta(self) -> Delta:
        """Return the failure probability of all."""
        return Delta(self.times * sum((part.delta.value for part in self.parts), Fraction(0)))

    def at(self, alpha: float) -> float:
        """Return the bound on the divergence of order `alpha` > 1, rounded up."""
        _check_order(alpha)
        return self.times * math.fsum(part.at(alpha) for part in self.parts) * _UP

    def epsilon(self, delta: Delta) -> float:
        """Return an epsilon, rounded up, for which the curve implies (epsilon, delta + own delta)-privacy.

        Source: Zhu and Wang 2022, Lemma 17, with the conversion of Canonne, Kamath and Steinke 2020.
        """
        if not 0 < delta.value < 1:
            raise UsageError("delta-range", "Delta must lie strictly between 0 and 1 to convert a guarantee.")
        level = math.log(delta.value.denominator) - math.log(delta.value.numerator)

        def convert(x: float) -> float:
            order = math.exp(x)
            rest = level - order * math.log1p(1.0 / order) - math.log1p(order)
            return self.at(1.0 + order) + rest / order

        x = _best(convert)
        value = convert(x)
        return max(0.0, value + _MARGIN * (abs(value) + self.at(1.0 + math.exp(x))))

    def delta_at(self, epsilon: Epsilon) -> float:
        """Return a delta, rounded up, its own included, for which the curve implies (epsilon, delta)-privacy."""

        def convert(x: float) -> float:
            order = math.exp(x)
            return order * (self.at(1.0 + order) - float(epsilon)) - x - (1.0 + order) * math.log1p(1.0 / order)

        log_delta = convert(_best(convert))
        converted = math.exp(min(0.0, log_delta)) * (1.0 + _MARGIN * (1.0 + abs(log_delta)))
        return min(1.0, max(sys.float_info.min, converted) + float(self.delta) * _UP)


def _best(curve: Callable[[float], float]) -> float:
    """Return a good ln(alpha - 1); every one is sound, and the curves are nearly convex in it."""
    return find_minimum(curve)


def noisy_max_curve(noise: Curve, candidates: int) -> CurveSum:
    """Return the curve of report noisy max over so many candidates, from that of the noise of one score.

    Given: all scores have independent noise of one distribution, with log-concave probabilities; `noise` is its curve
    for the distance by which the difference of two scores can move: twice the sensitivity of a score that moves either
    way, as gaps do.
    Source: Zhu and Wang 2022, Adaptive Private-K-Selection (AISTATS), Theorem 8; with Gaussian noise Corollary 9.

    >>> gaussian = RenyiCurve(Rho("0.02"), 1, Delta(0))  # variance 100 and distance 2
    >>> round(noisy_max_curve(gaussian, 40).at(11.0), 4) == round(11 * 0.02 + math.log(40) / 10, 4)
    True
    """
    return CurveSum((noise, RenyiCurve(Rho(0), candidates, Delta(0))))
