"""Counts of what was chosen, one item each, drawn after the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.accounting import ZCDP
from dpsql.mechanisms import Noise
from dpsql.mechanisms.base import Selection
from dpsql.plan.mechanisms.base import ItemLoss, MechanismOutput, require_zcdp
from dpsql.quantities import Delta

__all__ = ["add_counts", "charge_by_item"]


def charge_by_item(
    chosen: Selection, price: ItemLoss, *, exact: tuple[int, ...], delta: Delta, noise: Noise
) -> MechanismOutput:
    """Return the chosen rows, with their counts if the query releases counts."""
    rows, counts, items, private = chosen.positions, price.counts, chosen.steps, None
    if counts is not None:
        private = tuple(counts.release([exact[row] for row in rows], noise))
        items += counts.items(len(rows))
    return MechanismOutput(rows, private, price.loss(items, delta), items, stopped_at_bottom=chosen.stopped_at_bottom)


def add_counts(keys: MechanismOutput, exact: Sequence[int], *, price: ItemLoss, noise: Noise) -> MechanismOutput:
    """Return what was drawn with counts drawn and paid for; `exact` are those of its rows, in their order."""
    counts = price.counts
    if counts is None:
        return keys
    rows, private = len(keys.rows), tuple(counts.release(exact, noise))
    loss, items = (
        require_zcdp(keys.loss) + ZCDP(price.rho(counts.items(rows)), Delta(0)),
        keys.items + counts.items(rows),
    )
    return replace(keys, counts=private, loss=loss, items=items)
