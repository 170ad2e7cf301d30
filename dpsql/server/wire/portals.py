"""Prepared statements, portals and cursors of a connection: the memory that they hold, and how a FETCH moves."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import NamedTuple

from dpsql.server.memory_quota import Holding, UserQuota
from dpsql.server.row_blocks import WireColumn
from dpsql.server.wire.command_parser import ParsedStatement
from dpsql.server.wire.commands import Fetch
from dpsql.server.wire.query_router import BoundValues, Shape
from dpsql.server.wire.rows import CopyLayout, WireRows
from dpsql.server.wire.sqlstates import WireError

_MAX_STATEMENTS, _MAX_PORTALS = 1_000, 100
_MAX_TEXT = 4 << 20  # characters of statements
_OF_OBJECT, _OF_VALUE = 1_000, 100  # bytes that Python needs for an object of these, and for a value of theirs


@dataclass(frozen=True, slots=True)
class CommandComplete:
    """Outcome of a statement without rows: its tag."""

    tag: str


@dataclass(frozen=True, slots=True)
class RowSet:
    """Outcome of a statement with rows: those from `start` up to `stop`, and the word of its tag."""

    rows: WireRows
    start: int
    stop: int
    word: str = "SELECT"


@dataclass(frozen=True, slots=True)
class CopyOutput:
    """Outcome of a COPY: its rows, and their layout."""

    rows: WireRows
    layout: CopyLayout


Outcome = CommandComplete | RowSet | CopyOutput


@dataclass(slots=True)
class PreparedStatement:
    """A statement, the types that the client declared for its parameters, and its shape once it was described.

    `holding` counts its memory while it has a name or a portal.
    """

    statement: ParsedStatement
    types: tuple[int, ...] = ()
    shape: Shape | None = None
    holding: Holding | None = None

    @property
    def size(self) -> int:
        """The bytes that it holds; its text twice, as its command may have parts of it."""
        texts = 2 * sys.getsizeof(self.statement.source.text)
        return _OF_OBJECT + texts + _OF_VALUE * len(self.types) + (0 if self.shape is None else self.shape.size)

    def set_shape(self, shape: Shape) -> None:
        """Set the shape; raise `WireError` if that exceeds the quota."""
        if self.holding is not None:
            self.holding.grow(shape.size - (0 if self.shape is None else self.shape.size))
        self.shape = shape


@dataclass(slots=True)
class Portal:
    """A statement with its values; once it has run, its outcome and the number of rows that were fetched.

    `columns` are those that were described to the client, and `role` is the analyst for whom it was opened. `position`
    is the number of rows passed, and one more behind the last row. A cursor WITH HOLD outlives its transaction, and
    `is_committed` once that has ended; one with NO SCROLL only moves forwards.
    """

    prepared: PreparedStatement
    bound: BoundValues = field(default_factory=BoundValues)
    formats: tuple[int, ...] = ()
    columns: tuple[WireColumn, ...] | None = None
    outcome: Outcome | None = None
    position: int = 0
    role: str = ""
    is_with_hold: bool = False
    is_committed: bool = False
    is_no_scroll: bool = False
    holding: Holding | None = None

    @property
    def size(self) -> int:
        """The bytes that it holds, without its statement and its rows."""
        numbers = len(self.bound.formats) + len(self.bound.types) + len(self.formats)
        values = sum(_OF_VALUE + len(value or b"") for value in self.bound.values)
        return _OF_OBJECT + values + _OF_VALUE * numbers


class ConnectionObjects:
    """The statements and portals of a connection, by name; only the empty name may be overwritten.

    What they hold is counted for the user until nothing refers to them.
    """

    def __init__(self, quota: UserQuota) -> None:
        self._quota = quota
        self.statements: dict[str, PreparedStatement] = {}
        self.portals: dict[str, Portal] = {}

    def check_statement(self, name: str, prepared: PreparedStatement) -> None:
        """Raise `WireError` for a name in use, and for too many statements."""
        if name and name in self.statements:
            reason = "A prepared statement of this name exists already."
            raise WireError("42P05", reason, hint="DEALLOCATE it first, or use another name.")
        others = [one for other, one in self.statements.items() if other != name]
        size = sum(len(one.statement.source.text) for one in (*others, prepared))
        if len(others) >= _MAX_STATEMENTS or size > _MAX_TEXT:
            raise WireError("54000", "There are too many prepared statements.", hint="Close or DEALLOCATE some.")

    def add_statement(self, name: str, prepared: PreparedStatement) -> None:
        """Add a statement; raise as `check_statement` does, and beyond the quota."""
        self.check_statement(name, prepared)
        self.statements.pop(name, None)
        prepared.holding = self._quota.hold(sys.getsizeof(name) + prepared.size)
        self.statements[name] = prepared

    def find_statement(self, name: str) -> PreparedStatement:
        """Return a statement by name; raise `WireError` if there is none."""
        if name not in self.statements:
            raise WireError("26000", "There is no prepared statement of this name.", hint="Prepare it again.")
        return self.statements[name]

    def add_portal(self, name: str, portal: Portal) -> None:
        """Add a portal; raise `WireError` for a name in use, for too many portals, and beyond the quota."""
        if name and name in self.portals:
            raise WireError("42P03", "A cursor of this name exists already.", hint="Close it first.")
        self.portals.pop(name, None)
        if len(self.portals) >= _MAX_PORTALS:
            raise WireError("54000", "There are too many cursors.", hint="Close some.")
        prepared = portal.prepared
        if prepared.holding is None:
            prepared.holding = self._quota.hold(prepared.size)
        portal.holding = self._quota.hold(sys.getsizeof(name) + portal.size)
        self.portals[name] = portal

    def find_portal(self, name: str) -> Portal:
        """Return a portal or cursor by name; raise `WireError` if there is none."""
        if name not in self.portals:
            hint = "A cursor ends with its transaction: declare it again, or declare it WITH HOLD."
            raise WireError("34000", "There is no cursor of this name.", hint=hint)
        return self.portals[name]

    def clear(self) -> None:
        """Close all statements and portals."""
        self.statements.clear()
        self.portals.clear()

    def end_transaction(self, *, succeeds: bool) -> None:
        """Close the portals that end with a transaction: all but cursors WITH HOLD that were, or now are, committed."""
        for name, portal in list(self.portals.items()):
            if portal.is_with_hold and (succeeds or portal.is_committed):
                portal.is_committed = True
            else:
                del self.portals[name]


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
