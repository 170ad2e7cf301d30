"""Guarantees, as frozen data, and what rho or a Renyi curve promises in epsilon and delta, always to the safe side.

Neighbours are two data sets of which one has one privacy unit more, with all of that unit's rows (add/remove). A
guarantee is a fact about a mechanism for all neighbours, in both orders; nothing here looks at data. What has no
known composition has no class: an unknown guarantee cannot be charged.

The conversion is that of Canonne, Kamath and Steinke 2020 (arXiv:2004.00010, Corollary 13; `maths.md` 2.3): for every
alpha > 1, with D(alpha) the bound on the Renyi divergence of that order, which is alpha * rho under zCDP,

    delta = exp((alpha - 1) * (D(alpha) - epsilon)) / (alpha - 1) * (1 - 1 / alpha) ** alpha.

Every alpha gives a true bound, so an imperfect search for the best one costs accuracy, never soundness. What is left
is floating-point error, below 1e-13 relative in each formula; results are moved to the safe side by `_MARGIN`.

Curves that are fixed beforehand add at each order, and their sum converts at its best order (`maths.md` 7.5).
`RenyiCurve` has the form in which rho is exact; the curves of draws and of noise have others.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Protocol, Self

from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon, Rho

_GRID = 10**12  # of numbers that are rounded down


class Certificate(StrEnum):
    """Kind of proof for the guarantee of a session; one for the whole session."""

    pure = "pure"
    theorem2 = "theorem2"
    zcdp = "zcdp"
    optimal = "optimal"

    @property
    def currencies(self) -> tuple[str, str]:
        """Return the two currencies: the refundable one, which is settled at the actual cost, and the permanent one."""
        match self:
            case Certificate.pure:
                return "epsilon", "delta"
            case Certificate.theorem2:
                return "items", "queries"
            case Certificate.zcdp:
                return "rho", "delta"
            case Certificate.optimal:
                return "items", "delta"

    @property
    def words(self) -> str:
        """Return the kind of accounting in words."""
        match self:
            case Certificate.pure:
                return "pure differential privacy but for delta, whose epsilons add up"
            case Certificate.theorem2:
                return "items of one epsilon by Theorem 2 of Durfee and Rogers (2019)"
            case Certificate.zcdp:
                return "zero-concentrated differential privacy"
            case Certificate.optimal:
                return "items of bounded range by a certified bound on their adaptive composition"


@dataclass(frozen=True, slots=True)
class ApproximateDP:
    """(epsilon, delta)-differential privacy: what the curator promises every privacy unit, in all."""

    epsilon: Epsilon
    delta: Delta

    def __str__(self) -> str:
        return f"({self.epsilon}, {self.delta})-differential privacy"


@dataclass(frozen=True, slots=True)
class ZCDP:
    """A good query of cost rho with failure probability delta (`maths.md` 2.4), the loss of one release.

    For every ordered pair of neighbours there is a coupled output that differs from the real one with probability at
    most delta and whose Renyi divergence of every order alpha > 1 is at most alpha * rho (Bun and Steinke 2016,
    arXiv:1605.02065; Whitehouse et al. 2023, arXiv:2203.05481, for the adaptive sum). Losses add.
    """

    rho: Rho
    delta: Delta

    @classmethod
    def nothing(cls) -> Self:
        """Return the loss of a release that reads no private row."""
        return cls(Rho(0), Delta(0))

    def __add__(self, other: ZCDP) -> ZCDP:
        return ZCDP(self.rho + other.rho, self.delta + other.delta)

    def __str__(self) -> str:
        return f"rho {self.rho}, delta {self.delta}"


@dataclass(frozen=True, slots=True)
class BoundedRange:
    """A log-likelihood ratio confined to an interval of width epsilon (Durfee and Rogers 2019, arXiv:1905.04273, 4.2).

    One draw of the exponential mechanism with monotone utilities of sensitivity 1 and weights exp(epsilon * utility).
    """

    epsilon: Epsilon

    @property
    def rho(self) -> Rho:
        """Return epsilon**2 / 8 (Cesar and Rogers 2021, arXiv:2004.07223, Lemma 3.2): the cost of one item."""
        return Rho(self.epsilon.value**2 / Fraction(8))


def epsilon_of_draws(rho: Fraction, draws: int = 1) -> Epsilon:
    """Return the largest epsilon of a draw of which so many cost rho together, rounded down to twelve decimals."""
    # Both steps round down: a draw of a smaller epsilon costs less, never more.
    return Epsilon(Fraction(math.isqrt(math.floor(8 * rho / draws * _GRID**2)), _GRID))


def item_price(certificate: Certificate, epsilon: Epsilon) -> Fraction:
    """Return what one item takes of the currency that is refunded."""
    match certificate:
        case Certificate.zcdp:
            return BoundedRange(epsilon).rho.value
        case Certificate.pure:
            return epsilon.value
        case Certificate.theorem2 | Certificate.optimal:
            return Fraction(1)


@dataclass(frozen=True, slots=True)
class PureLoss:
    """The loss of one release under the certificate `pure`: a likelihood ratio within exp(+-epsilon), but for delta."""

    epsilon: Fraction
    delta: Delta

    def __post_init__(self) -> None:
        if self.epsilon < 0:
            raise UsageError("epsilon-range", "The epsilon of a loss must be at least 0.")

    def __str__(self) -> str:
        return f"epsilon {float(self.epsilon):.6g}, delta {self.delta}"


@dataclass(frozen=True, slots=True)
class Steps:
    """Loss of one query of bounded-range steps: their number, the epsilon of each, and the delta of the query.

    For every ordered pair of neighbours there is a coupled answer that differs from the real one with probability at
    most delta, every step of which is of bounded range given the steps before it (`maths.md` 3.3).
    """

    items: int
    each: BoundedRange
    delta: Delta

    def __post_init__(self) -> None:
        if self.items < 0:
            raise UsageError("items-range", "A loss has no fewer than 0 items.")

    @property
    def pure(self) -> PureLoss:
        """Return the loss of the same query under `pure`: a range of width epsilon around 0 is within +-epsilon."""
        return PureLoss(self.items * self.each.epsilon.value, self.delta)

    def __str__(self) -> str:
        items = "1 item" if self.items == 1 else f"{self.items} items"
        return f"{items} of epsilon {self.each.epsilon}, delta {self.delta}"


Loss = ZCDP | PureLoss | Steps


def add_losses(losses: Sequence[Loss]) -> Loss:
    """Return the loss of several releases together; raise `UsageError` for losses of different kinds."""
    total = losses[0]
    for loss in losses[1:]:
        match total, loss:
            case ZCDP(), ZCDP():
                total = total + loss
            case PureLoss(), PureLoss():
                total = PureLoss(total.epsilon + loss.epsilon, total.delta + loss.delta)
            case Steps(), Steps() if total.each == loss.each:
                total = Steps(total.items + loss.items, total.each, total.delta + loss.delta)
            case _:
                raise UsageError("wrong-certificate", "Losses of different kinds cannot be added.")
    return total


_MARGIN = 1e-10
_LOWEST, _HIGHEST = -15.0, 25.0
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_Divergence = Callable[[float], float]  # by its order, which exceeds 1


def find_minimum(curve: Callable[[float], float]) -> float:
    """Return x in [-15, 25] near the least value of a unimodal `curve`, by golden-section search."""
    low, high = _LOWEST, _HIGHEST
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = curve(left), curve(right)
    for _ in range(100):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = curve(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = curve(right)
    return (low + high) / 2.0


def _log_inverse(delta: Delta) -> float:
    if not 0 < delta.value < 1:
        raise UsageError("delta-range", "Delta must lie strictly between 0 and 1 to convert a guarantee.")
    return math.log(delta.value.denominator) - math.log(delta.value.numerator)


def _epsilon(divergence: _Divergence, log_inverse_delta: float, *, x: float) -> float:
    order = math.exp(x)  # alpha - 1
    return divergence(1.0 + order) + (log_inverse_delta - order * math.log1p(1.0 / order) - math.log1p(order)) / order


def _log_delta(divergence: _Divergence, epsilon: float, *, x: float) -> float:
    order = math.exp(x)
    return order * (divergence(1.0 + order) - epsilon) - x - (1.0 + order) * math.log1p(1.0 / order)


def _least_log_delta(divergence: _Divergence, epsilon: float) -> float:
    return _log_delta(divergence, epsilon, x=find_minimum(lambda x: _log_delta(divergence, epsilon, x=x)))


def _convert_to_epsilon(divergence: _Divergence, delta: Delta) -> float:
    """Return an epsilon, rounded up, that a divergence has at `delta`, at a good order: every one is sound."""
    level = _log_inverse(delta)
    x = find_minimum(lambda at: _epsilon(divergence, level, x=at))
    value, leading = _epsilon(divergence, level, x=x), divergence(1.0 + math.exp(x))
    return max(0.0, value + _MARGIN * (abs(value) + leading))  # near 0 the terms cancel: they carry the error


def _convert_to_delta(divergence: _Divergence, epsilon: Epsilon) -> float:
    """Return that delta, rounded up, above 0 even where a double underflows."""
    log_delta = _least_log_delta(divergence, float(epsilon))
    return max(sys.float_info.min, math.exp(min(0.0, log_delta)) * (1.0 + _MARGIN * (1.0 + abs(log_delta))))


def _concentrate(rho: float) -> _Divergence:
    return lambda alpha: alpha * rho


def epsilon_of_zcdp(rho: Rho, delta: Delta) -> float:
    """Return an epsilon, rounded up, for which rho-zCDP implies (epsilon, delta)-DP."""
    return _convert_to_epsilon(_concentrate(float(rho)), delta) if rho.value else 0.0


def delta_of_zcdp(rho: Rho, epsilon: Epsilon) -> float:
    """Return a delta, rounded up (above 0 even where a double underflows), at most 1, for (epsilon, delta)-DP."""
    return min(1.0, _convert_to_delta(_concentrate(float(rho)), epsilon)) if rho.value else 0.0


@lru_cache(maxsize=64)  # every session of a policy asks for the same total, and each takes 10 ms
def rho_of_total(total: ApproximateDP) -> Rho:
    """Return the largest rho that the total allows a session to spend, rounded down to a grid of 1e-12.

    Given: `total.delta` strictly between 0 and 1, and only the share of delta that pays for the conversion.
    Source: CKS20 inverted by bisection; the returned value is the lower end.
    """
    # Delta rises with rho, so that `low` is always one at which the conversion was seen to hold.
    level, epsilon = -_log_inverse(total.delta), float(total.epsilon)
    low, high = 0.0, max(1.0, epsilon)
    for _ in range(200):
        middle = (low + high) / 2.0
        # No double is left between the ends.
        if middle in (low, high):
            break
        if _least_log_delta(_concentrate(middle), epsilon) <= level:
            low = middle
        else:
            high = middle
    return Rho(Fraction(math.floor(Fraction(low * (1.0 - _MARGIN)) * _GRID), _GRID))


_UP = 1.0 + 2.0**-46
_SLACK = 2.0**-46  # absolute, above what the logarithms below lose where they cancel


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


_RENYI_UP = 1.0 + 2.0**-48


@dataclass(frozen=True, slots=True)
class RenyiCurve:
    """Approximate Renyi differential privacy for all orders at once, where no rho may cover it (`maths.md` 7.5).

    It bounds epsilon(alpha) by alpha rho + ln(candidates) / (alpha - 1) for every alpha > 1, with a failure
    probability. Report-noisy-max with Gaussian noise has it with candidates > 1; with one candidate it is
    zero-concentrated. Both parts are exact: a rational, and a whole number under the logarithm.

    The sum is Zhu and Wang 2022, Lemma 16: orders keep, epsilons and deltas add. It holds for mechanisms whose curves
    are fixed beforehand; no filter is proved here for curves that are chosen after seeing answers.
    """

    rho: Rho
    candidates: int
    delta: Delta

    def __post_init__(self) -> None:
        if self.candidates < 1:
            raise UsageError("items-range", "A Renyi curve has at least one candidate.")

    def __add__(self, other: RenyiCurve) -> RenyiCurve:
        return RenyiCurve(self.rho + other.rho, self.candidates * other.candidates, self.delta + other.delta)

    def at(self, alpha: float) -> float:
        """Return the bound on the divergence of order `alpha` > 1, rounded up."""
        _check_order(alpha)
        return (alpha * float(self.rho) + math.log(self.candidates) / (alpha - 1.0)) * _RENYI_UP

    def epsilon(self, delta: Delta) -> float:
        """Return an epsilon, rounded up, for which the curve implies (epsilon, delta + own delta)-privacy.

        Source: Zhu and Wang 2022, Lemma 17, with the conversion of Canonne, Kamath and Steinke 2020 in place of
        Mironov's ln(1/delta) / (alpha - 1). In it ln(candidates) adds to ln(1/delta), at every order: the epsilon is
        that of rho at delta / candidates.
        """
        return epsilon_of_zcdp(self.rho, Delta(delta.value / self.candidates))

    def delta_at(self, epsilon: Epsilon) -> float:
        """Return a delta, rounded up, its own included, for which the curve implies (epsilon, delta)-privacy."""
        # Rho 0 with several candidates has no conversion here: a delta of 1 is true of everything.
        converted = delta_of_zcdp(self.rho, epsilon) if self.rho.value else float(self.candidates > 1)
        return min(1.0, (self.candidates * converted + float(self.delta)) * _RENYI_UP)

    def concentrated(self) -> ZCDP:
        """Return the curve as a loss in rho; raise UsageError where there is none."""
        if self.candidates > 1:
            reason = "No rho covers this Renyi bound: it grows without limit as the order falls to 1."
            raise UsageError("not-concentrated", reason)
        return ZCDP(self.rho, self.delta)


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
    delta: ClassVar[Delta] = Delta(0)  # a draw cannot fail

    def __post_init__(self) -> None:
        if self.items < 0:
            raise UsageError("items-range", "A loss has no fewer than 0 items.")

    def at(self, alpha: float) -> float:
        """Return the bound on the divergence of order `alpha` > 1, rounded up."""
        _check_order(alpha)
        order, epsilon = alpha - 1.0, float(self.each.epsilon)
        rest = _log_of_rest(alpha * epsilon)
        # the log-ratio at which the divergence of two outcomes is largest
        worst = epsilon + math.log(order / alpha) + rest - _log_of_rest(order * epsilon)
        found = worst + (rest - math.log(alpha) - _log_of_rest(epsilon)) / order
        # Near alpha = 1, and of a small epsilon, the logarithms nearly cancel, and the error grows as 1 / order.
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
    delta: ClassVar[Delta] = Delta(0)  # noise cannot fail

    def __post_init__(self) -> None:
        if self.scale <= 0 or self.distance < 1:
            raise UsageError("scale-range", "The scale must be positive, and the distance at least 1.")

    def at(self, alpha: float) -> float:
        """Return the bound on the divergence of order `alpha` > 1, rounded up."""
        _check_order(alpha)
        rate = 1.0 / float(self.scale)
        steps = (2.0 * alpha - 1.0) * rate
        between = math.fsum(math.exp(-steps * at) for at in range(1, self.distance))
        outer = (1.0 + math.exp(-steps * self.distance)) / -math.expm1(-rate)
        # tanh(rate / 2) is (1 - q) / (1 + q), without the cancellation of 1 - q for wide noise.
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
        return _convert_to_epsilon(self.at, delta)

    def delta_at(self, epsilon: Epsilon) -> float:
        """Return a delta, rounded up, its own included, for which the curve implies (epsilon, delta)-privacy."""
        return min(1.0, _convert_to_delta(self.at, epsilon) + float(self.delta) * _UP)


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
