"""What a plan asks of any mechanism: what it reads, what it costs, and what it draws.

A mechanism pays by the item, for what it returns, or at once, whatever comes back. Both prices are told in items of
one epsilon, so that plans can be compared: at once costs what the items would cost if all of them came back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpsql.accounting import ZCDP, BoundedRange, Loss
from dpsql.errors import UsageError
from dpsql.mechanisms import CountRelease, Noise
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, CountingQuery

__all__ = [
    "Groups",
    "ItemLoss",
    "MechanismOutput",
    "MechanismPlan",
    "Named",
    "ReleaseSpec",
    "require_zcdp",
    "sqrt_rounded_down",
]


@dataclass(frozen=True, slots=True, repr=False)
class Groups:
    """What was read of the groups, in the order of the engine's rows: distinct units of each, and weights if asked for.

    All are int64 arrays of one value per row; weights are empty where they are not asked for, and `partitions` are
    positions in the query's list, if it has one.
    """

    counts: npt.NDArray[np.int64]
    weights: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    partitions: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class ItemLoss:
    """What k keys cost in items of one epsilon, with their counts where `counts` says how these are released.

    Each key costs `each`, and `once` is paid for all of them together.
    """

    epsilon: Epsilon
    counts: CountRelease | None
    once: int = 0
    each: int = 1

    def keys(self, k: int) -> int:
        """Return how many items k keys cost at most, without their counts."""
        return self.once + self.each * k

    def items(self, k: int) -> int:
        """Return how many items k keys cost at most; counts cost fewer than one each under a bound."""
        return self.keys(k) + (0 if self.counts is None else self.counts.items(k))

    def rho(self, items: int) -> Rho:
        """Return the loss of so many items."""
        return BoundedRange(self.epsilon).rho * items

    def loss(self, items: int, delta: Delta) -> Loss:
        """Return the loss of a query of so many items, as the session's certificate tells it."""
        return ZCDP(self.rho(items), delta)

    def pure(self, items: int) -> Epsilon:
        """Return the epsilon of pure differential privacy that costs no more rho than so many items, rounded down."""
        return Epsilon(sqrt_rounded_down(2 * self.rho(items).value))


def require_zcdp(loss: Loss) -> ZCDP:
    """Return a loss that is told in rho; refuse another, which no mechanism that adds up rho can have drawn."""
    if isinstance(loss, ZCDP):
        return loss
    reason = "This mechanism adds up rho, which the session's certificate does not."
    raise UsageError("wrong-certificate", reason, hint="Report this as a defect of dpsql.")


def sqrt_rounded_down(square: Fraction) -> Fraction:
    """Return the square root, rounded down to twelve decimals."""
    return Fraction(math.isqrt(math.floor(square * 10**24)), 10**12)


@dataclass(frozen=True, slots=True)
class ReleaseSpec:
    """What is known of an answer before a row is read: what is read, what it may cost, what keys must reach.

    At most `k` keys come back, of each partition if there are any, whose losses add up in `reach` of the `partitions`.
    `counting` returns at most `most_rows` rows of each (None: any number), each with a count of at least `least_count`,
    and with a weight too where `weighted`. `k_bar` of the exact leaders take part, 0 where all
    groups or candidates do; the threshold stands `threshold_offset` above the count after them, or above 0, and at
    least at `least_threshold`; it is one of weights where `weighted`, of which a unit in one group has 1.
    `count_variance` is that of the noise of the counts, None where they are not asked for: discrete Gaussian, or
    discrete Laplace of `count_scale`, of which it is a bound. `half` is the loss if half of the keys come back, rounded
    up; `charged` says in words what is charged of the items reserved, `facts`, as name and value, who takes part, and
    `cap` what bounds the groups of each unit where the mechanism does so itself. `chooses` names what the mechanism
    chooses in private, "k" or "k_bar", or that "of each" partition, which is then the most that it can be here; it
    takes no keys that cost less than `least_rho`.
    """

    counting: CountingQuery
    k: int
    worst_case: Loss
    half: Loss
    charged: str
    facts: tuple[tuple[str, str], ...]
    count_variance: Fraction | None
    count_scale: Fraction | None = None
    k_bar: int = 0
    threshold_offset: Fraction = Fraction(0)
    least_threshold: Fraction = Fraction(0)
    most_rows: int | None = None
    least_count: int = 1
    weighted: bool = False
    chooses: str = ""
    least_rho: Fraction = Fraction(0)
    cap: str = ""
    partitions: int = 0
    reach: int = 1


@dataclass(frozen=True, slots=True)
class MechanismOutput:
    """What was drawn: rows of the engine's answer in released order, noisy counts of them if there are any, and cost.

    `stopped_at_bottom` says that fewer than k came back because nothing else stood out. `chosen` is the k or k_bar that
    the mechanism chose, where its offer says so: private in itself.
    """

    rows: tuple[int, ...]
    counts: tuple[int, ...] | None
    loss: Loss
    items: int
    stopped_at_bottom: bool
    chosen: int | None = None


class MechanismPlan(Protocol):
    """What a plan asks of the mechanism that answers it; every part but `draw` is public."""

    @property
    def selection(self) -> Named:
        """The mechanism with its parameters."""
        ...

    @property
    def price(self) -> ItemLoss:
        """What the query costs in items."""
        ...

    @property
    def law(self) -> tuple[object, object]:
        """All that decides what is drawn from given rows, and what it costs: the mechanism's part of a replay key."""
        ...

    def offer(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return what is known before a row is read."""
        ...

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw from what was read of the rows of the offer's counting query."""
        ...


class Named(Protocol):
    """A mechanism, as far as a plan tells of it."""

    @property
    def name(self) -> str:
        """The mechanism's name in SQL."""
        ...
