"""Rows of one answer of the catalog while they are read: what they hold is counted and limited."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.server.catalog.protocol import Hold
from dpsql.server.catalog.statement_guard import MAX_BYTES, MAX_ROWS, too_large_error
from dpsql.server.row_blocks import RowBlocks, RowWriter

__all__ = ["RowEncoder"]


class RowEncoder:
    """Encoder of the rows of an answer; `count` is the number of rows that were read."""

    def __init__(self, hold: Hold | None) -> None:
        self._writer, self._hold, self._held = RowWriter(), hold, 0
        self.count = 0

    def add(self, rows: Sequence[Sequence[bytes | None]]) -> None:
        """Encode rows; raise `CatalogError` beyond the limits of an answer."""
        for row in rows:
            self._writer.add(row)
        self._count(len(rows))

    def extend(self, messages: memoryview, ends: Sequence[int]) -> None:
        """Add messages of rows, and the position behind each; raise as `add` does."""
        self._writer.extend(messages, ends)
        self._count(len(ends))

    def check_room(self, size: int) -> None:
        """Raise `CatalogError` for a row of so many bytes that the answer would exceed its limit."""
        if self._writer.size + size > MAX_BYTES:
            raise too_large_error()

    def finish(self) -> RowBlocks:
        """Return all rows."""
        rows = self._writer.finish()
        self._hold_size(rows.size)
        return rows

    def _count(self, count: int) -> None:
        self.count += count
        if self._writer.size > MAX_BYTES or self.count > MAX_ROWS:
            raise too_large_error()
        self._hold_size(self._writer.size)

    def _hold_size(self, size: int) -> None:
        if self._hold is not None:
            self._hold(size - self._held)
        self._held = size
