"""Counts of what was chosen, one item each, drawn after the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.accounting import ZCDP
from dpsql.mechanisms import Noise
from dpsql.mechanisms.base import Selection
from dpsql.plan.mechanisms.base import Groups, ItemLoss, MechanismOutput, require_zcdp
from dpsql.quantities import Delta

__all__ = ["add_counts", "add_others", "charge_by_item", "draw_others"]


def charge_by_item(
    chosen: Selection, price: ItemLoss, *, groups: Groups, delta: Delta, noise: Noise
) -> MechanismOutput:
    """Return the chosen rows, with their counts and other measures if the query releases them."""
    rows, counts, private = chosen.positions, price.counts, None
    items = chosen.steps + price.count_items(len(rows))
    if counts is not None:
        private = tuple(counts.release(groups.counts[list(rows)].tolist(), noise))
    return MechanismOutput(
        rows,
        private,
        price.loss(items, delta),
        items,
        stopped_at_bottom=chosen.stopped_at_bottom,
        others=draw_others(rows, price, groups=groups, noise=noise),
    )


def draw_others(rows: Sequence[int], price: ItemLoss, *, groups: Groups, noise: Noise) -> tuple[tuple[int, ...], ...]:
    """Return the noisy values of the measures after the first, of these rows."""
    pairs = zip(price.others, groups.others, strict=True)
    return tuple(tuple(release.release(exact[list(rows)].tolist(), noise)) for release, exact in pairs)


def add_counts(keys: MechanismOutput, groups: Groups, *, price: ItemLoss, noise: Noise) -> MechanismOutput:
    """Return what was drawn with counts and other measures of its rows, drawn and paid for."""
    counts = price.counts
    if counts is None:
        return keys
    exact = [int(groups.counts[row]) for row in keys.rows]
    items = counts.items(len(keys.rows))
    loss = require_zcdp(keys.loss) + ZCDP(price.rho(items), Delta(0))
    counted = replace(keys, counts=tuple(counts.release(exact, noise)), loss=loss, items=keys.items + items)
    return add_others(counted, groups, price=price, noise=noise)


def add_others(drawn: MechanismOutput, groups: Groups, *, price: ItemLoss, noise: Noise) -> MechanismOutput:
    """Return what was drawn with the measures after the first of its rows, drawn and paid for."""
    if not price.others:
        return drawn
    items = price.other_items(len(drawn.rows))
    return replace(
        drawn,
        loss=require_zcdp(drawn.loss) + ZCDP(price.rho(items), Delta(0)),
        items=drawn.items + items,
        others=draw_others(drawn.rows, price, groups=groups, noise=noise),
    )
