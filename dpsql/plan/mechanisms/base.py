"""Interface between a plan and a mechanism: the rows it reads, its loss, and its draw.

A mechanism charges by the item, for what it returns, or a fixed price. Both prices are given in items of one epsilon,
so that plans can be compared: a fixed price is that of all items returned. An item is the loss of one draw of bounded
range at the query's epsilon: rho = epsilon**2 / 8. BOTTOM is the draw that ends an answer early, when nothing else
stands out; it costs an item too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from dpsql.accounting import ZCDP, BoundedRange, Certificate, Loss, Steps
from dpsql.errors import UsageError
from dpsql.intervals import SharedNoise
from dpsql.mechanisms import CountRelease, LaplaceCounts, Noise, NoisyCounts
from dpsql.mechanisms.base import Places, ReadPlaces
from dpsql.mechanisms.gaussian_threshold import LowerCut
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.sql.ir.measures import Measure
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, EngineQuery

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Groups:
    """Groups in the order of the engine's rows: the counts that rank them, and weights if the mechanism uses them.

    All are int64 arrays of one value per row. `weights` is empty if the mechanism uses none; `partitions` has positions
    in the list of the query, if it has one. `others` are the measures of the query after the first. The first `known`
    groups are those whose names are known, whether rows have them or not; the others have a positive measure. `total`
    is the number of units that are in any group, whether its row was read or not; None if it was not read. `read` says
    which of all groups were read, if not all of them were.
    """

    counts: npt.NDArray[np.int64]
    weights: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    partitions: npt.NDArray[np.int64] | None = None
    others: tuple[npt.NDArray[np.int64], ...] = ()
    known: int = 0
    total: int | None = None
    read: ReadPlaces | None = None


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one unit adds to one group in a measure: from `low` <= 0 to `high` >= 0 whole steps, 0 or 1 of `units`."""

    low: int = 0
    high: int = 1
    units: bool = True


@dataclass(frozen=True, slots=True)
class ItemLoss:
    """Price of k keys in items of one epsilon, and of their counts if `counts` says how they are released.

    Made by `price_items`, adapted by `Mechanism.price`, compared by `items(k)` in `choice.py`, and reserved as
    `Plan.price(plan.worst_case)`.

    Each key costs `each`, and `once` is paid for all of them together. `others` release the measures after the first.
    `contributions` are those of all measures if their counts may share a noisy total, which changes no price. `after`
    are the draws for each key after all others, such as quantiles: each has the bound of the groups of a unit, or None.
    """

    epsilon: Epsilon
    counts: CountRelease | None
    once: int = 0
    each: int = 1
    others: tuple[CountRelease, ...] = ()
    contributions: tuple[Contribution, ...] = field(default=(), compare=False)
    after: tuple[int | None, ...] = field(default=(), compare=False)

    def keys(self, k: int) -> int:
        """Return how many items k keys cost at most, without their counts."""
        return self.once + self.each * k

    def items(self, k: int) -> int:
        """Return how many items k keys cost at most; counts cost fewer than one each under a bound."""
        items = self.keys(k) + self.count_items(k)
        return items + self.items_after(k) if self.after else items

    def items_after(self, k: int) -> int:
        """Return how many items the draws after all others cost, of k keys."""
        return sum(k if most is None else min(k, most) for most in self.after)

    def count_items(self, k: int) -> int:
        """Return how many items the counts of k keys cost, of all measures; 0 where none are released."""
        return 0 if self.counts is None else self.counts.items(k) + self.other_items(k)

    def other_items(self, k: int) -> int:
        """Return how many items the measures after the first cost, of k keys."""
        return sum(each.items(k) for each in self.others)

    def joint_items(self, k: int) -> int:
        """Return how many items k keys cost together with the values of the first measure, if these are released."""
        return self.items(k) - self.other_items(k)

    def rho(self, items: int) -> Rho:
        """Return the loss of so many items."""
        return BoundedRange(self.epsilon).rho * items

    def loss(self, items: int, delta: Delta) -> Loss:
        """Return the loss of a query of so many items, under the certificate of the session."""
        return ZCDP(self.rho(items), delta)

    def pure(self, items: int) -> Epsilon:
        """Return the epsilon of pure differential privacy that costs no more rho than so many items, rounded down."""
        return Epsilon(sqrt_rounded_down(2 * self.rho(items).value))


@dataclass(frozen=True, slots=True)
class CertifiedPrice(ItemLoss):
    """The price in items under a certificate that counts no rho."""

    certificate: Certificate = field(kw_only=True)

    def loss(self, items: int, delta: Delta) -> Loss:
        """Return the loss of a query of so many items."""
        steps = Steps(items, BoundedRange(self.epsilon), delta)
        return steps.pure if self.certificate is Certificate.pure else steps


def price_items(
    epsilon: Epsilon, groups: int | None, *, measures: Sequence[Measure], certificate: Certificate
) -> ItemLoss:
    """Return what keys cost, with these measures: Laplace noise, and no shared total, where no rho is counted."""
    releases, contributions = list[CountRelease](), list[Contribution]()
    for each in measures:
        if certificate is not Certificate.zcdp:
            # Laplace noise of scale s is (1 / s)-DP, and its log-ratios have a range of 2 / s: twice the noise makes it
            # an item of bounded range (`maths.md` 6.3).
            share = 1 if certificate is Certificate.pure else 2
            releases.append(LaplaceCounts(epsilon, share, groups, each.sensitivity))
            continue
        releases.append(NoisyCounts(epsilon, groups, each.sensitivity))
        added = Contribution()
        if each.bounds is not None:  # a unit that is in none of a measure's rows adds 0
            added = Contribution(min(each.bounds.low, 0), max(each.bounds.high, 0), units=False)
        contributions.append(added)
    first, others = (releases[0], tuple(releases[1:])) if releases else (None, ())
    if certificate is not Certificate.zcdp:
        return CertifiedPrice(epsilon, first, others=others, certificate=certificate)
    return ItemLoss(epsilon, first, others=others, contributions=tuple(contributions))


def require_zcdp(loss: Loss) -> ZCDP:
    """Return a loss in rho; refuse any other, which no mechanism that adds up rho can have."""
    if isinstance(loss, ZCDP):
        return loss
    reason = "This mechanism adds up rho, which the session's certificate does not."
    raise UsageError("wrong-certificate", reason, hint="Report this as a defect of dpsql.")


def sqrt_rounded_down(square: Fraction) -> Fraction:
    """Return the square root, rounded down to twelve decimals."""
    # Both floor and isqrt round down, so that the square of the result is at most `square`.
    return Fraction(math.isqrt(math.floor(square * 10**24)), 10**12)


@dataclass(frozen=True, slots=True)
class RowsRead:
    """Rows that the engine returns to a mechanism: what is run, and what its result must look like.

    Each row has a count of at least `min_count` (None: any), and a weight of at least `min_weight` too if `weighted`.
    There are at most `max_rows` rows (None: any number), of each of the `partitions` if there are any. `others` is the
    number of further measures. So many names are `known`: their groups come first, 0 where no row has them, and the
    rows of other names follow, or none if the known names take part `alone`. The known names are returned only if they
    are `evident`, or in any case. With a `cut` only groups that may be released are returned, which `rows_in_words`
    describes; `places` are those that were drawn for it, None where none were. `listed` says that the statement lists
    the known names, and returns one other group at most.
    """

    counting: EngineQuery
    max_rows: int | None = None
    min_count: int | None = 1
    weighted: bool = False
    min_weight: int = 1
    partitions: int = 0
    others: int = 0
    known: int = 0
    alone: bool = False
    evident: bool = False
    cut: LowerCut | None = None
    rows_in_words: str = ""
    places: Places | None = None
    listed: bool = False

    @property
    def most(self) -> int | None:
        """Return the largest number of rows that the engine returns, None where no public number bounds them."""
        if self.listed:
            return self.known + 1
        return None if self.max_rows is None else self.max_rows * max(1, self.partitions)


@dataclass(frozen=True, slots=True)
class CountNoise:
    """Noise of released counts: discrete Gaussian of this variance, or discrete Laplace of `scale`.

    Of the Laplace the variance is an upper bound. With `parts`, released are twice the counts, and the noise of that
    has two parts, as `SharedNoise` says; `variance` is nevertheless that of a count.
    """

    variance: Fraction
    scale: Fraction | None = None
    parts: SharedNoise | None = None

    @classmethod
    def of(cls, counts: CountRelease | None) -> Self | None:
        """Return the noise of a release of counts; None where none are released."""
        return None if counts is None else cls.of_release(counts)

    @classmethod
    def of_release(cls, counts: CountRelease) -> Self:
        """Return the noise of a release of counts."""
        return cls(counts.variance, counts.scale)

    def read(self, released: Iterable[int]) -> list[int | Fraction]:
        """Return released numbers as steps, whole or halves."""
        return list(released) if self.parts is None else [Fraction(each, 2) for each in released]


@dataclass(frozen=True, slots=True)
class NoisyTotal:
    """The released number of units, and the variance of its noise, which is discrete Gaussian."""

    value: int
    variance: Fraction


@dataclass(frozen=True, slots=True)
class SpecReport:
    """Facts for receipts and EXPLAIN; all of them are public.

    `charged` says in words which of the reserved items are charged, and `cap` what bounds the groups of each unit where
    the mechanism does so itself. `k_bar` of the exact leaders take part, 0 where all groups or candidates do. A key is
    as likely as not to be returned `threshold_offset` above the count after the leaders, or above 0, and at least at
    `min_threshold`; these are weights where rows are weighted, and a unit in one group has weight 1. `chooses` names
    what the mechanism chooses in private, "k" or "k_bar" (or that "of each" partition), whose value here is then the
    largest possible.
    """

    charged: str
    cap: str = ""
    k_bar: int = 0
    threshold_offset: Fraction = Fraction(0)
    min_threshold: Fraction = Fraction(0)
    chooses: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseSpec:
    """All that is known of a release before a row is read: its loss, the rows read, the noise of counts, the report.

    At most `k` keys come back, of each partition if there are any; the losses of `charged_partitions` of them add up.
    The mechanism takes no keys that cost less than `min_rho`. `counts` is None where no counts are released. The
    `second` read takes place only where what was drawn from the first says so, and `build_second` makes it then.
    `further` are the statements of quantiles, of sample groups where those that are released decide them. Each returns
    at most `further_rows`.
    """

    k: int
    worst_case: Loss
    rows: RowsRead
    report: SpecReport
    counts: CountNoise | None = None
    min_rho: Fraction = Fraction(0)
    charged_partitions: int = 1
    build_second: Callable[[], RowsRead] | None = field(default=None, compare=False, repr=False)
    further: tuple[EngineQuery, ...] = field(default=(), compare=False, repr=False)
    further_rows: int = field(default=0, compare=False)

    @property
    def second(self) -> RowsRead | None:
        """Rows of the second read, made anew; None where there is none."""
        return None if self.build_second is None else self.build_second()


class PrefixLaw(Enum):
    """How the first rows of a released order are distributed, beside an answer that was asked to be so short."""

    EXACT = "exact"  # as that answer
    LARGER = "larger"  # as that answer would be at the loss of the longer one
    OTHER = "other"  # otherwise


@dataclass(frozen=True, slots=True)
class MechanismOutput:
    """Result of a draw: rows of the engine's result in released order, their noisy counts, if any, and the loss.

    `stopped_at_bottom` says that fewer than k came back because nothing else stood out. `chosen` is the k or k_bar that
    the mechanism chose privately, if it chooses one. `others` are the noisy values of the measures after the first, and
    `legs` says in words what each part of a mechanism of several parts did. `noises` are those of all measures where
    they depend on how many rows there are, and `total` is the noisy number of units where counts share one. With
    `of_second_read` the rows are those of the second of two reads. `prefix` says what the first rows are worth as an
    answer, None where they are a set, or drawn together.
    """

    rows: tuple[int, ...]
    counts: tuple[int, ...] | None
    loss: Loss
    items: int
    stopped_at_bottom: bool
    chosen: int | None = None
    others: tuple[tuple[int, ...], ...] = ()
    legs: str = ""
    noises: tuple[CountNoise, ...] = ()
    total: NoisyTotal | None = None
    of_second_read: bool = False
    prefix: PrefixLaw | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ReadAgain:
    """What a mechanism of two reads does with the groups of the second, where the first did not settle it."""

    resume: Callable[[Groups, Noise], MechanismOutput]


class SelectionMechanism(Protocol):
    """The parts of a mechanism that a plan shows."""

    @property
    def name(self) -> str:
        """The mechanism's name in SQL."""
        ...


@dataclass(frozen=True, slots=True)
class MechanismPlan(ABC):
    """Plan of a mechanism for one query; all but `draw` is public.

    `selection` is the theorem (`dpsql/mechanisms`) with its parameters, and `price` what its items are.
    """

    selection: Any
    price: ItemLoss

    @property
    def release_identity(self) -> tuple[object, ...]:
        """All that decides what is drawn from given rows, and what it costs: the mechanism's part of a release key."""
        return self.selection, self.price

    @property
    @abstractmethod
    def loss_of_half(self) -> Loss:
        """The loss if half of the keys come back, rounded up."""

    @abstractmethod
    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        """Return what is known before a row is read."""

    @abstractmethod
    def describe(self, query: PrivateQuery) -> Facts:
        """Return for EXPLAIN which groups take part, and what they need, as lines of name and value."""

    @abstractmethod
    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        """Draw from what was read of the rows of the counting query: keys, and what the query releases of them."""

    def begin(self, groups: Groups, noise: Noise) -> MechanismOutput | ReadAgain:
        """Draw from the rows of the first read; return what to do with those of the second where they are needed."""
        return self.draw(groups, noise)
