"""What a client has prepared and opened: statements, portals and cursors, within what one connection may hold."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from dpsql.server.wire.codec import Column
from dpsql.server.wire.command_parser import command_of
from dpsql.server.wire.commands import Command
from dpsql.server.wire.copy_out import Layout
from dpsql.server.wire.lexer import StatementText
from dpsql.server.wire.query_router import Bound, Shape
from dpsql.server.wire.row_sets import Rows
from dpsql.server.wire.sqlstates import WireError

__all__ = [
    "CommandComplete",
    "ConnectionObjects",
    "CopyOutput",
    "Outcome",
    "ParsedStatement",
    "Portal",
    "Prepared",
    "RowQuota",
    "RowSet",
    "stated",
]

_MOST_STATEMENTS, _MOST_PORTALS = 1_000, 100
_MOST_TEXT, _MOST_HELD = 4 << 20, 32 << 20  # characters of statements, bytes of rows and values


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A statement: what the connection is to do, or None where it is a question."""

    piece: StatementText
    command: Command | None

    @property
    def is_empty(self) -> bool:
        """Whether there is no word in it."""
        return not self.piece.text


def stated(piece: StatementText) -> ParsedStatement:
    """Return what a statement is; raises `WireError` for one that there is not."""
    return ParsedStatement(piece, command_of(piece.text))


@dataclass(frozen=True, slots=True)
class CommandComplete:
    """A statement without rows was carried out: its tag."""

    tag: str


@dataclass(frozen=True, slots=True)
class RowSet:
    """A statement gave rows: the word of its tag, and from where to where they were asked for."""

    rows: Rows
    start: int
    stop: int
    word: str = "SELECT"


@dataclass(frozen=True, slots=True)
class CopyOutput:
    """A statement gave rows that are to be copied."""

    rows: Rows
    layout: Layout


Outcome = CommandComplete | RowSet | CopyOutput


@dataclass(slots=True)
class Prepared:
    """A statement under a name, with the types that the client declared, and its shape once somebody asked for it."""

    stated: ParsedStatement
    types: tuple[int, ...] = ()
    shape: Shape | None = None


@dataclass(slots=True)
class Portal:
    """A statement with its values; once it has run its outcome, and how many of its rows were passed.

    `columns` are those that the client was told of, and `role` is for whom it was opened. A cursor that is `held`
    outlives its transaction, and `stands` once it has.
    """

    prepared: Prepared
    bound: Bound = field(default_factory=Bound)
    formats: tuple[int, ...] = ()
    columns: tuple[Column, ...] | None = None
    outcome: Outcome | None = None
    position: int = 0
    role: str = ""
    held: bool = False
    stands: bool = False

    @property
    def size(self) -> int:
        """About how many bytes of values and of rows wait in it."""
        rows = 0 if self.outcome is None or isinstance(self.outcome, CommandComplete) else self.outcome.rows.size
        return rows + sum(len(value or b"") for value in self.bound.values)


class RowQuota:
    """The rows of all connections, for as long as something holds them: what waits in portals, and what is being sent.

    Touched by the event loop alone.
    """

    def __init__(self, most: int) -> None:
        """`most` are bytes of all users together; one has at most half."""
        self._most = most
        self._held: WeakKeyDictionary[Rows, tuple[str, int]] = WeakKeyDictionary()

    def check(self, user: str) -> None:
        """Raise `WireError` where so much waits already that nothing more is asked, which answers may be beyond."""
        held = list(self._held.values())
        own = sum(size for name, size in held if name == user)
        if own > self._most // 2 or sum(size for _, size in held) > self._most:
            raise WireError("53200", "Too many rows wait to be fetched, of all connections.", hint="Try again later.")

    def keep(self, rows: Rows, user: str) -> Rows:
        """Return the rows of a user's answer, counted until nobody holds what is returned."""
        kept = copy(rows)  # the thread that made them holds its own a moment longer
        self._held[kept] = user, kept.size
        return kept


class ConnectionObjects:
    """The statements and portals of a connection, by name; the empty name is overwritten, others are not."""

    def __init__(self) -> None:
        self.statements: dict[str, Prepared] = {}
        self.portals: dict[str, Portal] = {}

    def prepare(self, name: str, prepared: Prepared) -> None:
        """Keep a statement; raises `WireError` for a name that is taken, and for too much."""
        if name and name in self.statements:
            raise WireError("42P05", "There is a prepared statement of this name.", hint="Close it first.")
        self.statements.pop(name, None)
        texts = sum(len(one.stated.piece.text) for one in self.statements.values()) + len(prepared.stated.piece.text)
        if len(self.statements) >= _MOST_STATEMENTS or texts > _MOST_TEXT:
            raise WireError("54000", "There are too many prepared statements.", hint="Close or DEALLOCATE some.")
        self.statements[name] = prepared

    def statement(self, name: str) -> Prepared:
        """Return a statement by name; raises `WireError`."""
        if name not in self.statements:
            raise WireError("26000", "There is no prepared statement of this name.", hint="Prepare it again.")
        return self.statements[name]

    def open(self, name: str, portal: Portal) -> None:
        """Keep a portal; raises `WireError` for a name that is taken, and for too many."""
        if name and name in self.portals:
            raise WireError("42P03", "There is a cursor of this name.", hint="Close it first.")
        self.portals.pop(name, None)
        if len(self.portals) >= _MOST_PORTALS:
            raise WireError("54000", "There are too many cursors.", hint="Close some.")
        self.check_room()
        self.portals[name] = portal

    def portal(self, name: str) -> Portal:
        """Return a portal or cursor by name; raises `WireError`."""
        if name not in self.portals:
            raise WireError("34000", "There is no cursor of this name.", hint="It ends with its transaction.")
        return self.portals[name]

    def check_room(self) -> None:
        """Raise `WireError` where more waits than a connection may hold, which the last answer may be beyond."""
        if sum(portal.size for portal in self.portals.values()) > _MOST_HELD:
            raise WireError("53200", "Too many rows wait to be fetched.", hint="Fetch them, or close some cursors.")

    def end_block(self, *, succeeds: bool) -> None:
        """Close what ends with a transaction: all but held cursors, and those too that began in one that failed."""
        kept = {name: one for name, one in self.portals.items() if one.held and (succeeds or one.stands)}
        for one in kept.values():
            one.stands = True
        self.portals = kept
