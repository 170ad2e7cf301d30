"""Renyi bounds that no rho covers, and what they promise (`maths.md` 7.5).

A curve is a bound of the form epsilon(alpha) = alpha rho + ln(candidates) / (alpha - 1) for every alpha > 1, with a
failure probability. Report-noisy-max with Gaussian noise has it with candidates > 1; with one candidate it is
zero-concentrated. Both parts are exact: a rational, and a whole number under the logarithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsql.accounting.conversions import delta_of_zcdp, epsilon_of_zcdp
from dpsql.accounting.guarantees import ZCDP
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon, Rho

__all__ = ["RenyiCurve"]

_UP = 1.0 + 2.0**-48


@dataclass(frozen=True, slots=True)
class RenyiCurve:
    """Approximate Renyi differential privacy for all orders at once.

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
        if not alpha > 1.0:
            raise UsageError("alpha-range", "The order of a Renyi divergence must exceed 1.")
        return (alpha * float(self.rho) + math.log(self.candidates) / (alpha - 1.0)) * _UP

    def epsilon(self, delta: Delta) -> float:
        """Return an epsilon, rounded up, for which the curve implies (epsilon, delta + own delta)-privacy.

        Source: Zhu and Wang 2022, Lemma 17, with the conversion of Canonne, Kamath and Steinke 2020 in place of
        Mironov's ln(1/delta) / (alpha - 1). In it ln(candidates) adds to ln(1/delta), at every order: the epsilon is
        that of rho at delta / candidates.
        """
        return epsilon_of_zcdp(self.rho, Delta(delta.value / self.candidates))

    def delta_at(self, epsilon: Epsilon) -> float:
        """Return a delta, rounded up, its own included, for which the curve implies (epsilon, delta)-privacy."""
        converted = delta_of_zcdp(self.rho, epsilon) if self.rho.value else float(self.candidates > 1)
        return min(1.0, (self.candidates * converted + float(self.delta)) * _UP)

    def concentrated(self) -> ZCDP:
        """Return the curve as a loss in rho; raise UsageError where there is none."""
        if self.candidates > 1:
            reason = "No rho covers this Renyi bound: it grows without limit as the order falls to 1."
            raise UsageError("not-concentrated", reason)
        return ZCDP(self.rho, self.delta)
