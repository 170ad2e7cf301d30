"""Prepared statements, portals and cursors of a connection, and the memory that their rows may take."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from dpsql.server.wire.codec import Column
from dpsql.server.wire.command_parser import ParsedStatement
from dpsql.server.wire.copy_out import CopyLayout
from dpsql.server.wire.query_router import BoundValues, Shape
from dpsql.server.wire.rows import Rows
from dpsql.server.wire.sqlstates import WireError

__all__ = [
    "CommandComplete",
    "ConnectionObjects",
    "CopyOutput",
    "Outcome",
    "Portal",
    "PreparedStatement",
    "RowQuota",
    "RowSet",
]

_MAX_STATEMENTS, _MAX_PORTALS = 1_000, 100
_MAX_TEXT, _MAX_PORTAL_BYTES = 4 << 20, 32 << 20  # characters of statements; bytes of rows and values


@dataclass(frozen=True, slots=True)
class CommandComplete:
    """Outcome of a statement without rows: its tag."""

    tag: str


@dataclass(frozen=True, slots=True)
class RowSet:
    """Outcome of a statement with rows: those from `start` up to `stop`, and the word of its tag."""

    rows: Rows
    start: int
    stop: int
    word: str = "SELECT"


@dataclass(frozen=True, slots=True)
class CopyOutput:
    """Outcome of a COPY: its rows, and their layout."""

    rows: Rows
    layout: CopyLayout


Outcome = CommandComplete | RowSet | CopyOutput


@dataclass(slots=True)
class PreparedStatement:
    """A statement, the types that the client declared for its parameters, and its shape once it was described."""

    statement: ParsedStatement
    types: tuple[int, ...] = ()
    shape: Shape | None = None


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
    columns: tuple[Column, ...] | None = None
    outcome: Outcome | None = None
    position: int = 0
    role: str = ""
    is_with_hold: bool = False
    is_committed: bool = False
    is_no_scroll: bool = False

    @property
    def size(self) -> int:
        """The approximate size in bytes of its values and rows."""
        rows = 0 if self.outcome is None or isinstance(self.outcome, CommandComplete) else self.outcome.rows.size
        return rows + sum(len(value or b"") for value in self.bound.values)


class RowQuota:
    """Limit on the rows of all connections together, from their arrival until no portal or message holds them.

    Only the event loop uses it.
    """

    def __init__(self, max_bytes: int) -> None:
        """Limit all users together to `max_bytes`, and each user to half of that."""
        self._max_bytes = max_bytes
        self._sizes: WeakKeyDictionary[Rows, tuple[str, int]] = WeakKeyDictionary()

    def check(self, user: str) -> None:
        """Raise `WireError` if the waiting rows exceed a limit; the last answer itself may exceed it."""
        total = own = 0
        for name, size in list(self._sizes.values()):
            total += size
            own += size if name == user else 0
        if own > self._max_bytes // 2 or total > self._max_bytes:
            reason = "Too many rows wait to be fetched, over all connections."
            raise WireError("53200", reason, hint="Fetch them, close cursors, or try again later.")

    def add(self, rows: Rows, user: str) -> Rows:
        """Count the rows of a user's answer for as long as something refers to the returned object."""
        counted = copy(rows)  # the thread that made the rows refers to the original a moment longer
        self._sizes[counted] = user, counted.size
        return counted


class ConnectionObjects:
    """The statements and portals of a connection, by name; only the empty name may be overwritten."""

    def __init__(self) -> None:
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
        """Add a statement; raise as `check_statement` does."""
        self.check_statement(name, prepared)
        self.statements[name] = prepared

    def find_statement(self, name: str) -> PreparedStatement:
        """Return a statement by name; raise `WireError` if there is none."""
        if name not in self.statements:
            raise WireError("26000", "There is no prepared statement of this name.", hint="Prepare it again.")
        return self.statements[name]

    def add_portal(self, name: str, portal: Portal) -> None:
        """Add a portal; raise `WireError` for a name in use, and for too many portals."""
        if name and name in self.portals:
            raise WireError("42P03", "A cursor of this name exists already.", hint="Close it first.")
        self.portals.pop(name, None)
        if len(self.portals) >= _MAX_PORTALS:
            raise WireError("54000", "There are too many cursors.", hint="Close some.")
        self.check_memory()
        self.portals[name] = portal

    def find_portal(self, name: str) -> Portal:
        """Return a portal or cursor by name; raise `WireError` if there is none."""
        if name not in self.portals:
            hint = "A cursor ends with its transaction: declare it again, or declare it WITH HOLD."
            raise WireError("34000", "There is no cursor of this name.", hint=hint)
        return self.portals[name]

    def check_memory(self) -> None:
        """Raise `WireError` if the portals exceed the limit of a connection; the last answer itself may exceed it."""
        size = 0
        for portal in self.portals.values():
            size += portal.size
        if size > _MAX_PORTAL_BYTES:
            raise WireError("53200", "Too many rows wait to be fetched.", hint="Fetch them, or close some cursors.")

    def end_transaction(self, *, succeeds: bool) -> None:
        """Close the portals that end with a transaction: all but cursors WITH HOLD that were, or now are, committed."""
        for name, portal in list(self.portals.items()):
            if portal.is_with_hold and (succeeds or portal.is_committed):
                portal.is_committed = True
            else:
                del self.portals[name]
