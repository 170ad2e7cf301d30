"""Commands that a connection carries out itself: transactions, settings, cursors and COPY."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "Begin",
    "CloseCursor",
    "Command",
    "Commit",
    "CopyOut",
    "Deallocate",
    "Declare",
    "Discard",
    "Fetch",
    "Release",
    "Reset",
    "Rollback",
    "Savepoint",
    "Set",
    "Show",
    "TableLock",
    "Unlisten",
    "Unlock",
]


@dataclass(frozen=True, slots=True)
class Begin:
    """BEGIN or START TRANSACTION; `tag` is the one that was written."""

    tag: str


@dataclass(frozen=True, slots=True)
class Commit:
    """COMMIT or END; `chain` begins the next transaction at once."""

    chain: bool


@dataclass(frozen=True, slots=True)
class Rollback:
    """ROLLBACK or ABORT, to a savepoint if it has a name."""

    chain: bool = False
    savepoint: str = ""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """SAVEPOINT."""

    name: str


@dataclass(frozen=True, slots=True)
class Release:
    """RELEASE SAVEPOINT."""

    name: str


@dataclass(frozen=True, slots=True)
class TableLock:
    """LOCK TABLE in the mode ACCESS SHARE; it does nothing, as no table can be changed."""


@dataclass(frozen=True, slots=True)
class Set:
    """SET; a value of None is DEFAULT, and `local` ends with the transaction."""

    name: str
    value: str | None
    local: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """RESET; of all settings if the name is empty."""

    name: str


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW of a setting."""

    name: str


@dataclass(frozen=True, slots=True)
class Declare:
    """DECLARE CURSOR for the statement that begins at a character of the text."""

    name: str
    start: int
    hold: bool


@dataclass(frozen=True, slots=True)
class Fetch:
    """FETCH or MOVE: relative to the position, or absolute; a count of None is ALL."""

    name: str
    count: int | None
    absolute: bool = False
    move: bool = False


@dataclass(frozen=True, slots=True)
class CloseCursor:
    """CLOSE; of all cursors if the name is empty."""

    name: str


@dataclass(frozen=True, slots=True)
class CopyOut:
    """COPY (statement) TO STDOUT, or COPY of the table `relation`, with options as written."""

    start: int
    stop: int
    relation: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deallocate:
    """DEALLOCATE; of all statements if the name is empty."""

    name: str


@dataclass(frozen=True, slots=True)
class Discard:
    """DISCARD ALL, PLANS, SEQUENCES or TEMP."""

    kind: str


@dataclass(frozen=True, slots=True)
class Unlisten:
    """UNLISTEN; it does nothing."""


@dataclass(frozen=True, slots=True)
class Unlock:
    """SELECT pg_advisory_unlock_all(), which asyncpg's pools send; it does nothing, as there are no locks."""


Command = (
    Begin | Commit | Rollback | Savepoint | Release | Set | Reset | Show
    | Declare | Fetch | CloseCursor | CopyOut | Deallocate | Discard | Unlisten | Unlock
    | TableLock
)  # fmt: skip
