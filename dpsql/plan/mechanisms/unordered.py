"""Leaders as a set without an order: the released rows are sorted by label, or by noisy counts if there are any.

The engine returns rows in the order of labels. A mechanism takes them in the order of exact counts, ties by label, and
its choice is translated back to rows, so that the order reveals nothing about exact counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dpsql.accounting import ZCDP
from dpsql.mechanisms import Histogram, Noise
from dpsql.plan.mechanisms.base import Groups, ItemLoss, MechanismOutput
from dpsql.plan.mechanisms.counts_by_item import add_counts
from dpsql.quantities import Delta

__all__ = ["BY_LABEL", "Ranked", "add_count_loss", "count_items", "describe_order", "rank"]

BY_LABEL = ("order", "a set by label, then what was drawn one by one; all by noisy counts where these are asked for")


@dataclass(frozen=True, slots=True, repr=False)
class Ranked:
    """The rows of the leaders in the order of their exact counts, and the histogram of these."""

    rows: tuple[int, ...]
    histogram: Histogram

    def in_label_order(self, positions: Iterable[int]) -> tuple[int, ...]:
        """Return the rows of a set of positions, in the order of their labels."""
        return tuple(sorted(self.in_order(positions)))

    def in_order(self, positions: Iterable[int]) -> tuple[int, ...]:
        """Return the rows of positions, in the order of these, which must be a private one."""
        return tuple(self.rows[position] for position in positions)


def rank(groups: Groups, k_bar: int) -> Ranked:
    """Return the leaders of groups that came in the order of their labels: the first k_bar, and the count after."""
    counts = groups.counts.tolist()
    rows = sorted(range(len(counts)), key=lambda row: -counts[row])  # rows of equal counts stay in the order of labels
    return Ranked(tuple(rows), Histogram.of_leaders(tuple(counts[row] for row in rows), k_bar))


def describe_order(drawn: MechanismOutput, groups: Groups, *, price: ItemLoss, noise: Noise) -> MechanismOutput:
    """Return the draw with its noisy counts, if the query releases counts, and its rows sorted by these.

    Counts are compared in whole steps, as they are shown; equal ones come by the labels of their rows.
    """
    if price.counts is None:
        return drawn
    counted = add_counts(drawn, groups, price=price, noise=noise)
    counts, rows = counted.counts or (), counted.rows
    shown = list(map(round, counted.noises[0].read(counts)))
    order = sorted(range(len(rows)), key=lambda at: (-shown[at], rows[at]))
    return replace(
        counted,
        rows=tuple(rows[at] for at in order),
        counts=tuple(counts[at] for at in order),
        others=tuple(tuple(values[at] for at in order) for values in counted.others),
    )


def add_count_loss(loss: ZCDP, keys: int, *, price: ItemLoss) -> ZCDP:
    """Return the loss, plus that of the counts, and further measures, of so many keys if the query releases any."""
    return loss if price.counts is None else loss + ZCDP(price.rho(price.count_items(keys)), Delta(0))


def count_items(loss: ZCDP, price: ItemLoss) -> int:
    """Return a fixed price as a number of items, rounded up."""
    return math.ceil(loss.rho.value / price.rho(1).value)
