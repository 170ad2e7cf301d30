"""Counts of what was chosen, one item each, drawn after the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.accounting import ZCDP
from dpsql.mechanisms import Noise, NoisyCounts
from dpsql.mechanisms.base import Selection
from dpsql.plan.answering.base import Drawn
from dpsql.quantities import Delta

__all__ = ["paid_by_item", "with_counts"]


def paid_by_item(
    chosen: Selection, loss: ZCDP, *, exact: tuple[int, ...], counts: NoisyCounts | None, noise: Noise
) -> Drawn:
    """Return what was chosen, with the counts drawn for it if they are asked for."""
    keys = Drawn(chosen.positions, None, loss, chosen.steps, stopped_at_bottom=chosen.stopped_at_bottom)
    return with_counts(keys, [exact[row] for row in chosen.positions], counts=counts, noise=noise)


def with_counts(keys: Drawn, exact: Sequence[int], *, counts: NoisyCounts | None, noise: Noise) -> Drawn:
    """Return what was drawn with counts drawn and paid for; `exact` are those of its rows, in their order."""
    if counts is None:
        return keys
    rows, private = len(keys.rows), tuple(counts.release(exact, noise))
    loss, items = keys.loss + ZCDP(counts.loss(rows), Delta(0)), keys.items + counts.items(rows)
    return replace(keys, counts=private, loss=loss, items=items)
