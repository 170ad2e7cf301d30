"""Positions of cursors: which rows a FETCH or MOVE passes, and where it leaves the cursor, as in PostgreSQL."""

from __future__ import annotations

from typing import NamedTuple

from dpsql.server.wire.commands import Fetch

__all__ = ["CursorMove", "move_cursor"]


class CursorMove(NamedTuple):
    """Rows from `start` up to `stop`, from 0, in reverse if `is_reversed`, and the position of the cursor behind them.

    `goes_back` is true if a cursor with NO SCROLL cannot do it: also to fetch the row again on which it is.
    """

    start: int
    stop: int
    position: int
    is_reversed: bool = False
    goes_back: bool = False


def move_cursor(fetch: Fetch, *, position: int, total: int) -> CursorMove:
    """Return what a FETCH or MOVE does at a position in `total` rows.

    Position 0 is before the first row, 1 on it, and `total` + 1 behind the last one.
    """
    count, fetches_again = fetch.count, not fetch.move and 0 < position <= total
    match fetch.kind:
        case "ABSOLUTE":
            wanted = count or 0
            target = total + 1 + wanted if wanted < 0 else wanted
            goes_back = wanted < 0 or (position > 0 and target <= position)
            return _move_to(target, total=total, goes_back=goes_back)
        case "RELATIVE":
            target = position + (count or 0)
            return _move_to(target, total=total, goes_back=target < position or (not count and fetches_again))
        case "BACKWARD":
            return CursorMove(0, max(position - 1, 0), 0, is_reversed=True, goes_back=True)
    if count == 0:
        return _move_to(position, total=total, goes_back=fetches_again)
    if count is None or count > 0:
        target = total + 1 if count is None else min(position + count, total + 1)
        return CursorMove(min(position, total), min(target, total), target)
    target = max(position + count, 0)
    return CursorMove(max(target - 1, 0), max(position - 1, 0), target, is_reversed=True, goes_back=True)


def _move_to(target: int, *, total: int, goes_back: bool) -> CursorMove:
    """Return the move to one row, or to before the first or behind the last one, where there is none."""
    target = min(max(target, 0), total + 1)
    start = target - 1 if 0 < target <= total else target
    return CursorMove(min(start, total), min(target, total), target, goes_back=goes_back)
