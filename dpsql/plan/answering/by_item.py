"""Counts of what was chosen, one item each, drawn after the keys."""

from __future__ import annotations

from dpsql.accounting import ZCDP
from dpsql.mechanisms import Noise, NoisyCounts
from dpsql.mechanisms.base import Selection
from dpsql.plan.answering.base import Drawn
from dpsql.quantities import Delta

__all__ = ["paid_by_item"]


def paid_by_item(
    chosen: Selection, loss: ZCDP, *, exact: tuple[int, ...], counts: NoisyCounts | None, noise: Noise
) -> Drawn:
    """Return what was chosen, with the counts drawn for it if they are asked for."""
    rows, stopped = chosen.positions, chosen.stopped_at_bottom
    if counts is None:
        return Drawn(rows, None, loss, chosen.steps, stopped_at_bottom=stopped)
    private = tuple(counts.release([exact[row] for row in rows], noise))
    loss += ZCDP(counts.loss(len(rows)), Delta(0))
    return Drawn(rows, private, loss, chosen.steps + counts.items(len(rows)), stopped_at_bottom=stopped)
