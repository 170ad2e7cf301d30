"""Guarantees, as frozen data.

Neighbours are two data sets of which one has one privacy unit more, with all of that unit's rows (add/remove). A
guarantee is a fact about a mechanism for all neighbours, in both orders; nothing here looks at data. What has no
known composition has no class: an unknown guarantee cannot be charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Self

from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon, Rho

__all__ = ["ZCDP", "ApproximateDP", "BoundedRange", "Certificate", "Loss", "PureLoss", "Steps", "add_losses"]


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
